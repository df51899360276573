"""All synthesisers behind one door: which voices there are, and what they say, trimmed and at one rate."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from voiceseq.audio.resample import resample
from voiceseq.datasets.voices.classic import Espeak, Festival, Flite, Hibari, Pico
from voiceseq.datasets.voices.kokoro import Kokoro
from voiceseq.datasets.voices.piper import Piper
from voiceseq.datasets.voices.voice import Engine, Manner, Samples, Sentence, Span, Speech, Voice
from voiceseq.errors import InputError

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (Piper(), Kokoro(), Hibari(), Espeak(), Pico(), Flite(), Festival())
}
QUIET_DB = 30.0  # below the loudest 10 ms: silence; some speakers of Piper's voices breathe at -35
SLACK_S = 0.06  # the sound may begin and end this much outside of what the synthesiser tells
STEP_S, WINDOW_S = 0.005, 0.01
PEAK = 0.7


@dataclass(frozen=True)
class Utterance:
    """What was said: ``samples (n,)``, hardly any silence around the speech; times in seconds from the first sample.

    ``phrase`` is when the phrase was said, None where the synthesiser does not tell.
    """

    samples: Samples
    sample_rate: int
    speech: Span
    phrase: Span | None


def voice_folders(folder: str | Path | None = None) -> list[Path]:
    """Where model files are looked for: the one given, else $VOICESEQ_VOICES, else the user's data folder."""
    if folder is not None:
        if not Path(folder).exists():
            raise InputError(f"no folder {folder}: give one that holds voices, or leave it out")
        return [Path(folder)]
    named = os.environ.get("VOICESEQ_VOICES")
    if named:
        return [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return [Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "voiceseq/voices"]


def find_voices(folder: str | Path | None = None) -> list[Voice]:
    """Every voice of every installed synthesiser that speaks English, neural ones first."""
    folders = [path for path in voice_folders(folder) if path.exists()]
    return [voice for engine in ENGINES.values() for voice in engine.find(folders)]


def speak(text: str, voice: Voice, manner: Manner | None = None, **changes: object) -> tuple[Samples, int]:
    """Samples ``(n,)`` and their rate, as the synthesiser gives them: ``speak("hello", voice, speed=1.2, seed=3)``.

    ``changes`` are fields of ``Manner``. Raises ``InputError`` for a text with nothing to say or a blend of two models.
    """
    said = _say(Sentence(text), voice, replace(manner or Manner(), **changes))  # type: ignore[arg-type]
    return said.samples, said.sample_rate


def utter(
    sentence: Sentence, voice: Voice, manner: Manner | None = None, sample_rate: int = 16_000, margin_s: float = 0.05
) -> Utterance:
    """Say a sentence: at one rate and peak, silence trimmed to ``margin_s``, with the times of speech and phrase."""
    said = _say(sentence, voice, manner or Manner())
    samples = resample(said.samples, said.sample_rate, sample_rate)
    start, end = speech_bounds(samples, sample_rate)
    if said.spans:
        told = said_between(said.spans)
        start = max(start, round((told[0] - SLACK_S) * sample_rate))
        end = min(end, round((told[1] + SLACK_S) * sample_rate))
    if end <= start:
        raise InputError(f"{voice.label} stays silent at {sentence.text[:60]!r}: leave this voice out")
    margin = round(margin_s * sample_rate)
    first, last = max(0, start - margin), min(len(samples), end + margin)
    kept = np.asarray(samples[first:last] * (PEAK / np.abs(samples).max()), dtype=np.float32)
    speech = (start - first) / sample_rate, (end - first) / sample_rate
    phrase = None
    if said.spans:
        phrase = said.spans[1][0] - first / sample_rate, said.spans[1][1] - first / sample_rate
    return Utterance(kept, sample_rate, speech, phrase_bounds(sentence, speech, phrase))


def said_between(spans: Sequence[Span]) -> Span:
    """From the first word of any piece to the last."""
    said = [span for span in spans if span[1] > span[0]]
    return said[0][0], said[-1][1]


def phrase_bounds(sentence: Sentence, speech: Span, phrase: Span | None) -> Span | None:
    """The phrase's times: the sound itself tells an end that is the sentence's, the synthesiser the others."""
    alone_before, alone_after = not _words(sentence.before), not _words(sentence.after)
    if phrase is None:
        return speech if alone_before and alone_after else None
    start = speech[0] if alone_before else max(phrase[0], speech[0])
    end = speech[1] if alone_after else min(phrase[1], speech[1])
    return start, end


def speech_bounds(samples: Samples, sample_rate: int) -> tuple[int, int]:
    """First and last sample of what is louder than ``QUIET_DB`` below the loudest 10 ms; (0, 0) for silence."""
    step, window = round(STEP_S * sample_rate), round(WINDOW_S * sample_rate)
    sums = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    starts = np.arange(0, max(len(samples) - window, 0) + 1, step)
    energies = sums[np.minimum(starts + window, len(samples))] - sums[starts]
    loud = np.flatnonzero(energies > energies.max(initial=0.0) * 10 ** (-QUIET_DB / 10))
    if not len(loud):
        return 0, 0
    inset = (window - step) // 2  # the middle of the first and last loud window
    return int(starts[loud[0]] + inset), int(min(starts[loud[-1]] + window - inset, len(samples)))


def _words(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def _say(sentence: Sentence, voice: Voice, manner: Manner) -> Speech:
    if not _words(sentence.phrase):
        raise InputError(f"nothing to say in {sentence.phrase[:60]!r}: give words")
    if not 0.2 <= manner.speed <= 5:
        raise InputError(f"speed {manner.speed} is out of range: give 0.2 to 5, 1 is the voice's own")
    if manner.other is not None and (manner.other.engine, manner.other.path) != (voice.engine, voice.path):
        raise InputError(f"{voice.label} and {manner.other.label} are of different models: blends need one model")
    if voice.engine not in ENGINES:
        raise InputError(f"no synthesiser {voice.engine!r}: there are {', '.join(ENGINES)}")
    return ENGINES[voice.engine].say(sentence.pieces, voice, manner)
