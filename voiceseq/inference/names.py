"""Names at work: write new ones of a kind, or tell of which kind a name is."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.search import sample, score_sequence
from voiceseq.errors import InputError
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.inference.transduce import Decoding, Transducer, has_ends
from voiceseq.models.frames import FramesToText
from voiceseq.models.seq2seq import Seq2SeqConfig

LONGEST = 100  # letters of a name


class NameWriter(Transducer):
    """``voiceseq.load("names")``: ``write(["dinosaur"])``, ``kinds_of(["Ada"])``; ``source`` holds the kinds."""

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not make one."""
        network = bundle.network(FramesToText, Seq2SeqConfig)
        kinds = open_vocabulary(bundle, "kinds", network.config.source)
        target = open_vocabulary(bundle, "target", network.config.target, check=has_ends)
        return cls(network, kinds, target, bundle.decoding_as(Decoding))

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.source.symbols

    def write(self, kinds: Sequence[str], temperature: float = 0.8, seed: int | None = None) -> list[str]:
        """A new name of each kind; the same for the same seed. Raises InputError for a kind that is not known."""
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
        if not (listed := check_texts(kinds)):
            return []
        found = sample(
            self.scorers(*self._encode(listed)),
            len(listed),
            self.bos,
            self.eos,
            max_length=self.decoding.max_length,
            temperature=temperature,
            generator=generator,
        )
        return [self.target.decode(one.tokens) for one in found]

    @torch.no_grad()
    def kinds_of(self, names: Sequence[str]) -> list[dict[str, float]]:
        """P(kind | name) by Bayes' rule, all kinds alike before. Raises InputError for an empty or endless name."""
        found = []
        for name in check_texts(names):
            if not 1 <= len(name) <= LONGEST:
                raise InputError(f"a name of {len(name)} letters came; 1 to {LONGEST} were wanted")
            tokens = [tuple(self.target.encode(name))] * len(self.kinds)
            network = self.scorers(*self._encode(list(self.kinds)))[:1]
            scores = [one.score for one in score_sequence(network, tokens, self.bos, self.eos)]
            found.append(dict(zip(self.kinds, torch.tensor(scores).softmax(0).tolist(), strict=True)))
        return found

    def _encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        if strange := [text for text in texts if text not in self.kinds]:
            raise InputError(f"{strange[0][:40]!r} is no kind of name; one of {', '.join(self.kinds)} was wanted")
        rows = torch.eye(len(self.kinds))[[self.kinds.index(text) for text in texts]]
        return rows[:, None], torch.ones(len(texts), dtype=torch.long)
