"""An encoder-decoder at work: one text in, the best few texts out, and what the attention looked at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.scorers import Scorer, StepScorer, TokenBonus
from voiceseq.core.search import beam_search, score_sequence
from voiceseq.datasets.pairs import pad
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.models.seq2seq import Seq2SeqConfig, Seq2SeqNetwork, seq2seq
from voiceseq.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Decoding:
    """How a transducer searches: ``alpha`` is the length normalisation (0: none), ``max_length`` the most symbols.

    Raises ConfigError for numbers out of their range.
    """

    beam: int = 4
    alpha: float = 0.0
    max_length: int = 40

    def __post_init__(self) -> None:
        for name in ("beam", "max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; at least 1 was wanted")
        if not 0 <= self.alpha < math.inf:
            raise ConfigError(f"alpha is {self.alpha}; 0 (no length normalisation) or more was wanted")


@dataclass(frozen=True)
class Candidate:
    """A text that the search found, with its score."""

    text: str
    score: float


class Transducer:
    """``voiceseq.load("dates")``: ``convert(["July 20th 1969"])``, ``attention("July 20th 1969")``.

    Raises InputError for a target vocabulary without ``bos`` and ``eos``.
    """

    def __init__(
        self, network: Seq2SeqNetwork, source: Vocabulary, target: Vocabulary, decoding: Decoding | None = None
    ) -> None:
        self.network = network.eval()
        self.source, self.target = source, target
        self.decoding = decoding or Decoding()
        self.bos, self.eos = target.special("bos"), target.special("eos")
        self.barred = torch.zeros(len(target))
        self.barred[list(target.special_ids - {self.eos})] = -torch.inf  # nobody writes "<unk>"

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not make a transducer."""
        network = bundle.network(seq2seq, Seq2SeqConfig)
        source = open_vocabulary(bundle, "source", network.config.source)
        target = open_vocabulary(bundle, "target", network.config.target, check=has_ends)
        return cls(network, source, target, bundle.decoding_as(Decoding))

    def convert(self, texts: Sequence[str], beam: int | None = None) -> list[str]:
        """The best output for each text. Raises InputError as ``candidates`` does."""
        return [found[0].text for found in self.candidates(texts, beam, nbest=1)]

    @torch.no_grad()
    def candidates(
        self, texts: Sequence[str], beam: int | None = None, nbest: int | None = None
    ) -> list[list[Candidate]]:
        """The ``nbest`` best outputs for each text, best first; ``beam`` of them where it is not said.

        Fewer where the search ends with fewer. Raises InputError for an empty text, one bare text instead of a list, a
        beam below 1, or more outputs than the beam is wide.
        """
        listed = check_texts(texts)
        self._check_beam(beam, nbest)
        return self.search(*self._encode(listed), beam, nbest) if listed else []

    def _check_beam(self, beam: int | None, nbest: int | None) -> tuple[int, int]:
        beam = self.decoding.beam if beam is None else beam
        nbest = beam if nbest is None else nbest
        if nbest > beam > 0:
            raise InputError(f"nbest {nbest} came with a beam of {beam}; widen the beam or ask for fewer")
        return beam, nbest

    @torch.no_grad()
    def search(
        self, source: Tensor, lengths: Tensor, beam: int | None = None, nbest: int | None = None
    ) -> list[list[Candidate]]:
        """``candidates`` of what has been encoded: ``source (batch, time)`` or, of frames, ``(batch, time, size)``."""
        beam, nbest = self._check_beam(beam, nbest)
        found = beam_search(
            self.scorers(source, lengths),
            len(source),
            self.bos,
            self.eos,
            beam=beam,
            max_length=self.limits(lengths),
            alpha=self.decoding.alpha,
            nbest=nbest,
        )
        return [[Candidate(self.target.decode(best.tokens), best.score) for best in row] for row in found]

    def scores(self, texts: Sequence[str], outputs: Sequence[str]) -> list[float]:
        """The score that the search gives to ``outputs``, one a text: what error analysis compares.

        -inf for an output that the model cannot spell. Raises InputError as ``candidates`` does.
        """
        return self.score_outputs(*self._encode(check_texts(texts)), outputs)

    @torch.no_grad()
    def score_outputs(self, source: Tensor, lengths: Tensor, outputs: Sequence[str]) -> list[float]:
        """``scores`` of what has been encoded."""
        spelt = [[symbol in self.target for symbol in self.target.split(output)] for output in outputs]
        tokens = [self.target.encode(out) if all(known) else [] for out, known in zip(outputs, spelt, strict=True)]
        found = score_sequence(self.scorers(source, lengths), tokens, self.bos, self.eos, alpha=self.decoding.alpha)
        return [one.score if all(known) else -math.inf for one, known in zip(found, spelt, strict=True)]

    def scorers(self, source: Tensor, lengths: Tensor) -> list[tuple[Scorer, float]]:
        """What a search, or the score of a given output, goes by."""
        network = StepScorer(self.network.step, *self.network.start(source, lengths))
        return [(network, 1.0), (TokenBonus(self.barred), 1.0)]

    def limits(self, lengths: Tensor) -> int | Tensor:
        """The most symbols that are written for sources of these ``lengths (batch,)``."""
        return self.decoding.max_length

    @torch.no_grad()
    def attention(self, text: str, output: str | None = None) -> Tensor:
        """``(output symbols + end, input symbols)``: where it looked while it wrote ``output`` (or its best).

        Raises InputError for an empty text, a model without attention, or an output that it cannot spell.
        """
        source, lengths = self._encode(check_texts([text]))
        written = self.target.encode(self.convert([text])[0] if output is None else output)
        inputs = torch.tensor([[self.bos, *written]])
        weights = self.network.weights(source, inputs, lengths)
        if weights is None:
            raise InputError("this model has no attention; train one with model.attention=additive")
        return weights[0]

    def _encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        rows = [self.source.encode(text) for text in texts]
        if empty := [number for number, row in enumerate(rows) if not row]:
            raise InputError(f"text {empty[0]} is empty; give at least one symbol a text")
        return pad(rows)


def has_ends(target: Vocabulary) -> None:
    """A decoder begins with ``bos`` and stops at ``eos``; ``InputError`` where there is none."""
    for role in ("bos", "eos"):
        target.special(role)
