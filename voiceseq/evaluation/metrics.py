"""Metrics: edit distance, word and character error rates, BLEU, perplexity, and how sure one can be of any of them.

Nothing here normalises: case, punctuation and spelling count as they come. Where words are wanted, a string is cut at
white space and a list is taken as it is.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from voiceseq.core.distance import align
from voiceseq.errors import InputError

Value = TypeVar("Value")
Words = str | Sequence[str]


@dataclass(frozen=True)
class Errors:
    """Counts of the errors against ``reference`` symbols; sums of them are the counts of a corpus."""

    substitutions: int
    insertions: int
    deletions: int
    reference: int

    @property
    def total(self) -> int:
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Errors for each symbol of the reference; it can be above 1. ``InputError`` for an empty reference."""
        if not self.reference:
            raise InputError("the references are empty, so there is no error rate; give at least one symbol")
        return self.total / self.reference

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.reference + other.reference,
        )


def count_errors(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> Errors:
    """The edits of ``align``, counted."""
    counts = Counter(edit.operation for edit in align(reference, hypothesis))
    return Errors(counts["substitute"], counts["insert"], counts["delete"], len(reference))


def word_errors(references: Sequence[Words], hypotheses: Sequence[Words]) -> Errors:
    """Word errors over a corpus; ``.rate`` is the WER (errors over words of all references, not a mean of rates)."""
    _check_pairs(references, hypotheses)
    pairs = zip(references, hypotheses, strict=True)
    return sum((count_errors(_words(one), _words(other)) for one, other in pairs), Errors(0, 0, 0, 0))


def character_errors(references: Sequence[str], hypotheses: Sequence[str]) -> Errors:
    """Character errors over a corpus, spaces included, by code points; ``.rate`` is the CER."""
    _check_pairs(references, hypotheses)
    pairs = zip(references, hypotheses, strict=True)
    return sum((count_errors(one, other) for one, other in pairs), Errors(0, 0, 0, 0))


Smoothing = Literal["none", "exp"]


class Bleu(NamedTuple):
    """``score`` and ``precisions`` in 0..100; ``score = brevity * geometric mean of the precisions``."""

    score: float
    precisions: tuple[float, ...]
    brevity: float
    hypothesis_length: int
    reference_length: int


def clipped_precision(hypothesis: Words, references: Sequence[Words], n: int) -> tuple[int, int]:
    """(matches, total) of the hypothesis's n-grams; each counts at most as often as in any one reference."""
    if n < 1:
        raise InputError(f"n-grams of {n} words were asked for; give n >= 1")
    said = _ngrams(_words(hypothesis), n)
    allowed: Counter[tuple[str, ...]] = Counter()
    for reference in _check_references(references):
        allowed |= _ngrams(_words(reference), n)
    return (said & allowed).total(), said.total()


def bleu(
    hypotheses: Sequence[Words], references: Sequence[Sequence[Words]], order: int = 4, smoothing: Smoothing = "exp"
) -> Bleu:
    """BLEU of a corpus; ``references[i]`` are all the references of ``hypotheses[i]``.

    Matches and totals are added up over the corpus before they are divided. The brevity penalty exp(1 - r/c) compares
    the length c of the hypotheses with r, for each the reference nearest in length (of two, the shorter). With "exp"
    the k-th precision that has no match counts as 1/(2^k total), as in sacrebleu; with "none" the score is then 0.
    Text is cut at white space alone: tokenise first.
    """
    _check_pairs(references, hypotheses)
    if order < 1 or smoothing not in get_args(Smoothing):
        raise InputError(f"order {order}, smoothing {smoothing!r}: at least 1, and one of {list(get_args(Smoothing))}")
    said = sum(len(_words(hypothesis)) for hypothesis in hypotheses)
    wanted = sum(
        _nearest_length(len(_words(h)), _check_references(r)) for h, r in zip(hypotheses, references, strict=True)
    )
    fractions = [
        np.sum([clipped_precision(h, r, n) for h, r in zip(hypotheses, references, strict=True)], axis=0).tolist()
        for n in range(1, order + 1)
    ]
    precisions = _smoothed(fractions, smoothing)
    brevity = 1.0 if said >= wanted else math.exp(1 - wanted / said) if said else 0.0
    mean = math.exp(sum(math.log(p) for p in precisions) / order) if all(precisions) else 0.0
    return Bleu(100 * brevity * mean, tuple(100 * p for p in precisions), brevity, said, wanted)


def _smoothed(fractions: Sequence[tuple[int, int]], smoothing: Smoothing) -> list[float]:
    """Precisions from (matches, total); a corpus without a single match, or too short for an n-gram, stays at 0."""
    if smoothing == "none" or not any(matches for matches, _ in fractions):
        return [matches / total if total else 0.0 for matches, total in fractions]
    precisions, share = [], 1.0
    for matches, total in fractions:
        if not matches:
            share /= 2
        precisions.append((matches or share) / total if total else 0.0)
    return precisions


def _nearest_length(length: int, references: Sequence[Words]) -> int:
    lengths = [len(_words(reference)) for reference in references]
    return min(lengths, key=lambda other: (abs(other - length), other))


def _ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def perplexity(log_probs: Iterable[float]) -> float:
    """exp of minus the mean log-probability (natural) of the tokens; ``InputError`` when there are none."""
    values = np.fromiter(log_probs, dtype=np.float64)
    if not values.size or np.isnan(values).any():
        raise InputError(
            f"{values.size} log-probabilities, {np.isnan(values).sum()} of them NaN; give at least one, no NaN"
        )
    with np.errstate(over="ignore"):
        return float(np.exp(-values.mean()))


class Interval(NamedTuple):
    """The statistic of all the data, and the bounds between which resampled data leave it."""

    estimate: float
    low: float
    high: float


def bootstrap(
    values_by_group: Mapping[str, Sequence[Value]],
    statistic: Callable[[list[Value]], float],
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """A percentile confidence interval that draws whole groups (speakers) with replacement.

    What one speaker says is alike, so single utterances drawn one by one would promise too much. ``statistic`` is
    given the values of the drawn groups in one list. The same seed gives the same interval, in whatever order the
    groups come.
    """
    groups = [list(values_by_group[name]) for name in sorted(values_by_group)]
    if not groups or not all(groups):
        raise InputError(f"{len(groups)} groups, {sum(not g for g in groups)} of them empty; leave the empty ones out")
    if resamples < 1 or not 0.0 < confidence < 1.0:
        raise InputError(f"resamples {resamples}, confidence {confidence}: at least 1, and between 0 and 1")
    draws = np.random.default_rng(seed).integers(len(groups), size=(resamples, len(groups)))
    found = [statistic([value for group in draw for value in groups[group]]) for draw in draws]
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(statistic([value for group in groups for value in group])), float(low), float(high))


def _words(text: Words) -> Sequence[str]:
    return text.split() if isinstance(text, str) else text


def _check_pairs(references: Sequence[object], hypotheses: Sequence[object]) -> None:
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise InputError("a corpus is a list of sentences, but one string came: put it in a list")
    if len(references) != len(hypotheses) or not len(references):
        raise InputError(
            f"{len(references)} references, {len(hypotheses)} hypotheses; as many were wanted, at least one"
        )


def _check_references(references: Sequence[Words]) -> Sequence[Words]:
    if isinstance(references, str) or not references:
        raise InputError("each hypothesis wants a list of references, at least one: [reference], not reference")
    return references
