"""Error analysis of text tasks: what is wrong, by length, by rarity, and whether the search or the model is at fault.

Every task answers in one form (``Answer``), so one report serves all; ``evaluation/answers.py`` asks the models.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from voiceseq.evaluation.search_errors import MODEL, SEARCH

RARE = ((0, 0), (1, 4), (5, 19), (20, 99), (100, math.inf))  # how often the rarest part was seen
PARTS = 5  # groups of like length
SHOWN = 20  # wrong answers in a report
Units = Callable[[str], list[str]]


@dataclass(frozen=True)
class Answer:
    """``right`` from 0 to 1 (None where nothing is right or wrong), ``loss`` the model's own measure (None: it has
    none), ``fault`` of a wrong answer: "search", "model", or None where that was not asked."""

    source: str
    wanted: str
    given: str
    right: float | None = None
    loss: float | None = None
    fault: str | None = None
    size: int | None = None  # the length, where it is not the number of the source's units


def fault_of(given: Any, wanted: Any, given_score: float, wanted_score: float) -> str | None:
    """The search's where the model likes the wanted answer more than the one that was found, else the model's."""
    if given == wanted:
        return None
    return SEARCH if wanted_score > given_score else MODEL


def words(text: str) -> list[str]:
    return text.lower().split()


def letters(text: str) -> list[str]:
    """Three letters in a row, with the ends of the word: what makes a spelling rare."""
    marked = f"^{text.lower()}$"
    return [marked[i : i + 3] for i in range(max(1, len(marked) - 2))]


def text_report(answers: Sequence[Answer], units: Units = words, seen: Iterable[str] | None = None) -> dict[str, Any]:
    """``all``, ``by_length``, ``by_rarity`` (each group as ``summary`` gives it) and the first ``wrong`` answers.

    The rarity of a source is how often its rarest unit occurs in ``seen`` (the text of training) or, without that, in
    the other sources.
    """
    others = Counter(
        unit for text in (seen if seen is not None else (a.source for a in answers)) for unit in units(text)
    )

    def rarest(answer: Answer) -> int:
        own = Counter(units(answer.source)) if seen is None else Counter[str]()
        return min((others[unit] - own[unit] for unit in units(answer.source)), default=0)

    rarity = [rarest(answer) for answer in answers]
    lengths = [len(units(answer.source)) if answer.size is None else answer.size for answer in answers]
    rare = [(low, high, [a for a, r in zip(answers, rarity, strict=True) if low <= r <= high]) for low, high in RARE]
    wrong = [answer for answer in answers if answer.right is not None and answer.right < 1]
    return {
        "all": summary(answers),
        "by_length": [{"from": low, "to": high, **summary(some)} for low, high, some in by_length(answers, lengths)],
        "by_rarity": [
            {"from": low, "to": None if math.isinf(high) else high, **summary(some)} for low, high, some in rare if some
        ],
        "rarity_counted_in": "the other sources" if seen is None else "the text of training",
        "wrong": [
            {"source": a.source[:500], "wanted": a.wanted[:500], "given": a.given[:500], "fault": a.fault}
            for a in wrong[:SHOWN]
        ],
    }


def by_length(answers: Sequence[Answer], lengths: Sequence[int]) -> list[tuple[int, int, list[Answer]]]:
    """Groups of about equal size, from the shortest to the longest; equal lengths are never parted."""
    groups: list[tuple[int, int, list[Answer]]] = []
    for length in sorted(set(lengths)):
        some = [answer for answer, size in zip(answers, lengths, strict=True) if size == length]
        if groups and len(groups[-1][2]) < len(answers) / PARTS:
            groups[-1] = (groups[-1][0], length, groups[-1][2] + some)
        else:
            groups.append((length, length, some))
    return groups


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """How many, the share that is right, the mean loss, and of the wrong ones how many are whose fault."""
    right = [answer.right for answer in answers if answer.right is not None]
    losses = [answer.loss for answer in answers if answer.loss is not None]
    return {
        "items": len(answers),
        "right": sum(right) / len(right) if right else None,
        "loss": sum(losses) / len(losses) if losses else None,
        SEARCH: sum(answer.fault == SEARCH for answer in answers),
        MODEL: sum(answer.fault == MODEL for answer in answers),
    }
