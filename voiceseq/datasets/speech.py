"""Batches of recordings: clips of about equal length together, the same for the same seed and step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from voiceseq.audio.augment import Augmented, Augmenter
from voiceseq.audio.files import read_clip
from voiceseq.datasets.batching import shuffled_rows, step_generator
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.pairs import pad
from voiceseq.datasets.teachers import Lessons
from voiceseq.errors import InputError


class Lesson(NamedTuple):
    """What a teacher heard: ``frames (batch, n, size)`` at ``times (batch, n)`` seconds; NaN times are padding."""

    times: Tensor
    frames: Tensor


class SpeechBatch(NamedTuple):
    """``samples (batch, n)`` with ``lengths (batch,)``; ``targets (batch, symbols)`` with theirs."""

    samples: Tensor
    lengths: Tensor
    targets: Tensor
    target_lengths: Tensor
    lesson: Lesson | None = None
    augmented: bool = False


@dataclass(frozen=True)
class Spoken:
    """A clip and the numbers of what is said in it."""

    clip: Clip
    target: tuple[int, ...]


@dataclass(frozen=True)
class Hardening:
    """How clips are made harder: ``share`` of the batches is augmented, none before step ``start``.

    Until ``start`` only the shortest third of the clips is drawn: a CTC network that starts on long or spoilt
    recordings finds that saying nothing is best, and stays there.
    """

    augmenter: Augmenter
    share: float = 0.5
    start: int = 0


class SpeechBatches:
    """Batches of at most ``seconds`` of audio, made of clips that are alike in length, in a new mixture each pass.

    Recordings are decoded once and kept as 16-bit samples (115 MB an hour of speech).
    """

    def __init__(
        self,
        spoken: Sequence[Spoken],
        sample_rate: int,
        seconds: float,
        seed: int,
        hardening: Hardening | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        if not spoken:
            raise InputError("no clips to train on: is the manifest empty, or was every text left out?")
        longest = max(item.clip.duration for item in spoken)
        if longest > seconds:
            raise InputError(
                f"a clip of {longest:.1f} s does not fit into a batch of {seconds} s: cut it or raise that"
            )
        self.spoken, self.sample_rate, self.seconds = list(spoken), sample_rate, seconds
        self.seed, self.hardening, self.lessons = seed, hardening, lessons
        self._decoded: dict[int, np.ndarray] = {}
        self._passes: dict[int, list[list[int]]] = {}
        self.per_pass = len(self._batches(0))

    def __call__(self, step: int) -> SpeechBatch:
        """The batch of this step. A pass has as many batches as the first one, so that a step finds its pass."""
        number, place = divmod(step, self.per_pass)
        batches = self._batches(number)
        hard = self.hardening
        if hard is not None and step < hard.start:
            batches = batches[: -(-len(batches) // 3)]
        order = shuffled_rows(0, len(batches), len(batches), self.seed + number)
        rows = batches[order[place % len(batches)]]
        chance = float(torch.rand((), generator=step_generator(self.seed, step, 11)))
        return self.load(rows, number, augmented=hard is not None and step >= hard.start and chance < hard.share)

    def load(self, rows: Sequence[int], number: int = 0, augmented: bool = False) -> SpeechBatch:
        """Read the clips of these rows, augmented as pass ``number`` says."""
        heard = [self._hear(row, number, augmented) for row in rows]
        lengths = torch.tensor([len(one.samples) for one in heard])
        samples = torch.zeros(len(heard), int(lengths.max()))
        for target, one in zip(samples, heard, strict=True):
            target[: len(one.samples)] = torch.from_numpy(one.samples)
        said = [self.spoken[row].target for row in rows]
        targets, _ = pad([target or (0,) for target in said])  # where nothing is said nothing is read
        target_lengths = torch.tensor([len(target) for target in said])
        lesson = self._lesson(rows, heard) if self.lessons is not None else None
        return SpeechBatch(samples, lengths, targets, target_lengths, lesson, augmented)

    def whole(self) -> Iterator[SpeechBatch]:
        """Every clip once, as it is: for validation."""
        for rows in self._batches(0):
            yield self.load(rows)

    def _hear(self, row: int, number: int, augmented: bool) -> Augmented:
        samples = self._read(row)
        if not augmented or self.hardening is None:
            return Augmented(samples)
        return self.hardening.augmenter(samples, self.sample_rate, step_generator(self.seed, number, row))

    def _read(self, row: int) -> np.ndarray:
        if row not in self._decoded:
            clip = self.spoken[row].clip
            samples = read_clip(clip.audio, clip.offset, clip.duration, self.sample_rate)
            self._decoded[row] = np.clip(np.round(samples * 32768), -32768, 32767).astype(np.int16)
        return self._decoded[row].astype(np.float32) / 32768

    def _lesson(self, rows: Sequence[int], heard: Sequence[Augmented]) -> Lesson:
        """The teacher heard the clips as they were; its times are moved to where things are now."""
        assert self.lessons is not None
        found = [self.lessons[self.spoken[row].clip.id] for row in rows]
        longest = max(len(times) for times, _ in found)
        times = torch.full((len(rows), longest), torch.nan)
        frames = torch.zeros(len(rows), longest, found[0][1].shape[1])
        for place, ((at, taught), one) in enumerate(zip(found, heard, strict=True)):
            delay_s = one.delay_samples / self.sample_rate
            times[place, : len(at)] = torch.from_numpy(at) * one.time_scale + delay_s
            frames[place, : len(at)] = torch.from_numpy(taught)
        return Lesson(times, frames)

    def _batches(self, number: int) -> list[list[int]]:
        """Rows sorted by length with some noise (other neighbours each pass), cut where the seconds are full."""
        if number in self._passes:
            return self._passes[number]
        durations = torch.tensor([item.clip.duration for item in self.spoken])
        noise = torch.rand(len(durations), generator=step_generator(self.seed, number, 7))
        batches: list[list[int]] = [[]]
        longest = 0.0
        for row in (durations * (0.9 + 0.2 * noise)).argsort().tolist():
            longest = max(longest, float(durations[row]))
            if batches[-1] and longest * (len(batches[-1]) + 1) > self.seconds:
                batches.append([])
                longest = float(durations[row])
            batches[-1].append(row)
        self._passes = {number: batches}
        return batches
