"""Learning from plain text, ELMo's way: the next word and the one before, by a language model in each direction."""

import dataclasses
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from voiceseq.core.losses import cross_entropy
from voiceseq.core.softmax import noise_distribution, sample_noise, sampled_softmax_loss
from voiceseq.datasets.corpora.sentences import read_paragraphs
from voiceseq.datasets.pairs import pad
from voiceseq.datasets.sentences import SentenceBatch
from voiceseq.models.masked import BidirectionalNetwork
from voiceseq.models.sentence import SentenceConfig
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.sentences import SentenceData


class PlainData(SentenceData):
    """The sentences of paragraphs, at most ``longest`` words each; the label of one is the number of the next.

    Of the last sentence of a paragraph it is -1. One-word sentences are left out.
    """

    def __init__(
        self,
        train: str,
        validation: str,
        longest: int = 60,
        measured: int = 1000,
        vocabulary: str | None = None,
        vectors: str | None = None,
        minimum_count: int = 5,
        batch: int = 64,
        steps_per_epoch: int = 500,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        rows = [_sentences(path, longest) for path in (train, validation)]
        super().__init__(
            rows[0],
            rows[1][:measured],
            batch,
            steps_per_epoch,
            seed,
            overfit,
            vocabulary=vocabulary,
            vectors=vectors,
            minimum_count=minimum_count,
        )
        self.seed = seed
        self.numbers = [[self.coder.numbers(words) for words, _ in part] for part in rows]
        self.describe(train, licence, vectors)

    def batch(self, numbers: list[int], validation: bool, step: int) -> Any:
        return SentenceBatch(*pad([self.numbers[validation][number] for number in numbers]))


def _sentences(path: str, longest: int) -> list[tuple[list[str], int]]:
    rows: list[tuple[list[str], int]] = []
    for paragraph in read_paragraphs(path):
        kept = [words[:longest] for words in paragraph if len(words) > 1]
        last = len(rows) + len(kept) - 1
        rows += [(words, number if number <= last else -1) for number, words in enumerate(kept, len(rows) + 1)]
    return rows


class BidirectionalTask(SequenceTask):
    """Cross entropy of the next word and of the one before, by sampled softmax in training, in full on validation."""

    noise: Tensor

    def __init__(self, model: SentenceConfig, optimiser: OptimiserConfig, data: PlainData, samples: int = 1024) -> None:
        super().__init__(optimiser)
        self.network = BidirectionalNetwork(dataclasses.replace(model, **data.sizes()))
        data.fill(self.network.context.embedding)
        self.data, self.samples = data, samples
        counts = torch.ones(len(data.coder.words))
        counts += torch.bincount(torch.tensor(list(chain.from_iterable(data.numbers[0]))), minlength=len(counts))
        self.register_buffer("noise", noise_distribution(counts), persistent=False)

    def loss(self, batch: SentenceBatch) -> tuple[Tensor, int, dict[str, float]]:
        left, right = self.network(batch.words, batch.lengths)
        lengths = batch.lengths - 1
        pairs = ((left[:, :-1], batch.words[:, 1:]), (right[:, 1:], batch.words[:, :-1]))
        loss = sum((self.direction(states, targets, lengths) for states, targets in pairs), torch.zeros(())) / 2
        return loss, int(lengths.sum()), {}

    def direction(self, states: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        table, bias = self.network.context.embedding.weight, self.network.bias
        if not self.training:
            return cross_entropy(states.float() @ table.T + bias, targets, lengths)
        samples = sample_noise(self.noise, (self.samples,))
        return sampled_softmax_loss(states.float(), targets, samples, self.noise, table, bias, lengths)

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        return BundleParts("bidirectional-lm", config, self.data.vocabularies(), training_data=self.data.sources)
