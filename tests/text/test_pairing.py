"""Pairs of letters and phones: cuts, their probabilities and the search, each against all the ways there are."""

import math
from itertools import product

import numpy as np
import pytest

from voiceseq.errors import InputError
from voiceseq.text import pairing
from voiceseq.text.ngram import arpa, packed, read_arpa
from voiceseq.text.pairing import SHAPES, PairModel, cut, marks, read, train_marks, train_pairs, written

SOUNDS = {"a": "ɑ", "b": "b", "c": "k", "h": "h", "ch": "tʃ", "x": "k s", "e": "ɛ"}
WORDS = [
    (spelling, tuple(" ".join(SOUNDS[part] for part in parts).split()))
    for parts in product(("a", "b", "ch", "x", "c", "h"), ("a", "e"), ("b", "x", "ch", "c"))
    if "h" not in (spelling := "".join(parts)).replace("ch", "")
]


def all_cuts(letters: str, phones: tuple[str, ...]):
    if not letters:
        return [] if phones else [[]]
    return [
        [(letters[:a], phones[:b]), *rest]
        for a, b in SHAPES
        if a <= len(letters) and b <= len(phones)
        for rest in all_cuts(letters[a:], phones[b:])
    ]


def by_hand(words, rounds: int) -> list:
    """Expectation and maximisation over lists of all cuts."""
    cuts = [all_cuts(*word) for word in words]
    pairs = {pair for ways in cuts for way in ways for pair in way}
    counts = dict.fromkeys(pairs, 1.0)

    def probability(way: list) -> float:
        total = sum(counts.values())
        return math.prod(max(counts[pair] / total, 1e-15) ** max(len(pair[0]), len(pair[1])) for pair in way)

    for _ in range(rounds):
        expected = dict.fromkeys(pairs, 0.0)
        for ways in cuts:
            chances = [probability(way) for way in ways]
            for way, chance in zip(ways, chances, strict=True):
                for pair in way:
                    expected[pair] += chance / sum(chances)
        counts = expected
    return [max(ways, key=probability) for ways in cuts]


def test_cuts_are_those_of_all_ways_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [("ax", ("ɑ", "k", "s")), ("cha", ("tʃ", "ɑ")), ("ca", ("k", "ɑ")), ("ha", ("ɑ",)), ("a", ("ɑ",))]
    monkeypatch.setattr(pairing, "ROUNDS", 3)
    assert cut(words) == by_hand(words, 3)


def test_many_words_are_cut_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cut(WORDS)
    monkeypatch.setattr(pairing, "AT_ONCE", 7)
    assert cut(WORDS) == lines
    monkeypatch.setattr(pairing, "ENOUGH", len(WORDS) // 2)
    assert [sum(line == other for line, other in zip(lines, cut(WORDS), strict=True)) > len(WORDS) / 2] == [True]


def test_letters_find_their_sounds() -> None:
    lines = dict(zip((letters for letters, _ in WORDS), cut(WORDS), strict=True))
    assert lines["chab"][-2:] == [("a", ("ɑ",)), ("b", ("b",))]
    assert lines["xax"][0] == ("x", ("k", "s"))


def test_what_no_cut_can_say_has_none() -> None:
    assert cut([("a", ("p", "q", "r", "s")), ("b", ("b",)), ("", ()), ("c", ())]) == [
        [],
        [("b", ("b",))],
        [],
        [("c", ())],
    ]
    with pytest.raises(InputError, match="no word came"):
        train_pairs([("a", ("p", "q", "r", "s"))])


@pytest.fixture(scope="module")
def model() -> PairModel:
    return PairModel(train_pairs(word for number, word in enumerate(WORDS) if number % 3))


def test_log_prob_is_the_sum_over_all_cuts(model: PairModel) -> None:
    for letters, phones in [*WORDS[:6], ("achxa", ("ɑ", "tʃ", "k", "s", "ɑ"))]:
        ways = [[written(pair) for pair in way] for way in all_cuts(letters, phones)]
        known = [sum(model.model.score(way)) for way in ways if all(pair in model.model.index for pair in way)]
        assert model.log_prob(letters, phones) == pytest.approx(np.logaddexp.reduce(known))
    assert model.log_prob("a", ("zz",)) == -math.inf
    assert model.log_prob("a", ()) == -math.inf or ("a", ()) in model.pairs


def test_a_wide_search_finds_the_best_of_all(model: PairModel) -> None:
    words = ["chaxe", "xab", "ca", "e"]
    for word, guesses in zip(words, model.guesses(words, beam=500), strict=True):
        assert [guess.log_prob for guess in guesses] == sorted((g.log_prob for g in guesses), reverse=True)
        sure = sorted({p for u in model.pairs for p in u[1]})
        best = max(
            (phones for n in range(2 * len(word) + 1) for phones in product(sure, repeat=n) if n < 5),
            key=lambda phones: model.log_prob(word, phones),
        )
        if len(guesses[0].phones) < 5:
            assert guesses[0].phones == best
        assert guesses[0].log_prob == pytest.approx(model.log_prob(word, guesses[0].phones), abs=1e-5)


def test_it_says_words_that_it_has_not_seen(model: PairModel) -> None:
    words = WORDS[::3]
    found = model.guesses([letters for letters, _ in words])
    assert [guesses[0].phones for guesses in found] == [phones for _, phones in words]


def test_strange_letters_give_nothing_and_a_file_the_same_model(model: PairModel, tmp_path) -> None:
    assert model.guesses(["", "aq", "щ", "a"])[:3] == [[], [], []]
    path = tmp_path / "pairs.arpa.gz"
    path.write_bytes(packed(arpa(model.model)))
    again = PairModel(read_arpa(path))
    assert [g.phones for g in again.guesses(["chax"])[0]] == [g.phones for g in model.guesses(["chax"])[0]]
    assert read(written(("e a", ("ɑː", "b")))) == ("e a", ("ɑː", "b"))


def test_marks_of_vowels_tell_that_one_is_stressed(model: PairModel) -> None:
    assert marks(("b", "ěː", "t͡ʃ", "a")) == ["\u030cː", "-"]
    assert marks(("b", "sː")) == ["#"]
    words = [("", tuple(way)) for way in ("âbab", "abâb", "abâba", "âbaba", "ababâ", "â")]
    marked = train_marks(words)
    one, none, two = (sum(marked.score(marks(tuple(way)))) for way in ("tâta", "tata", "tâtâ"))
    assert one > max(none, two)
    both = PairModel(model.model, marked)
    assert both.judge("ca", ("k", "ɑ")) == pytest.approx(model.log_prob("ca", ("k", "ɑ")) + sum(marked.score(["-"])))
    assert model.judge("ca", ("k", "ɑ")) == model.log_prob("ca", ("k", "ɑ"))
