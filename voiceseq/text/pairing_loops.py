"""The inner loops of `voiceseq.text.pairing`, compiled by numba; imported there at its first use."""

import math
from typing import Any

import numpy as np
from numba import njit

from voiceseq.core.scorers import Floats, Ints

NOWHERE = -1e30
compiled: Any = njit(cache=True, nogil=True)


@compiled
def _plus(a: float, b: float) -> float:
    """log(exp a + exp b)."""
    high = max(a, b)
    return high if high <= NOWHERE else high + math.log(math.exp(a - high) + math.exp(b - high))


@compiled
def expected(first: Ints, source: Ints, target: Ints, score: Floats, nodes: Ints, share: Floats) -> None:
    """Fill ``share (edges,)``: how probable it is that the path of its word takes an edge.

    Edges of word w are ``first[w]`` to ``first[w + 1]``, sorted by their source; its nodes are 0 to ``nodes[w] - 1``.
    """
    for word in range(len(nodes)):
        start, stop, count = first[word], first[word + 1], nodes[word]
        before, after = np.full(count, NOWHERE), np.full(count, NOWHERE)
        before[0] = after[count - 1] = 0.0
        for edge in range(start, stop):
            before[target[edge]] = _plus(before[target[edge]], before[source[edge]] + score[edge])
        total = before[count - 1]
        if total <= NOWHERE:
            continue
        for edge in range(stop - 1, start - 1, -1):
            onward = after[target[edge]] + score[edge]
            after[source[edge]] = _plus(after[source[edge]], onward)
            share[edge] = math.exp(max(before[source[edge]] + onward - total, -700.0))


@compiled
def best(first: Ints, source: Ints, target: Ints, score: Floats, nodes: Ints, taken: Any) -> None:
    """Mark in ``taken (edges,)`` the edges of each word's best path; none where there is no path."""
    for word in range(len(nodes)):
        start, stop, count = first[word], first[word + 1], nodes[word]
        before, by = np.full(count, NOWHERE), np.full(count, -1)
        before[0] = 0.0
        for edge in range(start, stop):
            reached = before[source[edge]] + score[edge]
            if reached > before[target[edge]]:
                before[target[edge]], by[target[edge]] = reached, edge
        node = count - 1
        while node > 0 and by[node] >= 0:
            taken[by[node]] = True
            node = source[by[node]]
