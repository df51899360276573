"""Letters to sounds by pairs: which letters of a word stand for which of its sounds, and an n-gram model of the pairs.

A pair is one or two letters with the phones they stand for, e.g. ``("ph", ("f",))``. A word is cut into pairs; p(pair)
is learned by expectation and maximisation over all cuts c of all words::

    p(c)  =  prod over the pairs of c of  p(pair) ^ size        size: the larger of its numbers of letters and phones
    p(pair)  =  how often it is expected over the cuts / how many pairs are expected

(the exponent keeps a long pair from winning for being one factor instead of two). The best cut of each word is one line
of a text, and a word's pronunciation is what an n-gram model of that text likes best among the lines that spell it: the
joint-sequence model of Bisani & Ney (2008).

Pairs see a few letters far. What holds a word together from end to end (that one vowel alone is stressed, say) is told
by a second n-gram model, of the marks of its vowels: length, tone and stress as IPA writes them, and nothing else.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voiceseq.core.scorers import Floats, Ints, NgramScorer, Scorer, State
from voiceseq.core.search import beam_search
from voiceseq.errors import InputError
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.ngram import BEGIN, END, UNKNOWN, NgramModel
from voiceseq.text.pronounce import Pronunciation

Pair = tuple[str, Pronunciation]
SHAPES = ((1, 0), (1, 1), (1, 2), (1, 3), (2, 1))  # letters and phones of a pair
ROUNDS = 10
ENOUGH = 20_000  # words to learn p(pair) from
AT_ONCE = 5_000  # words that are cut at once: all their ways are in memory
ORDER, PRUNE = 6, (0, 0, 0, 0, 1)  # long n-grams that occur once know little of the next word
VOWELS = frozenset("aeiouyæøœɐɑɒɔɘəɚɛɜɝɞɤɨɪɯɵɶʉʊʌʏ")
PLAIN, NONE = "-", "#"  # a vowel without marks, a word without vowels
ENGLISH = "en"  # what the pairs in CMU's phones are called
BETWEEN, SPACE = "\N{SYMBOL FOR UNIT SEPARATOR}", "\N{SYMBOL FOR SPACE}"
RARE = 1e-15  # p of a pair that is never expected
IMPOSSIBLE = -100.0  # log-probability, where opinions are added, of what cannot be said
TOGETHER = 64  # words that are searched at once


def cut(words: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs of each word, which comes with all its phones; none where no cut gives these phones."""
    from voiceseq.text.pairing_loops import best, expected

    listed = list(words)
    ways = _Ways(listed[:: 1 + len(listed) // ENOUGH])
    chance: Floats = np.full(len(ways.pairs), 1 / max(1, len(ways.pairs)))
    for _ in range(ROUNDS):
        share = np.zeros(len(ways.pair))
        expected(*ways.paths(chance), share)
        counts = np.bincount(ways.pair, share, minlength=len(chance))
        chance = counts / max(counts.sum(), RARE)
    known = dict(zip(ways.pairs, chance.tolist(), strict=True))
    found: list[list[Pair]] = []
    for some in (listed[i : i + AT_ONCE] for i in range(0, len(listed), AT_ONCE)):
        ways = _Ways(some)
        taken = np.zeros(len(ways.pair), np.bool_)
        best(*ways.paths(np.array([known.get(pair, 0.0) for pair in ways.pairs])), taken)
        chosen = [np.flatnonzero(taken[a:b]) + a for a, b in zip(ways.first[:-1], ways.first[1:], strict=True)]
        found += [[ways.pairs[ways.pair[edge]] for edge in edges] for edges in chosen]
    return found


class _Ways:
    """All cuts of all words: node ``i * (phones + 1) + j`` has i letters and j phones behind it, an edge is a pair."""

    def __init__(self, words: Iterable[Pair]) -> None:
        index: dict[Pair, int] = {}
        first, nodes, rows = [0], [], []
        for letters, phones in words:
            wide = len(phones) + 1
            for i in range(len(letters)):
                for j in range(wide):
                    for a, b in SHAPES:
                        if i + a <= len(letters) and j + b < wide:
                            pair = index.setdefault((letters[i : i + a], phones[j : j + b]), len(index))
                            rows.append((i * wide + j, (i + a) * wide + j + b, pair))
            first.append(len(rows))
            nodes.append((len(letters) + 1) * wide)
        self.pairs, self.first, self.nodes = list(index), np.array(first), np.array(nodes)
        self.source, self.target, self.pair = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        self.size = np.array([max(len(letters), len(phones)) for letters, phones in self.pairs], float)

    def paths(self, chance: Floats) -> tuple[Ints, Ints, Ints, Floats, Ints]:
        """What the loops want, with p(pair) of each of the pairs."""
        score = self.size * np.log(chance.clip(min=RARE))
        return self.first, self.source, self.target, score[self.pair], self.nodes


def train_pairs(words: Iterable[Pair], order: int = ORDER, prune: Sequence[int] = PRUNE) -> NgramModel:
    """The n-gram model of the words' pairs. Raises InputError where no word can be cut."""
    lines = [[written(pair) for pair in line] for line in cut(words) if line]
    if not lines:
        raise InputError("no word came whose letters could stand for its phones; give at least one")
    return train_ngram(lines, min(order, max(map(len, lines)) + 2), prune[:order])


def written(pair: Pair) -> str:
    """A pair as a word of the n-gram model."""
    return BETWEEN.join((pair[0].replace(" ", SPACE), *pair[1]))


def read(word: str) -> Pair:
    letters, *phones = word.split(BETWEEN)
    return letters.replace(SPACE, " "), tuple(phones)


def marks(phones: Pronunciation) -> list[str]:
    """Of each vowel, what is written above, below and behind it."""
    parts = [unicodedata.normalize("NFD", phone) for phone in phones]
    found = ["".join(sign for sign in part if not _letter(sign)) or PLAIN for part in parts if part[0] in VOWELS]
    return found or [NONE]


def _letter(sign: str) -> bool:
    return unicodedata.category(sign) in ("Ll", "Lo", "Lu")


def train_marks(words: Iterable[Pair], order: int = ORDER) -> NgramModel:
    """The n-gram model of the marks of all words."""
    lines = [marks(phones) for _, phones in words]
    return train_ngram(lines, min(order, max(map(len, lines)) + 2))


def pairs_file(language: str) -> str:
    """What a bundle calls the model of a language's pairs."""
    return f"pairs-{language}.arpa.gz"


def marks_file(language: str) -> str:
    return f"marks-{language}.arpa.gz"


class Guess(NamedTuple):
    """A way to say a word, and log p(its letters, its phones) as far as the search has seen its cuts."""

    phones: Pronunciation
    log_prob: float


class PairModel:
    """``guesses(["gatto"])``: pronunciations by an n-gram model of pairs, the best first; ``judge``: by marks, too."""

    def __init__(self, model: NgramModel, marked: NgramModel | None = None) -> None:
        self.model, self.marked = model, marked
        known = [word for word in model.words if word not in (BEGIN, END, UNKNOWN)]
        self.pairs: list[Pair] = [("", ()), *map(read, known)]  # the first is the end
        self.scorer = NgramScorer(model.table, model.token_words(["", *known], end=0))
        self.by_letters: dict[str, list[int]] = {}
        for token, (letters, _) in enumerate(self.pairs[1:], 1):
            self.by_letters.setdefault(letters, []).append(token)

    def guesses(self, words: Sequence[str], beam: int = 24) -> list[list[Guess]]:
        """Of each word; none where its letters are not known."""
        found: list[list[Guess]] = [[] for _ in words]
        good = sorted((i for i, word in enumerate(words) if word), key=lambda i: len(words[i]))
        for some in (good[i : i + TOGETHER] for i in range(0, len(good), TOGETHER)):
            spelling = _Spelling(self, [words[i] for i in some])
            longest = torch.tensor([len(words[i]) for i in some])
            scorers: list[tuple[Scorer, float]] = [(self.scorer, 1.0), (spelling, 1.0)]
            lines = beam_search(scorers, len(some), 0, 0, beam=beam, max_length=longest, nbest=beam)
            for i, best in zip(some, lines, strict=True):
                sums: dict[Pronunciation, float] = {}
                for line in best:
                    if line.score > -math.inf:
                        phones = tuple(phone for token in line.tokens for phone in self.pairs[token][1])
                        sums[phones] = float(np.logaddexp(sums.get(phones, -math.inf), line.score))
                found[i] = [Guess(*row) for row in sorted(sums.items(), key=lambda row: -row[1])]
        return found

    def judge(self, letters: str, phones: Pronunciation) -> float:
        """log p(letters, phones) by the pairs, and with it that of the phones' marks; at least ``IMPOSSIBLE``."""
        marked = sum(self.marked.score(marks(phones))) if self.marked else 0.0
        return max(self.log_prob(letters, phones) + marked, IMPOSSIBLE)

    def log_prob(self, letters: str, phones: Pronunciation) -> float:
        """log p(letters, phones), over all cuts; -inf where there is none."""
        # log p by (letters, phones, context) behind; those with fewer letters come first
        places: list[dict[tuple[int, int], float]] = [{} for _ in range(len(letters) + 1)]
        places[0][0, self.model.table.begin] = 0.0
        for i, here in enumerate(places[:-1]):
            for (j, context), log_p in here.items():
                for a, b in SHAPES:
                    pair = self.model.index.get(written((letters[i : i + a], phones[j : j + b])))
                    if pair is not None and i + a <= len(letters) and j + b <= len(phones):
                        more, after = self.model.advance(context, pair)
                        there = places[i + a]
                        there[j + b, after] = float(np.logaddexp(there.get((j + b, after), -math.inf), log_p + more))
        ends = [
            log_p + self.model.advance(context, self.model.table.end)[0]
            for (j, context), log_p in places[-1].items()
            if j == len(phones)
        ]
        return float(np.logaddexp.reduce(ends)) if ends else -math.inf


class _Spelling(Scorer):
    """0 for a pair whose letters come next in a row's word, and for the end where the word is over; else -inf."""

    def __init__(self, model: PairModel, words: Sequence[str]) -> None:
        self.length = torch.tensor([len(letters) for letters, _ in model.pairs])
        fits: NDArray[np.float32] = np.full((len(words), max(map(len, words)) + 1, len(model.pairs)), -math.inf, "f4")
        for row, word in enumerate(words):
            for i in range(len(word)):
                for size in {shape[0] for shape in SHAPES if i + shape[0] <= len(word)}:
                    fits[row, i, model.by_letters.get(word[i : i + size], [])] = 0.0
            fits[row, len(word), 0] = 0.0
        self.fits = torch.from_numpy(fits)

    def start(self, batch: int) -> State:
        return torch.arange(batch), None

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        row, place = state
        place = torch.zeros_like(row) if place is None else place + self.length[tokens]
        place = place.clamp(max=self.fits.shape[1] - 1)  # of a hypothesis that was never possible
        return self.fits[row, place], (row, place)
