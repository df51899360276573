"""The words of two pieces that share some seconds, each word once.

Both answers are aligned by words and times at the least cost: a pair costs the seconds between its two words, and
``CHANGED`` more where they differ; a word without a partner costs ``ALONE``. What is paired is one word, heard twice,
and one of the two is kept: the earlier piece's before the cut, the later one's after it, because a piece knows least
about its own edge. A word that only one of them heard is kept on that one's side of the cut.
"""

from collections.abc import Sequence

import numpy as np

from voiceseq.inference.speech import Word

CHANGED = 0.5
ALONE = 0.6
SAME_S, OTHER_S = 0.35, 0.2  # equal words further apart than this are two words; and different ones
FOREVER = float("inf")


def join_words(before: Sequence[Word], after: Sequence[Word], cut: float) -> tuple[list[Word], list[Word]]:
    """What is kept of the words of the earlier and of the later piece; ``cut`` in seconds, like the words."""
    kept: tuple[list[Word], list[Word]] = ([], [])
    shared = next((i for i, word in enumerate(before) if after and word.end > after[0].start - SAME_S), len(before))
    kept[0].extend(word for word in before[:shared] if _middle(word) < cut)
    for first, second in align(before[shared:], after):
        middles = [_middle(word) for word in (first, second) if word is not None]
        side = int(sum(middles) >= len(middles) * cut)
        word = (first, second)[side]
        if word is not None:
            kept[side].append(word)
    return kept


def align(before: Sequence[Word], after: Sequence[Word]) -> list[tuple[Word | None, Word | None]]:
    """Pairs in order, None for a missing partner, at the least cost."""
    rows, columns = len(before), len(after)
    cost = np.zeros((rows + 1, columns + 1))
    cost[:, 0], cost[0] = ALONE * np.arange(rows + 1), ALONE * np.arange(columns + 1)
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            paired = cost[i - 1, j - 1] + _distance(before[i - 1], after[j - 1])
            cost[i, j] = min(paired, cost[i - 1, j] + ALONE, cost[i, j - 1] + ALONE)
    pairs: list[tuple[Word | None, Word | None]] = []
    i, j = rows, columns
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + _distance(before[i - 1], after[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((before[i], after[j]))
        elif i and (not j or cost[i, j] == cost[i - 1, j] + ALONE):
            i -= 1
            pairs.append((before[i], None))
        else:
            j -= 1
            pairs.append((None, after[j]))
    return pairs[::-1]


def _distance(first: Word, second: Word) -> float:
    seconds = abs(_middle(first) - _middle(second))
    if _letters(first) == _letters(second):
        return seconds if seconds <= SAME_S else FOREVER
    return seconds + CHANGED if seconds <= OTHER_S else FOREVER


def _letters(word: Word) -> str:
    return "".join(filter(str.isalnum, word.word.casefold()))


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2
