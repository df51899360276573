"""Normalising English: what each kind of text becomes, and that twice is once."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.normalise import cardinal, normalise, ordinal, year

SAID = {
    "Hello, World!": "hello world",
    "  tabs\tand\nlines\r\n": "tabs and lines",
    "well-known -- so": "well known so",
    "em—dash en–dash": "em dash en dash",
    "Don’t, can`t, it´s": "don't can't it's",
    "'quoted' dogs' ''twas rock ' roll": "quoted dogs twas rock roll",
    "o''clock": "o clock",
    "café naïve Ångström Straße Œuvre Łódź": "cafe naive angstrom strasse oeuvre lodz",
    "ﬁne … “yes”": "fine yes",
    "nul\0inside": "nul inside",
    "soft\u00adhyphen zero\u200bwidth\ufeff": "softhyphen zerowidth",
    "R&B": "r and b",
    "me@home": "me at home",
    "Windows™": "windows",
    "ＦＵＬＬ width": "full width",
    "🎉 party": "party",
    "...": "",
    "": "",
    # cardinals
    "0 1 10 11 19 20 21 99": "zero one ten eleven nineteen twenty twenty one ninety nine",
    "100 105 999": "one hundred one hundred five nine hundred ninety nine",
    "1,234 and 1000000": "one thousand two hundred thirty four and one million",
    "1,2": "one two",
    "1,2345": "one two thousand three hundred forty five",
    "12345": "twelve thousand three hundred forty five",
    "007": "zero zero seven",
    "1234567890123456": "one two three four five six seven eight nine zero one two three four five six",
    "999999999999999": "nine hundred ninety nine trillion nine hundred ninety nine billion nine hundred ninety "
    "nine million nine hundred ninety nine thousand nine hundred ninety nine",
    "3.14": "three point one four",
    "v1.2.3": "v one point two point three",
    "-5 covid-19": "minus five covid nineteen",
    "mp3 b2b": "mp three b two b",
    "50%": "fifty percent",
    "٣ ३": "three three",
    "x²": "x two",
    "It is 5.": "it is five",
    # years and decades
    "1999 1905 1900 2000 2005 2010 2024": "nineteen ninety nine nineteen oh five nineteen hundred two thousand "
    "two thousand five twenty ten twenty twenty four",
    "1066": "one thousand sixty six",
    "the 1990s, the 90s, the '80s": "the nineteen nineties the nineties the eighties",
    # ordinals
    "1st 2nd 3rd 4th 11th 12th 20th 21st 100th": "first second third fourth eleventh twelfth twentieth twenty first "
    "one hundredth",
    "1,000th": "one thousandth",
    # money
    "$1 $5 $5.50 $0.99 $1.01": "one dollar five dollars five dollars and fifty cents ninety nine cents "
    "one dollar and one cent",
    "£3.20 €10 ¥500": "three pounds and twenty pence ten euros five hundred yen",
    "$1.5 million, $3bn, $20k": "one point five million dollars three billion dollars twenty thousand dollars",
    "$1,999": "one thousand nine hundred ninety nine dollars",
    "$0": "zero dollars",
    # times
    "3:45 3:00 10:05 15:00": "three forty five three o'clock ten oh five fifteen hundred",
    "3:00 p.m. and 9:30am": "three pm and nine thirty am",
    # fractions
    "1/2 ½ 2½ 3/4 2/3": "one half one half two and one half three quarters two thirds",
    "9/11 24/7": "nine eleven twenty four seven",
}  # fmt: skip


@pytest.mark.parametrize(("written", "said"), SAID.items())
def test_what_is_written_is_what_is_said(written, said):
    assert normalise(written) == said


@given(st.text(max_size=60) | st.text("0123456789.,:/$£%'-stndrhm ½٣", max_size=20))
@settings(max_examples=600, deadline=None)
def test_twice_is_once_and_only_the_alphabet_is_left(text):
    try:
        once = normalise(text)
    except InputError:
        return
    assert re.fullmatch(r"([a-z]+('[a-z]+)*( [a-z]+('[a-z]+)*)*)?", once)
    assert normalise(once) == once


def read_cardinal(words: str) -> int:
    """The way back, written from the grammar of number words and not from the code."""
    small = {
        w: i
        for i, w in enumerate(
            ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
        )
    }
    small |= {
        w: i
        for i, w in enumerate(["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"], 13)
    }
    small |= {
        w: 10 * i
        for i, w in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
    }
    total = group = 0
    for word in words.split():
        if word == "hundred":
            group *= 100
        elif word in (scales := {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}):
            total, group = total + group * scales[word], 0
        else:
            group += small[word]
    return total + group


@given(st.integers(0, 10**15 - 1) | st.integers(0, 2000))
@settings(deadline=None)
def test_number_words_read_back_as_the_number(number):
    assert read_cardinal(cardinal(number)) == number


@pytest.mark.parametrize("form", ["{}", "${}", "{}th", "{}.5", "{}/2", "{}:30", "{}⁄7", "{}s", "1⁄{}", "$1.{}"])
def test_endless_digits_are_said_one_by_one(form):
    assert normalise(form.format("7" * 5000)).count("seven") >= 5000


def test_all_small_ordinals_and_years_are_distinct():
    assert len({ordinal(n) for n in range(2000)}) == 2000
    assert len({year(n) for n in range(1100, 2100)}) == 1000


@pytest.mark.parametrize("text", ["привет", "hello 世界", "Ωmega"])
def test_letters_of_another_script_are_refused_and_named(text):
    with pytest.raises(InputError, match="a-z cannot spell") as caught:
        normalise(text)
    assert repr(text) in str(caught.value)


def test_digits_can_be_refused():
    with pytest.raises(InputError, match="has the digits 42, 7; spell them"):
        normalise("route 42 gate 7", digits="refuse")
    assert normalise("route Forty-Two", digits="refuse") == "route forty two"
    with pytest.raises(InputError, match="choose one of words, refuse"):
        normalise("x", digits="keep")


def test_real_sentences_become_the_shared_transcripts(shared):
    """3,299 Common Voice sentences were normalised by somebody else: ours agree to the letter."""
    seen = 0
    for manifest in sorted((shared / "data/speech/commonvoice").glob("manifest-*.jsonl")):
        for line in manifest.read_text().splitlines():
            row = json.loads(line)
            assert normalise(row["sentence"]) == row["text"]
            assert normalise(row["text"], digits="refuse") == row["text"]
            seen += 1
    assert seen == 3299
