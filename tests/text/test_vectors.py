"""Word vectors: neighbours and analogies by brute force, files in and out, bad files by their line."""

from pathlib import Path

import numpy as np
import pytest

from voiceseq.errors import InputError
from voiceseq.text.vectors import WordVectors, read_vectors, write_vectors

WORDS = ("the", "king", "queen", "man", "woman", "Zürich", "日本")


@pytest.fixture
def vectors() -> WordVectors:
    return WordVectors(WORDS, np.random.default_rng(1).standard_normal((len(WORDS), 5)))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_neighbours_are_the_nearest_by_angle(vectors: WordVectors) -> None:
    found = vectors.neighbours("king", 3)
    others = [word for word in WORDS if word != "king"]
    wanted = sorted(others, key=lambda word: -cosine(vectors[word], vectors["king"]))[:3]
    assert [one.word for one in found] == wanted
    assert found[0].cosine == pytest.approx(cosine(vectors[wanted[0]], vectors["king"]), abs=1e-5)
    assert len(vectors.neighbours("king", 100)) == len(WORDS) - 1


def test_an_analogy_is_the_nearest_to_the_sum_and_none_of_the_three(vectors: WordVectors) -> None:
    unit = {word: vectors[word] / np.linalg.norm(vectors[word]) for word in WORDS}
    wanted = unit["king"] - unit["man"] + unit["woman"]
    left = [word for word in WORDS if word not in ("king", "man", "woman")]
    assert vectors.analogy("man", "king", "woman")[0].word == max(left, key=lambda word: cosine(unit[word], wanted))


@pytest.mark.parametrize("form", ["word2vec", "glove"])
@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
def test_files_come_back(vectors: WordVectors, tmp_path: Path, form: str, name: str) -> None:
    path = write_vectors(vectors, tmp_path / name, form)  # type: ignore[arg-type]
    again = read_vectors(path)
    assert again.words == WORDS
    np.testing.assert_allclose(again.matrix, vectors.matrix, rtol=1e-5)


def test_a_heading_and_words_with_spaces_are_understood(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("2 3\nof the 1 2 3\nthe 4 5 6\n")
    assert read_vectors(tmp_path / "a.txt").words == ("of the", "the")
    (tmp_path / "b.txt").write_text("﻿the 1 2 3\nthe 7 8 9\n.. 4 5 6", encoding="utf-8")
    table = read_vectors(tmp_path / "b.txt")
    assert table.words == ("the", "..")
    assert table["the"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word vectors"),
        ("word\n", "holds no word vectors"),
        ("a 1 2\nb 1\n", "line 2"),
        ("2 2\na 1 2\nb 1 x\n", "line 3"),
        ("a 1 nan\n", "NaN"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_vectors(tmp_path / "v.txt")


def test_what_is_not_there_is_said(vectors: WordVectors) -> None:
    with pytest.raises(InputError, match="'nowhere' is not among the 7 words"):
        vectors.neighbours("nowhere")
    assert vectors.number("KING") == 1
    with pytest.raises(InputError, match="shape"):
        WordVectors(("a",), np.zeros((2, 3)))
    with pytest.raises(InputError, match="twice"):
        WordVectors(("a", "a"), np.ones((2, 3)))
    with pytest.raises(InputError, match="1 or more"):
        vectors.neighbours("king", 0)
