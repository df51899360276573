"""Letters to sounds at work: words and phrases to CMU's phones, by a dictionary where one has the word.

Where a bundle has n-grams of pairs of letters and phones (`voiceseq.text.pairing`), they guess beside the network, and
every guess is judged by both.
"""

import math
import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Self

from voiceseq.bundles import Bundle
from voiceseq.errors import InputError
from voiceseq.inference.language_models import bundle_lm
from voiceseq.inference.opening import check_texts
from voiceseq.inference.transduce import Candidate, Transducer
from voiceseq.text.pairing import ENGLISH, PairModel, pairs_file
from voiceseq.text.pronounce import Dictionary, Pronunciation, phrase_words, pronounce_phrase, read_dictionary

TOGETHER = 128  # words searched at once
UNLIKELY = math.log(0.02)  # a guess this far below the best is none
VARIABLE = "VOICESEQ_DICTIONARY"


class Pronouncer(Transducer):
    """``voiceseq.load("pronounce-en")``: ``pronounce(["hey luna"])``, ``letters_to_sounds("luna")``."""

    bundle: Bundle | None = None

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        found = super().from_bundle(bundle)
        found.bundle = bundle
        return found

    @cached_property
    def pairs(self) -> PairModel | None:
        """Read at the first guess: who asks for words of a dictionary alone does not wait for it."""
        name = pairs_file(ENGLISH)
        if self.bundle is None or name not in self.bundle.files:
            return None
        return PairModel(bundle_lm(self.bundle, name))

    def candidates(
        self, texts: Sequence[str], beam: int | None = None, nbest: int | None = None
    ) -> list[list[Candidate]]:
        beam, nbest = self._check_beam(beam, nbest)
        found = super().candidates(texts, beam)
        if self.pairs is not None and found:
            ways = [[one.text for one in row] for row in found]
            for row, guesses in zip(ways, self.pairs.guesses(list(texts), 2 * beam), strict=True):
                row += [said for one in guesses[:beam] if (said := " ".join(one.phones)) not in ("", *row)]
            flat = [(text, way) for text, row in zip(texts, ways, strict=True) for way in row]
            scores = iter(self.scores(*map(list, zip(*flat, strict=True))))
            found = [sorted((Candidate(w, next(scores)) for w in row), key=lambda one: -one.score) for row in ways]
        return [row[:nbest] for row in found]

    def scores(self, texts: Sequence[str], outputs: Sequence[str]) -> list[float]:
        scores = super().scores(texts, outputs)
        if self.pairs is None:
            return scores
        rows = zip(scores, texts, outputs, strict=True)
        return [score + self.pairs.judge(text, tuple(output.split())) for score, text, output in rows]

    def pronounce(
        self,
        phrases: Sequence[str],
        beam: int | None = None,
        n_best: int = 1,
        dictionary: Dictionary | None = None,
        accents: bool = False,
    ) -> list[list[Pronunciation]]:
        """The ``n_best`` likeliest ways to say each word or phrase, the likeliest first; fewer where there are fewer.

        ``dictionary`` is asked first; by default the file that $VOICESEQ_DICTIONARY names, if it names one. Raises
        InputError as ``pronounce_phrase`` does, and for a beam or ``n_best`` below 1.
        """
        known = found_dictionary() if dictionary is None else dictionary
        texts = check_texts(phrases)
        unknown = {word for text in texts for word in phrase_words(text) if word not in known}
        words = sorted(unknown, key=lambda word: (len(word), word))  # alike lengths are searched together
        guessed = dict(zip(words, self.guesses(words, beam, n_best), strict=True))
        return [pronounce_phrase(text, known, guessed.__getitem__, n_best, accents) for text in texts]

    def letters_to_sounds(self, word: str) -> list[Pronunciation]:
        """The likeliest ways to say one plain word (a-z, apostrophe), as ``text.pronounce_phrase`` wants it."""
        return self.guesses([word], n_best=self.decoding.beam)[0]

    def guesses(self, words: Sequence[str], beam: int | None = None, n_best: int = 1) -> list[list[Pronunciation]]:
        """Without a dictionary: at most ``n_best`` ways for each plain word, none that is far less likely than the
        first. The beam is the bundle's own, and at least as wide as ``n_best``. Raises InputError for other letters."""
        if n_best < 1:
            raise InputError(f"n_best is {n_best}; at least one pronunciation was wanted")
        beam = max(self.decoding.beam, n_best) if beam is None else beam
        found = []
        for part in (words[i : i + TOGETHER] for i in range(0, len(words), TOGETHER)):
            unlikely = UNLIKELY if self.pairs is None else 2 * UNLIKELY  # two opinions are added
            for candidates in self.candidates(part, beam, n_best):
                likely = [item for item in candidates if item.score >= candidates[0].score + unlikely]
                found.append([tuple(item.text.split()) for item in likely])
        return found


def found_dictionary() -> Dictionary:
    """The dictionary that $VOICESEQ_DICTIONARY names, or an empty one; InputError where it cannot be read."""
    path = os.environ.get(VARIABLE)
    return _read_once(path) if path else {}


@lru_cache(maxsize=1)
def _read_once(path: str) -> Dictionary:
    return read_dictionary(path)
