"""A language model at work: write on from a beginning, or say how likely a text is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.scorers import StepScorer, TokenBonus
from voiceseq.core.search import sample
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.models.language import LanguageConfig, LanguageNetwork, Spelling
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.text.words import split_words, visible

PIECE = 256  # symbols read at once: few calls, and never the logits of a whole book


@dataclass(frozen=True)
class TextScore:
    """How likely a text is: the natural logarithm of its probability, how many symbols were predicted, and how many of
    these the vocabulary does not know; an unknown one counts as any of the unknown ones."""

    text: str
    log_prob: float
    symbols: int
    unknown: int = 0

    @property
    def perplexity(self) -> float:
        """``exp(-log_prob / symbols)``: among how many symbols, as it were, it had to choose each time."""
        return math.exp(min(-self.log_prob / self.symbols, 700.0))  # exp(710) is no float any more


@dataclass(frozen=True)
class Reading:
    """``lower``: letters are made small before they are read. ``unknown_words``: how many different words were unknown
    in training; the probability of "unknown" is shared out among them, or the strangest word would be the likeliest.

    Raises ConfigError below 1.
    """

    lower: bool = False
    unknown_words: int = 1

    def __post_init__(self) -> None:
        if self.unknown_words < 1:
            raise ConfigError(f"unknown_words is {self.unknown_words}; at least 1 was wanted")


class LanguageModel:
    """``voiceseq.load("shakespeare")``: ``generate(["ROMEO:"])``, ``score(["to be or not to be"])``.

    Every text is taken to follow the end of a line. Raises InputError for words without the special symbol ``eos``.
    """

    def __init__(self, network: LanguageNetwork, vocabulary: Vocabulary, reading: Reading | None = None) -> None:
        self.network, self.reading = network.eval(), reading or Reading()
        self.vocabulary, self.spelling = vocabulary, Spelling(vocabulary)
        bonus = torch.zeros(len(vocabulary))
        bonus[list(vocabulary.special_ids - {self.spelling.eos})] = -torch.inf  # nobody writes "<unk>"
        self.no_specials = TokenBonus(bonus)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or a vocabulary that do not make a language model."""
        network = bundle.network(LanguageNetwork, LanguageConfig)
        vocabulary = open_vocabulary(bundle, "symbols", network.config.vocabulary, check=Spelling)
        return cls(network, vocabulary, bundle.decoding_as(Reading))

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

        A symbol is a character, or a word or the end of a line; ``prefix + text`` is the whole, so words that follow a
        word begin with a space. Raises InputError for one bare text instead of a list, a prefix that the vocabulary
        cannot spell, or a length, temperature, top_k or top_p out of range.
        """
        texts = []
        for number, prefix in enumerate(check_texts(prefixes)):
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
            texts.append(self._joint(prefix, text := self.spelling.decode(found[0].tokens)) + text)
        return texts

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """The log-probability of each text, as it follows the end of a line; "\\n" at its end counts its own end too.

        Raises InputError for an empty text, one bare text instead of a list, or one that the vocabulary cannot spell.
        """
        return [self._score(text) for text in check_texts(texts)]

    def _score(self, text: str) -> TextScore:
        tokens = torch.tensor([self.spelling.line_end, *self._symbols(text)])
        if len(tokens) < 2:
            raise InputError("an empty text came; a score wants at least one symbol")
        total, state = 0.0, None
        for inputs, targets in zip(_cut(tokens[:-1]), _cut(tokens[1:]), strict=True):
            logits, state = self.network.read(inputs, state)
            total += float(logits.double().log_softmax(-1).gather(2, targets[..., None]).sum())
        unknown = 0
        if "unknown" in self.vocabulary.specials:
            unknown = int((tokens[1:] == self.vocabulary.special("unknown")).sum())
        total -= unknown * math.log(self.reading.unknown_words)
        return TextScore(text, total, len(tokens) - 1, unknown)

    def _symbols(self, text: str) -> list[int]:
        """The symbols of a text as people type it: a word that is not known, such as "salad.", is cut into those that
        it is made of. Texts that are cut already stay as they are."""
        text = text.lower() if self.reading.lower else text
        if self.vocabulary.level != "word":
            return self.spelling.encode(text)
        lines = [" ".join(self._cut_words(visible(line))) for line in text.split("\n")]
        return self.spelling.encode("\n".join(lines))

    def _cut_words(self, line: str) -> list[str]:
        return [part for word in line.split() for part in ([word] if word in self.vocabulary else split_words(word))]

    @torch.no_grad()
    def _read(self, prefix: str) -> tuple[int, Any]:
        """The last symbol of the prefix (or the line end before it) and the state after those before that one."""
        tokens = torch.tensor([self.spelling.line_end, *self._symbols(prefix)])
        state: Any = None
        for piece in _cut(tokens[:-1]):
            _, state = self.network.read(piece, state)
        return int(tokens[-1]), state

    def _joint(self, prefix: str, text: str) -> str:
        """What stands between a prefix and the text that follows it."""
        apart = self.vocabulary.level == "character" or not prefix or prefix[-1].isspace()
        return "" if apart or not text or text.startswith("\n") else " "


def _cut(tokens: Tensor) -> list[Tensor]:
    """``tokens (time,)`` in pieces ``(1, PIECE or less)``; none of nothing."""
    return [tokens[None, start : start + PIECE] for start in range(0, len(tokens), PIECE)]
