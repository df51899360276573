"""``make demo``: wake words and speech in recordings that ship; then a small model is trained and looked into."""

import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import voiceseq.data

import voiceseq
from voiceseq.audio.files import read_audio
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.errors import BundleError
from voiceseq.evaluation.plots import plot_attention
from voiceseq.evaluation.trace import plot_trace
from voiceseq.evaluation.words_picture import plot_words
from voiceseq.inference.transcriber import Transcript

FOLDER = Path("runs/demo")
CLIPS = Path(voiceseq.data.__path__[0]) / "clips" / "manifest.jsonl"
BUNDLES = ("six-words", "computer", "alexa")
SPEECH = CLIPS.parent / "speech" / "manifest.jsonl"
SHORT = ("trainer.max_epochs=4", "data.steps_per_epoch=100", "data.validation=512")  # a tenth of the whole recipe
DATES = ("July 20th 1969", "23 April, 1564", "Tuesday, 17 November 2026", "the 1st of may 2001", "9.3.1932")


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    wake_words()
    speech()
    return dates()


# --- wake words ------------------------------------------------------------------------------------------------------


def wake_words() -> None:
    """What the shipped detectors hear in the shipped clips, in words and as a picture; without them it goes on."""
    print("1. Wake words, in three short recordings:\n", flush=True)
    detectors = find_bundles(BUNDLES)
    if not detectors:
        return
    clips = read_manifest(CLIPS)
    for clip in clips:
        said = ", ".join(f"{word} until {end:.2f} s" for word, _, end in clip.extra["words"]) or "no wake word"
        print(f'   {clip.audio.name}: "{clip.text}" ({said})')
        for name, detector in detectors.items():
            audio = read_audio(clip.audio)
            heard = detector.detect(audio.samples, audio.sample_rate)
            told = ", ".join(f"{event.word} at {event.time:.2f} s, score {event.score:.2f}" for event in heard)
            print(f"      {name:10} {told or 'nothing'}")
    name, detector = next(iter(detectors.items()))
    print(f"\n   The scores of {name}, clip after clip: {draw(name, detector, clips)}")
    print(f'   Live: voiceseq listen --model {name}. Your own: voiceseq wakeword new "hey luna"\n')


def find_bundles(names: Iterable[str]) -> dict[str, Any]:
    """Those that are there and open; one line for the others."""
    found, missing = {}, []
    for name in names:
        try:
            found[name] = voiceseq.load(name)
        except BundleError as error:
            missing.append((name, error))
    if missing:
        names = ", ".join(name for name, _ in missing)
        print(f"   left out: {names} ({missing[0][1]})\n")
    return found


def draw(name: str, detector: Any, clips: list[Clip]) -> Path:
    """Each clip is heard by itself, as it was above, and drawn after the one before."""
    start, heard, times, scores = 0.0, [], [], []
    for clip in clips:
        audio = read_audio(clip.audio)
        ends, found = detector.scores(audio.samples, audio.sample_rate)
        events = detector.detect(audio.samples, audio.sample_rate)
        heard += [(event.word, start + event.time) for event in events]
        times.append(start + ends)
        scores.append(found)
        start += audio.duration_s
    columns = dict(zip(detector.words, np.concatenate(scores).T, strict=True))
    thresholds = {word: detector.threshold(word) for word in detector.words}
    title = f"{name}: {', '.join(clip.audio.name for clip in clips)}"
    return plot_trace(np.concatenate(times), columns, thresholds, heard, FOLDER / "wakeword.png", title)


# --- speech ----------------------------------------------------------------------------------------------------------


def speech() -> None:
    """Each shipped recording as the bundle that it is for writes it: its words with their times, and a picture."""
    print("2. Speech to text, in two recordings:\n", flush=True)
    clips = read_manifest(SPEECH)
    transcribers = find_bundles(dict.fromkeys(clip.extra["model"] for clip in clips))
    for clip in clips:
        name = clip.extra["model"]
        if name in transcribers:
            transcript = transcribers[name].transcribe(clip.audio)
            print(f'   {clip.audio.name}: "{clip.text}"\n      {name}: {transcript.text or "nothing"}')
            print(textwrap.fill(timed(transcript), 110, initial_indent=" " * 9, subsequent_indent=" " * 9))
            audio, path = read_audio(clip.audio), FOLDER / f"{clip.id}.png"
            print(f"      {plot_words(audio.samples, audio.sample_rate, transcript.words, path, clip.audio.name)}\n")
    if transcribers:
        print(f"   Yours: voiceseq transcribe FILE --model {' or '.join(transcribers)}\n")


def timed(transcript: Transcript) -> str:
    return ", ".join(f"{one.word}\u00a0{one.start:.2f}-{one.end:.2f}" for one in transcript.words)


# --- dates -----------------------------------------------------------------------------------------------------------


def dates() -> int:
    print("3. Training an encoder-decoder with attention to read dates (about a minute):\n", flush=True)
    command = [sys.executable, "-m", "voiceseq", "train", "experiment=dates", f"runs={FOLDER}", *SHORT]
    if code := subprocess.run(command).returncode:
        return code
    bundle = max(FOLDER.glob("dates/*/bundle"), key=lambda path: path.stat().st_mtime)
    model = voiceseq.load(bundle)
    print("\n4. What it writes, by beam search:\n")
    for text, (best, second) in zip(DATES, model.candidates(DATES, nbest=2), strict=True):
        print(
            f"   {text:28} {best.text}   log p {best.score:6.3f}   (next: {second.text or 'none'} {second.score:6.2f})"
        )
    text = DATES[0]
    output = model.convert([text])[0]
    picture = plot_attention(model.attention(text, output), text, [*output, "end"], FOLDER / "attention.png")
    print(f"\n5. What it looked at while writing: {picture}")
    print(f"\nThe model is the folder {bundle}: voiceseq.load({str(bundle)!r}).convert(['3 May 1999'])")
    return 0


if __name__ == "__main__":
    sys.exit(main())
