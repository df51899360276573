"""From scores to events: one event an utterance, decided in plain numpy on audio time.

A word's probability is averaged over its last ``smoothing`` frames (before the first frame stand zeros). When the
average has been at ``threshold`` or above for ``patience`` frames in a row, the word fires. It fires again only after a
frame at which both the refractory time is over and the average has fallen below half of the threshold: a score that
stays high, or comes back within the refractory time, is the same utterance. The first ``WARM_UP_S`` of a stream cannot
fire at all: nobody has said a word yet, and the network has heard nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError

Floats = NDArray[np.floating[Any]]
WARM_UP_S = 0.3
REARM = 0.5  # of the threshold; below it a word counts as over


@dataclass(frozen=True)
class Event:
    """A word that was heard: ``time`` in seconds of audio up to the end of the frame that fired, ``score`` there."""

    word: str
    time: float
    score: float


@dataclass(frozen=True)
class Decision:
    """When a word fires: ``smoothing`` and ``patience`` in frames. Raises InputError for what cannot be."""

    threshold: float = 0.5
    smoothing: int = 1
    patience: int = 1
    refractory_s: float = 1.0

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        for name in ("smoothing", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 frame was wanted")
        if not 0 <= self.refractory_s < math.inf:
            raise InputError(f"refractory_s is {self.refractory_s}; 0 seconds or more was wanted")


def check_threshold(value: float) -> None:
    if not 0 < value <= 1:
        raise InputError(f"the threshold is {value}; more than 0 and at most 1 was wanted")


class Decider:
    """The decisions of one stream: ``feed`` probabilities, in pieces of any size, and get what fired.

    ``thresholds (words,)`` may be changed while the stream runs; it holds from the next ``feed`` on.
    """

    def __init__(self, decisions: Sequence[Decision], frame_s: float) -> None:
        self.thresholds = np.array([one.threshold for one in decisions])
        self._smoothing = np.array([one.smoothing for one in decisions])
        self._patience = [one.patience for one in decisions]
        # A hair's breadth off: 0.9 s in frames of 0.03 s are 30 of them and not 31.
        self._refractory = [math.ceil(one.refractory_s / frame_s - 1e-6) for one in decisions]
        self._warm_up = math.ceil(WARM_UP_S / frame_s - 1e-6)
        self._longest = int(self._smoothing.max())
        self.reset()

    def reset(self) -> None:
        """Forget everything but the thresholds."""
        words = len(self._patience)
        self.frames = 0
        self._recent: Floats = np.zeros((self._longest - 1, words))
        self._run = [0] * words  # how many frames in a row were at the threshold
        self._fired = [-1] * words  # the frame of an event that is not over, -1 for none

    def feed(self, probabilities: Floats) -> list[tuple[int, int, float]]:
        """``(frames, words)`` -> ``(frame, word, smoothed score)`` of what fired, in the order of time."""
        count = len(probabilities)
        seen = np.concatenate((self._recent, probabilities))
        self._recent = seen[count:]
        fired: list[tuple[int, int, float]] = []
        if count and (self._busy() or not (seen < self.thresholds).all()):
            fired = self._decide(self._smooth(seen, count))
        self.frames += count
        return fired

    def _busy(self) -> bool:
        return max(self._fired) >= 0 or any(self._run)

    def _smooth(self, seen: Floats, count: int) -> Floats:
        """The mean over each word's last frames, summed anew for every frame: nothing can drift, nor a cut matter."""
        total = seen[self._longest - 1 :].copy()
        for back in range(1, self._longest):
            total += np.where(back < self._smoothing, seen[self._longest - 1 - back :][:count], 0.0)
        return total / self._smoothing

    def _decide(self, scores: Floats) -> list[tuple[int, int, float]]:
        high = scores >= self.thresholds
        high[: max(0, self._warm_up - self.frames)] = False
        return [
            (self.frames + place, word, score)
            for place, (row, above) in enumerate(zip(scores.tolist(), high.tolist(), strict=True))
            for word, score in enumerate(row)
            if self._fires(word, self.frames + place, score, above[word])
        ]

    def _fires(self, word: int, frame: int, score: float, high: bool) -> bool:
        """One word at one frame."""
        if self._fired[word] >= 0:
            waiting = frame < self._fired[word] + self._refractory[word]
            if waiting or score >= REARM * self.thresholds[word]:
                return False
            self._fired[word] = -1
        self._run[word] = self._run[word] + 1 if high else 0
        if self._run[word] < self._patience[word]:
            return False
        self._fired[word], self._run[word] = frame, 0
        return True
