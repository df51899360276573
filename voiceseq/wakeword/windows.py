"""Batches for a head: windows of the backbone's frames, with the word and without it.

A row is one of: an example of the word; talk, noise or music from anywhere; a *hard* window, on which an earlier
head gave a false alarm; something that sounds alike. What comes when is a function of the seed and the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.datasets.synthesis import Ends
from voiceseq.tasks.trigger_loss import FrameBatch

Frames = NDArray[np.floating[Any]]


class Example(NamedTuple):
    """``frames (time, size)`` of a clip and when each trigger in it ends."""

    frames: Frames
    ends: Ends = ()


class Spot(NamedTuple):
    """A frame of a stream where a head was sure of ``word`` and wrong."""

    stream: int
    frame: int
    word: int
    score: float


@dataclass
class Windows:
    """``windows(step)`` is the batch of a step; ``hard`` grows by mining.

    Args:
        examples: clips with the words; ``alike``: clips of what sounds like them.
        streams: hours of frames without the words.
        shares: of the rows: examples, hard spots, alike; the rest is from anywhere in the streams.
        length: frames of a window, ``frame_s`` seconds each.
    """

    examples: Sequence[Example]
    streams: Sequence[Frames]
    alike: Sequence[Frames] = ()
    hard: list[Spot] = field(default_factory=list)
    shares: tuple[float, float, float] = (0.34, 0.33, 0.1)
    length: int = 110
    frame_s: float = 0.03
    batch: int = 96
    seed: int = 1

    def __call__(self, step: int) -> FrameBatch:
        rng = np.random.default_rng((self.seed, step))
        counts = [round(share * self.batch) for share in self.shares]
        rows = [self._example(rng) for _ in range(counts[0])]
        rows += [self._hard(rng) for _ in range(counts[1] if self.hard else 0)]
        rows += [self._alike(rng) for _ in range(counts[2] if self.alike else 0)]
        rows += [self._anywhere(rng) for _ in range(self.batch - len(rows))]
        return gather(rows)

    def _example(self, rng: np.random.Generator) -> Example:
        """A window that holds the end of one trigger and what comes after it; other triggers may be in it."""
        frames, ends = self.examples[int(rng.integers(len(self.examples)))]
        _, end_s = ends[int(rng.integers(len(ends)))]
        last = min(len(frames), int(end_s / self.frame_s) + int(rng.integers(12, 40)))
        first = max(0, last - self.length)
        since_s, until_s = first * self.frame_s, last * self.frame_s
        return Example(frames[first:last], tuple((w, at - since_s) for w, at in ends if since_s <= at < until_s))

    def _hard(self, rng: np.random.Generator) -> Example:
        spot = self.hard[int(rng.integers(len(self.hard)))]
        stream = self.streams[spot.stream]
        last = min(len(stream), spot.frame + int(rng.integers(5, 40)))
        return Example(stream[max(0, last - self.length) : last])

    def _alike(self, rng: np.random.Generator) -> Example:
        return Example(self.alike[int(rng.integers(len(self.alike)))][-self.length :])

    def _anywhere(self, rng: np.random.Generator) -> Example:
        at = int(rng.integers(self._until[-1]))
        stream = int(np.searchsorted(self._until, at, side="right"))
        frames = self.streams[stream]
        first = max(0, min(at - int(self._until[stream]) + len(frames), len(frames) - self.length))
        return Example(frames[first : first + self.length])

    @cached_property
    def _until(self) -> NDArray[np.int64]:
        return np.cumsum([len(frames) for frames in self.streams])


def gather(rows: Sequence[Example]) -> FrameBatch:
    """Rows of any lengths as one batch."""
    lengths = torch.tensor([len(row.frames) for row in rows])
    padded = torch.zeros(len(rows), int(lengths.max()), rows[0].frames.shape[1])
    for target, row in zip(padded, rows, strict=True):
        target[: len(row.frames)] = torch.from_numpy(np.asarray(row.frames, np.float32))
    return FrameBatch(padded, lengths, tuple(row.ends for row in rows))
