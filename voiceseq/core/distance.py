"""Edit distance: how far one sequence of symbols is from another, and the way between them."""

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Operation = Literal["equal", "substitute", "insert", "delete"]


class Edit(NamedTuple):
    """One step from reference to hypothesis; what is inserted has no reference, what is deleted no hypothesis."""

    operation: Operation
    reference: Hashable | None
    hypothesis: Hashable | None


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """The fewest substitutions, insertions and deletions that make the hypothesis of the reference."""
    return int(_distances(reference, hypothesis)[-1, -1])


def align(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> list[Edit]:
    """A shortest way from reference to hypothesis, equal symbols included.

    Of several, the one that, read from the end, substitutes before it deletes and deletes before it inserts.
    """
    distance = _distances(reference, hypothesis)
    i, j = len(reference), len(hypothesis)
    edits: list[Edit] = []
    while i or j:
        same = i > 0 and j > 0 and reference[i - 1] == hypothesis[j - 1]
        if i and j and distance[i, j] == distance[i - 1, j - 1] + (not same):
            i, j = i - 1, j - 1
            edits.append(Edit("equal" if same else "substitute", reference[i], hypothesis[j]))
        elif i and distance[i, j] == distance[i - 1, j] + 1:
            i -= 1
            edits.append(Edit("delete", reference[i], None))
        else:
            j -= 1
            edits.append(Edit("insert", None, hypothesis[j]))
    return edits[::-1]


def _distances(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> NDArray[np.int32]:
    """``(reference + 1, hypothesis + 1)``, the distance between the first i and the first j symbols.

    A row at a time: first without insertions, then ``d[j] = min over k <= j of d[k] + (j - k)``, a running minimum.
    """
    number: dict[Hashable, int] = {}
    known = [number.setdefault(symbol, len(number)) for symbol in reference]
    heard = np.array([number.setdefault(symbol, len(number)) for symbol in hypothesis], dtype=np.int64)
    column = np.arange(len(heard) + 1)
    distance = np.empty((len(known) + 1, len(heard) + 1), dtype=np.int32)
    distance[0] = column
    for i, symbol in enumerate(known, start=1):
        row = distance[i - 1] + 1
        np.minimum(row[1:], distance[i - 1, :-1] + (heard != symbol), out=row[1:])
        distance[i] = np.minimum.accumulate(row - column) + column
    return distance
