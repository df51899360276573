"""Training acoustic models: CTC, with an attention decoder beside it where the network has one."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter, functional

from voiceseq.audio.augment import AugmentConfig
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.core.distance import edit_distance
from voiceseq.core.losses import joint_ctc_attention
from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.datasets.speech import SpeechBatch
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.acoustic import LM_FILE, AcousticConfig, AcousticOutput
from voiceseq.models.whisper_stream import build_acoustic
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.speech import SpeechData, learn_faster, warp
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.ngram import arpa, packed
from voiceseq.text.normalise import normalise
from voiceseq.text.vocabulary import Level, Vocabulary

LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
LEVELS = ("character", "subword")
SPECIALS = ("blank", "eos")
HEADS = ("above.", "encoder.above.", "output.", "decoder.")  # what stands above an encoder
PRUNE = (0, 0, 0, 1)  # longer n-grams that occur once are left out of the bundle's language model


class RecognitionData(SpeechData):
    """Transcribed speech, spelt in letters or in subwords; other settings as of ``SpeechData``.

    Args:
        level: ``character``, or ``subword`` for at most ``pieces`` symbols learned from the training texts.
        texts: manifests of the folder whose texts the subwords and the language model are learned from, where these
            are not those of all training clips: what a recogniser hears at work may be a part of what it learns from.
        silences: manifests of noise and music, cut into ``silence_s`` seconds, in which there is nothing to write.
    """

    unfit = "a text that a-z cannot spell or an empty one, or more symbols than the clip has frames for"

    def __init__(
        self,
        folder: str,
        train: list[str],
        validation: list[str],
        batch_s: float = 80.0,
        steps_per_epoch: int = 200,
        frames_per_s: float = 33.0,
        held_out_share: float = 0.0,
        augment: AugmentConfig | None = None,
        noises: list[str] | None = None,
        held_out_noise: float = 0.0,
        hard_from: int = 400,
        hard_share: float = 0.5,
        workers: int = 0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
        level: Level = "character",
        pieces: int = 300,
        texts: list[str] | None = None,
        silences: list[str] | None = None,
        silence_s: float = 4.0,
    ) -> None:
        if level not in LEVELS:
            raise ConfigError(f"level is {level!r}; choose one of {', '.join(LEVELS)}")
        self.level, self.pieces = level, pieces
        self.read = [clip for name in texts or [] for clip in read_manifest(Path(folder) / name)]
        self.vocabulary = Vocabulary.from_text(LETTERS, specials=SPECIALS)
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

    def learn_spelling(self, clips: Sequence[Clip]) -> None:
        if self.level == "subword":
            texts = [LETTERS, *_texts(self.read or clips)]
            self.vocabulary = Vocabulary.from_text(texts, "subword", size=self.pieces, specials=SPECIALS)

    def spell(self, clip: Clip) -> tuple[int, ...] | None:
        text = _plain(clip)
        return None if text is None else tuple(self.vocabulary.encode(text))

    @property
    def texts(self) -> list[str]:
        """What a language model learns from: what was said in the training clips, or was given to be read."""
        said = [self.vocabulary.decode(item.target) for item in self.batches.spoken if item.target]
        return _texts(self.read) if self.read else said


def _texts(clips: Sequence[Clip]) -> list[str]:
    return [text for clip in clips if (text := _plain(clip))]


def _plain(clip: Clip) -> str | None:
    try:
        return normalise(clip.text or "")
    except InputError:
        return None


class RecognitionTask(SequenceTask):
    """CTC loss, or its weighted mean with the decoder's; on validation the word and letter error rates of greedy CTC.

    ``val/wer`` is over all groups (a group is a manifest's folder), each group has its own beside it. Clips that are
    too short for their text are left out by the data and said there; where augmentation makes a clip too short, it is
    left out of the mean and counted in ``train/too short``.

    Args:
        ctc_weight: of CTC's loss where there is a decoder; the rest is the decoder's.
        label_smoothing: of the decoder's loss.
        warping: share by which a voice's spectrum is stretched or squeezed at most in training.
        lm_order: of the n-gram model of the training texts that goes into the bundle; 0 for none.
        head_rate: how many times faster than the encoder that learns what stands above it; for an encoder that is
            trained already. ``encoder_from``: until this step the encoder stays as it is.
    """

    monitor = "val/wer"

    def __init__(
        self,
        model: AcousticConfig,
        optimiser: OptimiserConfig,
        data: RecognitionData,
        ctc_weight: float = 0.3,
        label_smoothing: float = 0.1,
        warping: float = 0.0,
        lm_order: int = 4,
        head_rate: float = 1.0,
        encoder_from: int = 0,
    ) -> None:
        super().__init__(optimiser)
        if not 0 < ctc_weight <= 1:
            raise ConfigError(f"ctc_weight is {ctc_weight}; more than 0 and at most 1 was wanted")
        self.network = build_acoustic(dataclasses.replace(model, symbols=len(data.vocabulary)))
        self.head_rate, self.encoder_from = head_rate, encoder_from
        self.vocabulary, self.sources, self.seed = data.vocabulary, data.sources, data.seed
        self.eos = data.vocabulary.special("eos")
        self.masks = SpecAugment(data.masks) if data.masks is not None else None
        self.hard_from, self.warping = data.hard_from, warping
        self.ctc_weight, self.label_smoothing = ctc_weight, label_smoothing
        self.texts, self.lm_order = data.texts, lm_order
        self.counts: dict[str, list[int]] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimiser = self.optimiser.build(self.network)
        if self.head_rate != 1:
            learn_faster(optimiser, self._weights(heads=True), self.optimiser.learning_rate * self.head_rate)
        return optimiser

    def own_name(self, name: str) -> str:
        """Of the phone backbone, too: its convolutions or recurrent layers are the encoder here."""
        return re.sub(r"^network\.(convolutions|recurrent)\.", r"network.encoder.\1.", name)

    def _weights(self, heads: bool) -> list[Parameter]:
        """Those of CTC's output and the decoder, or those of all the rest."""
        named = self.network.named_parameters()
        return [parameter for name, parameter in named if name.startswith(HEADS) is heads]

    def on_train_batch_start(self, batch: SpeechBatch, batch_idx: int) -> None:
        if self.encoder_from:
            for parameter in self._weights(heads=False):
                parameter.requires_grad_(self.global_step >= self.encoder_from)

    def loss(self, batch: SpeechBatch) -> tuple[Tensor, int, dict[str, float]]:
        output = self._hear(batch)
        log_probs = output.logits.float().log_softmax(-1)
        arguments = (batch.targets, output.lengths, batch.target_lengths)
        impossible = "skip" if self.training else "error"
        if self.network.decoder is None:
            loss, skipped = ctc_loss(log_probs, *arguments, impossible=impossible)  # type: ignore[arg-type]
            metrics = {}
        else:
            written = functional.pad(batch.targets, (1, 0), value=self.eos)
            logits = self.network.decoder(written, output.frames, output.lengths, batch.target_lengths + 1)
            loss, ctc, attention, skipped = joint_ctc_attention(
                log_probs,
                logits.float(),
                *arguments,
                eos=self.eos,
                weight=self.ctc_weight,
                label_smoothing=self.label_smoothing if self.training else 0.0,
                impossible=impossible,  # type: ignore[arg-type]
            )
            metrics = {"ctc": ctc.item(), "attention": attention.item()}
        if self.training:
            self.log("train/too short", float(skipped), on_step=False, on_epoch=True, reduce_fx="sum", batch_size=1)
        return loss, len(batch.lengths), metrics

    def _hear(self, batch: SpeechBatch) -> AcousticOutput:
        frames, lengths = self.network.listen(batch.samples, batch.lengths)
        if self.training and self.global_step >= self.hard_from:
            chance = step_generator(self.seed, self.global_step)
            if self.warping:
                frames = warp(frames, 1 + self.warping * (2 * torch.rand(len(frames), generator=chance) - 1))
            if self.masks is not None:
                frames = self.masks(frames, lengths, chance)
        return self.network.encode(frames, lengths)

    def on_validation_epoch_start(self) -> None:
        self.counts = {}

    def validation_step(self, batch: tuple[str, SpeechBatch], batch_idx: int) -> None:
        name, speech = batch
        output = self._hear(speech)
        log_probs = output.logits.float().log_softmax(-1)
        loss = ctc_loss(log_probs, speech.targets, output.lengths, speech.target_lengths).loss
        self.log("val/loss", loss, batch_size=len(speech.lengths))
        counts = self.counts.setdefault(name, [0, 0, 0, 0])
        found = [self.vocabulary.decode(best.tokens) for best in ctc_greedy(log_probs, output.lengths)]
        for text, target, length in zip(found, speech.targets, speech.target_lengths, strict=True):
            wanted = self.vocabulary.decode(target[:length].tolist())
            errors = edit_distance(text.split(), wanted.split()), edit_distance(text, wanted)
            for place, count in enumerate((errors[0], len(wanted.split()), errors[1], len(wanted))):
                counts[place] += count

    def on_validation_epoch_end(self) -> None:
        rows = self.counts | {"": [sum(column) for column in zip(*self.counts.values(), strict=True)]}
        for name, (words, of_words, letters, of_letters) in rows.items():
            end = f" {name}" if name else ""
            self.log(f"val/wer{end}", 100 * words / max(1, of_words), prog_bar=not name)
            self.log(f"val/cer{end}", 100 * letters / max(1, of_letters))

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        decoding = {"decoder": "beam" if self.network.decoder is None else "rescore"}
        files = {LM_FILE: self._language_model()} if self.lm_order else {}
        return BundleParts("recogniser", config, {"text": self.vocabulary.to_json()}, decoding, self.sources, files)

    def _language_model(self) -> bytes:
        """An n-gram model of the training texts: over words, or over subwords where these are the symbols."""
        letters = self.vocabulary.level == "character"
        lines = [text.split() if letters else self.vocabulary.split(text) for text in self.texts]
        order = min(self.lm_order, max(map(len, lines)) + 2)
        return packed(arpa(train_ngram(lines, order, PRUNE[:order])))
