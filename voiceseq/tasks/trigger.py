"""Training wake words: a head on the phone backbone, or a small network of its own, on clips made on the fly."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.audio.augment import AugmentConfig, Augmenter
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.bundles import load_bundle
from voiceseq.core.masks import lengths_mask
from voiceseq.core.recurrent import Recurrent
from voiceseq.datasets.batching import StepBatches, step_generator, training_loader
from voiceseq.datasets.corpora.wakewords import Part, part_of, person, plain_phrase, spoken_word, without_phrases
from voiceseq.datasets.manifest import Clip, held_out
from voiceseq.datasets.recordings import Recordings, Utterance, find_utterance, read_source
from voiceseq.datasets.synthesis import ClipSettings, Ends, TriggerBatch, TriggerClips
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.memories import Memories
from voiceseq.tasks.trigger_loss import FrameBatch, Places, TriggerLoss

VALIDATION = 1_000_003  # added to the seed
# What a bundle says until its operating point has been chosen on negatives of many hours.
DECISION = {"threshold": 0.5, "smoothing": 1, "patience": 1, "refractory_s": 1.0}
EARLY_S, LATE_S = 0.3, 0.75  # on validation a word counts as heard from so long before its end to so long after


class TriggerData(pl.LightningDataModule):
    """Recordings of words, of other words, of speech and of noise, each people's on one side only.

    The sources are manifests or folders (``recordings.read_source``), from ``folder`` on.

    Args:
        words: what is to be found, as rows name it in ``word`` or ``label``.
        positives: with these words in them; where the row has ``word_start`` and ``word_end``, there. Any other word of
            these sources is one of the ``negatives``.
        speech: whoever is ``held_out`` by ``held_out_share`` is left to the tests, a further ``dev_share`` to
            validation; clips in whose text a word is said are left out.
        keep_flagged: also use rows with a ``flag``: something is wrong with them.
        split: keep the people of ``wakewords.part_of`` for dev and test; without it everything is trained on, and
            validation is on the same voices.
        clips, augment: how clips are made and made harder.
        validation: number of clips.
    """

    def __init__(
        self,
        words: list[str],
        folder: str,
        positives: list[str],
        negatives: list[str] | None = None,
        speech: list[str] | None = None,
        noises: list[str] | None = None,
        held_out_share: float = 0.0,
        dev_share: float = 0.1,
        keep_flagged: bool = False,
        split: bool = True,
        clips: ClipSettings | None = None,
        augment: AugmentConfig | None = None,
        batch: int = 32,
        steps_per_epoch: int = 200,
        validation: int = 512,
        workers: int = 0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.words = tuple(plain_phrase(word) for word in words)
        if not self.words or len(set(self.words)) < len(self.words):
            raise ConfigError(f"words is {list(words)}; one or more words, each once, were wanted")
        self.seed, self.steps_per_epoch, self.overfit, self.workers = seed, steps_per_epoch, overfit, workers
        self.split, self.keep_flagged, self.room_s = split, keep_flagged, (clips or ClipSettings()).seconds / 2
        self.shares = held_out_share, dev_share
        self.masks = augment.masks if augment is not None else None
        root = Path(folder)
        said = self._read(root, positives, self.words[0] if len(self.words) == 1 else None)
        said += self._read(root, negatives or [])
        talk = without_phrases(self._read(root, speech or []), self.words)
        sounds = self._read(root, noises or [])
        noise = Recordings([clip for clip in sounds if self._in(clip, "train")], keep=True)
        augmenter = None if augment is None else Augmenter(augment, noise)
        settings = clips or ClipSettings()
        self.train_clips = self._clips("train", said, talk, sounds, settings, augmenter, seed, batch)
        self.dev_clips = self._clips("dev", said, talk, sounds, settings, None, seed + VALIDATION, batch)
        self.validation = -(-validation // batch)
        names = licences or [f"{Path(name).parent.name or name}: unknown" for name in [*positives, *(speech or [])]]
        self.sources = [dict(zip(("name", "licence"), name.split(": ", 1), strict=True)) for name in names]

    def _read(self, root: Path, names: list[str], only_word: str | None = None) -> list[Clip]:
        clips = [clip for name in names for clip in read_source(root / name, only_word)]
        return [clip for clip in clips if self.keep_flagged or not clip.extra.get("flag")]

    def _in(self, clip: Clip, part: Part) -> bool:
        """Whether words and noises of this clip belong to the part."""
        return not self.split or part_of(person(clip)) == part

    def _talks_in(self, clip: Clip, part: Part) -> bool:
        share, dev = self.shares
        apart = held_out(clip.speaker, share + dev)
        if part == "train":
            return not apart
        return apart and not held_out(clip.speaker, share)

    def _clips(
        self, part: Part, said: list[Clip], talk: list[Clip], sounds: list[Clip], *settings: Any
    ) -> TriggerClips:
        mine = [clip for clip in said if self._in(clip, part)]
        words = [clip for clip in mine if self._number(clip) is not None]
        rest = without_phrases([clip for clip in mine if self._number(clip) is None], self.words)
        heard = [find_utterance(clip, self._number(clip)) for clip in (*words, *rest)]
        positives = [one for one in heard if one.word is not None]
        self._check_words(positives, part)
        others = [one for one in heard if one.word is None]
        long = [one.clip for one in others if one.end_s - one.start_s > self.room_s]  # no words, but talk
        others = [one for one in others if one.end_s - one.start_s <= self.room_s]
        speech = [clip for clip in talk if self._talks_in(clip, part)] + long
        return TriggerClips(positives, others, speech, [clip for clip in sounds if self._in(clip, part)], *settings)

    def _number(self, clip: Clip) -> int | None:
        word = spoken_word(clip)
        return self.words.index(word) if word in self.words else None

    def _check_words(self, positives: Sequence[Utterance], part: Part) -> None:
        counts = np.bincount([one.word for one in positives if one.word is not None], minlength=len(self.words))
        if missing := [word for word, count in zip(self.words, counts, strict=True) if not count]:
            raise InputError(
                f"no recording of {missing[0]!r} is left for {part}: give recordings of more people, or "
                "data.split=false to train and validate on the same ones"
            )

    def train_dataloader(self) -> DataLoader[Any]:
        rank, world = self.trainer.global_rank, self.trainer.world_size  # type: ignore[union-attr]
        make = partial(self.train_clips, rank=rank, world=world)
        return training_loader(make, self.steps_per_epoch, self.workers, self.overfit)

    def val_dataloader(self) -> DataLoader[Any]:
        steps = StepBatches(self.dev_clips)
        return DataLoader(steps, sampler=range(self.validation), batch_size=None, num_workers=self.workers)


class TriggerTask(SequenceTask):
    """The loss over frames; on validation the share of words missed at ``alarms_per_hour`` false alarms.

    A batch is a ``TriggerBatch`` of samples, or a ``FrameBatch`` of what the front made of them before.

    Args:
        data: says ``words``, ``sources``, ``seed`` and ``masks`` (``TriggerData``).
        backbone: a bundle to start the model's backbone from (None: untrained), and ``freeze`` keeps it as it is. A
            model without a backbone has no use for either.
    """

    monitor = "val/misses"

    def __init__(
        self,
        model: TriggerConfig,
        optimiser: OptimiserConfig,
        data: Any,
        loss: TriggerLoss | None = None,
        backbone: str | None = None,
        freeze: bool = False,
        alarms_per_hour: float = 2.0,
    ) -> None:
        super().__init__(optimiser)
        self.sources = list(data.sources)
        weights = None
        if model.backbone is not None and backbone is not None:
            model, weights = self._open(model, backbone)
        elif model.backbone is not None and freeze:
            raise ConfigError(
                "freeze would keep an untrained backbone: give task.backbone=BUNDLE, or task.freeze=false"
            )
        self.network = TriggerNetwork(dataclasses.replace(model, words=tuple(data.words)))
        if weights is not None:
            self.network.front.backbone.load_state_dict(weights)
        self.frozen = weights is not None and freeze
        if self.frozen:
            self.network.front.requires_grad_(False)
        self.trigger_loss, self.alarms_per_hour, self.seed = loss or TriggerLoss(), alarms_per_hour, data.seed
        self.masks = SpecAugment(data.masks) if data.masks is not None and data.masks.probability else None
        self.memories: dict[str, Memories] = {}  # of what is recurrent; the rest looks back over a few frames alone
        for name, part in {"front": getattr(self.network.front, "backbone", None), "head": self.network.head}.items():
            recurrent = getattr(part, "recurrent", None) or getattr(part, "body", None)
            if isinstance(recurrent, Recurrent):
                self.memories[name] = Memories(recurrent, data.seed)
        self._start_counting()

    def _open(self, model: TriggerConfig, path: str) -> tuple[TriggerConfig, dict[str, Tensor]]:
        """The model with the bundle's backbone, and its weights; the corpora it was trained on are sources, too."""
        bundle = load_bundle(path)
        if bundle.kind != "backbone":
            raise ConfigError(f"task.backbone={path} is a {bundle.kind}; a backbone was wanted")
        network = bundle.network(Backbone, BackboneConfig)
        self.sources += [source for source in bundle.training.get("data", []) if source not in self.sources]
        return dataclasses.replace(model, backbone=network.config), network.state_dict()

    def train(self, mode: bool = True) -> "TriggerTask":
        super().train(mode)
        if self.frozen:
            self.network.front.eval()  # no dropout in what does not learn
        return self

    def loss(self, batch: TriggerBatch | FrameBatch) -> tuple[Tensor, int, dict[str, float]]:
        logits, lengths = self._hear(batch)
        return self.trigger_loss(logits, self._places(batch.ends), lengths), len(lengths), {}

    def _hear(self, batch: TriggerBatch | FrameBatch) -> tuple[Tensor, Tensor]:
        """Logits ``(batch, time, words)`` and their lengths. In training the clips go on from other sound."""
        frames, lengths = (batch.frames, batch.lengths) if isinstance(batch, FrameBatch) else self._frames(batch)
        if not self.training or "head" not in self.memories:
            return self.network.head(frames, None, lengths)[0].float(), lengths
        begin = self.memories["head"].begin(len(frames), self.global_step)
        logits, state = self.network.head(frames, (begin, None), lengths)
        self.memories["head"].keep(state[0], self.global_step)
        return logits.float(), lengths

    def _frames(self, batch: TriggerBatch) -> tuple[Tensor, Tensor]:
        front, step = self.network.front, self.global_step
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features, _ = front.features(batch.samples, None, batch.lengths)
            lengths = front.features.output_lengths(batch.lengths)
            if self.training and self.masks is not None:
                features = self.masks(features, lengths, step_generator(self.seed, step, 13))
            if not self.training or "front" not in self.memories:
                frames, _, lengths = front.from_features(features, None, lengths)
                return frames, lengths
            begin = (None, None, self.memories["front"].begin(len(features), step))
            frames, state, lengths = front.from_features(features, begin, lengths)
            self.memories["front"].keep(state[-1], step)
        return frames, lengths

    def _places(self, ends: Sequence[Ends]) -> Places:
        return [[(word, self.network.first_after(end_s)) for word, end_s in said] for said in ends]

    # --- validation --------------------------------------------------------------------------------------------------

    def _start_counting(self) -> None:
        words = len(self.network.words)
        self.hits: list[list[float]] = [[] for _ in range(words)]
        self.alarms: list[list[float]] = [[] for _ in range(words)]
        self.heard_s = 0.0

    def on_validation_epoch_start(self) -> None:
        self._start_counting()

    def validation_step(self, batch: TriggerBatch | FrameBatch, batch_idx: int) -> None:
        logits, lengths = self._hear(batch)
        places = self._places(batch.ends)
        self.log("val/loss", self.trigger_loss(logits, places, lengths), batch_size=len(lengths))
        self._count(logits, places, lengths)

    def _count(self, logits: Tensor, places: Places, lengths: Tensor) -> None:
        """The highest score of each word that is said, and of each clip where it is not."""
        early, late = round(EARLY_S / self.network.frame_s), round(LATE_S / self.network.frame_s)
        calm = lengths_mask(lengths, logits.shape[1])[..., None].repeat(1, 1, logits.shape[2])
        for row, said in enumerate(places):
            for word, frame in said:
                answer = slice(max(0, min(frame, int(lengths[row]) - 1) - early), frame + late)
                self.hits[word].append(float(logits[row, : lengths[row], word][answer].max()))
                calm[row, answer, word] = False
        highest = logits.masked_fill(~calm, -torch.inf).amax(1)
        for word, alarms in enumerate(self.alarms):
            alarms += highest[:, word].tolist()
        self.heard_s += float(lengths.sum()) * self.network.frame_s

    def on_validation_epoch_end(self) -> None:
        allowed = int(self.alarms_per_hour * self.heard_s / 3600)
        missed = [misses_at(hits, alarms, allowed) for hits, alarms in zip(self.hits, self.alarms, strict=True) if hits]
        self.log(self.monitor, 100 * sum(missed) / len(missed) if missed else 100.0, prog_bar=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["memories"] = {name: memories.stored() for name, memories in self.memories.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name, stored in checkpoint.get("memories", {}).items():
            self.memories[name].restore(stored)

    def parts(self) -> BundleParts:
        decoding = dict.fromkeys(self.network.words, DECISION)
        config = dataclasses.asdict(self.network.config)
        return BundleParts("trigger", config, decoding=decoding, training_data=self.sources)


def misses_at(hits: Sequence[float], alarms: Sequence[float], allowed: int) -> float:
    """The share of ``hits`` that are not above the lowest threshold with at most ``allowed`` of the ``alarms``."""
    rest = sorted(alarms, reverse=True)[allowed:]
    threshold = rest[0] if rest else -np.inf
    return sum(hit <= threshold for hit in hits) / len(hits)
