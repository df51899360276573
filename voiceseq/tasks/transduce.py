"""Training an encoder-decoder on pairs of texts, such as dates as people write them and ISO dates."""

import dataclasses
from functools import partial
from typing import Any, ClassVar

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
VALIDATION = 1_000_003  # added to the seed: no pair of this list is trained on but by chance
ASCII = "".join(map(chr, range(32, 127)))


class PairData(pl.LightningDataModule):
    """Batches of pairs by step number; subclasses say what ``pairs(step)`` are.

    ``validation`` names the lists of pairs to measure; the first, whose name is "", says which epoch is the best.
    """

    kind = "transducer"  # of the bundle that is made of it

    def __init__(
        self, source: Vocabulary, target: Vocabulary, validation: dict[str, Pairs], steps_per_epoch: int, overfit: bool
    ) -> None:
        super().__init__()
        self.source, self.target, self.validation = source, target, validation
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        self.sources: list[dict[str, str]] = []

    def pairs(self, step: int) -> Pairs:
        """The global batch of this step."""
        raise NotImplementedError

    def files(self) -> dict[str, bytes]:
        """What goes into the bundle beside the network."""
        return {}

    def make(self, step: int, rank: int, world: int) -> PairBatch:
        pairs = self.pairs(step)
        return self.collate([pairs[i] for i in own_share(list(range(len(pairs))), rank, world)])

    def collate(self, pairs: Pairs) -> PairBatch:
        return pair_batch(pairs, self.source, self.target)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        return training_loader(partial(self.make, rank=rank, world=world), self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [self.batches(pairs) for pairs in self.validation.values()]

    def batches(self, pairs: Pairs) -> DataLoader[Any]:
        ordered = sorted(pairs, key=lambda pair: len(pair[0]))  # alike lengths share a batch
        parts = [ordered[i : i + 256] for i in range(0, len(ordered), 256)]
        return DataLoader([self.collate(part) for part in parts], batch_size=None)  # type: ignore[arg-type]


class DateData(PairData):
    """Endless generated pairs; ``validation`` more in the formats of training and as many in formats held out of it."""

    def __init__(
        self, batch: int = 128, steps_per_epoch: int = 100, validation: int = 512, seed: int = 1, overfit: bool = False
    ) -> None:
        seen = [date_pair(seed + VALIDATION, number) for number in range(validation)]
        new = [date_pair(seed + VALIDATION, number, held_out=True) for number in range(validation)]
        source = Vocabulary.from_text(ASCII, specials=("unknown",))
        target = Vocabulary.from_text("0123456789-", specials=("bos", "eos"))
        super().__init__(source, target, {"": seen, " held-out": new}, steps_per_epoch, overfit)
        self.batch, self.seed = batch, seed
        self.group: tuple[int, Pairs] = (-1, [])
        self.sources = [{"name": "generated dates", "licence": "Apache-2.0 (made by voiceseq)"}]

    def pairs(self, step: int) -> Pairs:
        """A quarter of the pairs of four steps, those of like length: padding would be half the work."""
        group, part = divmod(step, 4)
        if group != self.group[0]:
            first = group * 4 * self.batch
            pairs = [date_pair(self.seed, number) for number in range(first, first + 4 * self.batch)]
            self.group = group, sorted(pairs, key=lambda pair: len(pair[0]))
        return self.group[1][part * self.batch : (part + 1) * self.batch]


class TransduceTask(SequenceTask):
    """Cross entropy with teacher forcing or scheduled sampling; on validation also the share that is wholly right."""

    decoding: ClassVar[dict[str, Any]] = {"beam": 4, "alpha": 0.0, "max_length": 40}

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
        self.kind, self.source, self.target, self.sources = data.kind, data.source, data.target, data.sources
        self.label_smoothing, self.sampling = label_smoothing, sampling
        self.validation, self.files = list(data.validation), data.files

    def validation_step(self, batch: PairBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """``val/loss`` and ``val/exact`` of the first list; of the others under the same names and their own."""
        loss, count, metrics = self.loss(batch)
        name = self.validation[dataloader_idx]
        values = {f"val/loss{name}": loss} | {f"val/{key}{name}": value for key, value in metrics.items()}
        self.log_dict(values, prog_bar=True, on_epoch=True, batch_size=count, sync_dist=True, add_dataloader_idx=False)

    def loss(self, batch: PairBatch) -> tuple[Tensor, int, dict[str, float]]:
        sampling, smoothing = (self.sampling, self.label_smoothing) if self.training else (0.0, 0.0)
        logits = self.network(batch.source, batch.inputs, batch.source_lengths, batch.target_lengths, sampling)
        loss = cross_entropy(logits, batch.targets, batch.target_lengths, smoothing)
        return loss, int(batch.target_lengths.sum()), {} if self.training else self.measure(batch)

    def measure(self, batch: PairBatch) -> dict[str, float]:
        """What validation tells beside the loss."""
        return {"exact": self.exact(batch)}

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
        config = dataclasses.asdict(self.network.config)
        return BundleParts(self.kind, config, vocabularies, self.decoding, self.sources, self.files())
