"""Where words are in a text, and the form under which they are known."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.text.words import is_tokenised, normal_form, split_words, tokens, visible


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Yesterday, Harry Potter met Hermione Granger.", "Yesterday , Harry Potter met Hermione Granger ."),
        ("I didn't, can't and cannot; it's Ann's.", "I did n't , ca n't and can not ; it 's Ann 's ."),
        ("They’ve won!!! wow...", "They ’ve won !!! wow ..."),
        ("Mr. Smith of the U.S. paid $1,000.50 at 12:30", "Mr. Smith of the U.S. paid $ 1,000.50 at 12:30"),
        ("see http://a.b/c?d=e or mail a.b@c.org @me #tag :-)", "see http://a.b/c?d=e or mail a.b@c.org @me #tag :-)"),
        ("(well-known 'quotes' -- \"so\")", "( well-known ' quotes ' -- \" so \" )"),
        ("Привет, мир! 日本語。 शब्द", "Привет , мир ! 日本語 。 शब्द"),
        ("", ""),
        ("\u200b\ufeff \x00", ""),
    ],
)
def test_words_of_a_text(text: str, words: str) -> None:
    assert split_words(text) == words.split()


def test_a_text_that_is_already_cut_stays_so() -> None:
    line = "it 's n't well - known , he said ... ( 3 % ) at etc. now ."
    assert is_tokenised(line)
    assert split_words(line) == line.split()
    assert not is_tokenised("It's well known, he said.")
    assert [token.word for token in tokens("a.b,c d.", pretokenised=True)] == ["a.b,c", "d."]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.booleans())
def test_tokens_are_where_they_say_and_hold_all_that_is_seen(text: str, pretokenised: bool) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in shown)
    found = tokens(shown, pretokenised)
    assert all(shown[token.start : token.end] == token.word and token.word for token in found)
    assert "".join(token.word for token in found) == "".join(shown.split())
    assert all(len(normal_form(token.word).split()) == 1 for token in found)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "-." * 50_000, "1." * 50_000, "a@" * 50_000, "<" * 100_000, "' " * 50_000]
)
def test_a_long_line_takes_no_longer_than_its_length(text: str) -> None:
    assert "".join(split_words(text)) == "".join(text.split())  # a quadratic search would take hours


def test_normal_form() -> None:
    assert [normal_form(w) for w in ("Hello", "1999", "B2B", "@-@", "don’t", "a\xa0b", "")] == [
        *("hello", "0000", "b0b", "-", "don't", "a_b", "_")
    ]
