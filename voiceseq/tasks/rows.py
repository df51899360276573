"""What the small tasks over frames share: rows by step number, and an encoder-decoder whose source is frames."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from voiceseq.core.losses import cross_entropy
from voiceseq.datasets.batching import own_share, shuffled_rows, training_loader
from voiceseq.datasets.pairs import PairBatch, pad
from voiceseq.models.frames import FrameConfig, FrameNetwork, FramesToText
from voiceseq.models.seq2seq import Seq2SeqConfig
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.transduce import PairData, TransduceTask
from voiceseq.text.vocabulary import Vocabulary


class Frames(NamedTuple):
    """``frames (batch, time, features)`` with ``lengths`` and ``targets``: a class a row, or what each frame wants."""

    frames: Tensor
    lengths: Tensor
    targets: Tensor


def pad_frames(rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """``(batch, longest, features)`` and the lengths."""
    tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
    return pad_sequence(tensors, batch_first=True), torch.tensor([len(row) for row in rows])


class RowData(pl.LightningDataModule):
    """Rows that are shuffled anew in each pass; subclasses fill ``rows`` and ``held_out`` and say how they collate."""

    def __init__(self, batch: int, steps_per_epoch: int, seed: int, overfit: bool) -> None:
        super().__init__()
        self.batch, self.steps_per_epoch, self.seed, self.overfit = batch, steps_per_epoch, seed, overfit
        self.rows: Sequence[Any] = []
        self.held_out: Sequence[Any] = []
        self.sources: list[dict[str, str]] = []

    def collate(self, rows: Sequence[Any], step: int | None = None) -> Any:
        """A batch; ``step`` is None in validation, where nothing is left to chance."""
        raise NotImplementedError

    def make(self, step: int, rank: int = 0, world: int = 1) -> Any:
        numbers = own_share(shuffled_rows(step, len(self.rows), self.batch, self.seed), rank, world)
        return self.collate([self.rows[number] for number in numbers], step)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        return training_loader(partial(self.make, rank=rank, world=world), self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        parts = [self.held_out[i : i + 256] for i in range(0, len(self.held_out), 256)]
        return DataLoader([self.collate(part) for part in parts], batch_size=None)  # type: ignore[arg-type]


class ClassData(RowData):
    """Rows are ``(frames, class)``; ``classes`` are their names."""

    classes: tuple[str, ...] = ()

    def collate(self, rows: Sequence[Any], step: int | None = None) -> Frames:
        frames, lengths = pad_frames([row[0] for row in rows])
        return Frames(frames, lengths, torch.tensor([row[1] for row in rows]))


class ClassTask(SequenceTask):
    """Many-to-one: the class of a sequence of frames; validation tells the share of right ones."""

    def __init__(self, model: FrameConfig, optimiser: OptimiserConfig, data: ClassData) -> None:
        super().__init__(optimiser)
        features = np.shape(data.rows[0][0])[-1]
        self.network = FrameNetwork(dataclasses.replace(model, features=features, outputs=len(data.classes)))
        self.classes, self.sources = data.classes, data.sources

    def loss(self, batch: Frames) -> tuple[Tensor, int, dict[str, float]]:
        logits, _ = self.network(batch.frames, None, batch.lengths)
        right = float((logits.argmax(-1) == batch.targets).float().mean())
        return cross_entropy(logits[:, None], batch.targets[:, None]), len(batch.targets), {"right": right}

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        vocabularies = {"classes": Vocabulary(self.classes, "word").to_json()}
        return BundleParts("frame-classifier", config, vocabularies, training_data=self.sources)


class FrameTextData(PairData):
    """Pairs of frames ``(time, features)`` and a text; ``kinds`` are the names of the features, where they have any."""

    features: int
    kinds: tuple[str, ...] = ()

    def collate(self, pairs: Any) -> PairBatch:
        frames, lengths = pad_frames([frames for frames, _ in pairs])
        bos, eos = self.target.special("bos"), self.target.special("eos")
        written = [self.target.encode(text) for _, text in pairs]
        inputs, target_lengths = pad([[bos, *row] for row in written])
        return PairBatch(frames, lengths, inputs, pad([[*row, eos] for row in written])[0], target_lengths)


class FrameTextTask(TransduceTask):
    """Vector, or image, to text: the loss and the measure of every encoder-decoder."""

    def __init__(self, model: Seq2SeqConfig, optimiser: OptimiserConfig, data: FrameTextData) -> None:
        super().__init__(model, optimiser, data)
        self.network = FramesToText(dataclasses.replace(model, source=data.features, target=len(data.target)))
        self.kinds = data.kinds

    def parts(self) -> BundleParts:
        parts = super().parts()
        named = {"kinds": Vocabulary(self.kinds, "word").to_json()} if self.kinds else {}
        return dataclasses.replace(parts, vocabularies={"target": self.target.to_json()} | named)
