"""Spans against conlleval: its published rules of where a chunk begins and ends, written down once more."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.evaluation.spans import span_scores, surface_score, tag_accuracy
from voiceseq.text.tags import Span, impossible_pairs, is_bio, spans

TAGS = ["O", "B-a", "I-a", "B-b", "I-b"]


def starts(before: str, now: str) -> bool:
    """conlleval's table: a chunk begins at B, at I after O, and where the type changes."""
    return now != "O" and (now[0] == "B" or before == "O" or before[2:] != now[2:])


def ends(now: str, after: str) -> bool:
    """... and ends before B, before O, and where the type changes."""
    return now != "O" and (after == "O" or after[0] == "B" or after[2:] != now[2:])


def conlleval(wanted: list[str], found: list[str]) -> tuple[int, int, int]:
    """How conlleval walks along both columns at once: (spans there, spans found, right ones)."""
    counts = [0, 0, 0]
    open_type = None  # of a chunk that began in both columns together
    before = ("O", "O")
    rows = [*zip(wanted, found, strict=True), ("O", "O")]
    for now, after in pairwise(rows):
        began = [starts(b, n) for b, n in zip(before, now, strict=True)]
        ended = [ends(n, a) for n, a in zip(now, after, strict=True)]
        counts[0] += began[0]
        counts[1] += began[1]
        if any(began):
            open_type = now[0][2:] if all(began) and now[0][2:] == now[1][2:] else None
        if any(ended):
            counts[2] += all(ended) and open_type is not None
            open_type = None
        before = now
    return counts[0], counts[1], counts[2]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=12))
def test_counts_are_those_of_conlleval(pairs: list[tuple[str, str]]) -> None:
    wanted, found = ([pair[side] for pair in pairs] for side in (0, 1))
    score = span_scores([wanted], [found])[""]
    assert (score.wanted, score.found, score.right) == conlleval(wanted, found)


def test_a_sentence_worked_by_hand() -> None:
    wanted = ["B-person", "I-person", "O", "B-place", "O", "B-place"]
    found = ["B-person", "I-person", "O", "B-person", "B-place", "I-place"]
    scores = span_scores([wanted, ["O"]], [found, ["O"]])
    assert (scores[""].wanted, scores[""].found, scores[""].right) == (3, 3, 1)
    assert scores[""].f1 == pytest.approx(1 / 3)
    assert (scores["person"].precision, scores["person"].recall) == (0.5, 1.0)
    assert scores["place"].f1 == 0
    assert tag_accuracy([wanted, ["O"]], [found, ["O"]]) == pytest.approx(4 / 7)


def test_spans_of_odd_tags() -> None:
    assert spans(["I-a", "I-a", "I-b", "B-b", "O", "I-a"]) == [
        Span(0, 2, "a"),
        Span(2, 3, "b"),
        Span(3, 4, "b"),
        Span(5, 6, "a"),
    ]
    assert spans([]) == []


def test_surface_forms_count_once() -> None:
    words = [["Ann", "met", "Bo"], ["Ann", "left"], ["Bo"]]
    wanted = [["B-p", "O", "B-p"], ["B-p", "O"], ["B-p"]]
    found = [["B-p", "O", "O"], ["O", "O"], ["B-q"]]
    score = surface_score(words, wanted, found)
    assert (score.wanted, score.found, score.right) == (2, 2, 1)
    assert span_scores(wanted, found)[""].wanted == 4


def test_what_cannot_follow() -> None:
    tags = ["B-a", "B-b", "I-a", "I-b", "O"]
    pairs, first = impossible_pairs(tags)
    assert set(pairs) == {(1, 2), (3, 2), (4, 2), (0, 3), (2, 3), (4, 3)}
    assert first == [2, 3]
    assert impossible_pairs(["NOUN", "VERB"]) == ([], [])
    assert is_bio(tags)
    assert not is_bio(["O", "NOUN"])


def test_empty_and_uneven_input() -> None:
    nothing = span_scores([["O"]], [["O"]])[""]
    assert (nothing.f1, nothing.precision, nothing.recall) == (0, 0, 0)
    for wrong in ([], [["O"], ["O"]], [["O", "O"]]):
        with pytest.raises(InputError, match="as many were wanted"):
            span_scores([["O"]], wrong)
    with pytest.raises(InputError, match="no words"):
        tag_accuracy([[]], [[]])
