"""Letters to sounds of many languages at work: a word and its language in, IPA out.

Two models guess, and every guess is judged by both: the network, which sees the whole word, and n-grams of pairs of
letters and phones (`voiceseq.text.pairing`), which remember what they have seen. They err in different words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.prefix import prefix_beam_search, score_strings
from voiceseq.datasets.pairs import pad
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.inference.language_models import bundle_lm
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.models.letters import LetterConfig, LetterNetwork
from voiceseq.text.pairing import PairModel, marks_file, pairs_file
from voiceseq.text.pronounce import Pronunciation, spelt
from voiceseq.text.vocabulary import Vocabulary

TOGETHER = 128  # words read at once
LONGEST = 100  # letters; what is longer is no word
PairsOf = Callable[[str], PairModel | None]  # of a language


@dataclass(frozen=True)
class Settings:
    """``phones`` are the sounds of each language, the blank first; ``pair_weight`` is that of the pairs' opinion.

    Raises ConfigError for a beam below 1 or a weight below 0.
    """

    beam: int = 8
    phones: dict[str, list[str]] = field(default_factory=dict)
    pair_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ConfigError(f"beam is {self.beam}; at least 1 was wanted")
        if not 0 <= self.pair_weight < float("inf"):
            raise ConfigError(f"pair_weight is {self.pair_weight}; 0 or more was wanted")


class LettersToSounds:
    """``voiceseq.load("pronounce-ipa")``: ``pronounce(["gatto"], "ita")``; ``languages`` are those it has learned."""

    def __init__(
        self,
        network: LetterNetwork,
        letters: Vocabulary,
        phones: Vocabulary,
        languages: Sequence[str],
        settings: Settings,
        pairs: PairsOf = lambda language: None,
    ) -> None:
        self.pairs = pairs
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

        @cache  # read when the language is asked for
        def pairs(language: str) -> PairModel | None:
            found = [
                bundle_lm(bundle, name) if name in bundle.files else None
                for name in (pairs_file(language), marks_file(language))
            ]
            return None if found[0] is None else PairModel(found[0], found[1])

        try:
            return cls(network, letters, phones, languages, settings, pairs)
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
        if not 1 <= n_best <= beam:
            raise InputError(f"n_best {n_best} and beam {beam} came; 1 or more, and a beam as wide, were wanted")
        good = sorted((i for i, word in enumerate(listed) if not self.problem(word)), key=lambda i: len(listed[i]))
        ways: list[list[Pronunciation]] = [[] for _ in listed]
        for some in (good[i : i + TOGETHER] for i in range(0, len(good), TOGETHER)):
            found = self._guess([spelt(listed[i]) for i in some], language, beam)
            for i, best in zip(some, found, strict=True):
                ways[i] = best[:n_best]
        return ways

    def _guess(self, words: Sequence[str], language: str, beam: int) -> list[list[Pronunciation]]:
        """What either model guesses, best first by both."""
        names, pairs = self.phones[language], self.pairs(language) if self.settings.pair_weight else None
        read = self._read(words, language)
        found = [
            [tuple(names[token] for token in one.tokens) for one in best]
            for best in prefix_beam_search(*read, beam=beam, nbest=beam)
        ]
        if pairs is None:
            return found
        known = set(names[1:])
        for row, guesses in enumerate(pairs.guesses(words, 2 * beam)):
            said = [guess.phones for guess in guesses[:beam] if guess.phones and known.issuperset(guess.phones)]
            ways = list(dict.fromkeys((*found[row], *said)))
            scores = self._scores(words[row], language, ways, (read[0][row : row + 1], read[1][row : row + 1]), pairs)
            order = sorted(range(len(ways)), key=lambda i: -scores[i])
            found[row] = [ways[i] for i in order]
        return found

    def scores(self, words: Sequence[str], language: str, said: Sequence[Pronunciation]) -> list[float]:
        """log P(phones | word) of one given way a word, summed over all alignments; -inf for what cannot be said.

        Where there are pairs, their weighted opinion is added: the sum is what ``pronounce`` goes by.
        """
        pairs, known = self.pairs(language) if self.settings.pair_weight else None, set(self.phones[language][1:])
        found = []
        for word, way in zip(words, said, strict=True):
            letters = spelt(word)
            possible = known.issuperset(way)
            read = self._read([letters], language)
            found.append(self._scores(letters, language, [way], read, pairs)[0] if possible else -torch.inf)
        return found

    def _scores(
        self,
        letters: str,
        language: str,
        ways: Sequence[Pronunciation],
        read: tuple[Tensor, Tensor],
        pairs: PairModel | None,
    ) -> list[float]:
        places = {phone: place for place, phone in enumerate(self.phones[language])}
        scores = [score_strings(*read, [[places[phone] for phone in way]])[0].score for way in ways]
        if pairs is None:
            return scores
        weight = self.settings.pair_weight
        return [score + weight * pairs.judge(letters, way) for score, way in zip(scores, ways, strict=True)]

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
        """Of spelt words: log-probabilities ``(words, places, phones of the language)``, and each word's places."""
        letters, lengths = pad([self.letters.encode(word) for word in words])
        found = self.network(letters, self.languages.index(language), self.numbers[language], lengths)
        return found[-1], lengths * self.network.config.slots
