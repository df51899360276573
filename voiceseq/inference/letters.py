"""Letters to sounds of many languages at work: a word and its language in, IPA out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.prefix import prefix_beam_search, score_strings
from voiceseq.datasets.pairs import pad
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.models.letters import LetterConfig, LetterNetwork
from voiceseq.text.pronounce import Pronunciation, spelt
from voiceseq.text.vocabulary import Vocabulary

TOGETHER = 128  # words read at once
LONGEST = 100  # letters; what is longer is no word


@dataclass(frozen=True)
class Settings:
    """``phones`` are the sounds of each language, the blank first. Raises ConfigError for a beam below 1."""

    beam: int = 8
    phones: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"beam is {self.beam}; at least 1 was wanted")


class LettersToSounds:
    """``voiceseq.load("pronounce-ipa")``: ``pronounce(["gatto"], "ita")``; ``languages`` are those it has learned."""

    def __init__(
        self,
        network: LetterNetwork,
        letters: Vocabulary,
        phones: Vocabulary,
        languages: Sequence[str],
        settings: Settings,
    ) -> None:
        self.network, self.letters = network.eval(), letters
        self.languages, self.settings = tuple(languages), settings
        self.phones = {name: tuple(settings.phones[name]) for name in languages}
        self.numbers = {name: torch.tensor([phones.index(phone) for phone in self.phones[name]]) for name in languages}

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not belong together."""
        network = bundle.network(LetterNetwork, LetterConfig)
        letters = open_vocabulary(bundle, "letters", network.config.letters)
        phones = open_vocabulary(bundle, "phones", network.config.phones)
        languages = open_vocabulary(bundle, "languages", network.config.languages).symbols
        settings = bundle.decoding_as(Settings)
        try:
            return cls(network, letters, phones, languages, settings)
        except (KeyError, InputError) as error:
            raise BundleError(f"{bundle.path}: its languages and sounds do not belong together ({error})") from error

    def pronounce(
        self, words: Sequence[str], language: str, beam: int | None = None, n_best: int = 1
    ) -> list[list[Pronunciation]]:
        """The ``n_best`` likeliest ways to say each word, the likeliest first; none where ``problem`` speaks.

        Raises InputError for a language that was not learned, one bare word instead of a list, a beam below 1 or
        narrower than ``n_best``.
        """
        listed, beam = check_texts(words), beam or max(self.settings.beam, n_best)
        self.check_language(language)
        names = self.phones[language]
        good = sorted((i for i, word in enumerate(listed) if not self.problem(word)), key=lambda i: len(listed[i]))
        ways: list[list[Pronunciation]] = [[] for _ in listed]
        for some in (good[i : i + TOGETHER] for i in range(0, len(good), TOGETHER)):
            found = prefix_beam_search(*self._read([listed[i] for i in some], language), beam=beam, nbest=n_best)
            for i, best in zip(some, found, strict=True):
                ways[i] = [tuple(names[token] for token in one.tokens) for one in best]
        return ways

    def scores(self, words: Sequence[str], language: str, said: Sequence[Pronunciation]) -> list[float]:
        """log P(phones | word) of one given way a word, summed over all alignments; -inf for what cannot be said."""
        places = {phone: place for place, phone in enumerate(self.phones[language])}
        found = []
        for word, way in zip(words, said, strict=True):
            if all(phone in places for phone in way):
                tokens = [places[phone] for phone in way]
                found.append(score_strings(*self._read([word], language), [tokens])[0].score)
            else:
                found.append(-torch.inf)
        return found

    def problem(self, word: str) -> str | None:
        """Why a word cannot be said, or None."""
        letters = spelt(word)
        if not 1 <= len(letters) <= LONGEST:
            return f"{len(letters)} letters came; a word of 1 to {LONGEST} was wanted"
        unknown = self.letters.special("unknown")
        if all(number == unknown for number in self.letters.encode(letters)):
            return "none of its letters was ever seen: is it of another script?"
        return None

    def check_language(self, language: str | None) -> None:
        if language not in self.languages:
            raise InputError(f"the language {language!r} came; one of {', '.join(self.languages)} was wanted")

    @torch.no_grad()
    def _read(self, words: Sequence[str], language: str) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(words, places, phones of the language)`` and how many places each word has."""
        letters, lengths = pad([self.letters.encode(spelt(word)) for word in words])
        found = self.network(letters, self.languages.index(language), self.numbers[language], lengths)
        return found[-1], lengths * self.network.config.slots
