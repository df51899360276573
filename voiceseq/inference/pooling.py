"""Pieces of many files, recognised in batches of about one length; one that fails takes no other with it."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from voiceseq.audio.cutting import Piece
from voiceseq.errors import VoiceseqError
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Recogniser, Samples
from voiceseq.inference.transcripts import Answer

BATCHES = 8  # that wait, so that pieces of one length find each other


@dataclass(frozen=True)
class Failure:
    """A file that could not be transcribed, and why; ``details`` is the traceback."""

    file: str
    reason: str
    details: str = ""


@dataclass
class Job:
    """The ``number``-th file on its way: where its pieces lie, and what was heard in each once that is known."""

    name: str
    number: int = 0
    apart: bool = False  # whether its channels are
    places: list[tuple[int, float, float, float | None]] = field(default_factory=list)  # channel, start, end, cut
    heard: dict[int, list[Hypothesis]] = field(default_factory=dict)
    duration: float = 0.0
    whole_s: float | None = None  # what it says its duration is
    warnings: list[str] = field(default_factory=list)
    failure: Failure | None = None
    read: bool = False

    @property
    def done(self) -> bool:
        return self.failure is not None or (self.read and len(self.heard) == len(self.places))

    def add(self, channel: int, piece: Piece) -> "Waiting":
        self.places.append((channel, piece.start, piece.start + piece.duration_s, piece.cut))
        return Waiting(self, len(self.places) - 1, piece.samples)

    def fail(self, error: Exception) -> None:
        known = isinstance(error, VoiceseqError)
        reason = str(error) if known else f"{self.name}: unexpected {type(error).__name__}: {error}"
        self.failure = Failure(self.name, reason, "".join(traceback.format_exception(error)))

    def answers(self) -> dict[int, list[Answer]]:
        """By channel, in order of time."""
        found: dict[int, list[Answer]] = {}
        for number, (channel, start, end, cut) in enumerate(self.places):
            found.setdefault(channel, []).append(Answer(start, end, cut, self.heard[number]))
        return found


@dataclass(frozen=True)
class Waiting:
    """A piece that waits to be recognised: the ``place``-th of its job."""

    job: Job
    place: int
    samples: Samples


class Pool:
    """``add`` pieces; when ``BATCHES`` batches of them wait they are sorted by length and recognised.

    Args:
        batch_s: seconds of sound, filled up to the longest piece, that are recognised at once; 0 is one by one.
        raising: an error of the recogniser is raised, and not noted in the job.
    """

    def __init__(self, recogniser: Recogniser, decoding: Decoding, batch_s: float, raising: bool = False) -> None:
        self.recogniser, self.decoding, self.batch_s, self.raising = recogniser, decoding, batch_s, raising
        self.recognised_s = 0.0
        self._waiting: list[Waiting] = []
        self.waiting_s = 0.0

    def add(self, one: Waiting | None) -> Iterator[None]:
        """Yields after each batch."""
        if one is None:
            return
        self._waiting.append(one)
        self.waiting_s += len(one.samples) / SAMPLE_RATE
        if self.waiting_s >= BATCHES * self.batch_s:
            yield from self.empty()

    def empty(self) -> Iterator[None]:
        """Recognise all that wait; yields after each batch."""
        waiting, self._waiting = self._waiting, []
        for batch in make_batches(waiting, self.batch_s):
            self._recognise([one for one in batch if one.job.failure is None])
            seconds = sum(len(one.samples) for one in batch) / SAMPLE_RATE
            self.recognised_s += seconds
            self.waiting_s -= seconds
            yield

    def _recognise(self, batch: Sequence[Waiting]) -> None:
        if not batch:
            return
        try:
            found = self.recogniser.recognise([one.samples for one in batch], self.decoding)
        except Exception as error:  # whatever one piece does, the others go on
            if self.raising:
                raise
            if len(batch) == 1:
                batch[0].job.fail(error)
            else:
                for one in batch:
                    self._recognise([one])
            return
        for one, hypotheses in zip(batch, found, strict=True):
            one.job.heard[one.place] = hypotheses


def make_batches(waiting: Sequence[Waiting], batch_s: float) -> Iterator[list[Waiting]]:
    """Pieces of about one length together, at most ``batch_s`` seconds when they are filled up to the longest."""
    batch: list[Waiting] = []
    for one in sorted(waiting, key=lambda one: len(one.samples)):
        if batch and (len(batch) + 1) * len(one.samples) > batch_s * SAMPLE_RATE:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch
