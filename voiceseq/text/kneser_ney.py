"""Train n-gram models: interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998).

With h a context, h' the context less its first word, and c the counts of the order::

    p(w | h)  = (c(h w) - D(c(h w))) / c(h)  +  gamma(h) p(w | h')            c(h) = sum_w c(h w)
    gamma(h)  = sum_w D(c(h w)) / c(h)                                      what was discounted
    D(0) = 0,  D(1) = 1 - 2 Y n2/n1,  D(2) = 2 - 3 Y n3/n2,  D(3 and more) = 3 - 4 Y n4/n3,  Y = n1 / (n1 + 2 n2)

n_k is the number of n-grams of the order whose count is k. The highest order counts occurrences; a lower one counts how
many different words come before the n-gram, and its occurrences at the start of a sequence, where none does. Below the
unigrams stands the uniform distribution over all that can come next, ``<unk>`` included.

``gamma(h)`` is the back-off weight of h and p goes into the listed n-grams, so the interpolated model is a plain
back-off model (`NgramModel`). A pruned n-gram leaves the list and its whole count joins what was discounted.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from voiceseq.core.scorers import Floats, Ints
from voiceseq.errors import InputError
from voiceseq.text.ngram import BEGIN, END, LN10, UNKNOWN, Grams, NgramModel

NEVER = -99.0 * LN10  # what ARPA files give to <s>, which is a context and never comes next
FALLBACK = (0.0, 0.5, 1.0, 1.5)  # discounts where the counts of counts give none, as in KenLM


def train_ngram(
    sequences: Iterable[Sequence[str]], order: int, prune: Sequence[int] = (), boundaries: bool = True
) -> NgramModel:
    """The model of ``sequences``, each of words (or a string: of its characters).

    ``boundaries``: ``<s>`` stands before each sequence and ``</s>`` behind it, as in KenLM. Without, sequences are
    pieces of running text (``[stream]`` for a single one) and no boundary is ever predicted. ``prune``: n-grams that
    occur at most ``prune[n - 1]`` times are dropped (0 keeps all), the last number serving the orders above; unigrams
    are always kept. ``<unk>`` is a word like any other where the text has it; where not, its probability is its share
    of the uniform distribution.

    An order whose counts of counts give no usable discounts (n1, n2 or n3 is 0, or a D outside (0, count]), as in tiny
    or artificial texts, takes `FALLBACK`. Raises InputError for a text without words, an order below 1 or longer than
    the longest sequence, boundary symbols inside the text and thresholds that fall.
    """
    thresholds = _thresholds(prune, order)
    text = _read(sequences, boundaries)
    longest = int(text.left.max())
    if order > longest:
        raise InputError(f"order {order} came for sequences of at most {longest} symbols; give an order up to that")
    counted = _count(text, order)
    return NgramModel(text.words, _estimate(counted, _adjusted(counted), thresholds))


def discounts(counts: Ints) -> Floats:
    """``(4,)``: D(0), D(1), D(2), D(3 and more) for n-grams of these counts; `FALLBACK` where they give none."""
    n1, n2, n3, n4 = np.bincount(counts.clip(max=5), minlength=6)[1:5].tolist()
    if not (n1 and n2 and n3):
        return np.array(FALLBACK)
    y = n1 / (n1 + 2 * n2)
    found = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return found if (found[1:] > 0).all() else np.array(FALLBACK)


def _thresholds(prune: Sequence[int], order: int) -> list[int]:
    """One an order, the first 0."""
    if order < 1:
        raise InputError(f"order {order} came; an n-gram model has order 1 or more")
    given = list(prune) or [0]
    if len(given) > order or given[0] != 0 or any(high < low for low, high in pairwise(given)):
        raise InputError(f"prune {given} came; 0 for the unigrams, then up to {order - 1} numbers that never fall")
    return given + [given[-1]] * (order - len(given))


class _Text(NamedTuple):
    """All sequences, one after the other."""

    words: list[str]  # the vocabulary
    ids: Ints  # (length,)
    left: Ints  # (length,) how many symbols of its sequence stand here and to the right
    first: Ints  # (sequences,) where they start


def _read(sequences: Iterable[Sequence[str]], boundaries: bool) -> _Text:
    if isinstance(sequences, str):
        raise InputError("a string came; a list of sequences was wanted, e.g. [line.split() for line in text]")
    index = {UNKNOWN: 0, BEGIN: 1, END: 2}
    ids: list[int] = []
    ends: list[int] = []
    for sequence in sequences:
        inner = [index.setdefault(word, len(index)) for word in sequence]
        ids += [1, *inner, 2] if boundaries else inner
        ends.append(len(ids))
    array = np.array(ids, dtype=np.int64)
    lengths = np.diff(ends, prepend=0)
    _check(list(index), np.bincount(array, minlength=3), len(ends) if boundaries else 0)
    end = np.repeat(ends, lengths)
    return _Text(list(index), array, end - np.arange(len(array)), (np.array(ends) - lengths)[lengths > 0])


def _check(words: list[str], counts: Ints, boundaries: int) -> None:
    """``boundaries``: how many of each boundary symbol were put in."""
    if counts.sum() == 2 * boundaries:
        raise InputError("the text has no words; give at least one")
    wrong = [word for word in words if not isinstance(word, str)]
    if wrong:
        raise InputError(f"the word {wrong[0]!r} came; words are strings")
    if counts[1] > boundaries or (boundaries and counts[2] > boundaries):
        raise InputError(f"{BEGIN} or {END} came inside the text; they stand for its boundaries: leave them out")


class _Counted(NamedTuple):
    """The different n-grams of one order, sorted; for the unigrams, the vocabulary."""

    words: NDArray[np.int32]  # (count, order)
    context: Ints  # (count,) the number, one order below, of the n-gram less its last word
    suffix: Ints  # (count,) the same less its first word
    occurrences: Ints  # (count,)
    openings: Ints  # (count,) its occurrences at the start of a sequence


def _count(text: _Text, order: int) -> list[_Counted]:
    """An n-gram's number: the rank of (number of its context, last word)."""
    size = len(text.words)
    number = text.ids  # (length,) of the n-gram that starts here
    unigrams, nothing = np.arange(size, dtype=np.int32)[:, None], np.zeros(size, np.int64)
    occurrences, openings = (np.bincount(ids, minlength=size) for ids in (number, number[text.first]))
    counted = [_Counted(unigrams, nothing, nothing, occurrences, openings)]
    for n in range(2, order + 1):
        here = np.flatnonzero(text.left >= n)
        key = number[here] * size + text.ids[here + n - 1]
        found, where, rank, occurrences = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        context, suffix = found // size, number[here[where] + 1]
        words = np.column_stack([counted[-1].words[context], (found % size).astype(np.int32)])
        number = np.full_like(number, -1)
        number[here] = rank
        opening = number[text.first]
        openings = np.bincount(opening[opening >= 0], minlength=len(found))
        counted.append(_Counted(words, context, suffix, occurrences, openings))
    return counted


