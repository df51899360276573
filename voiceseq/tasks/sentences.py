"""What the tasks on sentences share: words as numbers, vectors that were learned elsewhere, batches of like length."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from voiceseq.bundles import load_bundle
from voiceseq.datasets.batching import training_loader
from voiceseq.datasets.sentences import (
    GroupedRows,
    SentenceCoder,
    letter_vocabulary,
    sorted_parts,
    word_vocabulary,
)
from voiceseq.errors import ConfigError
from voiceseq.text.vectors import read_vectors
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.text.words import normal_form

Rows = Sequence[tuple[list[str], Any]]  # words and what they are labelled with: numbers


class SentenceData(pl.LightningDataModule):
    """Labelled sentences; ``vectors`` is a file of word vectors, whose words are all known to the network.

    ``vocabulary`` is a bundle whose words and letters are used instead of those of the data: what was learned on them
    can only be handed on with them. Words seen fewer than ``minimum_count`` times in training are unknown.
    """

    def __init__(
        self,
        train: Rows,
        validation: Rows,
        batch: int,
        steps_per_epoch: int,
        seed: int = 1,
        overfit: bool = False,
        vocabulary: str | None = None,
        vectors: str | None = None,
        minimum_count: int = 2,
        spelling: bool = False,
    ) -> None:
        super().__init__()
        self.train_rows, self.validation_rows = train, validation
        table = read_vectors(vectors) if vectors else None
        self.vectors = (
            {normal_form(word): row for word, row in zip(table.words, table.matrix, strict=True)} if table else {}
        )
        sentences = [words for words, _ in train]
        given = load_bundle(vocabulary).vocabularies if vocabulary else {}
        words, letters = (Vocabulary.from_json(given[name]) if name in given else None for name in ("words", "letters"))
        words = words or word_vocabulary(sentences, minimum_count, known=self.vectors)
        letters = (letters or letter_vocabulary(sentences)) if spelling else None
        self.coder = SentenceCoder(words, letters)
        self.rows = GroupedRows([len(words) for words, _ in train], batch, seed)
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        self.sources: list[dict[str, str]] = []

    def describe(self, path: str, licence: str, vectors: str | None) -> None:
        """What the bundle's card says of where the knowledge comes from."""
        self.sources = [{"name": Path(path).name, "licence": licence}]
        if vectors:
            self.sources.append({"name": Path(vectors).name, "licence": "PDDL 1.0 (GloVe, Pennington et al. 2014)"})

    def fill(self, table: nn.Embedding) -> None:
        """Give the words of a table the vectors that are known of them. ConfigError where these are of another size."""
        known = [(self.coder.words.index(word), row) for word, row in self.vectors.items() if word in self.coder.words]
        if not known:
            return
        numbers, rows = zip(*known, strict=True)
        if len(rows[0]) != table.embedding_dim:
            raise ConfigError(
                f"the vectors have {len(rows[0])} numbers, model.embedding is {table.embedding_dim}: set it"
            )
        with torch.no_grad():
            table.weight[list(numbers)] = torch.tensor(np.stack(rows))

    def batch(self, numbers: list[int], validation: bool, step: int) -> Any:
        """The batch of these rows; ``step`` is for those who draw lots."""
        rows = [(self.validation_rows if validation else self.train_rows)[number] for number in numbers]
        return self.coder.batch([words for words, _ in rows], [label for _, label in rows])

    def make(self, step: int, rank: int = 0, world: int = 1) -> Any:
        return self.batch(self.rows(step, rank, world), False, step * world + rank)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        return training_loader(partial(self.make, rank=rank, world=world), self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        parts = sorted_parts([len(words) for words, _ in self.validation_rows], 64)
        batches = [self.batch(part, True, step) for step, part in enumerate(parts)]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]

    def vocabularies(self) -> dict[str, Any]:
        """What the bundle keeps."""
        letters = {"letters": self.coder.letters.to_json()} if self.coder.letters else {}
        return {"words": self.coder.words.to_json()} | letters

    def sizes(self) -> dict[str, Any]:
        """What a ``SentenceConfig`` wants to know of the data."""
        return {"words": len(self.coder.words), "letters": len(self.coder.letters) if self.coder.letters else 0}
