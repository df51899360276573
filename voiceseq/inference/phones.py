"""The phone backbone at work: the phones in a recording, with their times."""

from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.audio.resample import finite, resample
from voiceseq.bundles import Bundle
from voiceseq.core.ctc import TokenSpan, ctc_greedy
from voiceseq.errors import InputError
from voiceseq.inference.opening import open_vocabulary
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.text.vocabulary import Vocabulary


class PhoneRecogniser:
    """``voiceseq.load(BUNDLE).phones(samples, sample_rate)``."""

    def __init__(self, network: Backbone, vocabulary: Vocabulary) -> None:
        self.network, self.vocabulary = network.eval(), vocabulary

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError when weights, config and phones do not belong together."""
        network = bundle.network(Backbone, BackboneConfig)
        return cls(network, open_vocabulary(bundle, "phones", network.config.symbols))

    @torch.no_grad()
    def phones(self, samples: NDArray[np.float32], sample_rate: int) -> list[tuple[str, float, float]]:
        """``(phone, start, end)`` in seconds for ``samples (n,)``, by the best path. Nothing in less than a frame."""
        if samples.ndim != 1:
            raise InputError(f"samples have shape {samples.shape}; one channel (n,) was wanted")
        config = self.network.config.features
        wave = resample(finite(samples)[0], sample_rate, config.sample_rate)
        output, _ = self.network(torch.from_numpy(wave)[None])
        if not output.logits.shape[1]:
            return []
        spans: list[TokenSpan] = list(ctc_greedy(output.logits.log_softmax(-1))[0].spans)
        step = self.network.frame_s
        return [(self.vocabulary.symbols[span.token], span.start * step, span.end * step) for span in spans]