def _adjusted(counted: list[_Counted]) -> list[Ints]:
    """The counts c of each order. ``<s>`` is never predicted, so it has none; nor has what the text lacks."""
    lower = [
        np.bincount(above.suffix, minlength=len(grams.words)) + grams.openings for grams, above in pairwise(counted)
    ]
    counts = [*lower, counted[-1].occurrences.copy()]
    counts[0][1] = 0
    return counts


def _estimate(counted: list[_Counted], counts: list[Ints], thresholds: list[int]) -> list[Grams]:
    """The equations, from the uniform distribution up; the back-off of an order comes with the order above."""
    possible = counts[0] > 0
    possible[0] = True  # <unk>
    probability = np.array([1 / possible.sum()])
    probabilities, gammas = [], []
    for grams, count, threshold in zip(counted, counts, thresholds, strict=True):
        discount = discounts(count)[count.clip(max=3)]
        freed = np.where(grams.occurrences > threshold, discount, count)
        total = np.bincount(grams.context, count, minlength=len(probability))
        gamma = np.bincount(grams.context, freed, minlength=len(probability)) / total.clip(min=1)
        gamma[total == 0] = 1.0  # nothing follows this context: all comes from the shorter one
        probability = (count - freed) / total[grams.context] + gamma[grams.context] * probability[grams.suffix]
        probabilities.append(probability)
        gammas.append(gamma)
    log_probs = [np.log(probability) for probability in probabilities]
    log_probs[0][~possible] = NEVER
    backoffs = [*(np.log(gamma) for gamma in gammas[1:]), np.zeros(len(probability))]
    kept = [np.full(len(possible), True)]
    kept += [grams.occurrences > threshold for grams, threshold in zip(counted[1:], thresholds[1:], strict=True)]
    return [
        Grams(grams.words[keep], log_prob[keep], backoff[keep])
        for grams, log_prob, backoff, keep in zip(counted, log_probs, backoffs, kept, strict=True)
    ]
