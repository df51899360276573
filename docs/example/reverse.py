"""A new task in one file: learn to write a word backwards. See docs/new-task.md.

PYTHONPATH=docs/example voiceseq train --config-dir docs/example/conf experiment=reverse
"""

import dataclasses
import random
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.core.losses import cross_entropy
from voiceseq.datasets.batching import own_share, training_loader
from voiceseq.datasets.pairs import PairBatch, pair_batch
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def pair(seed: int, number: int) -> tuple[str, str]:
    """Word ``number`` of the endless list of this seed, and the same backwards."""
    chance = random.Random(f"{seed}-{number}")
    word = "".join(chance.choices(LETTERS, k=chance.randint(3, 8)))
    return word, word[::-1]


class ReverseData(pl.LightningDataModule):
    """Batches by step number for training, a fixed list of other words for validation."""

    def __init__(self, batch: int = 64, steps_per_epoch: int = 100, seed: int = 1) -> None:
        super().__init__()
        self.batch, self.steps_per_epoch, self.seed = batch, steps_per_epoch, seed
        self.source = Vocabulary.from_text(LETTERS)
        self.target = Vocabulary.from_text(LETTERS, specials=("bos", "eos"))

    def make(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        numbers = own_share(list(range(step * self.batch, (step + 1) * self.batch)), rank, world)
        return pair_batch([pair(self.seed, number) for number in numbers], self.source, self.target)

    def train_dataloader(self) -> DataLoader[Any]:
        make = partial(self.make, rank=self.trainer.global_rank, world=self.trainer.world_size)
        return training_loader(make, self.steps_per_epoch)

    def val_dataloader(self) -> DataLoader[Any]:
        pairs = [pair(self.seed + 1, number) for number in range(200)]
        return DataLoader([pair_batch(pairs, self.source, self.target)], batch_size=None)


class ReverseTask(SequenceTask):
    """What is trained: a network, its loss, and what the bundle holds."""

    def __init__(self, model: Seq2SeqConfig, optimiser: OptimiserConfig, data: ReverseData) -> None:
        super().__init__(optimiser)
        self.network = seq2seq(dataclasses.replace(model, source=len(data.source), target=len(data.target)))
        self.source, self.target = data.source, data.target

    def loss(self, batch: PairBatch) -> tuple[Tensor, int, dict[str, float]]:
        logits = self.network(batch.source, batch.inputs, batch.source_lengths, batch.target_lengths)
        valid = torch.arange(batch.targets.shape[1]) < batch.target_lengths[:, None]
        right = float((logits.argmax(-1) == batch.targets)[valid].float().mean())
        count = int(batch.target_lengths.sum())
        return cross_entropy(logits, batch.targets, batch.target_lengths), count, {"letters right": right}

    def parts(self) -> BundleParts:
        vocabularies = {"source": self.source.to_json(), "target": self.target.to_json()}
        data = [{"name": "random words", "licence": "none needed"}]
        return BundleParts(
            "transducer",
            dataclasses.asdict(self.network.config),
            vocabularies,
            {"beam": 4, "alpha": 0.0, "max_length": 20},
            data,
        )
