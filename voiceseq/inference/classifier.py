"""A classifier at work: a class for each text, and how sure it is of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from voiceseq.bundles import Bundle
from voiceseq.datasets.sentences import SentenceBatch, SentenceCoder, clipped
from voiceseq.errors import ConfigError
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.inference.sentences import open_coder, read_all
from voiceseq.models.classifier import ClassifierConfig, ClassifierNetwork
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.text.words import split_words


@dataclass(frozen=True)
class Reading:
    """``longest``: of a longer text the first and last words are read, as many in all. Raises ConfigError below 2."""

    longest: int = 400

    def __post_init__(self) -> None:
        if self.longest < 2:
            raise ConfigError(f"longest is {self.longest}; at least 2 words were wanted")


@dataclass(frozen=True)
class Classified:
    """The most probable class, None where the text has no words; the probability of each class."""

    text: str
    label: str | None
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        return self.probabilities[self.label] if self.label is not None else 0.0


class Classifier:
    """``voiceseq.load("sst2").classify(["a gripping film"])``."""

    def __init__(
        self, network: ClassifierNetwork, coder: SentenceCoder, classes: Vocabulary, reading: Reading | None = None
    ) -> None:
        self.network = network.eval()
        self.coder, self.classes, self.reading = coder, classes, reading or Reading()

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not make a classifier."""
        network = bundle.network(ClassifierNetwork, ClassifierConfig)
        classes = open_vocabulary(bundle, "classes", network.config.classes)
        return cls(network, open_coder(bundle, network.config), classes, bundle.decoding_as(Reading))

    def words(self, text: str) -> list[str]:
        """The words that are read of a text."""
        return clipped(split_words(text), self.reading.longest)

    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """The class of each text. Raises InputError for one bare text instead of a list."""
        texts = check_texts(texts)
        words = [self.words(text) for text in texts]
        full = [number for number, sentence in enumerate(words) if sentence]
        read = dict(zip(full, read_all([words[number] for number in full], self.coder, self._read), strict=True))
        return [self._answer(text, read.get(number)) for number, text in enumerate(texts)]

    @torch.no_grad()
    def attention(self, text: str) -> list[tuple[str, float]]:
        """The words of a text and how much each counted. Raises InputError for another pool, or a text without any."""
        (text,) = check_texts([text])
        words = self.words(text)
        weights = self.network.attention(*self.coder.batch([words]).inputs)
        return list(zip(words, weights[0].tolist(), strict=True))

    def _answer(self, text: str, probabilities: list[float] | None) -> Classified:
        if probabilities is None:
            return Classified(text, None, {})
        named = dict(zip(self.classes.symbols, probabilities, strict=True))
        return Classified(text, max(named, key=named.__getitem__), named)

    @torch.no_grad()
    def _read(self, batch: SentenceBatch) -> list[list[float]]:
        return self.network(*batch.inputs).softmax(-1).tolist()
