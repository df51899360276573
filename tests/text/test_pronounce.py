import re
from itertools import product
from pathlib import Path

import pytest

from voiceseq.errors import InputError
from voiceseq.text.pronounce import (
    LETTER_NAMES,
    LETTERS,
    PHONES,
    Pronunciation,
    accents_of,
    phrase_words,
    pronounce_phrase,
    read_dictionary,
    syllables,
)


def test_entries_variants_comments_and_stress(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text(
        ";;; a comment\nread R EH1 D\nread(2) R IY1 D\nREAD(3)  R EH0 D # same without stress\n\n'bout B AW1 T\n"
    )
    assert read_dictionary(path) == {"read": [("R", "EH", "D"), ("R", "IY", "D")], "'bout": [("B", "AW", "T")]}


@pytest.mark.parametrize("line", ["word", "word X1 Y", "word 12"])
def test_a_wrong_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text(f"read R EH1 D\n{line}\n")
    with pytest.raises(InputError, match="line 2"):
        read_dictionary(path)


def test_the_real_dictionary(shared: Path) -> None:
    dictionary = read_dictionary(shared / "data" / "text" / "g2p" / "cmudict.dict.gz")
    assert len(dictionary) > 120_000
    assert dictionary["computer"][0] == ("K", "AH", "M", "P", "Y", "UW", "T", "ER")
    assert {phone for variants in dictionary.values() for phones in variants for phone in phones} == set(PHONES)


WORDS = {
    "hey": [("HH", "EY")],
    "luna": [("L", "UW", "N", "AH")],
    "read": [("R", "EH", "D"), ("R", "IY", "D")],
    "two": [("T", "UW")],
    "don't": [("D", "OW", "N", "T")],
    "cafe": [("K", "AH", "F", "EY")],
}


def guess(word: str) -> list[Pronunciation]:
    """As many ways as there are letters, up to four: the word's own name, P times the place."""
    return [("P",) * place for place in range(1, min(4, len(word)) + 1)]


@pytest.mark.parametrize(
    "typed", ["hey luna", "Hey, Luna!", "HEY-LUNA", "  hey\tluna\n", "héy lunā", "“hey” ‘luna’", "\ufeffhey\u200b luna"]
)
def test_a_phrase_is_looked_up_however_it_is_typed(typed: str) -> None:
    assert pronounce_phrase(typed, WORDS) == [("HH", "EY", "L", "UW", "N", "AH")]


def test_digits_apostrophes_and_accents() -> None:
    assert pronounce_phrase("2 Cafés", WORDS | {"cafes": [("K", "AE", "F", "S")]}) == [("T", "UW", "K", "AE", "F", "S")]
    assert pronounce_phrase("Don’t", WORDS) == [("D", "OW", "N", "T")]
    assert phrase_words("R2-D2's 3rd") == ["r", "two", "d", "two", "s", "third"]


def test_variants_make_a_product_in_the_order_of_their_ranks() -> None:
    """Against the whole product, sorted."""
    ways = pronounce_phrase("read voiceseq read", WORDS, guess, most=7)
    choices = [WORDS["read"], guess("voiceseq"), WORDS["read"]]
    ranked = sorted(product(*map(enumerate, choices)), key=lambda way: sum(rank for rank, _ in way))
    whole = [(sum(rank for rank, _ in way), sum((said for _, said in way), ())) for way in ranked]
    assert len(ways) == 7
    ranks = {said: rank for rank, said in reversed(whole)}
    assert [ranks[said] for said in ways] == [rank for rank, _ in whole][:7]
    assert pronounce_phrase("read " * 30, WORDS)[0] == ("R", "EH", "D") * 30  # 2**30 ways, but six are made
    assert len(pronounce_phrase("read " * 30, WORDS)) == 6


def test_only_unknown_words_are_guessed() -> None:
    asked: list[str] = []

    def letters_to_sounds(word: str) -> list[Pronunciation]:
        asked.append(word)
        return [("Z",), (), ("Z",)]  # nothing said, and the same again, are no further ways

    assert pronounce_phrase("Hey voiceseq", WORDS, letters_to_sounds) == [("HH", "EY", "Z")]
    assert asked == ["voiceseq"]


def test_what_has_no_vowel_is_spelt_out_first() -> None:
    assert pronounce_phrase("TV", {}) == [("T", "IY", "V", "IY")]
    assert pronounce_phrase("tv", {}, guess)[:2] == [("T", "IY", "V", "IY"), ("P",)]
    assert pronounce_phrase("sky", {}, guess)[0] == ("P",)
    assert set(LETTER_NAMES) == set(LETTERS)
    assert {phone for name in LETTER_NAMES.values() for phone in name.split()} <= set(PHONES)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("K AH M P Y UW T ER", ["K AH M P Y UW T AH"]),
        ("JH AA R V IH S", ["JH AA V IH S"]),
        ("M IH R ER", ["M IH R AH"]),
        ("S T IH R IH NG", []),
        ("W AH N D ER IH NG", ["W AH N D AH R IH NG"]),
        ("K AO T", ["K AA T"]),
        ("F AO R T AO K", ["F AO T AO K", "F AO R T AA K"]),
    ],
)
def test_accents(said: str, wanted: list[str]) -> None:
    assert [" ".join(way) for way in accents_of(tuple(said.split()))] == wanted


def test_accents_take_the_room_that_is_left() -> None:
    words = {"car": [("K", "AA", "R"), ("K", "AE", "R")]}
    plain = pronounce_phrase("car", words)
    assert pronounce_phrase("car", words, accents=True) == [*plain, ("K", "AA"), ("K", "AE")]
    assert pronounce_phrase("car", words, accents=True, most=3) == [*plain, ("K", "AA")]
    assert pronounce_phrase("car", words, accents=True, most=2) == plain


@pytest.mark.parametrize(
    ("phrase", "said"),
    [
        ("", "nothing that can be said"),
        ("   ", "nothing that can be said"),
        ("?!...", "nothing that can be said"),
        ("\x00", "nothing that can be said"),
        ("🙂", "nothing that can be said"),
        ("hey луна", "has а л н у"),
        ("ヘイ", "write it in English letters"),
        ("a" * 41, "41 letters"),
        ("a" * 100_000, "100000 letters"),
        ("hey voiceseq", "no way to say 'voiceseq' is known"),
    ],
)
def test_what_cannot_be_said_is_refused_in_one_short_line(phrase: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        pronounce_phrase(phrase, WORDS)
    assert len(str(caught.value)) < 200
    with pytest.raises(InputError, match="most is 0"):
        pronounce_phrase("hey", WORDS, most=0)


def test_syllables() -> None:
    assert syllables(()) == syllables(("S", "T")) == 0
    assert syllables(WORDS["hey"][0]) == 1
    assert syllables(("K", "AH", "M", "P", "Y", "UW", "T", "ER")) == 3
