"""An encoder-decoder at work: one text in, the best few texts out, and what the attention looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import beam_search
from voiceseq.datasets.pairs import pad
from voiceseq.errors import InputError
from voiceseq.models.seq2seq import Seq2SeqConfig, Seq2SeqNetwork, seq2seq
from voiceseq.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Candidate:
    """A text that the search found, with its score."""

    text: str
    score: float


class Transducer:
    """``voiceseq.load("dates")``: ``convert(["July 20th 1969"])``, ``attention("July 20th 1969")``."""

    def __init__(
        self,
        network: Seq2SeqNetwork,
        source: Vocabulary,
        target: Vocabulary,
        beam: int = 4,
        alpha: float = 0.0,
        max_length: int = 40,
    ) -> None:
        self.network = network.eval()
        self.source, self.target = source, target
        self.beam, self.alpha, self.max_length = beam, alpha, max_length

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        network = bundle.fill(seq2seq(bundle.config_as(Seq2SeqConfig)))
        source, target = (Vocabulary.from_json(bundle.vocabularies[side]) for side in ("source", "target"))
        return cls(network, source, target, **bundle.decoding)

    def convert(self, texts: Sequence[str], beam: int | None = None) -> list[str]:
        """The best output for each text."""
        return [found[0].text for found in self.candidates(texts, beam, nbest=1)]

    @torch.no_grad()
    def candidates(self, texts: Sequence[str], beam: int | None = None, nbest: int = 5) -> list[list[Candidate]]:
        """The ``nbest`` best outputs for each text, best first. Raises InputError for an empty text."""
        source, lengths = self._encode(texts)
        scorer = StepScorer(self.network.step, *self.network.start(source, lengths))
        found = beam_search(
            [(scorer, 1.0)],
            len(texts),
            self.target.special("bos"),
            self.target.special("eos"),
            beam=max(beam or self.beam, nbest),
            max_length=self.max_length,
            alpha=self.alpha,
            nbest=nbest,
        )
        return [[Candidate(self.target.decode(best.tokens), best.score) for best in row] for row in found]

    @torch.no_grad()
    def attention(self, text: str, output: str | None = None) -> Tensor:
        """``(output symbols + end, input symbols)``: where it looked while it wrote ``output`` (or its best)."""
        source, lengths = self._encode([text])
        written = self.target.encode(self.convert([text])[0] if output is None else output)
        inputs = torch.tensor([[self.target.special("bos"), *written]])
        weights = self.network.weights(source, inputs, lengths)
        if weights is None:
            raise InputError("this model has no attention; train one with model.attention=additive")
        return weights[0]

    def _encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        if not all(texts) or not texts:
            raise InputError("an empty text came; give at least one symbol a text")
        return pad([self.source.encode(text) for text in texts])
