"""The language model at work, against sums over all strings."""

import itertools
import math
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.errors import InputError
from voiceseq.inference.language import FIRST, LanguageModel
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.text.vocabulary import Vocabulary


def make(cell: str = "gru", context: int = 256) -> LanguageModel:
    torch.manual_seed(1)
    vocabulary = Vocabulary.from_text("ab\n", specials=("unknown",))
    config = LanguageConfig(len(vocabulary), cell, size=16, layers=2, heads=2, context=context, dropout=0.4)
    network = LanguageNetwork(config)
    torch.nn.init.normal_(network.output.bias)
    return LanguageModel(network, vocabulary)


@pytest.mark.parametrize("cell", ["gru", "lstm", "transformer"])
def test_all_strings_of_a_length_share_one_probability(cell: str) -> None:
    model = make(cell)
    with torch.no_grad():
        logits, _ = model.network(torch.tensor([model.vocabulary.encode(FIRST)]))
    unknown = float(logits[0, 0].softmax(-1)[0])
    one = sum(math.exp(score.log_prob) for score in model.score(["a", "b", "\n"]))
    assert one + unknown == pytest.approx(1.0, abs=1e-5)
    firsts = {letter: math.exp(model.score([letter])[0].log_prob) for letter in "ab\n"}
    for letter, first in firsts.items():
        longer = [letter + "".join(rest) for rest in itertools.product("ab\n", repeat=1)]
        assert sum(math.exp(score.log_prob) for score in model.score(longer)) < first


@pytest.mark.parametrize("cell", ["lstm", "transformer"])
def test_steps_equal_the_whole(cell: str) -> None:
    model = make(cell)
    tokens = torch.tensor([model.vocabulary.encode("abba\nab")])
    with torch.no_grad():
        whole = model.network(tokens)[0].log_softmax(-1)
        state = None
        for place in range(tokens.shape[1]):
            log_probs, state = model.network.step(tokens[:, place], state)
            torch.testing.assert_close(log_probs, whole[:, place], atol=1e-5, rtol=1e-5)


def test_scores_of_a_long_text_do_not_depend_on_the_cut() -> None:
    whole, cut = make("gru", context=256), make("gru", context=7)
    text = "abab\nbbaa" * 9
    assert whole.score([text])[0].log_prob == pytest.approx(cut.score([text])[0].log_prob, rel=1e-5)
    assert whole.score([text])[0].symbols == len(text)


def test_the_same_seed_writes_the_same_and_never_a_special() -> None:
    model = make()
    first, again = (model.generate(["a", ""], 60, temperature=2.0, seed=3) for _ in range(2))
    assert first == again != model.generate(["a", ""], 60, temperature=2.0, seed=4)
    assert [len(text) for text in first] == [60, 60]
    assert not any("<" in text for text in first)


def test_a_cold_sample_is_the_most_probable_symbol() -> None:
    model = make()
    text = model.generate(["ab"], 6, temperature=1e-4, seed=1)[0]
    assert text == model.generate(["ab"], 6, top_k=1, seed=2)[0]
    written = "ab"
    for letter in text:
        ranked = sorted("ab\n", key=lambda other: -model.score([written + other])[0].log_prob)
        assert letter == ranked[0]
        written += letter


def test_a_transformer_writes_past_its_context() -> None:
    text = make("transformer", context=8).generate(["ab"], 50, seed=1)[0]
    assert len(text) == 50


def test_bad_requests_are_refused() -> None:
    model = make()
    for wrong in ({"temperature": 0.0}, {"top_k": 0}, {"top_p": 1.5}, {"length": -1}):
        with pytest.raises(InputError):
            model.generate(["a"], **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="empty"):
        model.score([""])


def test_a_bundle_gives_the_same_model(tmp_path: Path) -> None:
    model = make("lstm")
    voiceseq.save_bundle(
        tmp_path / "b",
        kind="language-model",
        config=model.network.config,
        weights=model.network.state_dict(),
        vocabularies={"symbols": model.vocabulary.to_json()},
    )
    again = voiceseq.load(tmp_path / "b")
    assert again.score(["abba"]) == model.score(["abba"])
