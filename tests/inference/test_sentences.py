"""Taggers, classifiers and masked models opened from bundles."""

from pathlib import Path

import pytest
import torch
from small_sentences import CLASSES, NAMES, make_bundles

import voiceseq
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.errors import BundleError, InputError
from voiceseq.inference import tagger as tagger_module
from voiceseq.inference.classifier import Classifier
from voiceseq.inference.masked import ContextModel, MaskedModel
from voiceseq.inference.sentences import windows
from voiceseq.inference.tagger import TaggedText, Tagger
from voiceseq.text.words import tokens

ODD = [
    "",
    "  ",
    "\x00\ufeff",
    "?!",
    "Harry " * 3,
    "Привет, мир",
    "日本語",
    "x" * 5000,
    "a\u2028b\x85c",
    "😀 ok",
    "\ud800",
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_bundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def names(bundles: dict[str, Path]) -> Tagger:
    model = voiceseq.load(bundles["names"])
    assert isinstance(model, Tagger)
    return model


@pytest.mark.parametrize("kind", ["names", "speech"])
def test_every_word_gets_a_tag_alone_or_among_others(bundles: dict[str, Path], kind: str) -> None:
    model = voiceseq.load(bundles[kind])
    texts = ["Harry met Hermione.", *ODD]
    together = model.tag(texts)
    assert [len(one.tags) for one in together] == [len(one.words) for one in together]
    assert [one.words for one in together[:4]] == [["Harry", "met", "Hermione", "."], [], [], []]
    for text, one in zip(texts, together, strict=True):
        (alone,) = model.tag([text])
        assert alone.tags == one.tags
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-4)
        assert "\n" not in one.marked()
        assert len(one.marked().splitlines()) <= 1
        assert all(0 <= value <= 1.0001 for value in one.probabilities)


def test_marked_text() -> None:
    text = "Yesterday, Harry Potter met Hermione."
    tags = ("O", "O", "B-person", "I-person", "O", "B-person", "O")
    one = TaggedText(text, tuple(tokens(text)), tags, (1.0,) * 7, True)
    assert one.marked() == "Yesterday, [Harry Potter](person) met [Hermione](person)."
    assert [text[start:end] for start, end, _ in one.spans] == ["Harry Potter", "Hermione"]
    plain = TaggedText("He met", tuple(tokens("He met")), ("PRON", "VERB"), (1.0, 1.0))
    assert plain.marked() == "He/PRON met/VERB"
    assert plain.spans == []


def test_a_long_text_is_read_in_pieces_with_what_is_around_them(names: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["Harry", "met", "Hermione", ","] * 60
    (whole,) = names.tag_words([words[:190]])
    (first, second) = (names.tag_words([words])[0], whole)
    assert len(first[0]) == 240
    assert set(first[0]) <= set(NAMES)
    assert first[0][:100] == second[0][:100]
    monkeypatch.setattr(tagger_module, "PIECE", 7)
    assert len(names.tag_words([words, [], words[:3]])[0][0]) == 240
    assert list(windows(5, 2, 1)) == [(0, 0, 2, 3), (1, 2, 4, 5), (3, 4, 5, 5)]
    assert list(windows(0, 2, 1)) == []


def test_classes(bundles: dict[str, Path]) -> None:
    model = voiceseq.load(bundles["classes"])
    assert isinstance(model, Classifier)
    found = model.classify(["fried chicken", *ODD])
    for one in found:
        if one.label is None:
            assert not one.text.strip("\x00\ufeff\ud800 ")
            assert (one.probabilities, one.probability) == ({}, 0.0)
        else:
            assert set(one.probabilities) == set(CLASSES)
            assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert one.probability == max(one.probabilities.values())
            assert model.classify([one.text])[0].probability == pytest.approx(one.probability, abs=1e-5)
    long = "Harry " * 10 + "met " * 10_000 + "chicken " * 15
    assert model.words(long) == ["Harry"] * 10 + ["met"] * 5 + ["chicken"] * 15
    weights = model.attention("fried chicken")
    assert [word for word, _ in weights] == ["fried", "chicken"]
    assert sum(value for _, value in weights) == pytest.approx(1)


def test_masks_are_filled(bundles: dict[str, Path]) -> None:
    model = voiceseq.load(bundles["masked"])
    assert isinstance(model, MaskedModel)
    one, two = model.fill(["let's make [MASK] chicken", "<mask>, [mask]."], n_best=3)
    assert [len(row) for row in (*one.candidates, *two.candidates)] == [3, 3, 3]
    best = one.candidates[0][0].word
    assert one.filled == f"let's make {best} chicken"
    assert two.filled == f"{two.candidates[0][0].word}, {two.candidates[1][0].word}."
    known = set(model.coder.words.symbols) - {"<unk>", "<bos>", "<eos>", "<mask>"}
    for row in one.candidates:
        assert {candidate.word for candidate in row} <= known
        assert [c.probability for c in row] == sorted((c.probability for c in row), reverse=True)
    assert sum(c.probability for c in model.fill(["[MASK]"], 1000)[0].candidates[0]) == pytest.approx(1, abs=1e-4)
    far = model.fill([f"{'met ' * 300}[MASK]{' met' * 9000}"])[0].candidates[0]
    near = model.fill([f"{'met ' * 50}[MASK]{' met' * 50}"])[0].candidates[0]
    assert [c.word for c in far] == [c.word for c in near]
    with pytest.raises(InputError, match=r"0 masks; 1 to 100 were wanted: write \[MASK\]"):
        model.fill(["no mask"])
    with pytest.raises(InputError, match="101 masks"):
        model.fill(["[MASK] " * 101])
    with pytest.raises(InputError, match="n_best is 0"):
        model.fill(["[MASK]"], 0)


def test_vectors_depend_on_their_neighbours(bundles: dict[str, Path]) -> None:
    model = voiceseq.load(bundles["both"])
    assert isinstance(model, ContextModel)
    one, other = model.vectors(["Harry met", "chicken met"])
    assert one.shape == (2, 2, 8)
    torch.testing.assert_close(one[0, 1], other[0, 1])  # the word itself
    assert not torch.allclose(one[1, 1], other[1, 1])  # the word where it stands
    with pytest.raises(InputError, match="is empty"):
        model.vectors([""])


def test_one_bare_text_is_refused(bundles: dict[str, Path], names: Tagger) -> None:
    for call in (names.tag, voiceseq.load(bundles["classes"]).classify, voiceseq.load(bundles["masked"]).fill):
        with pytest.raises(InputError, match="give a list of texts"):
            call("Harry")


@pytest.mark.parametrize(
    ("name", "lost"), [("names", "letters"), ("names", "tags"), ("classes", "classes"), ("masked", "words")]
)
def test_a_bundle_without_its_vocabulary_is_refused(
    bundles: dict[str, Path], tmp_path: Path, name: str, lost: str
) -> None:
    whole = load_bundle(bundles[name])
    for kept in (
        {key: value for key, value in whole.vocabularies.items() if key != lost},
        whole.vocabularies | {lost: {"level": "word", "specials": [], "symbols": ["one"]}},
    ):
        save_bundle(
            tmp_path / "b",
            kind=whole.kind,
            config=whole.config,
            weights=whole.weights,
            vocabularies=kept,
            decoding=whole.decoding,
        )
        with pytest.raises(BundleError, match=lost):
            voiceseq.load(tmp_path / "b")
