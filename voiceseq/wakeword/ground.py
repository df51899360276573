"""What every wake word stands on, both shipped: the phone backbone, and hours of other sound as its frames."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from voiceseq.bundles import load_bundle
from voiceseq.datasets.bank import AFTER_S, Bank, Stream, weights_sha256
from voiceseq.datasets.frame_codec import dequantise, quantise
from voiceseq.datasets.manifest import held_out
from voiceseq.datasets.synthesis import TriggerClip, gather_clips
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.tasks.histories import Histories
from voiceseq.text.normalise import normalise
from voiceseq.text.pronounce import Pronunciation
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.wakeword.windows import Example, Frames

DEV_SHARE = 0.4  # of the bank's streams are for thresholds alone


class Ground:
    """A backbone and a bank of its frames. Raises BundleError where they do not belong together."""

    def __init__(self, backbone: str, bank: str) -> None:
        self.bundle = load_bundle(backbone)
        self.network = self.bundle.network(Backbone, BackboneConfig).eval()
        self.bank = Bank.load(bank, weights_sha256(self.bundle))
        self.histories = Histories(self.network, seed=1)
        self._heard = 0

    def streams(self, phrases: Sequence[str]) -> tuple[list[Stream], list[Stream]]:
        """For training and for thresholds, without what says one of the phrases."""
        train: list[Stream] = []
        dev: list[Stream] = []
        spoken = [tuple(normalise(phrase).split()) for phrase in phrases]
        for place, stream in enumerate(self.bank):
            part = dev if held_out(f"{stream.source}-{place}", DEV_SHARE) else train
            part += stream.without(spoken, round(AFTER_S / self.bank.frame_s))
        return train, dev

    def spell(self, ways: Sequence[Pronunciation]) -> tuple[tuple[int, ...], ...]:
        """Pronunciations as numbers of the backbone's phones."""
        phones = Vocabulary.from_json(self.bundle.vocabularies["phones"])
        return tuple(tuple(phones.index(phone) for phone in way) for way in ways)

    def hear(self, clips: Iterable[TriggerClip], rows: int = 32) -> list[Example]:
        """The backbone's frames of clips, in their order; half precision, since there are hours of them.

        The clips are heard in the middle of streams, as the bank's frames were and as words are said.
        """
        examples: list[Example] = []
        waiting: list[TriggerClip] = []
        for clip in clips:
            waiting.append(clip)
            if len(waiting) == rows:
                examples += self._hear(waiting)
                waiting = []
        return examples + self._hear(waiting) if waiting else examples

    def _hear(self, clips: Sequence[TriggerClip]) -> list[Example]:
        batch = gather_clips(clips)
        with torch.inference_mode():
            self.histories.go_on(self._heard)
            memory = self.histories.begin(len(clips), self._heard)
            output, state = self.network(batch.samples, (None, None, None, memory), batch.lengths)
            self.histories.keep(state[-1], self._heard)
        self._heard += 1
        rows = zip(output.bottleneck.numpy(), output.lengths.tolist(), batch.ends, strict=True)
        return [Example(self._as_in_the_bank(frames[:length]), ends) for frames, length, ends in rows]

    def _as_in_the_bank(self, frames: Frames) -> Frames:
        """The bank's frames are coarse; what stands against them must be as coarse, or a head learns to see that."""
        levels = self.bank.config.levels
        return dequantise(quantise(frames, levels), levels).astype(np.float16)
