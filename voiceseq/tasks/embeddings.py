"""Training word embeddings: a text as sentences, a part of it a step."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.datasets.batching import training_loader
from voiceseq.errors import ConfigError
from voiceseq.models.embeddings import Cooccurrence, EmbeddingConfig, EmbeddingNetwork, Passage, cooccurrence
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.files import read_text
from voiceseq.text.vocabulary import Vocabulary


class EmbeddingData(pl.LightningDataModule):
    """A text file, a sentence or paragraph a line; words seen less than ``minimum_count`` times are left out of it.

    An epoch is one pass in ``steps_per_epoch`` parts. Raises InputError for a file that does not serve.
    """

    def __init__(
        self,
        train: str,
        lower: bool = True,
        minimum_count: int = 5,
        steps_per_epoch: int = 100,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__()
        text = read_text(train)
        lines = (text.lower() if lower else text).splitlines()
        self.vocabulary = Vocabulary.from_text(lines, "word", minimum_count)
        numbers = {word: number for number, word in enumerate(self.vocabulary.symbols)}
        rows = [[numbers[word] for word in line.split() if word in numbers] for line in lines]
        self.starts = np.cumsum([0, *map(len, rows)])
        self.tokens = np.array([number for row in rows for number in row])
        self.counts = torch.from_numpy(np.bincount(self.tokens, minlength=len(numbers)))
        self.steps_per_epoch, self.seed, self.overfit = steps_per_epoch, seed, overfit
        self.sources = [{"name": Path(train).name, "licence": licence}]
        self.pairs: Cooccurrence | None = None

    def count_pairs(self, window: int) -> None:
        """For GloVe: the parts will be of the counts of neighbours, shuffled."""
        pairs = cooccurrence(Passage(self.tokens, self.starts), window, len(self.vocabulary))
        order = np.random.default_rng(self.seed).permutation(len(pairs.rows))
        self.pairs = Cooccurrence(*(side[order] for side in pairs))

    def make(self, step: int) -> tuple[int, Passage | Cooccurrence]:
        part = step % self.steps_per_epoch
        if self.pairs is not None:
            return step, Cooccurrence(*(np.array_split(side, self.steps_per_epoch)[part] for side in self.pairs))
        edges = np.searchsorted(self.starts, np.linspace(0, len(self.tokens), self.steps_per_epoch + 1))
        starts = self.starts[edges[part] : edges[part + 1] + 1]
        return step, Passage(self.tokens[starts[0] : starts[-1]], starts - starts[0])

    def train_dataloader(self) -> DataLoader[Any]:
        return training_loader(self.make, self.steps_per_epoch, overfit=self.overfit)


class EmbeddingTask(SequenceTask):
    """The optimiser's learning rate is that of the loops, which are their own gradient descent; a full softmax is
    descended by the optimiser itself. Raises ConfigError for more than one process."""

    def __init__(self, model: EmbeddingConfig, optimiser: OptimiserConfig, data: EmbeddingData) -> None:
        super().__init__(optimiser)
        self.automatic_optimization = False
        self.network = EmbeddingNetwork(
            dataclasses.replace(model, words=len(data.vocabulary)), data.counts, seed=data.seed
        )
        self.vocabulary, self.sources, self.seed = data.vocabulary, data.sources, data.seed
        if model.method == "glove":
            data.count_pairs(model.window)

    def training_step(self, batch: tuple[int, Any], batch_idx: int) -> None:  # type: ignore[override]
        if self.trainer.world_size > 1:
            raise ConfigError("word embeddings are learned by one process; give trainer.devices=1")
        optimiser: Any = self.optimizers()
        step, part = batch
        if self.network.config.output == "softmax" and not isinstance(part, Cooccurrence):
            optimiser.zero_grad()
            self.manual_backward(self.network.softmax_loss(part))
        else:
            self.network.learn(part, optimiser.param_groups[0]["lr"], self.seed * 1_000_003 + step)
        optimiser.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.network.config.output == "softmax":
            return super().configure_optimizers()
        return torch.optim.SGD(self.network.parameters(), lr=self.optimiser.learning_rate)  # only its rate is used

    def loss(self, batch: Any) -> tuple[Tensor, int, dict[str, float]]:
        raise NotImplementedError("what word embeddings are good for is measured, not validated")

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        return BundleParts("embeddings", config, {"words": self.vocabulary.to_json()}, training_data=self.sources)
