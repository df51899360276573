"""Teaching Whisper short windows, small letters and our corpora: cross-entropy of pieces plus CTC of characters."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.audio.augment import AugmentConfig
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.bundles import load_bundle
from voiceseq.core.ctc import ctc_loss, frames_needed
from voiceseq.core.distance import edit_distance
from voiceseq.core.losses import cross_entropy
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import greedy
from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.pairs import pad
from voiceseq.datasets.speech import SpeechBatch, SpeechBatches, Spoken
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.whisper import FRAME_S, LONGEST_S, WhisperConfig, WhisperNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.speech import SAMPLE_RATE, SpeechData, learn_faster
from voiceseq.text.normalise import normalise
from voiceseq.text.pieces import Pieces
from voiceseq.text.vocabulary import Vocabulary

LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
SPARE_S = 1.0  # what augmentation may add to a clip, and the silence after it
MOST_TOKENS_PER_S, FEW_TOKENS = 8.0, 10  # validation does not write for ever


class WhisperData(SpeechData):
    """Transcribed speech spelt in the pieces of ``vocabulary``, a bundle of kind ``whisper``; others as ``SpeechData``.

    Args:
        silences: manifests of noise and music, in which nothing is said; cut into ``silence_s`` seconds.
        validation_s: about so many seconds of each dev set are transcribed after an epoch.
    """

    unfit = "a text that a-z cannot spell, more letters than frames, or more than 30 s"

    def __init__(
        self,
        vocabulary: str,
        folder: str,
        train: list[str],
        validation: list[str],
        batch_s: float = 60.0,
        steps_per_epoch: int = 200,
        held_out_share: float = 0.0,
        augment: AugmentConfig | None = None,
        noises: list[str] | None = None,
        silences: list[str] | None = None,
        silence_s: float = 6.0,
        held_out_noise: float = 0.0,
        hard_share: float = 0.5,
        validation_s: float = 240.0,
        workers: int = 0,
        seed: int = 1,
        overfit: bool = False,
        licences: list[str] | None = None,
    ) -> None:
        self.pieces = Pieces.from_json(load_bundle(vocabulary).vocabularies["pieces"])
        self.letters = Vocabulary.from_text(LETTERS, specials=("blank",))
        super().__init__(
            folder,
            train,
            validation,
            batch_s,
            steps_per_epoch,
            1 / FRAME_S,
            held_out_share,
            augment,
            noises,
            held_out_noise,
            0,
            hard_share,
            workers,
            seed,
            overfit,
            licences,
        )
        sounds = [clip for name in silences or [] for clip in read_manifest(Path(folder) / name)]
        quiet = [part for clip in sounds if not held_out(clip.id, held_out_noise) for part in cut(clip, silence_s)]
        spoken = [*self.batches.spoken, *(Spoken(clip, (self.pieces.specials["end"],)) for clip in quiet)]
        self.batches = SpeechBatches(spoken, SAMPLE_RATE, batch_s, seed, self.batches.hardening)
        self.held_out = {
            name: SpeechBatches(thinned(part.spoken, validation_s), SAMPLE_RATE, batch_s, seed)
            for name, part in self.held_out.items()
        }

    def spell(self, clip: Clip) -> tuple[int, ...] | None:
        """The pieces of the text and the end; None where letters do not fit into the frames."""
        try:
            text = normalise(clip.text or "")
        except InputError:
            return None
        letters = torch.tensor([self.letters.encode(text)])
        if not text or clip.duration > LONGEST_S - SPARE_S:
            return None
        if int(frames_needed(letters, torch.tensor([letters.shape[1]]))) * FRAME_S > clip.duration / 1.3:
            return None
        return (*self.pieces.encode(f" {text}"), self.pieces.specials["end"])


def cut(clip: Clip, seconds: float) -> list[Clip]:
    """A recording as clips of so many seconds."""
    count = max(1, round(clip.duration / seconds))
    step = clip.duration / count
    return [
        dataclasses.replace(clip, id=f"{clip.id}-{number}", offset=clip.offset + number * step, duration=step)
        for number in range(count)
    ]


def thinned(spoken: Sequence[Spoken], seconds: float) -> list[Spoken]:
    """Every n-th clip, about so many seconds in all."""
    total = sum(item.clip.duration for item in spoken)
    return list(spoken[:: max(1, round(total / seconds))])


class WhisperTask(SequenceTask):
    """On validation the word error rate of greedy decoding, for each corpus and in the mean.

    Args:
        ctc: weight of the CTC loss of characters; the cross-entropy of pieces has 1.
        ctc_from: until this step the new CTC head learns without a say in what the encoder does: its first mistakes
            are so large that the encoder would forget what it knows.
        head_rate: how many times faster than the rest that head learns.
        smoothing: of the labels in the cross-entropy.
        frozen: parts of the network that stay as they are.
        extra_tail_s: in training up to so much more silence follows a clip than ``model.tail_s``.
    """

    monitor = "val/word error"

    def __init__(
        self,
        model: WhisperConfig,
        optimiser: OptimiserConfig,
        data: WhisperData,
        ctc: float = 0.3,
        ctc_from: int = 0,
        head_rate: float = 1.0,
        smoothing: float = 0.05,
        frozen: list[str] | None = None,
        extra_tail_s: float = 0.5,
    ) -> None:
        super().__init__(optimiser)
        self.pieces, self.letters, self.seed, self.sources = data.pieces, data.letters, data.seed, data.sources
        self.network = WhisperNetwork(
            dataclasses.replace(model, symbols=len(data.pieces), characters=len(data.letters))
        )
        self.head_rate = head_rate
        self.ctc, self.ctc_from, self.smoothing, self.extra_tail_s = ctc, ctc_from, smoothing, extra_tail_s
        self.masks = SpecAugment(data.masks) if data.masks is not None else None
        self.errors: dict[str, list[int]] = {}
        for name in frozen or []:
            part = getattr(self.network, name, None)
            if not isinstance(part, torch.nn.Module):
                known = ", ".join(name for name, _ in self.network.named_children())
                raise ConfigError(f"task.frozen: the network has no part {name!r}; it has {known}")
            part.requires_grad_(False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimiser = self.optimiser.build(self.network)
        learn_faster(optimiser, list(self.network.ctc.parameters()), self.optimiser.learning_rate * self.head_rate)
        return optimiser

    def loss(self, batch: SpeechBatch) -> tuple[Tensor, int, dict[str, float]]:
        frames, lengths = self._hear(batch)
        prompt = torch.tensor([self.prompt]).expand(len(frames), -1)
        tokens = torch.cat((prompt, batch.targets[:, :-1]), 1)
        logits = self.network(frames, lengths, tokens)[:, len(self.prompt) - 1 :]
        written = cross_entropy(logits.float(), batch.targets, batch.target_lengths, self.smoothing)
        log_probs = self.network.characters(frames.detach() if self.global_step < self.ctc_from else frames)
        spelt, counts = self._characters(batch)
        heard = ctc_loss(log_probs, spelt, lengths, counts, impossible="skip").loss
        metrics = {"written": written.item(), "heard": heard.item()}
        return written + self.ctc * heard, len(batch.lengths), metrics

    @property
    def prompt(self) -> list[int]:
        return [self.pieces.specials["start"], self.pieces.specials["no_timestamps"]]

    def _hear(self, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """The encoder's frames; in training after a random moment of silence more, and masked where augmented."""
        samples, lengths = batch.samples, batch.lengths
        chance = step_generator(self.seed, self.global_step)
        if self.training:
            most = round(self.extra_tail_s * SAMPLE_RATE)
            samples = functional.pad(samples, (0, most))
            lengths = lengths + torch.randint(most + 1, lengths.shape, generator=chance)
        mels, counts = self.network.features(*self.network.window(samples, lengths))
        if self.training and batch.augmented and self.masks is not None:
            mels = self.masks(mels, counts, chance)
        return self.network.encode(mels, counts)

    def _characters(self, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """The same texts for CTC; an empty one stands as length 0."""
        texts = self._texts(batch)
        spelt, counts = pad([self.letters.encode(text or " ") for text in texts])
        return spelt, torch.tensor([count if text else 0 for count, text in zip(counts.tolist(), texts, strict=True)])

    def _texts(self, batch: SpeechBatch) -> list[str]:
        rows = zip(batch.targets.tolist(), batch.target_lengths.tolist(), strict=True)
        return [self.pieces.decode(row[:length]).strip() for row, length in rows]

    def on_validation_epoch_start(self) -> None:
        self.errors = {}

    def validation_step(self, batch: tuple[str, SpeechBatch], batch_idx: int) -> None:
        name, speech = batch
        loss, count, metrics = self.loss(speech)
        values = {"val/loss": loss} | {f"val/{key}": value for key, value in metrics.items()}
        self.log_dict(values, on_epoch=True, batch_size=count)
        counts = self.errors.setdefault(name, [0, 0])
        for found, wanted in zip(self._write(speech), self._texts(speech), strict=True):
            counts[0] += edit_distance(found.split(), wanted.split())
            counts[1] += len(wanted.split())

    def _write(self, batch: SpeechBatch) -> list[str]:
        """Greedy decoding."""
        frames, lengths = self._hear(batch)
        memory = self.network.start(frames, lengths)
        first = torch.full((len(frames),), self.prompt[0])
        _, caches = self.network.step(first, None, memory)
        scorer = StepScorer(self.network.step, caches, memory)
        limit = (batch.lengths / SAMPLE_RATE * MOST_TOKENS_PER_S).long() + FEW_TOKENS
        found = greedy([(scorer, 1.0)], len(frames), self.prompt[1], self.pieces.specials["end"], max_length=limit)
        return [self.pieces.decode(best.tokens).strip() for best in found]

    def on_validation_epoch_end(self) -> None:
        rates = {name: 100 * wrong / max(1, total) for name, (wrong, total) in self.errors.items()}
        self.log_dict({f"val/{name}": rate for name, rate in rates.items()})
        self.log(self.monitor, sum(rates.values()) / max(1, len(rates)), prog_bar=True)
        self.print("word errors: " + ", ".join(f"{name} {rate:.1f} %" for name, rate in rates.items()), flush=True)

    def parts(self) -> BundleParts:
        config: dict[str, Any] = dataclasses.asdict(self.network.config)
        vocabularies = {"pieces": self.pieces.to_json(), "letters": self.letters.to_json()}
        return BundleParts("whisper", config, vocabularies, training_data=self.sources)
