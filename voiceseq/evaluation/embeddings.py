"""How good word vectors are: analogies, agreement with people's judgement of similarity, and their bias."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from voiceseq.errors import InputError
from voiceseq.text.files import read_text
from voiceseq.text.vectors import WordVectors

TOGETHER = 512  # questions answered at once
Question = tuple[str, str, str, str]


class Share(NamedTuple):
    """How many of those that can be answered are right."""

    right: int
    answered: int

    @property
    def percent(self) -> float:
        return 100 * self.right / max(1, self.answered)


@dataclass(frozen=True)
class Analogies:
    """By section of the file; a question with a word that has no vector is not counted, only among ``asked``."""

    sections: dict[str, Share]
    asked: int

    def total(self, grammar: bool | None = None) -> Share:
        """All sections, those of grammar (their names begin with "gram") or those of meaning."""
        chosen = [share for name, share in self.sections.items() if grammar in (None, name.startswith("gram"))]
        return Share(sum(share.right for share in chosen), sum(share.answered for share in chosen))


class Agreement(NamedTuple):
    """Spearman's rank correlation with people's scores, and of how many pairs of words."""

    correlation: float
    pairs: int


def read_questions(path: str | Path) -> dict[str, list[Question]]:
    """``questions-words.txt``: lines of four words, after lines ``: name of the section``. Raises InputError."""
    sections: dict[str, list[Question]] = {}
    current = sections.setdefault("", [])
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.startswith(":"):
            current = sections.setdefault(line[1:].strip(), [])
        elif words := line.lower().split():
            if len(words) != 4:
                raise InputError(f"{path}, line {number}: {line[:40]!r} has {len(words)} words; 4 were wanted")
            current.append((words[0], words[1], words[2], words[3]))
    return {name: questions for name, questions in sections.items() if questions}


def read_scored_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Two words and a score a line, as WordSim-353 and SimLex-999; a line without a number is a heading."""
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split()
        try:
            found.append((cells[0].lower(), cells[1].lower(), float(cells[2])))
        except (IndexError, ValueError) as error:
            if number > 1 and cells:
                raise InputError(f"{path}, line {number}: {line[:40]!r}; two words and a number were wanted") from error
    if not found:
        raise InputError(f"{path} holds no pairs of words with a score")
    return found


def answer_analogies(vectors: WordVectors, sections: dict[str, list[Question]]) -> Analogies:
    """3CosAdd: a : b = c : ?, the nearest of all words to b - a + c but for these three; small letters."""
    shares = {}
    for name, questions in sections.items():
        known = [question for question in questions if all(word in vectors for word in question)]
        numbers = np.array([[vectors.number(word) for word in question] for question in known]).reshape(-1, 4)
        shares[name] = Share(_right(vectors.unit, numbers), len(known))
    return Analogies(shares, sum(map(len, sections.values())))


def _right(unit: np.ndarray, numbers: np.ndarray) -> int:
    right = 0
    for part in (numbers[i : i + TOGETHER] for i in range(0, len(numbers), TOGETHER)):
        a, b, c, wanted = part.T
        cosines = (unit[b] - unit[a] + unit[c]) @ unit.T
        np.put_along_axis(cosines, part[:, :3], -np.inf, 1)
        right += int((cosines.argmax(1) == wanted).sum())
    return right


def agreement(vectors: WordVectors, pairs: Sequence[tuple[str, str, float]]) -> Agreement:
    """Raises InputError where fewer than three of the pairs have vectors."""
    known = [(vectors.similarity(a, b), score) for a, b, score in pairs if a in vectors and b in vectors]
    if len(known) < 3:
        raise InputError(f"{len(known)} of {len(pairs)} pairs have vectors; at least 3 were wanted")
    said, wanted = np.array(known).T
    return Agreement(spearman(said, wanted), len(known))


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """The correlation of the ranks; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts - 1) / 2)[inverse]


def bias_along(vectors: WordVectors, direction: np.ndarray, words: Sequence[str]) -> float:
    """The mean |cosine| of some words with a direction of bias. Raises InputError where none has a vector."""
    known = [vectors.number(word) for word in words if word in vectors]
    if not known:
        raise InputError(f"none of the {len(words)} words has a vector")
    return float(np.abs(vectors.unit[known] @ direction).mean())
