"""A recogniser that needs no training: each of its words is a pure tone. It keeps to the contract of the real one.

python tests/spoken_tones.py transcribe --model BUNDLE ...     the real command, with bundles of kind ``recogniser``

A tone that a cut shortens is heard as another word (``cut``), like a real word is. Where somebody speaks is told by
loudness, since no voice detector takes tones for speech.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from voiceseq.audio import cutting
from voiceseq.bundles import save_bundle
from voiceseq.errors import InputError
from voiceseq.inference import transcriber
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Word

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS = (*NUMBERS, "oak", "elm", "ash", "fir", "yew")
FRAME = 320  # samples of the recogniser's frames: 50 Hz
STEP_HZ = 200.0
LENGTH_S = 0.24
GAP_S = 0.06


def speak(words: Sequence[str], gap_s: float = GAP_S, rate: int = SAMPLE_RATE) -> np.ndarray:
    """``"one two"`` as tones with gaps between; ``".5"`` is half a second of silence."""
    parts = []
    for word in words:
        if word.startswith("."):
            parts.append(np.zeros(round(float(word) * rate)))
            continue
        time = np.arange(round(LENGTH_S * rate)) / rate
        parts += [0.3 * np.sin(2 * np.pi * STEP_HZ * (WORDS.index(word) + 2) * time), np.zeros(round(gap_s * rate))]
    return np.concatenate(parts).astype(np.float32)


class ToneRecogniser:
    name, language, longest_s = "tones", "en", 10.0
    decoders = ("greedy", "beam")

    def __init__(self, longest_s: float = 10.0) -> None:
        self.longest_s = longest_s
        self.batches: list[list[int]] = []  # the lengths of the pieces that came together

    def recognise(self, pieces: Sequence[np.ndarray], decoding: Decoding) -> list[list[Hypothesis]]:
        if decoding.decoder not in (None, *self.decoders):
            raise InputError(f"no decoder {decoding.decoder!r}; {', '.join(self.decoders)} were wanted")
        assert all(len(piece) <= (self.longest_s + 0.1) * SAMPLE_RATE for piece in pieces)
        assert all(np.isfinite(piece).all() for piece in pieces)
        self.batches.append([len(piece) for piece in pieces])
        return [self._hypotheses(piece, decoding.nbest) for piece in pieces]

    def _hypotheses(self, piece: np.ndarray, nbest: int) -> list[Hypothesis]:
        words = tuple(hear(piece))
        best = Hypothesis(" ".join(word.word for word in words), -1.0, words)
        return [best, *(Hypothesis(f"{best.text} or {n}", -1.0 - n, words) for n in range(1, nbest))]


def hear(piece: np.ndarray) -> list[Word]:
    """Runs of frames with the same tone in them."""
    frames = piece[: len(piece) // FRAME * FRAME].reshape(-1, FRAME)
    if not len(frames):
        return []
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(FRAME)))
    tones = np.round(spectrum.argmax(1) * SAMPLE_RATE / FRAME / STEP_HZ).astype(int) - 2
    tones[(frames**2).mean(1) < 1e-3] = -1
    edges = np.flatnonzero(np.diff(tones, prepend=-9, append=-9))
    words = []
    for start, end in pairwise(edges.tolist()):
        seconds = (end - start) * FRAME / SAMPLE_RATE
        if 0 <= tones[start] < len(WORDS) and seconds > 0.03:
            word = WORDS[tones[start]] if seconds > LENGTH_S - 0.05 else "cut"
            words.append(Word(word, start * FRAME / SAMPLE_RATE, end * FRAME / SAMPLE_RATE, 0.9))
    return words


class LoudnessActivity:
    """Stands in for ``SpeechActivity``: whatever is loud is speech."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.float32)

    def feed(self, samples: np.ndarray) -> np.ndarray:
        held = np.concatenate((self._held, samples))
        count = len(held) // cutting.FRAME
        self._held = held[count * cutting.FRAME :]
        frames = held[: count * cutting.FRAME].reshape(count, cutting.FRAME)
        return ((frames**2).mean(1) > 1e-3).astype(np.float32)

    def finish(self) -> np.ndarray:
        left = len(self._held)
        return self.feed(np.zeros(cutting.FRAME - left, np.float32)) if left else np.zeros(0, np.float32)


class ToneBundle:
    """What a bundle of the kind opens."""

    @classmethod
    def from_bundle(cls, bundle) -> ToneRecogniser:
        return ToneRecogniser()


def tone_bundle(path) -> None:
    import torch

    save_bundle(path, kind="recogniser", config={}, weights={"none": torch.zeros(1)}, name="tones")


def use_tones() -> None:
    """Bundles of kind ``recogniser`` open the recogniser of tones, in this process."""
    transcriber.RECOGNISERS["recogniser"] = "spoken_tones:ToneBundle"
    cutting.SpeechActivity = LoudnessActivity


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    importlib.import_module("spoken_tones").use_tones()
    from voiceseq.cli.main import main

    sys.exit(main())
