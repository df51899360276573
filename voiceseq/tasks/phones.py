"""Training the phone backbone: CTC over phones on transcribed speech."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from voiceseq.audio.augment import AugmentConfig
from voiceseq.audio.files import Audio
from voiceseq.audio.noises import made_noises
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.core.distance import edit_distance
from voiceseq.core.masks import lengths_mask
from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.speech import Lesson, SpeechBatch
from voiceseq.datasets.teachers import SIZE, Lessons, learn_lessons
from voiceseq.models.backbone import Backbone, BackboneConfig, BackboneOutput
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.speech import SpeechData, warp
from voiceseq.text.pronounce import PHONES, Pronunciation, read_dictionary
from voiceseq.text.vocabulary import Vocabulary

WINDOW_S = 0.025  # a frame is known when its analysis window is full
FRAMES_A_PHONE = 3.0  # as people speak


class PhoneData(SpeechData):
    """Transcribed speech, spelt in phones by dictionaries; other settings as of ``SpeechData``.

    Args:
        dictionaries: earlier ones first; clips with words that none of them has are left out. What ``voiceseq
            pronounce`` writes for such words is a dictionary too.
        teacher, lessons: the folder of a teacher (``datasets.teachers``) and the file where its frames are kept.
        made_noises: so many noises that need no recordings (``audio.noises``) are mixed in too: no package of
            recordings has the white hiss of a cheap microphone.
    """

    unfit = "a word that no dictionary has, nothing said, or too many phones for the time"

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
        made_noises: int = 0,
        workers: int = 0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
        silences: list[str] | None = None,
        silence_s: float = 4.0,
    ) -> None:
        self.vocabulary = Vocabulary(("<blank>", *PHONES), "word", ("blank",))
        self.words: dict[str, list[Pronunciation]] = {}
        for file in dictionaries:
            self.words = read_dictionary(file) | self.words
        self.teacher, self.made_noises = (teacher, lessons), made_noises
        super().__init__(
            folder,
            train,
            validation,
            batch_s,
            steps_per_epoch,
            frames_per_s,
            held_out_share,
            augment,
            noises,
            held_out_noise,
            hard_from,
            hard_share,
            workers,
            seed,
            overfit,
            licences,
            silences,
            silence_s,
        )

    def learn_lessons(self, clips: Sequence[Clip]) -> Lessons | None:
        teacher, lessons = self.teacher
        return learn_lessons(clips, teacher, lessons) if teacher and lessons else None

    def make_noises(self) -> list[Audio]:
        return made_noises(self.made_noises, self.seed)

    def spell(self, clip: Clip) -> tuple[int, ...] | None:
        """None where a word is unknown."""
        words: list[Pronunciation] = []
        for word in (clip.text or "").split():
            if word not in self.words:
                return None
            words.append(self.words[word][0])
        return tuple(self.vocabulary.index(phone) for word in words for phone in word)


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
        output = self._run(batch)
        loss = self._phones(output, batch)
        if self.reading is None or batch.lesson is None:
            return loss, len(batch.lengths), {}
        distance = self._distance(output.bottleneck, output.lengths, batch.lesson)
        return loss + self.teaching * distance, len(batch.lengths), {"taught": distance.item(), "ctc": loss.item()}

    def _phones(self, output: BackboneOutput, batch: SpeechBatch) -> Tensor:
        """CTC's loss per phone. Where nothing is said, a few frames count as a phone: else noise would be all."""
        log_probs = output.logits.float().log_softmax(-1)
        silent = batch.target_lengths == 0
        loss, said = log_probs.new_zeros(()), ~silent
        if bool(said.any()):
            rows = (log_probs[said], batch.targets[said], output.lengths[said], batch.target_lengths[said])
            loss = loss + ctc_loss(*rows).loss * int(said.sum())
        if bool(silent.any()):
            valid = lengths_mask(output.lengths[silent], log_probs.shape[1])
            quiet = (-log_probs[silent, :, 0] * valid).sum(1) / output.lengths[silent].clamp(min=1)
            loss = loss + FRAMES_A_PHONE * quiet.sum()
        return loss / len(silent)

    def _run(self, batch: SpeechBatch) -> BackboneOutput:
        frames, _ = self.network.features(batch.samples, None, batch.lengths)
        lengths = self.network.features.output_lengths(batch.lengths)
        if batch.augmented:
            chance = step_generator(self.seed, self.global_step)
            if self.warping:
                frames = warp(frames, 1 + self.warping * (2 * torch.rand(len(frames), generator=chance) - 1))
            if self.masks is not None:
                frames = self.masks(frames, lengths, chance)
        return self.network.from_features(frames, (None,) * 4, lengths)[0]

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
        output = self._run(speech)
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
