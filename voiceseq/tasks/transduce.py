"""Training an encoder-decoder on pairs of texts: dates as people write them to ISO dates."""

import dataclasses
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.core.losses import cross_entropy
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import greedy
from voiceseq.datasets.batching import own_share, training_loader
from voiceseq.datasets.dates import date_pair
from voiceseq.datasets.pairs import PairBatch, pair_batch
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.vocabulary import Vocabulary

Pairs = list[tuple[str, str]]
HELD_OUT = 1_000_003  # added to the seed: no pair of this list is trained on but by chance


class PairData(pl.LightningDataModule):
    """Batches of pairs by step number; subclasses say what ``pairs(step)`` are. ``held_out`` is for validation."""

    def __init__(
        self, source: Vocabulary, target: Vocabulary, held_out: Pairs, steps_per_epoch: int, overfit: bool
    ) -> None:
        super().__init__()
        self.source, self.target, self.held_out = source, target, held_out
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        self.sources: list[dict[str, str]] = []

    def pairs(self, step: int) -> Pairs:
        """The global batch of this step."""
        raise NotImplementedError

    def make(self, step: int, rank: int, world: int) -> PairBatch:
        pairs = self.pairs(step)
        return pair_batch([pairs[i] for i in own_share(list(range(len(pairs))), rank, world)], self.source, self.target)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        return training_loader(partial(self.make, rank=rank, world=world), self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        ordered = sorted(self.held_out, key=lambda pair: len(pair[0]))  # alike lengths share a batch
        parts = [ordered[i : i + 256] for i in range(0, len(ordered), 256)]
        return DataLoader([pair_batch(part, self.source, self.target) for part in parts], batch_size=None)  # type: ignore[arg-type]


class DateData(PairData):
    """Endless generated pairs; ``validation`` of them come from a list of their own."""

    def __init__(
        self, batch: int = 128, steps_per_epoch: int = 100, validation: int = 512, seed: int = 1, overfit: bool = False
    ) -> None:
        held_out = [date_pair(seed + HELD_OUT, number) for number in range(validation)]
        written = [text for text, _ in held_out] + [date_pair(seed, number)[0] for number in range(2000)]
        source = Vocabulary.from_text(written, specials=("unknown",))
        target = Vocabulary.from_text("0123456789-", specials=("bos", "eos"))
        super().__init__(source, target, held_out, steps_per_epoch, overfit)
        self.batch, self.seed = batch, seed
        self.sources = [{"name": "generated dates", "licence": "Apache-2.0 (made by voiceseq)"}]

    def pairs(self, step: int) -> Pairs:
        return [date_pair(self.seed, number) for number in range(step * self.batch, (step + 1) * self.batch)]


class TransduceTask(SequenceTask):
    """Cross entropy with teacher forcing or scheduled sampling; on validation also the share that is wholly right."""

    def __init__(
        self,
        model: Seq2SeqConfig,
        optimiser: OptimiserConfig,
        data: PairData,
        label_smoothing: float = 0.0,
        sampling: float = 0.0,
    ) -> None:
        super().__init__(optimiser)
        self.network = seq2seq(dataclasses.replace(model, source=len(data.source), target=len(data.target)))
        self.source, self.target, self.sources = data.source, data.target, data.sources
        self.label_smoothing, self.sampling = label_smoothing, sampling

    def loss(self, batch: PairBatch) -> tuple[Tensor, int, dict[str, float]]:
        sampling, smoothing = (self.sampling, self.label_smoothing) if self.training else (0.0, 0.0)
        logits = self.network(batch.source, batch.inputs, batch.source_lengths, batch.target_lengths, sampling)
        loss = cross_entropy(logits, batch.targets, batch.target_lengths, smoothing)
        metrics = {} if self.training else {"exact": self.exact(batch)}
        return loss, int(batch.target_lengths.sum()), metrics

    @torch.no_grad()
    def exact(self, batch: PairBatch) -> float:
        """The share of the batch that greedy search writes without a mistake."""
        scorer = StepScorer(self.network.step, *self.network.start(batch.source, batch.source_lengths))
        bos, eos = self.target.special("bos"), self.target.special("eos")
        found = greedy([(scorer, 1.0)], len(batch.source), bos, eos, max_length=batch.targets.shape[1] + 5)
        wanted = [tuple(row[: n - 1].tolist()) for row, n in zip(batch.targets, batch.target_lengths, strict=True)]
        return sum(best.tokens == want for best, want in zip(found, wanted, strict=True)) / len(wanted)

    def parts(self) -> BundleParts:
        vocabularies = {"source": self.source.to_json(), "target": self.target.to_json()}
        decoding = {"beam": 4, "alpha": 0.0, "max_length": 40}
        config = dataclasses.asdict(self.network.config)
        return BundleParts("transducer", config, vocabularies, decoding, self.sources)
