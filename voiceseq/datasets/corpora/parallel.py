"""Sentences and their translations: two files line by line, or one table with a pair a line."""

from collections.abc import Sequence

from voiceseq.errors import InputError
from voiceseq.text.files import read_text


def read_parallel(path: str, other: str | None = None, *, columns: Sequence[int] = (0, 1)) -> list[tuple[str, str]]:
    """The pairs of two line-aligned files or, without ``other``, of two ``columns`` of a tab-separated one.

    White space becomes single spaces; pairs with an empty side are left out. Raises InputError for files that cannot be
    read, of unequal length, or without a pair.
    """
    if other is None:
        rows = [line.split("\t") for line in read_text(path).splitlines() if line.strip()]
        short = next((number for number, row in enumerate(rows, 1) if len(row) <= max(columns)), None)
        if short is not None:
            raise InputError(f"{path}: row {short} has no column {max(columns)}; tabs between columns were wanted")
        sides = [(row[columns[0]], row[columns[1]]) for row in rows]
    else:
        left, right = read_text(path).splitlines(), read_text(other).splitlines()
        if len(left) != len(right):
            raise InputError(
                f"{path} has {len(left)} lines, {other} {len(right)}; line by line they must belong together"
            )
        sides = list(zip(left, right, strict=True))
    plain = [(" ".join(one.split()), " ".join(two.split())) for one, two in sides]
    pairs = [pair for pair in plain if all(pair)]
    if not pairs:
        raise InputError(f"{path}: no pair of sentences was found; a sentence and its translation a line were wanted")
    return pairs
