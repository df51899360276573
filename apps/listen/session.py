"""Detectors at work on blocks of sound, from a microphone or a file: events, scores, and the last seconds heard."""

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import voiceseq
from voiceseq.audio.microphone import Block
from voiceseq.errors import InputError

if TYPE_CHECKING:
    from voiceseq.inference.detector import Detector, Event, Stream

KEEP_S = 8.0  # the sound that a key press saves
HISTORY = 2000  # frames of scores that the screen may show: a minute


@dataclass(frozen=True)
class Detection:
    """A word that was heard: ``time`` in seconds since listening began, counted in samples."""

    word: str
    time: float
    score: float
    model: str = ""

    def as_json(self) -> dict[str, str | float]:
        return {"word": self.word, "time": round(self.time, 3), "score": round(self.score, 4)}


class Ear:
    """One detector and its stream; a new stream begins at every gap, ``start`` seconds into the session.

    ``models`` says which model each of its words came from.
    """

    def __init__(self, detector: "Detector", models: Mapping[str, str]) -> None:
        self.detector, self.models = detector, models
        self.thresholds = np.array(detector.thresholds, dtype=float)
        self.scores = np.zeros((0, len(detector.words)))  # of the frames that the last samples completed
        self.start = 0.0
        self._stream: Stream | None = None

    def begin(self, start: float, sample_rate: int) -> list[Detection]:
        """Start afresh; what the stream before still had is given."""
        last = self.finish()
        self.start = start
        self._stream = self.detector.stream(sample_rate)
        return last

    def feed(self, samples: NDArray[np.float32]) -> list[Detection]:
        """Call ``begin`` first."""
        assert self._stream is not None
        self._stream.thresholds = self.thresholds
        return self._taken(self._stream, self._stream.feed(samples))

    def finish(self) -> list[Detection]:
        if self._stream is None:
            return []
        stream, self._stream = self._stream, None
        return self._taken(stream, stream.finish())

    def _taken(self, stream: "Stream", events: "Iterable[Event]") -> list[Detection]:
        self.scores = stream.scores
        found = ((event.word, self.start + event.time, event.score) for event in events)
        return [Detection(word, time, score, self.models[word]) for word, time, score in found]


def share_ears(detectors: "Mapping[str, Detector]") -> list[Ear]:
    """One ear for all detectors, so that one backbone serves them; where they cannot be joined, one each."""
    if len(detectors) > 1 and all(isinstance(detector, voiceseq.Detector) for detector in detectors.values()):
        models = {word: name for name, detector in detectors.items() for word in detector.words}
        with contextlib.suppress(InputError):  # a word in two of them, or other frames
            return [Ear(voiceseq.Detector.of(detectors.values()), models)]
    return [Ear(detector, dict.fromkeys(detector.words, name)) for name, detector in detectors.items()]


class Row:
    """A word on the screen: its recent probabilities, and the frames at which it was detected."""

    def __init__(self, ear: Ear, column: int) -> None:
        self.ear, self.column = ear, column
        self.word: str = ear.detector.words[column]
        self.model = ear.models[self.word]
        self.frames = 0  # seen in all; the newest of ``history`` is number frames - 1
        self.history: deque[float] = deque(maxlen=HISTORY)
        self.detected: deque[int] = deque(maxlen=100)

    @property
    def threshold(self) -> float:
        return float(self.ear.thresholds[self.column])

    @threshold.setter
    def threshold(self, value: float) -> None:
        self.ear.thresholds[self.column] = value

    def take(self, detections: list[Detection]) -> None:
        fresh = self.ear.scores[:, self.column].tolist()
        self.history.extend(fresh)
        self.frames += len(fresh)
        if any(found.word == self.word for found in detections):
            self.detected.append(self.frames - 1)


class Session:
    """Several detectors on the same sound.

    Args:
        detectors: by the name of their model.
        threshold: for all words; None leaves each its own.
    """

    def __init__(self, detectors: "Mapping[str, Detector]", threshold: float | None = None) -> None:
        if threshold is not None and not 0 < threshold < 1:
            raise InputError(f"the threshold is {threshold}; more than 0 and less than 1 was wanted")
        self.ears = share_ears(detectors)
        self.rows = [Row(ear, column) for ear in self.ears for column in range(len(ear.detector.words))]
        if threshold is not None:
            for row in self.rows:
                row.threshold = threshold
        self.detections: deque[Detection] = deque(maxlen=1000)
        self.time = 0.0  # of the end of what was heard
        self.sample_rate = 0
        self._kept: deque[NDArray[np.float32]] = deque()

    def hear(self, block: Block) -> list[Detection]:
        """What was detected, in order of time; a block after a gap, or of another rate, starts the detectors afresh."""
        found: list[Detection] = []
        if block.gap_s or block.sample_rate != self.sample_rate:
            found = [one for ear in self.ears for one in ear.begin(block.time, block.sample_rate)]
            self.sample_rate = block.sample_rate
            self._kept.clear()
        for ear in self.ears:
            found += self._noted(ear, ear.feed(block.samples))
        self._keep(block)
        return self._sorted(found)

    def finish(self) -> list[Detection]:
        """The rest, at the end of the sound; the next block begins a new stream."""
        self.sample_rate = 0
        return self._sorted([one for ear in self.ears for one in self._noted(ear, ear.finish())])

    def last_seconds(self) -> NDArray[np.float32]:
        """The last ``KEEP_S`` seconds heard, without a gap."""
        kept = np.concatenate([np.zeros(0, np.float32), *self._kept])
        return kept[-round(KEEP_S * self.sample_rate) :]

    def _noted(self, ear: Ear, found: list[Detection]) -> list[Detection]:
        for row in self.rows:
            if row.ear is ear:
                row.take(found)
        return found

    def _sorted(self, found: list[Detection]) -> list[Detection]:
        found.sort(key=lambda one: one.time)
        self.detections.extend(found)
        return found

    def _keep(self, block: Block) -> None:
        self.time = block.end
        self._kept.append(block.samples)
        while sum(map(len, self._kept)) - len(self._kept[0]) > KEEP_S * self.sample_rate:
            self._kept.popleft()
