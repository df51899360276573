"""Training a language model on a text: characters, words or subwords, one stream, windows of it."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.core.losses import cross_entropy
from voiceseq.core.softmax import noise_distribution, sample_noise, sampled_softmax_loss
from voiceseq.datasets.batching import training_loader
from voiceseq.datasets.windows import Windows, stream_pieces
from voiceseq.errors import ConfigError
from voiceseq.models.language import LanguageConfig, LanguageNetwork, Spelling
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.files import read_text
from voiceseq.text.vocabulary import Level, Vocabulary


class TextData(pl.LightningDataModule):
    """``train`` and ``validation`` are text files; without ``validation`` the last tenth of ``train`` serves.

    Of words each line ends with ``<eos>``, a symbol like any other, and the validation text begins with one: all of its
    words are predicted, as WikiText is scored. Of characters all but the first are. ``size`` is the most symbols that
    the vocabulary may have (subwords want one), ``measured`` how many symbols of the validation text are (null: all);
    ``lower``: all letters are made small.
    """

    def __init__(
        self,
        train: str,
        validation: str | None = None,
        level: Level = "character",
        size: int | None = None,
        measured: int | None = None,
        lower: bool = False,
        window: int = 256,
        batch: int = 32,
        steps_per_epoch: int = 200,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__()
        self.lower = lower
        text = self._read(train)
        cut = len(text) if validation else _nine_tenths(text, level)
        specials = ("unknown",) if level == "character" else ("unknown", "eos")
        self.vocabulary = Vocabulary.from_text(text[:cut].split("\n") if size else text[:cut], level, 1, size, specials)
        self.spelling = Spelling(self.vocabulary)
        self.windows = Windows(self._encode(text[:cut]), window, batch, seed)
        before = [] if self.spelling.eos is None else [self.spelling.eos]
        following = self._encode(self._read(validation) if validation else text[cut:])
        self.held_out = torch.cat((torch.tensor(before, dtype=torch.long), following[:measured]))
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        self.sources = [{"name": Path(train).name, "licence": licence}]
        kinds = len(set(text[:cut].split()) - set(self.vocabulary.symbols)) if level == "word" else 0
        self.reading = {"lower": lower, "unknown_words": max(1, kinds)}

    def _read(self, path: str) -> str:
        text = read_text(path)
        return text.lower() if self.lower else text

    def _encode(self, text: str) -> Tensor:
        ended = text if self.vocabulary.level == "character" or text.endswith("\n") else text + "\n"
        return torch.tensor(self.spelling.encode(ended), dtype=torch.long)

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        make = partial(self.windows, rank=rank, world=world)
        return training_loader(make, self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        # the state is carried from piece to piece, so every process reads the whole stream
        return DataLoader(stream_pieces(self.held_out, self.windows.size, 32), batch_size=None)  # type: ignore[arg-type]


def _nine_tenths(text: str, level: Level) -> int:
    """Where to cut the last tenth off: anywhere between characters, between lines (or else words) of words."""
    cut = int(0.9 * len(text))
    return cut if level == "character" else text.rfind("\n", 0, cut) + 1 or text.rfind(" ", 0, cut) + 1


class LanguageTask(SequenceTask):
    """Cross entropy of the next symbol; on validation the state is carried through the whole text.

    ``samples`` (0: none): in training the softmax is over the ``frequent`` first words of the vocabulary, which is
    sorted by frequency, and over so many that are drawn for each step from the others, whose sum they estimate.
    """

    noise: Tensor

    def __init__(
        self,
        model: LanguageConfig,
        optimiser: OptimiserConfig,
        data: TextData,
        samples: int = 0,
        frequent: int = 2000,
    ) -> None:
        super().__init__(optimiser)
        self.network = LanguageNetwork(dataclasses.replace(model, vocabulary=len(data.vocabulary)))
        self.vocabulary, self.sources, self.reading = data.vocabulary, data.sources, data.reading
        if samples < 0 or frequent < 0:
            raise ConfigError(f"samples is {samples}, frequent {frequent}; 0 or more were wanted")
        self.samples = samples if frequent < len(data.vocabulary) else 0
        self.frequent = frequent
        if self.samples:
            counts = torch.bincount(data.windows.stream, minlength=len(data.vocabulary)).clamp(min=1)
            counts[:frequent] = 0
            self.register_buffer("noise", noise_distribution(counts), persistent=False)
        self.carried: Any = None
        self.rows = 0

    def loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int, dict[str, float]]:
        inputs, targets = batch
        if self.training and self.samples:
            return self.sampled(*batch), targets.numel(), {}
        logits, state = self.network(inputs, None if self.training else self.carried)
        if not self.training and self.network.endless:
            self.carried = state
        return cross_entropy(logits.float(), targets), targets.numel(), {}

    def sampled(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss over the frequent words and a sample of the others, which counts for all of them."""
        frames, _ = self.network.frames(inputs)
        always = torch.arange(self.frequent, device=inputs.device)
        samples = torch.cat((always, sample_noise(self.noise, (self.samples,))))
        # sampled_softmax_loss divides by how often a word is expected: once, or as often as it is drawn
        expected = self.samples * self.noise
        expected[: self.frequent] = 1.0
        output = self.network.output
        return sampled_softmax_loss(
            frames.float(), targets, samples, expected / len(samples), output.weight, output.bias
        )

    def on_validation_epoch_start(self) -> None:
        self.carried = None

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        if self.carried is not None and len(batch[0]) != self.rows:
            self.carried = None  # the short last row starts afresh
        self.rows = len(batch[0])
        super().validation_step(batch, batch_idx)

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        vocabularies = {"symbols": self.vocabulary.to_json()}
        return BundleParts("language-model", config, vocabularies, self.reading, self.sources)
