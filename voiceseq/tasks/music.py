"""Music: which of the 88 keys sound next, as 88 independent chances given all that sounded before."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.core.masks import lengths_mask
from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.corpora.chorales import KEYS, read_chorales
from voiceseq.models.frames import FrameConfig, FrameNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.rows import Frames, RowData, pad_frames


class ChoraleData(RowData):
    """Piano rolls; in training each is moved up or down by at most ``transpose`` keys, by chance."""

    def __init__(
        self,
        train: str,
        validation: str,
        transpose: int = 5,
        batch: int = 16,
        steps_per_epoch: int = 60,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__(batch, steps_per_epoch, seed, overfit)
        self.rows, self.held_out = read_chorales(train), read_chorales(validation)
        self.transpose = transpose
        self.sources = [{"name": Path(train).name, "licence": licence}]

    def collate(self, rows: Sequence[np.ndarray], step: int | None = None) -> Frames:
        """What is read is one step behind what is wanted: nothing sounds before the first."""
        if step is not None and self.transpose:
            draws = step_generator(self.seed, step, 5)
            moves = torch.randint(-self.transpose, self.transpose + 1, (len(rows),), generator=draws).tolist()
            rows = [np.roll(row, move, 1) for row, move in zip(rows, moves, strict=True)]
        targets, lengths = pad_frames(rows)
        return Frames(functional.pad(targets, (0, 0, 1, 0))[:, :-1], lengths, targets)


class ChoraleTask(SequenceTask):
    """-log P(step), the sum over the 88 keys, in nats a step: the mean over all steps of all chorales."""

    def __init__(self, model: FrameConfig, optimiser: OptimiserConfig, data: ChoraleData) -> None:
        super().__init__(optimiser)
        self.network = FrameNetwork(dataclasses.replace(model, features=KEYS, outputs=KEYS))
        self.sources = data.sources

    def loss(self, batch: Frames) -> tuple[Tensor, int, dict[str, float]]:
        logits, _ = self.network(batch.frames, None, batch.lengths)
        keys = functional.binary_cross_entropy_with_logits(logits, batch.targets, reduction="none").sum(-1)
        valid = lengths_mask(batch.lengths, keys.shape[1])
        return keys[valid].mean(), int(batch.lengths.sum()), {}

    def parts(self) -> BundleParts:
        return BundleParts("composer", dataclasses.asdict(self.network.config), training_data=self.sources)
