"""The pronouncer: what it asks the network, what it asks the dictionary, and that it is the network's own answer."""

import dataclasses
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.errors import InputError
from voiceseq.inference.pronounce import Pronouncer
from voiceseq.inference.transduce import Decoding
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.text.ngram import arpa, packed
from voiceseq.text.pairing import PairModel, train_pairs
from voiceseq.text.pronounce import LETTERS, PHONES, pronounce_phrase
from voiceseq.text.vocabulary import Vocabulary

SOURCE = Vocabulary.from_text(LETTERS)
TARGET = Vocabulary(("<bos>", "<eos>", *PHONES), "word", ("bos", "eos"))
HELLO = {"hello": [("HH", "AH", "L", "OW"), ("HH", "EH", "L", "OW")]}


@pytest.fixture(scope="module")
def model() -> Pronouncer:
    """Untrained: its answers are nonsense, but its own."""
    torch.manual_seed(3)
    network = seq2seq(Seq2SeqConfig(len(SOURCE), len(TARGET), size=16, embedding=8))
    with torch.no_grad():  # sure enough of itself that not all ways are alike
        for parameter in network.parameters():
            parameter *= 4
    return Pronouncer(network, SOURCE, TARGET, Decoding(beam=4, max_length=6))


def test_guesses_are_the_networks_candidates_less_the_unlikely_ones(model: Pronouncer) -> None:
    words = ["luna", "voiceseq", "a", "don't", "computer"]
    dropped = 0
    for word, guessed in zip(words, model.guesses(words, beam=5, n_best=5), strict=True):
        (candidates,) = model.candidates([word], beam=5)
        likely = [item for item in candidates if item.score >= candidates[0].score - 3.912]  # a fiftieth
        assert guessed == [tuple(item.text.split()) for item in likely]
        dropped += len(candidates) - len(likely)
    assert dropped


def test_pairs_guess_too_and_both_judge(model: Pronouncer, tmp_path: Path) -> None:
    words = [("luna", ("L", "UW", "N", "AH")), ("tuna", ("T", "UW", "N", "AH")), ("lab", ("L", "AE", "B"))]
    both = Pronouncer(model.network, SOURCE, TARGET, model.decoding)
    both.pairs = PairModel(train_pairs(words))
    plain, found = model.candidates(["luna"])[0], both.candidates(["luna", "zz"])
    texts = [one.text for one in found[0]]
    assert "L UW N AH" in texts
    assert len(found[0]) == 4
    assert [one.text for one in found[1]] == [
        one.text for one in model.candidates(["zz"])[0]
    ]  # letters unknown to pairs
    scores = [one.score for one in found[0]]
    assert scores == sorted(scores, reverse=True)
    for text, score in zip(texts, both.scores(["luna"] * 4, texts), strict=True):
        alone = model.scores(["luna"], [text])[0]
        assert score == pytest.approx(alone + both.pairs.judge("luna", tuple(text.split())), abs=1e-4)
    assert both.guesses(["luna"])[0][0] == tuple(both.candidates(["luna"], beam=1)[0][0].text.split())
    assert plain[0].score <= 0
    parts = {"source": SOURCE.to_json(), "target": TARGET.to_json()}
    path = save_bundle(
        tmp_path / "p",
        kind="pronouncer",
        config=dataclasses.asdict(model.network.config),
        weights=model.network.state_dict(),
        vocabularies=parts,
        decoding=dataclasses.asdict(model.decoding),
        files={"pairs-en.arpa.gz": packed(arpa(both.pairs.model))},
    )
    assert [one.text for one in voiceseq.load(path).candidates(["luna"])[0]] == texts


def test_words_in_great_number_come_back_in_their_order(model: Pronouncer) -> None:
    words = [letter * count for letter in LETTERS[:26] for count in (6, 1, 3, 2, 9, 5)]
    together = model.guesses(words, n_best=3)
    some = [3, 0, 131, 155, 127, 128]
    assert [together[i] for i in some] == [model.guesses([words[i]], n_best=3)[0] for i in some]
    spoken = [words[i] for i in some if all(together[i])]
    assert spoken
    said = model.pronounce([*spoken, "b"], dictionary={"b": [("B",)]})
    assert said == [*(model.pronounce([word], dictionary={})[0] for word in spoken), [("B",)]]


def test_a_phrase_is_put_together_of_dictionary_and_network(model: Pronouncer) -> None:
    (ways,) = model.pronounce(["Hello, Luna!"], n_best=4, dictionary=HELLO)
    assert ways == pronounce_phrase("hello luna", HELLO, lambda word: model.guesses([word], n_best=4)[0], most=4)
    assert ways[0] == HELLO["hello"][0] + model.letters_to_sounds("luna")[0]
    assert model.pronounce(["hello"], dictionary=HELLO) == [HELLO["hello"][:1]]
    assert model.pronounce([], dictionary=HELLO) == []


def test_the_environment_may_name_a_dictionary(
    model: Pronouncer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VOICESEQ_DICTIONARY", raising=False)
    guessed = model.pronounce(["zzq"])
    path = tmp_path / "own.dict"
    path.write_text("zzq Z UW K\n")
    monkeypatch.setenv("VOICESEQ_DICTIONARY", str(path))
    assert model.pronounce(["zzq"]) == [[("Z", "UW", "K")]] != guessed
    assert model.pronounce(["zzq"], dictionary={}) == guessed
    monkeypatch.setenv("VOICESEQ_DICTIONARY", str(tmp_path / "none.dict"))
    with pytest.raises(InputError, match=r"none\.dict"):
        model.pronounce(["zzq"])


def test_bad_input(model: Pronouncer) -> None:
    for phrases, said in [
        (["hey", ""], "nothing that can be said"),
        (["луна"], "English letters"),
        (["x" * 50], "50 letters"),
        ("hey", "give a list"),
    ]:
        with pytest.raises(InputError, match=said):
            model.pronounce(phrases, dictionary={})
    with pytest.raises(InputError, match="n_best is 0"):
        model.pronounce(["hey"], n_best=0)
    with pytest.raises(InputError, match="nbest 3 came with a beam of 2"):
        model.pronounce(["hey"], beam=2, n_best=3, dictionary={})
    with pytest.raises(InputError, match="vocabulary"):
        model.letters_to_sounds("Luna")


def test_a_bundle_of_its_kind_opens_as_a_pronouncer(model: Pronouncer, tmp_path: Path) -> None:
    voiceseq.save_bundle(
        tmp_path / "b",
        kind="pronouncer",
        config=model.network.config,
        weights=model.network.state_dict(),
        vocabularies={"source": SOURCE.to_json(), "target": TARGET.to_json()},
        decoding={"beam": 4, "alpha": 0.0, "max_length": 6},
    )
    again = voiceseq.load(tmp_path / "b")
    assert isinstance(again, Pronouncer)
    assert again.pronounce(["hey luna"], n_best=3) == model.pronounce(["hey luna"], n_best=3)
