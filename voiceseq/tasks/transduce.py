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
from voiceseq.models.seq2seq import Seq2SeqConfig, Seq2SeqNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.vocabulary import Vocabulary

HELD_OUT = 1_000_003  # added to the seed: no pair of this list is trained on but by chance


class DateData(pl.LightningDataModule):
    """Endless generated pairs; ``validation`` of them come from a list of their own."""

    def __init__(
        self, batch: int = 128, steps_per_epoch: int = 100, validation: int = 512, seed: int = 1, overfit: bool = False
    ) -> None:
        super().__init__()
        self.batch, self.steps_per_epoch, self.seed, self.overfit = batch, steps_per_epoch, seed, overfit
        self.held_out = [date_pair(seed + HELD_OUT, number) for number in range(validation)]
        sources = [text for text, _ in self.held_out] + [date_pair(seed, number)[0] for number in range(2000)]
        self.source = Vocabulary.from_text(sources, specials=("unknown",))
        self.target = Vocabulary.from_text("0123456789-", specials=("bos", "eos"))

    def make(self, step: int, rank: int, world: int) -> PairBatch:
        numbers = own_share(list(range(step * self.batch, (step + 1) * self.batch)), rank, world)
        return pair_batch([date_pair(self.seed, number) for number in numbers], self.source, self.target)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        return training_loader(partial(self.make, rank=rank, world=world), self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        parts = [self.held_out[i : i + 256] for i in range(0, len(self.held_out), 256)]
        return DataLoader([pair_batch(part, self.source, self.target) for part in parts], batch_size=None)  # type: ignore[arg-type]


class TransduceTask(SequenceTask):
    """Cross entropy with teacher forcing or scheduled sampling; on validation also the share that is wholly right."""

    def __init__(
        self,
        model: Seq2SeqConfig,
        optimiser: OptimiserConfig,
        data: DateData,
        label_smoothing: float = 0.0,
        sampling: float = 0.0,
    ) -> None:
        super().__init__(optimiser)
        self.network = Seq2SeqNetwork(dataclasses.replace(model, source=len(data.source), target=len(data.target)))
        self.source, self.target = data.source, data.target
        self.label_smoothing, self.sampling = label_smoothing, sampling

    def loss(self, batch: PairBatch) -> tuple[Tensor, int, dict[str, float]]:
        sampling, smoothing = (self.sampling, self.label_smoothing) if self.training else (0.0, 0.0)
        logits, _ = self.network(batch.source, batch.inputs, batch.source_lengths, batch.target_lengths, sampling)
        loss = cross_entropy(logits, batch.targets, batch.target_lengths, smoothing)
        metrics = {} if self.training else {"exact": self.exact(batch)}
        return loss, int(batch.target_lengths.sum()), metrics

    @torch.no_grad()
    def exact(self, batch: PairBatch) -> float:
        """The share of the batch that greedy search writes without a mistake."""
        scorer = StepScorer(self.network.step, self.network.start(batch.source, batch.source_lengths))
        bos, eos = self.target.special("bos"), self.target.special("eos")
        found = greedy([(scorer, 1.0)], len(batch.source), bos, eos, max_length=batch.targets.shape[1] + 5)
        wanted = [tuple(row[: n - 1].tolist()) for row, n in zip(batch.targets, batch.target_lengths, strict=True)]
        return sum(best.tokens == want for best, want in zip(found, wanted, strict=True)) / len(wanted)

    def parts(self) -> BundleParts:
        vocabularies = {"source": self.source.to_json(), "target": self.target.to_json()}
        decoding = {"beam": 4, "alpha": 0.0, "max_length": 40}
        data = [{"name": "generated dates", "licence": "Apache-2.0 (made by voiceseq)"}]
        config = dataclasses.asdict(self.network.config)
        return BundleParts("transducer", config, vocabularies, decoding, training_data=data)
