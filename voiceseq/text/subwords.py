"""Subwords: frequent words whole, rare ones in pieces, so that a few thousand symbols spell every text.

Byte pair encoding on characters: the two neighbours that stand together most often become one piece, again and again. A
word is cut by the same merges in the same order, so the list of pieces, in the order of their finding, says it all.
``MARK`` stands before what follows white space; letters and punctuation never share a piece.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

MARK = "▁"
_UNIT = re.compile(rf"{MARK}?(?:[^\W_]+|[^{MARK}])|{MARK}", re.DOTALL)
LONGEST = 100  # characters of a unit that are merged together: what is longer is no word


def units(text: str) -> list[str]:
    """The runs of letters and figures and the single other signs of a text; those after white space are marked."""
    words = text.replace(MARK, "\ufffd").split()
    return [unit[i : i + LONGEST] for word in words for unit in _UNIT.findall(MARK + word) for i in _starts(unit)]


def _starts(unit: str) -> range:
    return range(0, len(unit), LONGEST)


def cut(unit: str, ranks: Mapping[str, int]) -> list[str]:
    """The unit as pieces: of all neighbours that make a piece, those of the lowest rank are joined first."""
    parts: list[str] = list(unit)
    while len(parts) > 1:
        joints = [ranks.get(one + other, math.inf) for one, other in pairwise(parts)]
        best = min(joints)
        if best == math.inf:
            break
        parts = _joined(parts, next(pair for pair, rank in zip(pairwise(parts), joints, strict=True) if rank == best))
    return parts


def learn_pieces(lines: Iterable[str], size: int) -> list[str]:
    """The ``size`` pieces of a text: its most frequent characters, then the merges, in the order they were found.

    Characters take at most half of the places. Pieces of which every occurrence went into a longer one stay: another
    text may want them. Fewer come where the text has no more neighbours that stand together twice.
    """
    counts = Counter(unit for line in lines for unit in units(line))
    characters: Counter[str] = Counter()
    for unit, count in counts.items():
        for character in unit:
            characters[character] += count
    pieces = sorted(characters, key=lambda character: (-characters[character], character))[: max(1, size // 2)]
    known = dict.fromkeys(pieces)
    merging = _Merging(counts)
    while len(known) < size and (merged := merging.merge()) is not None:
        known[merged] = None
    return list(known)


class _Merging:
    """Units as lists of pieces, with the counts of all neighbours; the heap holds every count that there has been."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.units = [list(unit) for unit in counts]
        self.counts = list(counts.values())
        self.neighbours: Counter[tuple[str, str]] = Counter()
        self.homes: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for number in range(len(self.units)):
            self._count(number, 1)
        self.heap = [(-count, pair) for pair, count in self.neighbours.items()]
        heapq.heapify(self.heap)

    def merge(self) -> str | None:
        """Join the commonest neighbours everywhere (of equals, the first in order); None where none stand twice."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if -count == self.neighbours[pair]:  # else it has changed since, and stands in the heap again
                return self._merge(pair) if count <= -2 else None
        return None

    def _merge(self, pair: tuple[str, str]) -> str:
        changed: set[tuple[str, str]] = set()
        for number in list(self.homes[pair]):
            changed |= self._count(number, -1)
            self.units[number] = _joined(self.units[number], pair)
            changed |= self._count(number, 1)
        for other in changed:
            heapq.heappush(self.heap, (-self.neighbours[other], other))
        return pair[0] + pair[1]

    def _count(self, number: int, sign: int) -> set[tuple[str, str]]:
        pairs = list(pairwise(self.units[number]))
        for pair in pairs:
            self.neighbours[pair] += sign * self.counts[number]
            (self.homes[pair].add if sign > 0 else self.homes[pair].discard)(number)
        return set(pairs)


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """``parts`` with the pair made one wherever it stands, from the left."""
    joined: list[str] = []
    fresh = False  # what has just been joined does not join again
    for part in parts:
        if joined and not fresh and (joined[-1], part) == pair:
            joined[-1] += part
            fresh = True
        else:
            joined.append(part)
            fresh = False
    return joined
