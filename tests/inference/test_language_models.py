"""A neural language model in the searches of recognisers: its opinion is added exactly, in its own symbols."""

from pathlib import Path

import pytest
import torch
from echo import VOCABULARY, Echo, say

from voiceseq.bundles import save_bundle
from voiceseq.core.prefix import score_strings
from voiceseq.errors import InputError
from voiceseq.inference.language import LanguageModel
from voiceseq.inference.language_models import UNKNOWN, LetterScorer, read_lm, text_log_prob
from voiceseq.inference.recogniser import AcousticRecogniser, SearchSettings
from voiceseq.inference.speech import Decoding
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.vocabulary import Vocabulary

SYMBOLS = "zyxwvutsrqponmlkjihgfedcba \n"  # another order than the recogniser's, and no apostrophe


def bundle(path: Path, vocabulary: Vocabulary, kind: str = "language-model", cell: str = "gru") -> Path:
    torch.manual_seed(3)
    network = LanguageNetwork(LanguageConfig(len(vocabulary), cell, size=12, layers=1, heads=2, tied=False))
    with torch.no_grad():
        network.output.weight *= 2  # opinions
    vocabularies = {"symbols": vocabulary.to_json()}
    save_bundle(path, kind=kind, config=network.config, weights=network.state_dict(), vocabularies=vocabularies)
    return path


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    return bundle(tmp_path / "lm", Vocabulary.from_text(SYMBOLS))


def recogniser(**settings: float) -> AcousticRecogniser:
    return AcousticRecogniser(Echo(), VOCABULARY, SearchSettings("beam", **settings))


@pytest.mark.parametrize("cell", ["gru", "transformer"])
def test_the_search_adds_the_models_own_score(tmp_path: Path, cell: str) -> None:
    path = bundle(tmp_path / "lm", Vocabulary.from_text(SYMBOLS), cell=cell)
    own, model = recogniser(lm_weight=0.7, word_bonus=0.4), read_lm(path)
    assert isinstance(model, LanguageModel)
    sound = say("a c?b", 1)
    ((*found,),) = own.recognise([sound], Decoding(lm=str(path), nbest=2))
    assert {one.text for one in found} == {"a cab", "a cbb"}
    heard = own.hear([sound])
    for one in found:
        tokens = VOCABULARY.encode(one.text)
        ctc = score_strings(heard.log_probs, heard.lengths, [tokens])[0].score
        assert one.score == pytest.approx(ctc + 0.7 * model.score([f"{one.text}\n"])[0].log_prob + 0.4 * 2, abs=1e-3)


def test_it_decides_what_the_sound_does_not(letters: Path) -> None:
    sound, model = say("c?b", 1), read_lm(letters)
    wanted = max(("cab", "cbb"), key=lambda text: text_log_prob(model, text))
    for weight in (0.5, 3.0):
        assert recogniser().recognise([sound], Decoding(lm=str(letters), lm_weight=weight))[0][0].text == wanted
    first, second = recogniser().recognise([sound], Decoding(lm=str(letters), lm_weight=0.0, nbest=2))[0]
    assert first.score == pytest.approx(second.score, abs=1e-4)


def test_hotwords_go_with_it(letters: Path) -> None:
    for word in ("cab", "cbb"):
        asked = Decoding(lm=str(letters), lm_weight=0.1, hotwords=(word,), hotword_weight=9.0)
        assert recogniser().recognise([say("c?b", 1)], asked)[0][0].text == word


@torch.no_grad()
def test_a_symbol_that_it_does_not_know_is_possible(letters: Path) -> None:
    model = read_lm(letters)
    log_probs, _ = LetterScorer(model, VOCABULARY).score(torch.tensor([VOCABULARY.special("eos")]), None)
    assert log_probs[0, VOCABULARY.index("'")] == UNKNOWN
    ends = model.network.step(torch.tensor([model.spelling.line_end]))[0][0, model.spelling.line_end]
    assert log_probs[0, VOCABULARY.special("eos")] == pytest.approx(float(ends))
    assert recogniser().recognise([say("it's")], Decoding(lm=str(letters)))[0][0].text == "it's"
    assert text_log_prob(model, "it's") == pytest.approx(text_log_prob(model, "its"))


def test_an_ngram_scores_the_same_text() -> None:
    model = train_ngram([["a", "cab"], ["the", "sea"]], 2)
    assert text_log_prob(model, "a cab") == pytest.approx(sum(model.score(["a", "cab"])))


def test_what_is_no_language_model_of_characters(tmp_path: Path) -> None:
    words = bundle(tmp_path / "words", Vocabulary.from_text("the cab", "word", specials=("unknown", "eos")))
    with pytest.raises(InputError, match="of words came for a recogniser of characters"):
        recogniser().recognise([say("cab")], Decoding(lm=str(words)))
    with pytest.raises(InputError, match="is a 'tagger'; an ARPA file or the bundle of a language model"):
        read_lm(bundle(tmp_path / "other", Vocabulary.from_text(SYMBOLS), kind="tagger"))
