"""Make the clips that ship for ``make demo``: synthetic voices over the faint noise of a room.

    python benchmarks/clips.py [--voices FOLDER] [--out data/clips]

The voice is Piper's en_US-libritts_r-medium (``voiceseq voices`` tells how to get it). Beside the clips goes
manifest.jsonl with what is said, and in ``words`` when each wake word is said, in seconds; in the folder speech/ are
those for recognition, whose manifest names the bundle (``model``) that they are for.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

from voiceseq.audio.effects import telephone
from voiceseq.audio.files import read_audio, write_audio
from voiceseq.audio.noises import shaped
from voiceseq.audio.resample import resample
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.datasets.voices import Manner, Sentence, Voice, find_voices, utter

RATE, CALL_RATE, LEAD_S, GAP_S = 16_000, 8_000, 0.6, 0.45
LEVEL, FLOOR_DB = 0.4, -64.0  # of the voices, and of the noise below full scale
# what is said, by which speaker of the voice; a sentence with a wake word has it in the middle
CLIPS: dict[str, list[tuple[Sentence, int, str]]] = {
    "computer": [
        (Sentence("computer", "It must be late by now,", ", what time is it?"), 60, "computer"),
        (Sentence("We can still catch the last bus."), 60, ""),
    ],
    "two-words": [
        (Sentence("Alexa", "", ", turn on the kitchen light."), 118, "alexa"),
        (Sentence("Jarvis", "Thank you, and", ", is it going to rain?"), 400, "jarvis"),
    ],
    "no-words": [
        (Sentence("The commuters were late again."), 118, ""),
        (Sentence("Alex knew why, but nobody asked him."), 333, ""),
    ],
}


Line = tuple[Sentence, int, str]
# clips for recognition: the bundle that they are for (harper-valley: over the telephone), and their lines
SPEECH: dict[str, tuple[str, list[Line]]] = {
    "mill": (
        "english-small",
        [
            (Sentence("The old mill stood beside the river, and nobody remembered who had built it."), 60, ""),
            (Sentence("On quiet evenings the children could still hear the great wheel turning."), 60, ""),
        ],
    ),
    "bank-call": (
        "harper-valley",
        [
            (Sentence("Hello, this is Harper Valley National Bank."), 201, ""),
            (Sentence("My name is Linda. How can I help you today?"), 201, ""),
            (Sentence("Hi, my name is John Garcia. I would like to check my account balance."), 400, ""),
        ],
    ),
}


def make(name: str, lines: list[tuple[Sentence, int, str]], voices: list[Voice], out: Path, seed: int) -> Clip:
    """One clip: its lines one after the other, noise under all of it."""
    pieces, words, texts = [np.zeros(round(LEAD_S * RATE), np.float32)], [], []
    for sentence, speaker, word in lines:
        said = utter(sentence, voices[speaker], Manner(seed=seed), RATE)
        start_s = sum(map(len, pieces)) / RATE
        if word:
            assert said.phrase is not None
            words.append([word, *(round(start_s + time, 2) for time in said.phrase)])
        texts.append(sentence.text)
        pieces += [said.samples * (LEVEL / np.abs(said.samples).max()), np.zeros(round(GAP_S * RATE), np.float32)]
    samples = np.concatenate(pieces)
    noise = shaped(np.random.default_rng(seed), len(samples), lambda hz: np.maximum(hz, 20.0) ** -0.5, RATE)
    samples += (10 ** (FLOOR_DB / 20) * noise).astype(np.float32)
    path = write_audio(out / f"{name}.flac", samples, RATE)
    who = "+".join(sorted({voices[speaker].speaker for _, speaker, _ in lines}))
    return Clip(name, path, round(len(samples) / RATE, 4), 0.0, " ".join(texts), who, {"words": words})


def make_speech(name: str, voices: list[Voice], out: Path, seed: int) -> Clip:
    """A clip for recognition; a call is what a telephone leaves of it, at 8 kHz."""
    model, lines = SPEECH[name]
    clip = make(name, lines, voices, out, seed)
    if model == "harper-valley":
        call = resample(telephone(read_audio(clip.audio).samples, RATE), RATE, CALL_RATE)
        write_audio(clip.audio, call, CALL_RATE)
        clip = dataclasses.replace(clip, duration=round(len(call) / CALL_RATE, 4))
    return dataclasses.replace(clip, extra={"model": model})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", type=Path, metavar="FOLDER", help="where the voice lies")
    parser.add_argument("--out", type=Path, default=Path("data/clips"))
    args = parser.parse_args()
    voices = [voice for voice in find_voices(args.voices) if "libritts_r" in voice.name]
    if not voices:
        sys.exit("Piper's libritts_r voice was not found: `voiceseq voices` tells how to get it")
    (args.out / "speech").mkdir(parents=True, exist_ok=True)
    clips = [make(name, lines, voices, args.out, seed) for seed, (name, lines) in enumerate(CLIPS.items())]
    write_manifest(args.out / "manifest.jsonl", clips)
    said = [make_speech(name, voices, args.out / "speech", seed) for seed, name in enumerate(SPEECH, len(CLIPS))]
    write_manifest(args.out / "speech" / "manifest.jsonl", said)
    for clip in (*clips, *said):
        print(f"{clip.audio}  {clip.duration:.1f} s  {clip.audio.stat().st_size / 1000:.0f} kB  {clip.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
