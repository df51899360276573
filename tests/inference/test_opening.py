"""A sealed bundle with odd contents: one BundleError that names the part, and no petabyte."""

from pathlib import Path
from typing import Any

import pytest

import voiceseq
from voiceseq.errors import BundleError
from voiceseq.inference.language import LanguageModel
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.text.vocabulary import Vocabulary

LETTERS = Vocabulary.from_text("abc\n", specials=("unknown",))
DIGITS = Vocabulary.from_text("0123", specials=("bos", "eos"))
WORDS = Vocabulary.from_text("a b c", level="word", specials=("unknown", "mask"))  # 5 symbols, no end of line


def language(path: Path, cell: str = "gru", config: Any = None, vocabularies: Any = None) -> Path:
    network = LanguageNetwork(LanguageConfig(len(LETTERS), cell, size=8, layers=1))
    return voiceseq.save_bundle(
        path,
        kind="language-model",
        config={**vars(network.config), **(config or {})},
        weights=network.state_dict(),
        vocabularies={"symbols": LETTERS.to_json()} if vocabularies is None else vocabularies,
    )


def transducer(path: Path, cell: str = "gru", config: Any = None, decoding: Any = None, **vocabularies: Any) -> Path:
    network = seq2seq(Seq2SeqConfig(len(LETTERS), len(DIGITS), cell, size=8))
    return voiceseq.save_bundle(
        path,
        kind="transducer",
        config={**vars(network.config), **(config or {})},
        weights=network.state_dict(),
        vocabularies={"source": LETTERS.to_json(), "target": DIGITS.to_json(), **vocabularies},
        decoding=decoding,
    )


def said(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        voiceseq.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("cell", ["gru", "transformer"])
@pytest.mark.parametrize("make", [language, transducer])
def test_an_honest_bundle_opens(tmp_path: Path, make: Any, cell: str) -> None:
    assert voiceseq.load(make(tmp_path / "b", cell, {"dropout": 0})).network.config.dropout == 0


@pytest.mark.parametrize("cell", ["gru", "transformer"])
@pytest.mark.parametrize("make", [language, transducer])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"layers": 1.5}, "config.layers is 1.5; int was wanted"),
        ({"layers": True}, "config.layers is True; int was wanted"),
        ({"layers": 10**9}, "layers is 1000000000"),
        ({"dropout": 5}, "dropout is 5"),
        ({"dropout": "0.1"}, "config.dropout is '0.1'; float was wanted"),
        ({"cell": "gruu"}, "gruu"),
        ({"cell": None}, "config.cell is None; str was wanted"),
        ({"size": 10**7}, "weights.safetensors does not fit"),
        ({"size": 10**30}, "config"),
        ({"size": 10**400}, "config"),
        ({"layers": 2}, "is missing"),
    ],
)
def test_odd_settings_are_named(tmp_path: Path, make: Any, cell: str, config: Any, message: str) -> None:
    assert message in said(make(tmp_path / "b", cell, config))


def test_a_yes_is_no_bool(tmp_path: Path) -> None:
    assert "config.tied is 'yes'; bool was wanted" in said(language(tmp_path / "b", config={"tied": "yes"}))


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"beem": 3}, "decoding does not describe a Decoding: unknown 'beem'"),
        ({"beam": "3"}, "decoding.beam is '3'; int was wanted"),
        ({"beam": 0}, "beam is 0"),
        ({"max_length": -4}, "max_length is -4"),
    ],
)
def test_odd_decoding_is_named(tmp_path: Path, decoding: Any, message: str) -> None:
    assert message in said(transducer(tmp_path / "b", decoding=decoding))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (["a", "b"], "vocabularies/symbols.json: a vocabulary has the keys"),
        ({"level": "character", "specials": [], "symbols": ["a", "a"]}, "vocabularies/symbols.json: the vocabulary"),
        (DIGITS.to_json(), "vocabularies/symbols.json holds 6 symbols; the network has 5"),
        (WORDS.to_json(), "vocabularies/symbols.json: this vocabulary has no 'eos' symbol"),
    ],
)
def test_an_odd_vocabulary_is_named(tmp_path: Path, vocabulary: Any, message: str) -> None:
    assert message in said(language(tmp_path / "b", vocabularies={"symbols": vocabulary}))


def test_a_missing_vocabulary_or_role_is_named(tmp_path: Path) -> None:
    assert "no vocabulary 'symbols'" in said(language(tmp_path / "b", vocabularies={}))
    plain = Vocabulary.from_text("012345").to_json()
    assert "vocabularies/target.json: this vocabulary has no 'bos'" in said(transducer(tmp_path / "c", target=plain))
    more = Vocabulary.from_text("abcdefgh").to_json()
    assert "vocabularies/source.json holds 8 symbols" in said(transducer(tmp_path / "d", source=more))


def test_a_twin_of_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = voiceseq.load_bundle(language(tmp_path / "b"))
    for tied in ({"output.weight": "nowhere"}, ["output.weight"], {"output.weight": ["x"]}):
        monkeypatch.setitem(bundle.storage, "tied", tied)
        with pytest.raises(BundleError, match=r"weights\.safetensors"):
            LanguageModel.from_bundle(bundle)
        bundle.__dict__.pop("shapes", None)
