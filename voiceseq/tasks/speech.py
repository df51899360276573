"""What everything that learns from transcribed speech shares: manifests, people held out, batches made harder."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_utilities.core.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.utils.data import DataLoader

from voiceseq.audio.augment import AugmentConfig, Augmenter
from voiceseq.audio.files import Audio
from voiceseq.datasets.batching import training_loader
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.recordings import Recordings
from voiceseq.datasets.speech import Hardening, SpeechBatches, Spoken
from voiceseq.datasets.teachers import Lessons
from voiceseq.errors import ConfigError

SAMPLE_RATE = 16_000
EDGE = 2  # frames that the analysis window takes from a clip
NAMED = 3  # clips that a warning names


class SpeechData(pl.LightningDataModule):
    """Manifests of transcribed speech; what is said in a clip is spelt by the subclass.

    Args:
        folder, train, validation: manifests, by their paths in the folder.
        batch_s: seconds of sound in a batch; ``frames_per_s``: what CTC has to say a text with.
        held_out_share: this share of the speakers is left to the tests (``manifest.held_out``).
        augment, noises: how batches are made harder and the manifests of noise for it, of which ``held_out_noise`` is
            left to the tests; from step ``hard_from`` on ``hard_share`` of the batches are (see ``Hardening``).
        licences: ``"name: licence"`` of each corpus, for the bundle.
        silences: manifests of noise and music, in which nothing is said, cut to about ``silence_s`` seconds each.
    """

    unfit = "they cannot be spelt, or have more symbols than their time can hold"

    def __init__(
        self,
        folder: str,
        train: list[str],
        validation: list[str],
        batch_s: float,
        steps_per_epoch: int,
        frames_per_s: float,
        held_out_share: float,
        augment: AugmentConfig | None,
        noises: list[str] | None,
        held_out_noise: float,
        hard_from: int,
        hard_share: float,
        workers: int,
        seed: int,
        overfit: bool,
        licences: list[str] | None,
        silences: list[str] | None = None,
        silence_s: float = 4.0,
    ) -> None:
        super().__init__()
        self.frames_per_s, self.seed, self.workers = frames_per_s, seed, workers
        self.steps_per_epoch, self.overfit, self.hard_from = steps_per_epoch, overfit, hard_from
        self.masks = augment.masks if augment is not None else None
        self.left_out: list[str] = []
        names = licences or [f"{_group(Path(name))}: unknown" for name in train]
        self.sources = [_source(name) for name in names]
        clips = [clip for name in train for clip in read_manifest(Path(folder) / name)]
        clips = [clip for clip in clips if not held_out(clip.speaker, held_out_share)]
        tests = {_group(Path(name)): read_manifest(Path(folder) / name) for name in validation}
        hardening = None
        if augment is not None:
            recorded = Recordings(noise_clips(folder, noises or [], held_out_noise), keep=True)
            made = self.make_noises()
            hardening = Hardening(Augmenter(augment, [*made, *recorded] if made else recorded), hard_share, hard_from)
        self.learn_spelling(clips)
        spoken, taught = self._spoken(clips, "the training manifests"), self.learn_lessons(clips)
        spoken += [Spoken(clip, ()) for clip in quiet_clips(folder, silences or [], held_out_noise, silence_s)]
        self.batches = SpeechBatches(spoken, SAMPLE_RATE, batch_s, seed, hardening, taught)
        self.held_out = {
            name: SpeechBatches(self._spoken(part, name), SAMPLE_RATE, batch_s, seed) for name, part in tests.items()
        }
        if self.left_out:
            few = ", ".join(self.left_out[:NAMED]) + (", ..." if len(self.left_out) > NAMED else "")
            rank_zero_warn(f"{len(self.left_out)} clips were left out ({few}): {self.unfit}")

    def learn_spelling(self, clips: Sequence[Clip]) -> None:
        """Whatever ``spell`` needs to know of the training clips."""

    def learn_lessons(self, clips: Sequence[Clip]) -> Lessons | None:
        """What a teacher hears in the training clips, where there is a teacher."""
        return None

    def make_noises(self) -> list[Audio]:
        """Noises to mix in beside the recorded ones."""
        return []

    def spell(self, clip: Clip) -> tuple[int, ...] | None:
        """The numbers of what is said in a clip; None where it cannot be spelt."""
        raise NotImplementedError

    def _spoken(self, clips: Sequence[Clip], name: str) -> list[Spoken]:
        found = []
        for clip in clips:
            target = self.spell(clip)
            if target and self._fits(target, clip):
                found.append(Spoken(clip, target))
            else:
                self.left_out.append(clip.id)
        if not found:
            raise ConfigError(f"{name}: no clip was left to train on; {self.unfit}")
        return found

    def _fits(self, target: tuple[int, ...], clip: Clip) -> bool:
        repeats = sum(one == next_one for one, next_one in pairwise(target))  # CTC wants a blank between equals
        return len(target) + repeats + EDGE <= clip.duration * self.frames_per_s

    def train_dataloader(self) -> DataLoader[Any]:
        if self.trainer.world_size > 1:  # type: ignore[union-attr]
            raise ConfigError("this data is not shared among processes yet; train with trainer.devices=1")
        return training_loader(self.batches, self.steps_per_epoch, self.workers, overfit=self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        batches = [(name, batch) for name, part in self.held_out.items() for batch in part.whole()]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def _source(licence: str) -> dict[str, str]:
    name, colon, terms = licence.partition(": ")
    if not (name and colon and terms):
        raise ConfigError(f"data.licences: {licence!r} came; 'name of the corpus: its licence' was wanted")
    return {"name": name, "licence": terms}


def _group(manifest: Path) -> str:
    """What validation calls the clips of a manifest: the corpus is its folder."""
    return manifest.parent.name or manifest.stem


def noise_clips(folder: str, manifests: Sequence[str], held_out_noise: float) -> list[Clip]:
    """Noise and music less what is left to the tests: a share of the clips, and those that say so themselves."""
    sounds = [clip for name in manifests for clip in read_manifest(Path(folder) / name)]
    return [c for c in sounds if not held_out(c.id, held_out_noise) and c.extra.get("share", "train") == "train"]


def quiet_clips(folder: str, manifests: Sequence[str], held_out_noise: float, seconds: float) -> list[Clip]:
    """Noise and music, in which nothing is said, as clips of about so many seconds; a share is left to the tests."""
    parts = []
    for clip in noise_clips(folder, manifests, held_out_noise):
        count = max(1, round(clip.duration / seconds))
        step = clip.duration / count
        parts += [
            replace(clip, id=f"{clip.id}-{n}", offset=clip.offset + n * step, duration=step) for n in range(count)
        ]
    return parts


def learn_faster(optimiser: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> None:
    """Give some of the parameters a learning rate of their own, without weight decay."""
    new = {id(parameter) for parameter in parameters}
    for group in optimiser.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in new]
    optimiser.add_param_group({"params": list(parameters), "lr": rate, "weight_decay": 0.0})


def warp(frames: Tensor, factors: Tensor) -> Tensor:
    """Log-mel ``frames (batch, time, mels)`` of a longer or shorter vocal tract: band m is read at ``m * factor``."""
    places = (torch.arange(frames.shape[2]) * factors[:, None].to(frames)).clamp(max=frames.shape[2] - 1)
    low = places.floor().long().clamp(max=frames.shape[2] - 2)
    part = (places - low)[:, None]
    index = low[:, None].expand(-1, frames.shape[1], -1)
    return frames.gather(2, index) * (1 - part) + frames.gather(2, index + 1) * part
