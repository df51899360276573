import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.vocabulary import SPECIALS, Vocabulary

texts = st.text(min_size=1)  # every code point: other scripts, emoji, controls
specials = st.lists(st.sampled_from(sorted(SPECIALS)), unique=True)


@given(texts, specials)
def test_characters_come_back(text, specials):
    vocabulary = Vocabulary.from_text(text, specials=specials)
    ids = vocabulary.encode(text)
    assert len(ids) == len(text)
    assert not vocabulary.special_ids & set(ids)
    assert vocabulary.decode(ids) == text


@given(texts.filter(lambda text: text.split() != []), specials)
def test_words_come_back_with_single_spaces(text, specials):
    vocabulary = Vocabulary.from_text(text, level="word", specials=specials)
    assert vocabulary.decode(vocabulary.encode(text)) == " ".join(text.split())


@given(texts, specials)
def test_json_gives_an_equal_vocabulary(text, specials):
    vocabulary = Vocabulary.from_text(text, specials=specials)
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again == vocabulary
    assert again.encode(text) == vocabulary.encode(text)


@pytest.mark.parametrize("text", ["Привет", "你好世界", "שלום", "👩‍👩‍👧 ok 🇩🇪", "nul\0tab\t\n", "e\u0301 é"])
def test_other_scripts_emoji_and_nul(text):
    vocabulary = Vocabulary.from_text(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))).encode(text) == vocabulary.encode(text)


def test_order_counts_and_size():
    text = "b b b a a c"
    assert Vocabulary.from_text(text, "word").symbols == ("b", "a", "c")
    assert Vocabulary.from_text("d c b a", "word").symbols == ("a", "b", "c", "d")
    assert Vocabulary.from_text(text, "word", minimum_count=2).symbols == ("b", "a")
    assert Vocabulary.from_text(text, "word", size=3, specials=["pad"]).symbols == ("<pad>", "b", "a")
    assert Vocabulary.from_text(["b b", "b a", "a c"], "word") == Vocabulary.from_text(text, "word")


def test_numbers_of_symbols():
    vocabulary = Vocabulary.from_text("aab", specials=["pad", "eos"])
    assert len(vocabulary) == 4
    assert [vocabulary.index(symbol) for symbol in vocabulary.symbols] == [0, 1, 2, 3]
    assert (vocabulary.special("pad"), vocabulary.special("eos")) == (0, 1)
    assert "a" in vocabulary
    assert "<eos>" in vocabulary
    assert "z" not in vocabulary
    with pytest.raises(InputError, match=r"'z' \(U\+007A\)"):
        vocabulary.index("z")
    with pytest.raises(InputError, match="no 'bos' symbol"):
        vocabulary.special("bos")


def test_unknown_symbols():
    known = Vocabulary.from_text("the cat", "word", specials=["unknown", "eos"])
    assert known.decode(known.encode("the dog")) == "the <unk>"
    assert known.decode([*known.encode("the cat"), known.special("eos")]) == "the cat"
    plain = Vocabulary.from_text("abc")
    with pytest.raises(InputError, match=r"'é' \(U\+00E9\), '\\x00' \(U\+0000\)"):
        plain.encode("aéb\0é")


def test_text_cannot_write_a_special_symbol():
    text = "a <eos> <unk> b"
    vocabulary = Vocabulary.from_text(text, "word", specials=["unknown", "eos"])
    unknown = vocabulary.special("unknown")
    assert vocabulary.encode(text) == [vocabulary.index("a"), unknown, unknown, vocabulary.index("b")]
    with pytest.raises(InputError, match="<eos>"):
        Vocabulary.from_text("a <eos>", "word", specials=["eos"]).encode("<eos>")
    assert Vocabulary.from_text("a <eos>", "word").encode("<eos>") == [0]  # an ordinary word where it has no role


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vocabulary(()), "empty"),
        (lambda: Vocabulary(("<pad>",), specials=("pad",)), "empty"),
        (lambda: Vocabulary.from_text(""), "no character was seen"),
        (lambda: Vocabulary.from_text("  \n", "word"), "no word was seen"),
        (lambda: Vocabulary.from_text("abc", minimum_count=2), "seen 2 times"),
        (lambda: Vocabulary(("a", "b", "a")), "more than once"),
        (lambda: Vocabulary(("a",), specials=("pad",)), "not among the symbols"),
        (lambda: Vocabulary(("ab",)), "cannot be a character"),
        (lambda: Vocabulary(("a b",), "word"), "cannot be a word"),
        (lambda: Vocabulary(("",)), "cannot be a character"),
        (lambda: Vocabulary(("a",), "syllable"), "'character', 'word'"),
        (lambda: Vocabulary.from_text("a", specials=["padding"]), "padding"),
        (lambda: Vocabulary.from_text("a", specials=["pad", "pad"]), "twice"),
        (lambda: Vocabulary.from_text("a", specials="pad"), "list of names"),
        (lambda: Vocabulary.from_text("a", size=1, specials=["pad"]), "no place"),
        (lambda: Vocabulary.from_text("a").decode([1]), "0 to 0"),
        (lambda: Vocabulary.from_text("a").decode([-1]), "0 to 0"),
        (lambda: Vocabulary.from_json({"symbols": ["a"]}), "keys"),
        (lambda: Vocabulary.from_json(["a"]), "keys"),
        (lambda: Vocabulary.from_json({"symbols": "ab", "level": "character", "specials": []}), "damaged"),
        (lambda: Vocabulary.from_json({"symbols": [1], "level": "character", "specials": []}), "damaged"),
        (lambda: Vocabulary.from_json({"symbols": ["a"], "level": [], "specials": []}), "level"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_frozen():
    with pytest.raises(AttributeError):
        Vocabulary.from_text("a").symbols = ()
