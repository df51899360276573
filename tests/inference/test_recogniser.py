"""The searches of a recogniser, on a language in which what was said is known exactly."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from echo import FRAME, VOCABULARY, Bigrams, Echo, say, silence

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.core.prefix import prefix_beam_search
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.recogniser import AcousticRecogniser, SearchSettings
from voiceseq.inference.speech import Decoding, Hypothesis
from voiceseq.models.acoustic import LM_FILE, AcousticConfig, AcousticNetwork
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.ngram import write_arpa
from voiceseq.text.vocabulary import Vocabulary

EOS = VOCABULARY.special("eos")
LINES = ["the cab", "the cab", "a cab", "the sea", "a cat", "hello"]


def table(*favourites: str) -> torch.Tensor:
    """Bigram logits that like these texts."""
    logits = torch.zeros(len(VOCABULARY), len(VOCABULARY))
    for text in favourites:
        numbers = [EOS, *VOCABULARY.encode(text), EOS]
        for one, other in pairwise(numbers):
            logits[one, other] = 4.0
    return logits


def recogniser(*favourites: str, lm: bool = False, **settings: object) -> AcousticRecogniser:
    decoder = Bigrams(table(*favourites)) if favourites else None
    model = train_ngram([line.split() for line in LINES], 2) if lm else None
    return AcousticRecogniser(Echo(decoder=decoder), VOCABULARY, SearchSettings(**settings), model)


def texts(model: AcousticRecogniser, *pieces: np.ndarray, **settings: object) -> list[str]:
    return [found[0].text for found in model.recognise(pieces, Decoding(**settings))]


def test_greedy_hears_words_where_they_are() -> None:
    """Two frames a letter and one of pause: the second word begins after three letters and the space."""
    ((found,),) = recogniser().recognise([say("the cab")], Decoding("greedy"))
    assert found.text == "the cab"
    assert [(word.word, round(word.start, 3), round(word.end, 3)) for word in found.words] == [
        ("the", 0.0, 0.24),
        ("cab", 0.36, 0.60),
    ]
    assert all(0.99 < word.confidence <= 1 for word in found.words)
    assert found.score == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("decoder", ["greedy", "beam", "attention", "joint", "rescore"])
def test_the_company_does_not_matter(decoder: str) -> None:
    model = recogniser("the cab", "hello", lm=True)
    pieces = [say("the cab"), say("h?llo"), silence(1), silence(0.01), say("cab " * 9), np.zeros(0, np.float32)]
    together = model.recognise(pieces, Decoding(decoder))
    for piece, answer in zip(pieces, together, strict=True):
        (alone,) = model.recognise([piece], Decoding(decoder))
        assert [one.text for one in alone] == [one.text for one in answer]
        assert [one.score for one in alone] == pytest.approx([one.score for one in answer], abs=1e-3)
    assert together[3] == together[5] == [Hypothesis("", 0.0, ())]
    if decoder != "attention":
        assert together[2][0].text == ""


def test_nothing_to_recognise_is_no_mistake() -> None:
    assert recogniser().recognise([], Decoding()) == []


def test_the_n_best_are_different_and_in_order() -> None:
    ((*found,),) = recogniser().recognise([say("c?b", 1)], Decoding(nbest=4))
    assert {found[0].text, found[1].text} == {"cab", "cbb"}
    assert len({one.text for one in found}) == 4
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert found[0].words[0].confidence == pytest.approx(0.83, abs=0.05)  # two letters of 1, one of a half


def test_the_language_model_decides_what_the_sound_does_not(tmp_path: Path) -> None:
    own = recogniser(lm=True, decoder="beam", lm_weight=1.0)
    assert texts(own, say("the c?b", 1), say("c?t", 1)) == ["the cab", "cat"]
    write_arpa(train_ngram([["cbb"]], 1), tmp_path / "odd.arpa")
    assert texts(own, say("c?b", 1), lm=str(tmp_path / "odd.arpa")) == ["cbb"]
    assert texts(own, say("cbt"), say("zebra")) == ["cbt", "zebra"]  # what it does not know is heard all the same
    ((first, second),) = own.recognise([say("c?b", 1)], Decoding(lm_weight=0.0, nbest=2))
    assert first.score == pytest.approx(second.score, abs=1e-4)


@pytest.mark.parametrize("decoder", ["beam", "joint", "rescore", "attention"])
def test_hotwords_are_boosted_and_nothing_is_excluded(decoder: str) -> None:
    model = recogniser("cab", "cbb", "the sea", "hello", ctc_weight=0.9)
    assert texts(model, say("c?b", 1), decoder=decoder, hotwords=("CBB!",)) == ["cbb"]
    assert texts(model, say("c?b", 1), decoder=decoder, hotwords=("cab",)) == ["cab"]
    if decoder != "attention":  # a decoder that hears nothing always says what is boosted
        assert texts(model, say("the sea"), say("hello"), decoder=decoder, hotwords=("cbb", "cab")) == [
            "the sea",
            "hello",
        ]


def test_rescoring_adds_the_decoders_opinion() -> None:
    model = recogniser("cbb", ctc_weight=0.3)
    sound = say("c?b", 1)
    heard = model.hear([sound])
    (beam,) = prefix_beam_search(heard.log_probs, heard.lengths, beam=8, nbest=8)
    wanted = {}
    for one in beam:
        numbers = [EOS, *one.tokens, EOS]
        log_probs = model.network.decoder.table.log_softmax(-1)
        written = sum(float(log_probs[a, b]) for a, b in pairwise(numbers))
        wanted[VOCABULARY.decode(one.tokens)] = 0.3 * one.score + 0.7 * written
    ((*found,),) = model.recognise([sound], Decoding("rescore", nbest=8))
    assert {one.text: one.score for one in found} == pytest.approx(wanted, abs=1e-4)
    assert found[0].text == "cbb"


def test_joint_search_listens_to_both() -> None:
    """The decoder would say "sea" to anything and CTC cannot choose between two texts: together they can."""
    model = recogniser("sea", "cbb", ctc_weight=0.5)
    assert texts(model, say("c?b", 1), decoder="joint") == ["cbb"]
    assert texts(model, say("cab"), decoder="joint") == ["cab"]
    assert texts(model, say("cab"), decoder="attention")[0] in ("sea", "cbb")
    with_lm = recogniser("sea", "cbb", "cab", lm=True, lm_weight=2.0)
    assert texts(with_lm, say("c?b", 1), decoder="joint") == ["cab"]


def test_what_ctc_has_no_time_for_still_has_times() -> None:
    (found,) = recogniser("hello hello").recognise([say("ll", 1, 0)], Decoding("attention"))
    words = found[0].words
    assert all(0 <= word.start < word.end <= 0.06 + 1e-6 for word in words)


def test_broken_samples_are_silence() -> None:
    sound = say("the cab")
    sound[: 3 * FRAME] = np.nan
    sound[-FRAME:] = np.inf
    assert texts(recogniser(), sound) == ["he cab"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"decoder": "viterbi"}, "no decoder 'viterbi'; choose one of greedy, beam"),
        ({"decoder": "joint"}, "no decoder 'joint'"),
        ({"decoder": "greedy", "hotwords": ("cab",)}, "choose beam"),
        ({"decoder": "greedy", "nbest": 3}, "choose beam"),
        ({"decoder": "beam", "beam": 0}, "beam 0"),
        ({"hotwords": ("!",)}, "no letters"),
        ({"hotwords": ("мир",)}, "cannot spell"),
        ({"lm": "nowhere.arpa"}, "nowhere.arpa"),
    ],
)
def test_what_cannot_be_is_said(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        recogniser().recognise([say("cab")], Decoding(**settings))


def test_two_channels_are_no_piece() -> None:
    with pytest.raises(InputError, match=r"shape \(2, 480\)"):
        recogniser().recognise([np.zeros((2, 480), np.float32)], Decoding())


def test_subwords_make_words() -> None:
    vocabulary = Vocabulary.from_text(
        [*LINES * 3, "abcdefghijklmnopqrstuvwxyz'"], "subword", size=44, specials=("blank", "eos")
    )
    numbers = vocabulary.encode("the cab's sea")
    assert len(numbers) < len("the cab's sea")
    step = 1 / 64
    sound = np.repeat(np.array([level for n in numbers for level in (n, n, 0)], np.float32) * step, FRAME)
    pieces = [vocabulary.split(line) for line in LINES]
    model = AcousticRecogniser(Echo(vocabulary=vocabulary), vocabulary, lm=train_ngram(pieces, 2))
    for decoder in ("greedy", "beam"):
        ((found,),) = model.recognise([sound], Decoding(decoder))
        assert found.text == "the cab's sea"
        assert [word.word for word in found.words] == ["the", "cab's", "sea"]
        assert found.words[0].start == 0
        assert [one.end <= other.start for one, other in pairwise(found.words)] == [
            True,
            True,
        ]
    with pytest.raises(InputError, match="this model's subwords"):
        model.spelling.lm_words(train_ngram([["zebra"]], 1))


TINY = AcousticConfig(symbols=len(VOCABULARY), channels=4, size=8, layers=1, decoder="recurrent", decoder_size=8)


def bundle(path: Path, lm: bytes | None, **more: object) -> Path:
    torch.manual_seed(1)
    network = AcousticNetwork(TINY)
    settings = {
        "kind": "recogniser",
        "name": "tiny",
        "config": dataclasses.asdict(TINY),
        "weights": network.state_dict(),
        "vocabularies": {"text": VOCABULARY.to_json()},
        "files": {} if lm is None else {LM_FILE: lm},
        "decoding": {"decoder": "rescore", "beam": 3},
        "dtype": torch.float16,
    }
    return save_bundle(path, **settings | more)


@pytest.mark.parametrize("name", ["folder", "packed.zip"])
def test_a_bundle_brings_its_settings_and_its_language_model(name: str, tmp_path: Path) -> None:
    write_arpa(train_ngram([line.split() for line in LINES], 2), tmp_path / LM_FILE)
    path = bundle(tmp_path / name, (tmp_path / LM_FILE).read_bytes())
    model = AcousticRecogniser.from_bundle(load_bundle(path))
    assert model.decoders == ("rescore", "greedy", "beam", "attention", "joint")
    assert model.name == "tiny"
    assert model.settings.beam == 3
    assert model.lm is not None
    sound = 0.1 * np.random.default_rng(1).standard_normal(8000).astype(np.float32)
    (found,) = model.recognise([sound], Decoding())
    assert all(0 <= word.start < word.end <= 0.5 for word in found[0].words)


def test_bundles_that_are_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no language model"):
        AcousticRecogniser.from_bundle(load_bundle(bundle(tmp_path / "a", b"nothing of the kind")))
    symbols = ("é", *VOCABULARY.symbols[1:])
    other = {"vocabularies": {"text": Vocabulary(symbols, specials=("eos",)).to_json()}}
    with pytest.raises(BundleError, match="blank"):
        AcousticRecogniser.from_bundle(load_bundle(bundle(tmp_path / "b", None, **other)))
    with pytest.raises(BundleError, match="decoder"):
        AcousticRecogniser.from_bundle(load_bundle(bundle(tmp_path / "c", None, decoding={"decoder": "magic"})))
