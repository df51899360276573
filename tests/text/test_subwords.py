"""Subwords: the merges of a slow, plain implementation; every text comes back; strange signs are unknown."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.subwords import LONGEST, MARK, cut, learn_pieces, units
from voiceseq.text.vocabulary import Vocabulary

LINES = ["low lower lowest, slow", "new newer newest new", "wide wider widest!", "low low new wide"] * 3


def slow_merges(lines: list[str], count: int) -> list[str]:
    """Count all neighbours anew for every merge."""
    words = [(list(unit), times) for unit, times in Counter(u for line in lines for u in units(line)).items()]
    found = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words:
            for pair in pairwise(word):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        found.append("".join(best))
        for word, _ in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    return found


def test_the_merges_are_those_of_counting_anew_each_time() -> None:
    chance = random.Random(3)
    lines = LINES + ["".join(chance.choices("ab ", k=30)) for _ in range(20)]
    characters = len({c for line in lines for unit in units(line) for c in unit})
    pieces = learn_pieces(lines, characters + 25)
    assert pieces[characters:] == list(dict.fromkeys(slow_merges(lines, 25)))[: len(pieces) - characters]
    assert len(set(pieces)) == len(pieces)


def test_a_word_is_cut_by_the_merges_in_their_order() -> None:
    pieces = ["a", "b", "c", "ab", "bc", "abc"]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    assert cut("abc", ranks) == ["abc"]
    assert cut("bcab", ranks) == ["bc", "ab"]
    assert cut("axb", ranks) == ["a", "x", "b"]
    assert cut("aaa", {"a": 0, "aa": 1}) == ["aa", "a"]


def test_units_keep_punctuation_apart_and_mark_what_follows_space() -> None:
    assert units("Hi, it's 5") == ["▁Hi", ",", "▁it", "'", "s", "▁5"]
    assert units(" \t") == []
    assert all(len(unit) <= LONGEST for unit in units("x" * 100_000))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_text(LINES, "subword", size=60, specials=("unknown", "bos", "eos"))


@given(st.text(alphabet="lowernsti,! ", max_size=40))
def test_a_text_of_known_letters_comes_back(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.decode(vocabulary.encode(text)) == " ".join(text.split())


def test_the_vocabulary_is_a_list_and_goes_through_json(vocabulary: Vocabulary) -> None:
    assert len(vocabulary) <= 60
    assert "▁low" in vocabulary
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again == vocabulary
    assert again.encode("slowest newer") == vocabulary.encode("slowest newer")
    assert len(vocabulary.encode("low new")) == 2


def test_strange_signs_are_unknown_and_never_special(vocabulary: Vocabulary) -> None:
    unknown = vocabulary.special("unknown")
    assert vocabulary.encode("中")[-1] == unknown
    assert unknown in vocabulary.encode(f"low{MARK}low")
    assert not {vocabulary.special("bos"), vocabulary.special("eos")} & set(vocabulary.encode("<eos> <bos>"))
    assert vocabulary.encode("") == []


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="want a size"):
        Vocabulary.from_text(LINES, "subword")
    with pytest.raises(InputError, match="cannot be a subword"):
        Vocabulary(("a b",), "subword")
    with pytest.raises(InputError, match="cannot be a subword"):
        Vocabulary((f"a{MARK}",), "subword")
