"""Tags over words: spans from BIO tags and back, by the rules of the CoNLL shared tasks.

``B-person`` begins a person, ``I-person`` goes on with one, ``O`` is outside. An ``I-`` that follows nothing of its
type begins a span of its own, as conlleval has it.
"""

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"


class Span(NamedTuple):
    """Words ``start`` to ``end`` (not included) are one ``kind``."""

    start: int
    end: int
    kind: str


def is_bio(tags: Sequence[str]) -> bool:
    """Whether a list of tags is of spans (``B-x``, ``I-x``, ``O``) and not of words (``NOUN``)."""
    return all(tag == OUTSIDE or tag[:2] in ("B-", "I-") for tag in tags)


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans that a sentence's tags mark, in order."""
    found: list[Span] = []
    start, kind = 0, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        goes_on = tag[:2] == "I-" and tag[2:] == kind
        if kind and not goes_on:
            found.append(Span(start, place, kind))
        if not goes_on:
            start, kind = place, "" if tag == OUTSIDE else tag[2:]
    return found


def impossible_pairs(tags: Sequence[str]) -> tuple[list[tuple[int, int]], list[int]]:
    """(before, after) numbers of tags that cannot follow one another, and those that cannot be first.

    An ``I-x`` wants a ``B-x`` or ``I-x`` before it; other tags may stand anywhere.
    """
    if not is_bio(tags):
        return [], []
    inside = [number for number, tag in enumerate(tags) if tag[:2] == "I-"]
    pairs = [
        (before, after)
        for after in inside
        for before, tag in enumerate(tags)
        if tag == OUTSIDE or tag[2:] != tags[after][2:]
    ]
    return pairs, inside


def tag_counts(wanted: Sequence[str], found: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Words, right tags, spans that are there, spans that were found, spans that are both, of one sentence."""
    right = sum(one == other for one, other in zip(wanted, found, strict=True))
    true, marked = (set(spans(tags)) if is_bio(tags) else set() for tags in (wanted, found))
    return len(wanted), right, len(true), len(marked), len(true & marked)
