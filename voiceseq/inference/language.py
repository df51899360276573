"""A language model at work: write on from a beginning, or say how likely a text is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.scorers import StepScorer, TokenBonus
from voiceseq.core.search import sample
from voiceseq.errors import InputError
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.text.vocabulary import Vocabulary

FIRST = "\n"  # what every text is taken to follow: it begins on a line of its own


@dataclass(frozen=True)
class TextScore:
    """How likely a text is: the natural logarithm of its probability, and how many symbols were predicted."""

    text: str
    log_prob: float
    symbols: int


class LanguageModel:
    """``voiceseq.load("shakespeare")``: ``generate(["ROMEO:"])``, ``score(["to be or not to be"])``."""

    def __init__(self, network: LanguageNetwork, vocabulary: Vocabulary) -> None:
        self.network = network.eval()
        self.vocabulary = vocabulary
        bonus = torch.zeros(len(vocabulary))
        bonus[list(vocabulary.special_ids)] = -torch.inf  # nobody writes "<unk>"
        self.no_specials = TokenBonus(bonus)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        network = bundle.fill(LanguageNetwork(bundle.config_as(LanguageConfig)))
        return cls(network, Vocabulary.from_json(bundle.vocabularies["symbols"]))

    def generate(
        self,
        prefixes: Sequence[str],
        length: int = 300,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> list[str]:
        """What follows each prefix: ``length`` symbols, the prefix not repeated; the same for the same seed.

        Raises InputError for a prefix that the vocabulary cannot spell, or a temperature, top_k or top_p out of range.
        """
        texts = []
        for number, prefix in enumerate(prefixes):
            generator = torch.Generator()
            generator.seed() if seed is None else generator.manual_seed(seed + number)
            first, state = self._read(prefix)
            found = sample(
                [(StepScorer(self.network.step, state), 1.0), (self.no_specials, 1.0)],
                1,
                first,
                None,
                max_length=length,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                generator=generator,
            )
            texts.append(self.vocabulary.decode(found[0].tokens))
        return texts

    @torch.no_grad()
    def _read(self, prefix: str) -> tuple[int, Any]:
        """The last symbol of the prefix and the state after those before it."""
        tokens = torch.tensor(self.vocabulary.encode(FIRST + prefix))
        state: Any = None
        for token in tokens[:-1]:
            _, state = self.network.step(token[None], state)
        return int(tokens[-1]), state

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """The log-probability of each text as a line of its own."""
        return [self._score(text) for text in texts]

    def _score(self, text: str) -> TextScore:
        tokens = torch.tensor(self.vocabulary.encode(FIRST + text))
        if len(tokens) < 2:
            raise InputError("an empty text came; a score wants at least one symbol")
        window, total, state = self.network.config.context, 0.0, None
        for start in range(0, len(tokens) - 1, window):
            inputs, targets = tokens[start : start + window][: len(tokens) - 1 - start], tokens[start + 1 :][:window]
            logits, state = self.network(inputs[None], state if self.network.endless else None)
            total += float(self._picked(logits[0], targets))
        return TextScore(text, total, len(tokens) - 1)

    @staticmethod
    def _picked(logits: Tensor, targets: Tensor) -> Tensor:
        return logits.double().log_softmax(-1).gather(1, targets[:, None]).sum()
