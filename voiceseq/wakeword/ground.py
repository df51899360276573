"""What every wake word stands on, both shipped: the phone backbone, and hours of other sound as its frames."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from voiceseq.bundles import load_bundle
from voiceseq.datasets.bank import AFTER_S, Bank, Stream, weights_sha256
from voiceseq.datasets.frame_codec import dequantise, quantise
from voiceseq.datasets.manifest import held_out
from voiceseq.datasets.synthesis import TriggerClip, gather_clips
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.text.normalise import normalise
from voiceseq.text.pronounce import Pronunciation
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.wakeword.windows import Example, Frames

DEV_SHARE = 0.4  # of the bank is for thresholds alone: of its streams of speech, of the sources of noise and music
LEAD_S = 2.4  # of other sound before a clip: longer than the backbone looks back


class Ground:
    """A backbone and a bank of its frames. Raises BundleError where they do not belong together."""

    def __init__(self, backbone: str, bank: str) -> None:
        self.bundle = load_bundle(backbone)
        self.network = self.bundle.network(Backbone, BackboneConfig).eval()
        self.bank = Bank.load(bank, weights_sha256(self.bundle))
        features = self.network.features.config
        self._lead = round(LEAD_S / self.network.frame_s)
        # what was heard last
        self._before = torch.zeros(self._lead * features.hop * self.network.config.stride)

    def streams(self, phrases: Sequence[str]) -> tuple[list[Stream], list[Stream]]:
        """For training and for thresholds, without what says one of the phrases."""
        train: list[Stream] = []
        dev: list[Stream] = []
        spoken = [tuple(normalise(phrase).split()) for phrase in phrases]
        streams = list(self.bank)
        learned = sources_to_learn(streams)
        for place, stream in enumerate(streams):
            known = stream.kind == "speech" and not held_out(f"{stream.source}-{place}", DEV_SHARE)
            part = train if known or (stream.kind, stream.source) in learned else dev
            part += stream.without(spoken, round(AFTER_S / self.bank.frame_s))
        return train, dev

    def spell(self, ways: Sequence[Pronunciation]) -> tuple[tuple[int, ...], ...]:
        """Pronunciations as numbers of the backbone's phones."""
        phones = Vocabulary.from_json(self.bundle.vocabularies["phones"])
        return tuple(tuple(phones.index(phone) for phone in way) for way in ways)

    def hear(self, clips: Iterable[TriggerClip], rows: int = 32) -> list[Example]:
        """The backbone's frames of clips, in their order; half precision, since there are hours of them.

        They are heard one after the other, in the middle of a stream, as the bank's frames were and as words are said.
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
        before = [self._before]
        for samples, length in zip(batch.samples, batch.lengths.tolist(), strict=True):
            before.append(torch.cat((before[-1], samples[:length]))[-len(self._before) :])
        self._before = before.pop()
        with torch.inference_mode():
            samples = torch.cat((torch.stack(before), batch.samples), 1)
            output, _ = self.network(samples, None, batch.lengths + len(self._before))
        rows = zip(
            output.bottleneck[:, self._lead :].numpy(), (output.lengths - self._lead).tolist(), batch.ends, strict=True
        )
        return [Example(self._as_in_the_bank(frames[:length]), ends) for frames, length, ends in rows]

    def _as_in_the_bank(self, frames: Frames) -> Frames:
        """The bank's frames are coarse; what stands against them must be as coarse, or a head learns to see that."""
        levels = self.bank.config.levels
        return dequantise(quantise(frames, levels), levels).astype(np.float16)


def sources_to_learn(streams: Sequence[Stream]) -> set[tuple[str, str]]:
    """The sources of noise and music to train on: a threshold is to hold for others, whose sound differs more."""
    found: set[tuple[str, str]] = set()
    for kind in {stream.kind for stream in streams} - {"speech"}:
        names = {stream.source for stream in streams if stream.kind == kind}
        order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        found |= {(kind, name) for name in order[round(DEV_SHARE * len(order)) :]}
    return found
