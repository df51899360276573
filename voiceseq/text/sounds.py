"""How alike two pronunciations sound, and which words of a dictionary come nearest to a phrase.

The distance is the edit distance over phones in which a phone left out or put in costs 1, and one taken for another the
less the more alike they are: two vowels by their places in the mouth, two consonants by manner, place and voice.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError
from voiceseq.text.pronounce import PHONES, Dictionary, Pronunciation

# where the tongue begins and ends: (openness, backness) each
VOWEL_PLACES = {
    "IY": ((0.0, 0.0), (0.0, 0.0)),
    "IH": ((0.2, 0.2), (0.2, 0.2)),
    "EY": ((0.4, 0.0), (0.1, 0.1)),
    "EH": ((0.6, 0.15), (0.6, 0.15)),
    "AE": ((0.85, 0.2), (0.85, 0.2)),
    "AA": ((1.0, 0.8), (1.0, 0.8)),
    "AO": ((0.65, 1.0), (0.65, 1.0)),
    "OW": ((0.5, 0.9), (0.2, 0.9)),
    "UH": ((0.2, 0.8), (0.2, 0.8)),
    "UW": ((0.0, 1.0), (0.0, 1.0)),
    "AH": ((0.6, 0.6), (0.6, 0.6)),
    "ER": ((0.5, 0.5), (0.5, 0.5)),
    "AY": ((1.0, 0.5), (0.2, 0.2)),
    "AW": ((1.0, 0.5), (0.2, 0.8)),
    "OY": ((0.6, 1.0), (0.2, 0.2)),
}
PLACES = ("lips", "teeth", "ridge", "palate", "back")
CONSONANTS = {
    "P": ("stop", "lips", False), "B": ("stop", "lips", True), "T": ("stop", "ridge", False),
    "D": ("stop", "ridge", True), "K": ("stop", "back", False), "G": ("stop", "back", True),
    "CH": ("affricate", "palate", False), "JH": ("affricate", "palate", True), "F": ("fricative", "lips", False),
    "V": ("fricative", "lips", True), "TH": ("fricative", "teeth", False), "DH": ("fricative", "teeth", True),
    "S": ("fricative", "ridge", False), "Z": ("fricative", "ridge", True), "SH": ("fricative", "palate", False),
    "ZH": ("fricative", "palate", True), "HH": ("fricative", "back", False), "M": ("nasal", "lips", True),
    "N": ("nasal", "ridge", True), "NG": ("nasal", "back", True), "L": ("liquid", "ridge", True),
    "R": ("liquid", "palate", True), "W": ("glide", "lips", True), "Y": ("glide", "palate", True),
}  # fmt: skip
HALF_VOWELS = (("Y", "IY"), ("W", "UW"), ("R", "ER"))
GAP = 1.0
MARGIN = 4  # a word with more phones than this above the phrase's is no neighbour


def substitution_cost(one: str, other: str) -> float:
    """0 for the same phone, 0.2 to 1 for two; a vowel and a consonant cost 1 unless one glides into the other."""
    if one == other:
        return 0.0
    if one in VOWEL_PLACES and other in VOWEL_PLACES:
        apart = np.linalg.norm(np.subtract(VOWEL_PLACES[one], VOWEL_PLACES[other]), axis=1).mean()
        return min(0.8, 0.2 + 0.6 * float(apart) + 0.1 * ("ER" in (one, other)))
    if one in CONSONANTS and other in CONSONANTS:
        (manner, place, voiced), (other_manner, other_place, other_voiced) = CONSONANTS[one], CONSONANTS[other]
        moved = abs(PLACES.index(place) - PLACES.index(other_place))
        return min(1.0, 0.2 + 0.1 * moved + 0.15 * (voiced != other_voiced) + 0.35 * (manner != other_manner))
    return 0.5 if (one, other) in HALF_VOWELS or (other, one) in HALF_VOWELS else 1.0


NUMBERS = {phone: number for number, phone in enumerate(PHONES)}
COSTS = np.array([[substitution_cost(a, b) for b in PHONES] for a in PHONES], dtype=np.float32)


@dataclass(frozen=True)
class Neighbour:
    """A word or a pair of words, how it is said, and how far that is from what was asked for."""

    text: str
    phones: Pronunciation
    distance: float


def phone_distance(one: Sequence[str], other: Sequence[str]) -> float:
    """How far apart two pronunciations are; 0 when they are the same. Raises InputError for what is no CMU phone."""
    return float(_distances(_numbers(one), *_table([other]))[-1, 0])


def sounds_like(phones: Sequence[str], dictionary: Dictionary, count: int = 50) -> list[Neighbour]:
    """The ``count`` nearest words and the ``count`` nearest pairs of words, the nearest first.

    Nothing in which the whole of ``phones`` is heard ("computers" for "computer"), nor another way to say such a word;
    of what is said or spelt alike, the nearest. No word stands first, nor second, in more than a fifth of the pairs.
    Raises InputError for no phones, what is no CMU phone, and a count below 1.
    """
    if not phones or count < 1:
        raise InputError(f"{len(phones)} phones and a count of {count} came; give at least one of each")
    asked, wanted = _numbers(phones), f" {' '.join(phones)} "
    entries = [
        (word, said)
        for word, variants in dictionary.items()
        if not any(wanted in f" {' '.join(variant)} " for variant in variants)
        for said in variants
        if 0 < len(said) <= len(phones) + MARGIN
    ]
    if not entries:
        return []
    words, lengths = _table([said for _, said in entries])
    backwards = np.take_along_axis(words, np.maximum(0, lengths - 1 - np.arange(len(words))[:, None]), axis=0)
    heads = _distances(asked, words, lengths)
    tails = _distances(asked[::-1], backwards, lengths)[::-1]
    single = [(float(heads[-1, i]), (int(i),)) for i in _nearest(heads[-1], 4 * count)]
    pairs = [pair for head, tail in zip(heads, tails, strict=True) for pair in _pairs(head, tail, 8 * count)]

    def heard_in(words: Sequence[str]) -> bool:
        ways = product(*(dictionary[word] for word in words))
        return any(wanted in f" {' '.join(phone for said in way for phone in said)} " for way in ways)

    def spelt(ranked: Iterable[tuple[float, tuple[int, ...]]]) -> Iterator[tuple[float, list[str], Pronunciation]]:
        for distance, chosen in ranked:
            said = tuple(phone for i in chosen for phone in entries[i][1])
            yield distance, [entries[i][0] for i in chosen], said

    found = [*_choose(sorted(spelt(single)), count, count, heard_in)]
    found += _choose(sorted(spelt(pairs)), count, max(1, count // 5), heard_in)
    return sorted(found, key=lambda neighbour: neighbour.distance)


def _choose(
    ranked: Iterable[tuple[float, list[str], Pronunciation]],
    count: int,
    often: int,
    heard_in: Callable[[Sequence[str]], bool],
) -> Iterator[Neighbour]:
    """The first ``count`` of them that differ in sound and spelling, with no word in one place more than ``often``."""
    known: set[Pronunciation | str] = set()
    used: Counter[tuple[int, str]] = Counter()
    for distance, words, said in ranked:
        text, places = " ".join(words), list(enumerate(words))
        if said in known or text in known or any(used[place] >= often for place in places) or heard_in(words):
            continue
        known |= {said, text}
        used.update(places)
        yield Neighbour(text, said, distance)
        if len(known) == 2 * count:
            return


def _pairs(head: NDArray[np.float32], tail: NDArray[np.float32], count: int) -> Iterator[tuple[float, tuple[int, int]]]:
    """The nearest pairs for one cut of the phrase: the first word is as far from the phones before it as ``head``
    says, the second from those after it. No pair of the nearest has a word that is not among the nearest itself."""
    first, second = _nearest(head, count), _nearest(tail, count)
    together = head[first][:, None] + tail[second]
    for place in _nearest(together.ravel(), count):
        i, j = divmod(int(place), len(second))
        yield float(together[i, j]), (int(first[i]), int(second[j]))


def _nearest(distances: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    if count >= len(distances):
        return np.arange(len(distances))
    return np.argpartition(distances, count)[:count]


def _distances(asked: Sequence[int], words: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """``(asked + 1, words)``: from the first k phones asked for to each whole word, all words at once.

    ``words (longest, count)`` holds a word in a column; what lies beyond its length is never looked at.
    """
    longest, count = words.shape
    row = np.repeat(GAP * np.arange(longest + 1, dtype=np.float32)[:, None], count, axis=1)
    found = np.empty((len(asked) + 1, count), dtype=np.float32)
    found[0] = GAP * lengths
    for k, phone in enumerate(asked, start=1):
        above, row = row, np.empty_like(row)
        row[0] = GAP * k
        taken = above[:-1] + COSTS[phone][words]
        for j in range(longest):
            row[j + 1] = np.minimum(taken[j], np.minimum(above[j + 1], row[j]) + GAP)
        found[k] = row[lengths, np.arange(count)]
    return found


def _table(words: Sequence[Sequence[str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words as columns of their phones' numbers, and their lengths."""
    lengths = np.array([len(word) for word in words])
    table = np.zeros((int(lengths.max()), len(words)), dtype=np.int64)
    table.T[np.arange(len(table)) < lengths[:, None]] = _numbers([phone for word in words for phone in word])
    return table, lengths


def _numbers(phones: Sequence[str]) -> list[int]:
    strange = set(phones) - set(NUMBERS)
    if strange:
        raise InputError(f"{min(strange)!r} is no phone; CMU's were wanted, without stress: {' '.join(PHONES)}")
    return [NUMBERS[phone] for phone in phones]
