"""Word vectors: a table of words, neighbours and analogies in it, and the text files of word2vec and GloVe.

GloVe's file has a line a word, ``word number number ...``; word2vec's has a first line with the table's two sizes.
"""

import contextlib
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self, get_args

import numpy as np

from voiceseq.errors import InputError
from voiceseq.text.files import read_text

Format = Literal["word2vec", "glove"]
Floats = np.ndarray
Words = Sequence[str]


class Neighbour(NamedTuple):
    """A word and the cosine of the angle to what was asked for."""

    word: str
    cosine: float


@dataclass(frozen=True)
class WordVectors:
    """``words`` and their vectors, the rows of ``matrix (words, dimension)``; the most frequent words first.

    Raises InputError for a matrix of another shape, words that come twice, and NaN.
    """

    words: tuple[str, ...]
    matrix: Floats
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)
    _unit: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, np.float32)
        if matrix.ndim != 2 or len(matrix) != len(self.words) or not matrix.size:
            raise InputError(f"the matrix has shape {matrix.shape}; ({len(self.words)} words, dimension) was wanted")
        if not np.isfinite(matrix).all():
            raise InputError("the vectors hold NaN or infinity; look at the training or at the file")
        numbers = {word: number for number, word in enumerate(self.words)}
        if len(numbers) < len(self.words):
            raise InputError(f"{len(self.words) - len(numbers)} words come twice; each wants one vector")
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "_numbers", numbers)
        object.__setattr__(self, "_unit", matrix / np.maximum(norms, 1e-12))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word. Raises InputError for one that is not there."""
        return self.matrix[self.number(word)]

    @property
    def unit(self) -> Floats:
        """``(words, dimension)``, every vector of length 1."""
        return self._unit

    def number(self, word: str) -> int:
        """The row of a word, or of its small letters. Raises InputError where neither is there."""
        for form in (word, word.lower()):
            if form in self._numbers:
                return self._numbers[form]
        raise InputError(f"{word[:60]!r} is not among the {len(self)} words of these vectors")

    def similarity(self, one: str, other: str) -> float:
        """The cosine of the angle between two words. Raises InputError for one that is not there."""
        return float(self._unit[self.number(one)] @ self._unit[self.number(other)])

    def nearest(self, vector: Floats, count: int = 10, without: Iterable[str] = ()) -> list[Neighbour]:
        """The ``count`` words whose vectors point most nearly in this direction, but those ``without``."""
        if count < 1:
            raise InputError(f"{count} neighbours were asked for; 1 or more was wanted")
        cosines = self._unit @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
        left_out = {self.number(word) for word in without}
        order = np.argsort(-cosines, kind="stable")[: count + len(left_out)]
        return [Neighbour(self.words[i], float(cosines[i])) for i in order if i not in left_out][:count]

    def neighbours(self, word: str, count: int = 10) -> list[Neighbour]:
        """The words nearest to one. Raises InputError for a word that is not there."""
        return self.nearest(self[word], count, [word])

    def analogy(self, a: str, b: str, c: str, count: int = 1) -> list[Neighbour]:
        """``a`` is to ``b`` as ``c`` is to what: the nearest to ``b - a + c`` (unit vectors), none of the three.

        Raises InputError for a word that is not there.
        """
        one, two, three = (self._unit[self.number(word)] for word in (a, b, c))
        return self.nearest(two - one + three, count, [a, b, c])

    def with_matrix(self, matrix: Floats) -> Self:
        """The same words with other vectors."""
        return type(self)(self.words, matrix)


def read_vectors(path: str | Path) -> WordVectors:
    """Read a file of word2vec (text) or GloVe, plain or ``.gz``; of a word that comes twice the first counts.

    Raises InputError for a file that cannot be read and for lines that are no word with numbers, by their number.
    """
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    first, skipped = (lines[0].split(), 1) if lines else ([], 0)
    header = len(first) == 2 and all(cell.isdecimal() for cell in first)
    lines, size = (lines[1:], int(first[1])) if header else (lines, len(first) - 1)
    if not lines or size < 1:
        raise InputError(f"{path} holds no word vectors; lines of a word and its numbers were wanted")
    rows: dict[str, Floats] = {}
    for number, line in enumerate(lines, 1 + skipped * header):
        word, *cells = line.rstrip().rsplit(" ", size)
        vector = None
        with contextlib.suppress(ValueError):
            vector = np.array(cells, np.float32)
        if vector is None or len(vector) != size or not word:
            raise InputError(f"{path}, line {number}: {line[:40]!r} is no word with {size} numbers after it")
        rows.setdefault(word.strip(), vector)
    return WordVectors(tuple(rows), np.stack(list(rows.values())))


def write_vectors(vectors: WordVectors, path: str | Path, form: Format = "word2vec", digits: int = 6) -> Path:
    """Write the file that ``read_vectors`` reads; ``.gz`` is packed. Raises InputError where it cannot be written."""
    if form not in get_args(Format):
        raise InputError(f"the format {form!r} came; choose one of {', '.join(get_args(Format))}")
    head = [f"{len(vectors)} {vectors.matrix.shape[1]}"] if form == "word2vec" else []
    rows = zip(vectors.words, vectors.matrix.tolist(), strict=True)
    body = [f"{word} {' '.join(f'{value:.{digits}g}' for value in row)}" for word, row in rows]
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "wt", encoding="utf-8", newline="\n") as file:
            file.write("\n".join([*head, *body]) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}); give a file in a folder that exists") from error
    return Path(path)
