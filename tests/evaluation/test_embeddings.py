"""The evaluator of word vectors, against the figures that were measured elsewhere and against scipy."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from voiceseq.errors import InputError
from voiceseq.evaluation.embeddings import (
    agreement,
    answer_analogies,
    bias_along,
    read_questions,
    read_scored_pairs,
    spearman,
)
from voiceseq.text.vectors import WordVectors, read_vectors


def test_the_figures_of_glove_are_those_measured_elsewhere(shared: Path) -> None:
    folder = shared / "data" / "text" / "embeddings"
    vectors = read_vectors(folder / "glove6b_100d_20k.txt.gz")
    found = answer_analogies(vectors, read_questions(folder / "questions-words.txt.gz"))
    assert (round(found.total().percent, 2), found.total().answered, found.asked) == (67.53, 12_363, 19_544)
    assert (round(found.total(True).percent, 2), found.total(True).answered) == (68.88, 7_735)
    assert (round(found.total(False).percent, 2), found.total(False).answered) == (65.28, 4_628)
    for name, rho, pairs in (("wordsim353", 0.5653, 324), ("simlex999", 0.3037, 937)):
        same = agreement(vectors, read_scored_pairs(folder / f"{name}.tsv"))
        assert (round(same.correlation, 4), same.pairs) == (rho, pairs)


def test_rank_correlation_is_scipys_ties_and_all() -> None:
    chance = np.random.default_rng(2)
    one, other = chance.integers(0, 6, 50), chance.standard_normal(50).round(1)
    assert spearman(one, other) == pytest.approx(spearmanr(one, other).statistic)


def test_analogies_leave_out_the_three_words_and_what_is_unknown() -> None:
    vectors = WordVectors(("a", "b", "c", "d"), np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1.0]]))
    sections = {"x": [("a", "b", "c", "d"), ("a", "b", "c", "nowhere")], "gram1": [("a", "b", "c", "a")]}
    found = answer_analogies(vectors, sections)
    assert found.sections["x"] == (1, 1)
    assert found.sections["gram1"] == (0, 1)
    assert found.asked == 3


def test_bad_files_and_too_few_pairs_are_said(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(": x\na b c\n")
    with pytest.raises(InputError, match=r"line 2.*3 words"):
        read_questions(tmp_path / "q.txt")
    (tmp_path / "s.txt").write_text("word1 word2 score\na b 1\nc d\n")
    with pytest.raises(InputError, match="line 3"):
        read_scored_pairs(tmp_path / "s.txt")
    vectors = WordVectors(("a", "b"), np.eye(2))
    with pytest.raises(InputError, match="0 of 1 pairs"):
        agreement(vectors, [("a", "x", 1.0)])
    with pytest.raises(InputError, match="none of the 1 words"):
        bias_along(vectors, np.array([1.0, 0.0]), ["x"])
    assert bias_along(vectors, np.array([1.0, 0.0]), ["a", "b"]) == pytest.approx(0.5)
