"""The distance between pronunciations, and the neighbours of a phrase: against brute force."""

from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.pronounce import PHONES, VOWELS, Pronunciation, read_dictionary
from voiceseq.text.sounds import CONSONANTS, VOWEL_PLACES, phone_distance, sounds_like, substitution_cost

SPOKEN = st.lists(st.sampled_from(PHONES), max_size=5).map(tuple)


def slow_distance(one: Pronunciation, other: Pronunciation) -> float:
    """By the definition, every way tried."""

    @cache
    def rest(i: int, j: int) -> float:
        if i == len(one) or j == len(other):
            return float(len(one) - i + len(other) - j)
        taken = substitution_cost(one[i], other[j]) + rest(i + 1, j + 1)
        return min(taken, 1 + rest(i + 1, j), 1 + rest(i, j + 1))

    return rest(0, 0)


def said(text: str) -> Pronunciation:
    return tuple(text.split())


@settings(deadline=None)
@given(SPOKEN, SPOKEN)
def test_the_distance_is_that_of_the_best_of_all_ways(one: Pronunciation, other: Pronunciation) -> None:
    if not other:
        assert phone_distance(other, one or ("P",)) == len(one or ("P",))
        return
    assert phone_distance(one, other) == pytest.approx(slow_distance(one, other), abs=1e-5)
    assert (phone_distance(one, other) == 0) == (one == other)


def test_costs_are_symmetric_and_alike_sounds_are_cheap() -> None:
    assert set(VOWEL_PLACES) == VOWELS
    assert set(VOWEL_PLACES) | set(CONSONANTS) == set(PHONES)
    for one, other in product(PHONES, PHONES):
        cost = substitution_cost(one, other)
        assert cost == substitution_cost(other, one)
        assert cost == 0 if one == other else 0.2 <= cost <= 1
    order = [("S", "S"), ("S", "Z"), ("S", "D"), ("S", "AA")]
    costs = [substitution_cost(*pair) for pair in order]
    assert costs == sorted(set(costs))
    assert substitution_cost("IY", "IH") < substitution_cost("IY", "AA") < substitution_cost("IY", "K")
    assert substitution_cost("Y", "IY") < substitution_cost("Y", "AA") == 1


TINY = {
    "computer": [said("K AH M P Y UW T ER")],
    "computers": [said("K AH M P Y UW T ER Z")],
    "commuter": [said("K AH M Y UW T ER")],
    "come": [said("K AH M")],
    "kum": [said("K AH M")],
    "pewter": [said("P Y UW T ER"), said("P Y UW D ER")],
    "cam": [said("K AE M")],
    "moon": [said("M UW N")],
    "a": [said("AH"), said("EY")],
}


def test_neighbours_are_those_of_brute_force() -> None:
    """Every word and every pair of a small dictionary, by the slow distance."""
    asked = TINY["commuter"][0]
    found = sounds_like(asked, TINY, count=500)
    entries = [(word, way) for word, ways in TINY.items() if word != "commuter" for way in ways]
    words = {way: slow_distance(asked, way) for _, way in entries}
    pairs = {a + b: slow_distance(asked, a + b) for (_, a), (_, b) in product(entries, entries)}
    for kind, wanted in ((0, words), (1, pairs)):
        got = {item.phones: item.distance for item in found if item.text.count(" ") == kind}
        assert got
        assert got == {phones: pytest.approx(wanted[phones], abs=1e-5) for phones in got}
        spellings = {item.text for item in found if item.text.count(" ") == kind}
        assert len(spellings) == len(got)
        assert min(got.values()) == pytest.approx(min(wanted.values()), abs=1e-5)
    assert [item.distance for item in found] == sorted(item.distance for item in found)


@settings(deadline=None, max_examples=30)
@given(st.lists(SPOKEN.filter(bool), min_size=1, max_size=7, unique=True), SPOKEN.filter(bool))
def test_the_nearest_of_random_dictionaries(words: list[Pronunciation], asked: Pronunciation) -> None:
    dictionary = {f"w{number}": [way] for number, way in enumerate(words)}
    spoken = f" {' '.join(asked)} "
    free = [way for way in words if spoken not in f" {' '.join(way)} " and len(way) <= len(asked) + 4]
    pairs = [a + b for a, b in product(free, free) if spoken not in f" {' '.join(a + b)} "]
    found = sounds_like(asked, dictionary, count=60)
    for kind, ways in ((0, free), (1, pairs)):
        got = sorted({item.phones for item in found if item.text.count(" ") == kind})
        assert got == sorted(set(ways))


def test_what_holds_the_phrase_is_no_neighbour() -> None:
    texts = [item.text for item in sounds_like(TINY["computer"][0], TINY, count=500)]
    assert "commuter" in texts
    assert "cam pewter" in texts
    assert not {"computer", "computers", "come pewter", "kum pewter", "a computer"} & set(texts)
    # "pewter" has a second way, but the pair may be said as the phrase
    assert not [text for text in texts if text in ("come pewter", "kum pewter")]


def test_no_word_crowds_the_pairs() -> None:
    dictionary = {f"{a}{b}": [(a, b)] for a in ("P", "B", "T", "D", "K") for b in VOWELS}
    pairs = [item for item in sounds_like(said("P AA T AA"), dictionary, count=20) if " " in item.text]
    assert len(pairs) == 20
    for place in (0, 1):
        first = [item.text.split()[place] for item in pairs]
        assert max(map(first.count, first)) <= 4


def test_bad_input() -> None:
    assert sounds_like(("P",), {}) == []
    assert sounds_like(("P",), {"p": [("P",)], "long": [("S",) * 6]}) == []
    with pytest.raises(InputError, match="'AH0' is no phone"):
        sounds_like(("AH0",), TINY)
    with pytest.raises(InputError, match="'X' is no phone"):
        phone_distance(("P",), ("X",))
    with pytest.raises(InputError, match="'X' is no phone"):
        sounds_like(("P",), {"x": [("X",)]})
    with pytest.raises(InputError, match="0 phones"):
        sounds_like((), TINY)
    with pytest.raises(InputError, match="count of 0"):
        sounds_like(("P",), TINY, 0)


def test_the_real_dictionary_has_the_traps_that_people_know(shared: Path) -> None:
    dictionary = read_dictionary(shared / "data" / "text" / "g2p" / "cmudict.dict.gz")
    texts = [item.text for item in sounds_like(dictionary["computer"][0], dictionary, count=30)]
    assert {"commuter", "compute", "calm pewter"} <= set(texts)
    assert len(texts) == 60
