"""Batches of recordings: clips of about equal length together, the same for the same seed and step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from voiceseq.audio.files import read_clip
from voiceseq.datasets.batching import shuffled_rows, step_generator
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.pairs import pad
from voiceseq.errors import InputError


class SpeechBatch(NamedTuple):
    """``samples (batch, n)`` with ``lengths (batch,)``; ``targets (batch, symbols)`` with theirs."""

    samples: Tensor
    lengths: Tensor
    targets: Tensor
    target_lengths: Tensor


@dataclass(frozen=True)
class Spoken:
    """A clip and the numbers of what is said in it."""

    clip: Clip
    target: tuple[int, ...]


Augment = Callable[[np.ndarray, torch.Generator], np.ndarray]


class SpeechBatches:
    """Batches of at most ``seconds`` of audio, made of clips that are alike in length, in a new mixture each pass."""

    def __init__(
        self,
        spoken: Sequence[Spoken],
        sample_rate: int,
        seconds: float,
        seed: int,
        augment: Augment | None = None,
    ) -> None:
        if not spoken:
            raise InputError("no clips to train on: is the manifest empty, or was every text left out?")
        longest = max(item.clip.duration for item in spoken)
        if longest > seconds:
            raise InputError(
                f"a clip of {longest:.1f} s does not fit into a batch of {seconds} s: cut it or raise that"
            )
        self.spoken, self.sample_rate, self.seconds = list(spoken), sample_rate, seconds
        self.seed, self.augment = seed, augment
        self._passes: dict[int, list[list[int]]] = {}
        self.per_pass = len(self._batches(0))

    def __call__(self, step: int) -> SpeechBatch:
        """The batch of this step. A pass has as many batches as the first one, so that a step finds its pass."""
        number, place = divmod(step, self.per_pass)
        batches = self._batches(number)
        order = shuffled_rows(0, len(batches), len(batches), self.seed + number)
        return self.load(batches[order[place % len(batches)]], number)

    def load(self, rows: Sequence[int], number: int = 0) -> SpeechBatch:
        """Read the clips of these rows, augmented as pass ``number`` says."""
        waves = [self._read(row, number) for row in rows]
        lengths = torch.tensor([len(wave) for wave in waves])
        samples = torch.zeros(len(waves), int(lengths.max()))
        for target, wave in zip(samples, waves, strict=True):
            target[: len(wave)] = torch.from_numpy(wave)
        targets, target_lengths = pad([self.spoken[row].target for row in rows])
        return SpeechBatch(samples, lengths, targets, target_lengths)

    def whole(self) -> Iterator[SpeechBatch]:
        """Every clip once, as it is: for validation."""
        for rows in self._batches(0):
            yield self.load(rows)

    def _read(self, row: int, number: int) -> np.ndarray:
        clip = self.spoken[row].clip
        wave = read_clip(clip.audio, clip.offset, clip.duration, self.sample_rate)
        return wave if self.augment is None else self.augment(wave, step_generator(self.seed, number, row))

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
