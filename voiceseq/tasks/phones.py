"""Training the phone backbone: CTC over phones on transcribed speech."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_warn
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.core.distance import edit_distance
from voiceseq.datasets.batching import training_loader
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.datasets.speech import SpeechBatch, SpeechBatches, Spoken
from voiceseq.errors import ConfigError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.pronounce import PHONES, Pronunciation, read_dictionary
from voiceseq.text.vocabulary import Vocabulary

EDGE = 2  # frames that the analysis window takes from a clip


class PhoneData(pl.LightningDataModule):
    """Manifests of transcribed speech, spelt in phones by a dictionary; clips with unknown words are left out."""

    def __init__(
        self,
        folder: str,
        train: list[str],
        validation: list[str],
        dictionary: str,
        batch_s: float = 120.0,
        steps_per_epoch: int = 200,
        frames_per_s: float = 33.0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = Vocabulary(("<blank>", *PHONES), "word", ("blank",))
        self.words = read_dictionary(dictionary)
        self.frames_per_s = frames_per_s
        self.left_out = 0
        rate = 16_000
        clips = [self._spoken(Path(folder) / name) for name in train]
        self.batches = SpeechBatches([item for part in clips for item in part], rate, batch_s, seed)
        self.held_out = {
            Path(name).parent.name: SpeechBatches(self._spoken(Path(folder) / name), rate, batch_s, seed)
            for name in validation
        }
        if self.left_out:
            rank_zero_warn(f"{self.left_out} clips were left out: unknown words, or too many phones for the time")
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        names = licences or [f"{Path(name).parent.name}: unknown" for name in train]
        self.sources = [dict(zip(("name", "licence"), name.split(": ", 1), strict=True)) for name in names]

    def _spoken(self, manifest: Path) -> list[Spoken]:
        found = []
        for clip in read_manifest(manifest):
            target = self._phones(clip)
            if target is None:
                self.left_out += 1
            else:
                found.append(Spoken(clip, target))
        if not found:
            raise ConfigError(f"{manifest}: no clip can be spelt with this dictionary; is it English, in CMU's form?")
        return found

    def _phones(self, clip: Clip) -> tuple[int, ...] | None:
        """None where a word is unknown, nothing is said, or the phones do not fit into the clip's frames."""
        words: list[Pronunciation] = []
        for word in (clip.text or "").split():
            if word not in self.words:
                return None
            words.append(self.words[word][0])
        target = tuple(self.vocabulary.index(phone) for word in words for phone in word)
        repeats = sum(one == next_one for one, next_one in pairwise(target))  # CTC wants a blank between equals
        fits = len(target) + repeats + EDGE <= clip.duration * self.frames_per_s
        return target if target and fits else None

    def train_dataloader(self) -> DataLoader[Any]:
        if self.trainer.world_size > 1:  # type: ignore[union-attr]
            raise ConfigError("this data is not shared among processes yet; train with trainer.devices=1")
        return training_loader(self.batches, self.steps_per_epoch, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        batches = [(name, batch) for name, part in self.held_out.items() for batch in part.whole()]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class PhoneTask(SequenceTask):
    """CTC loss; on validation the phone error rate of greedy decoding, for each corpus and in the mean."""

    monitor = "val/phone error"

    def __init__(self, model: BackboneConfig, optimiser: OptimiserConfig, data: PhoneData) -> None:
        super().__init__(optimiser)
        self.network = Backbone(dataclasses.replace(model, symbols=len(data.vocabulary)))
        self.vocabulary, self.sources = data.vocabulary, data.sources
        self.errors: dict[str, list[int]] = {}

    def loss(self, batch: SpeechBatch) -> tuple[Tensor, int, dict[str, float]]:
        output, _ = self.network(batch.samples, lengths=batch.lengths)
        log_probs = output.logits.float().log_softmax(-1)
        loss = ctc_loss(log_probs, batch.targets, output.lengths, batch.target_lengths)
        return loss.loss, len(batch.lengths), {}

    def on_validation_epoch_start(self) -> None:
        self.errors = {}

    def validation_step(self, batch: tuple[str, SpeechBatch], batch_idx: int) -> None:
        name, speech = batch
        super().validation_step(speech, batch_idx)
        output, _ = self.network(speech.samples, lengths=speech.lengths)
        found = ctc_greedy(output.logits.float().log_softmax(-1), output.lengths)
        counts = self.errors.setdefault(name, [0, 0])
        for best, target, length in zip(found, speech.targets, speech.target_lengths, strict=True):
            counts[0] += edit_distance(list(best.tokens), target[:length].tolist())
            counts[1] += int(length)

    def on_validation_epoch_end(self) -> None:
        rates = {name: 100 * wrong / total for name, (wrong, total) in self.errors.items()}
        self.log_dict({f"val/{name}": rate for name, rate in rates.items()})
        self.log(self.monitor, sum(rates.values()) / max(1, len(rates)), prog_bar=True)

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        return BundleParts("backbone", config, {"phones": self.vocabulary.to_json()}, training_data=self.sources)
