"""Training the phone backbone: CTC over phones on transcribed speech."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from lightning_utilities.core.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.utils.data import DataLoader

from voiceseq.audio.augment import AugmentConfig, Augmenter
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.core.distance import edit_distance
from voiceseq.datasets.batching import step_generator, training_loader
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.recordings import Recordings
from voiceseq.datasets.speech import Hardening, Lesson, SpeechBatch, SpeechBatches, Spoken
from voiceseq.datasets.teachers import SIZE, learn_lessons
from voiceseq.errors import ConfigError
from voiceseq.models.backbone import Backbone, BackboneConfig, BackboneOutput
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.text.pronounce import PHONES, Pronunciation, read_dictionary
from voiceseq.text.vocabulary import Vocabulary

SAMPLE_RATE = 16_000
EDGE = 2  # frames that the analysis window takes from a clip
WINDOW_S = 0.025  # a frame is known when its analysis window is full


def warp(frames: Tensor, factors: Tensor) -> Tensor:
    """Log-mel ``frames (batch, time, mels)`` of a longer or shorter vocal tract: band m is read at ``m * factor``."""
    places = (torch.arange(frames.shape[2]) * factors[:, None].to(frames)).clamp(max=frames.shape[2] - 1)
    low = places.floor().long().clamp(max=frames.shape[2] - 2)
    part = (places - low)[:, None]
    index = low[:, None].expand(-1, frames.shape[1], -1)
    return frames.gather(2, index) * (1 - part) + frames.gather(2, index + 1) * part


class PhoneData(pl.LightningDataModule):
    """Manifests of transcribed speech, spelt in phones by dictionaries.

    Args:
        held_out_share: this share of the speakers is left to the tests (``manifest.held_out``).
        dictionaries: earlier ones first; clips with words that none of them has are left out. What ``voiceseq
            pronounce`` writes for such words is a dictionary too.
        augment, noises: how batches are made harder and the manifests of noise for it, of which ``held_out_noise`` is
            left to the tests; ``hard_from`` is the step from
            which on ``hard_share`` of the batches are (see ``Hardening``).
        teacher, lessons: the folder of a teacher (``datasets.teachers``) and the file where its frames are kept.
    """

    def __init__(
        self,
        folder: str,
        train: list[str],
        validation: list[str],
        dictionaries: list[str],
        batch_s: float = 120.0,
        steps_per_epoch: int = 200,
        frames_per_s: float = 33.0,
        held_out_share: float = 0.0,
        augment: AugmentConfig | None = None,
        noises: list[str] | None = None,
        held_out_noise: float = 0.0,
        hard_from: int = 400,
        hard_share: float = 0.5,
        teacher: str | None = None,
        lessons: str | None = None,
        workers: int = 0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = Vocabulary(("<blank>", *PHONES), "word", ("blank",))
        self.words: dict[str, list[Pronunciation]] = {}
        for file in dictionaries:
            self.words = read_dictionary(file) | self.words
        self.frames_per_s, self.seed, self.workers = frames_per_s, seed, workers
        self.left_out = 0
        clips = [clip for name in train for clip in read_manifest(Path(folder) / name)]
        clips = [clip for clip in clips if not held_out(clip.speaker, held_out_share)]
        tests = {Path(name).parent.name: read_manifest(Path(folder) / name) for name in validation}
        self.masks = augment.masks if augment is not None else None
        hardening = None
        if augment is not None:
            sounds = [clip for name in noises or [] for clip in read_manifest(Path(folder) / name)]
            kept = [clip for clip in sounds if not held_out(clip.id, held_out_noise)]
            augmenter = Augmenter(augment, Recordings(kept, keep=True))
            hardening = Hardening(augmenter, hard_share, hard_from)
        taught = learn_lessons(clips, teacher, lessons) if teacher and lessons else None
        spoken = self._spoken(clips, "the training manifests")
        self.batches = SpeechBatches(spoken, SAMPLE_RATE, batch_s, seed, hardening, taught)
        self.held_out = {
            name: SpeechBatches(self._spoken(part, name), SAMPLE_RATE, batch_s, seed) for name, part in tests.items()
        }
        if self.left_out:
            rank_zero_warn(f"{self.left_out} clips were left out: unknown words, or too many phones for the time")
        self.steps_per_epoch, self.overfit = steps_per_epoch, overfit
        names = licences or [f"{Path(name).parent.name}: unknown" for name in train]
        self.sources = [dict(zip(("name", "licence"), name.split(": ", 1), strict=True)) for name in names]

    def _spoken(self, clips: Sequence[Clip], name: str) -> list[Spoken]:
        found = []
        for clip in clips:
            target = self._phones(clip)
            if target is None:
                self.left_out += 1
            else:
                found.append(Spoken(clip, target))
        if not found:
            raise ConfigError(f"{name}: no clip can be spelt with this dictionary; is it English, in CMU's form?")
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
        return training_loader(self.batches, self.steps_per_epoch, self.workers, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        batches = [(name, batch) for name, part in self.held_out.items() for batch in part.whole()]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class PhoneTask(SequenceTask):
    """CTC loss; on validation the phone error rate of greedy decoding, for each corpus and in the mean.

    Args:
        teaching: weight of the teacher's loss: how far a linear reading of the bottleneck is from its frames.
        warping: share by which a voice's spectrum is stretched or squeezed at most in augmented batches.
    """

    monitor = "val/phone error"

    def __init__(
        self,
        model: BackboneConfig,
        optimiser: OptimiserConfig,
        data: PhoneData,
        teaching: float = 0.0,
        warping: float = 0.0,
    ) -> None:
        super().__init__(optimiser)
        self.network = Backbone(dataclasses.replace(model, symbols=len(data.vocabulary)))
        self.vocabulary, self.sources, self.seed = data.vocabulary, data.sources, data.seed
        self.masks = SpecAugment(data.masks) if data.masks is not None else None
        self.teaching, self.warping = teaching, warping
        self.reading = nn.Linear(model.bottleneck, SIZE) if teaching else None
        self.errors: dict[str, list[int]] = {}

    def loss(self, batch: SpeechBatch) -> tuple[Tensor, int, dict[str, float]]:
        output = self._hear(batch)
        log_probs = output.logits.float().log_softmax(-1)
        loss = ctc_loss(log_probs, batch.targets, output.lengths, batch.target_lengths).loss
        if self.reading is None or batch.lesson is None:
            return loss, len(batch.lengths), {}
        distance = self._distance(output.bottleneck, output.lengths, batch.lesson)
        return loss + self.teaching * distance, len(batch.lengths), {"taught": distance.item(), "ctc": loss.item()}

    def _hear(self, batch: SpeechBatch) -> BackboneOutput:
        if not batch.augmented:
            return cast(BackboneOutput, self.network(batch.samples, lengths=batch.lengths)[0])
        frames, state = self.network.features(batch.samples, None, batch.lengths)
        lengths = self.network.features.output_lengths(batch.lengths)
        chance = step_generator(self.seed, self.global_step)
        if self.warping:
            frames = warp(frames, 1 + self.warping * (2 * torch.rand(len(frames), generator=chance) - 1))
        if self.masks is not None:
            frames = self.masks(frames, lengths, chance)
        return cast(BackboneOutput, self.network.from_features(frames, (state, None, None, None), lengths)[0])

    def _distance(self, bottleneck: Tensor, lengths: Tensor, lesson: Lesson) -> Tensor:
        """Mean squared distance of the reading at the frame where each of the teacher's windows ends."""
        assert self.reading is not None
        places = ((lesson.times.nan_to_num(-1.0) - WINDOW_S) / self.network.frame_s).floor().long()
        valid = (places >= 0) & (places < lengths[:, None])
        picked = bottleneck.gather(
            1, places.clamp(0, bottleneck.shape[1] - 1)[..., None].expand(-1, -1, bottleneck.shape[2])
        )
        squares = (self.reading(picked) - lesson.frames).square().mean(-1)
        return squares.masked_fill(~valid, 0.0).sum() / valid.sum().clamp(min=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimiser.build(self)  # the reading learns too

    def on_validation_epoch_start(self) -> None:
        self.errors = {}

    def validation_step(self, batch: tuple[str, SpeechBatch], batch_idx: int) -> None:
        name, speech = batch
        output = self._hear(speech)
        log_probs = output.logits.float().log_softmax(-1)
        loss = ctc_loss(log_probs, speech.targets, output.lengths, speech.target_lengths).loss
        self.log("val/loss", loss, batch_size=len(speech.lengths))
        found = ctc_greedy(log_probs, output.lengths)
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
