"""The language model at work, against sums over all strings."""

import itertools
import math
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import sample
from voiceseq.errors import InputError
from voiceseq.inference import language
from voiceseq.inference.language import LanguageModel
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
    symbols = "ab\n☃"  # the last stands for all unknown ones
    for length in (1, 2, 3):
        texts = ["".join(letters) for letters in itertools.product(symbols, repeat=length)]
        assert sum(math.exp(score.log_prob) for score in model.score(texts)) == pytest.approx(1.0, abs=1e-5)
    for letter in symbols:
        longer = model.score([letter + other for other in symbols])
        first = math.exp(model.score([letter])[0].log_prob)
        assert sum(math.exp(score.log_prob) for score in longer) == pytest.approx(first, rel=1e-4)


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


@pytest.mark.parametrize("cell", ["gru", "transformer"])
@pytest.mark.parametrize("context", [2, 5, 8])
@pytest.mark.parametrize("piece", [256, 3])
def test_a_score_is_the_sum_of_the_steps_past_the_context_too(
    cell: str, context: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "PIECE", piece)
    model = make(cell, context)
    text = "abba\nbab" * 6
    tokens = torch.tensor(model.vocabulary.encode("\n" + text))
    total, state = 0.0, None
    with torch.no_grad():
        for token, following in itertools.pairwise(tokens):
            log_probs, state = model.network.step(token[None], state)
            total += float(log_probs[0, following])
    assert model.score([text])[0].log_prob == pytest.approx(total, rel=1e-5)


def test_scores_of_a_recurrent_model_do_not_depend_on_the_context() -> None:
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
    """The same draws as from a model without state, which finds its window of 8 in all that was written."""
    model, window = make("transformer", context=8), 8

    def afresh(tokens: torch.Tensor, written: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        written, start = torch.cat((written, tokens[:, None]), 1), 0
        for place in range(written.shape[1]):
            if place - start == window:  # full: what went before the newer half is forgotten
                start = place + 1 - window // 2
        return model.network(written[:, start:])[0][:, -1].log_softmax(-1), written

    *before, last = model.vocabulary.encode("\nab")
    scorers = [(StepScorer(afresh, torch.tensor([before])), 1.0), (model.no_specials, 1.0)]
    generator = torch.Generator().manual_seed(3)
    found = sample(scorers, 1, last, None, max_length=200, temperature=1.5, generator=generator)
    text = model.generate(["ab"], 200, temperature=1.5, seed=3)[0]
    assert text == model.vocabulary.decode(found[0].tokens)
    assert len(text) == 200
    assert set(text) == {"a", "b", "\n"}


@pytest.mark.parametrize("cell", ["lstm", "transformer"])
@pytest.mark.parametrize("piece", [256, 5])
def test_a_long_prompt_leaves_the_state_that_steps_leave(
    cell: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "PIECE", piece)
    model = make(cell, context=8)
    prompt = "abba\nb" * 7
    *before, last = (torch.tensor([token]) for token in model.vocabulary.encode("\n" + prompt))
    state = None
    with torch.no_grad():
        for token in before:
            _, state = model.network.step(token, state)
        stepped, _ = model.network.step(last, state)
        first, state = model._read(prompt)
        found, _ = model.network.step(torch.tensor([first]), state)
        afresh, _ = model.network.step(last)
    torch.testing.assert_close(found, stepped, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, afresh, atol=1e-2)  # what came before matters


def test_a_prompt_is_not_read_symbol_by_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("gru")
    monkeypatch.setattr(model.network, "step", lambda *args: pytest.fail("a step for a symbol of the prompt"))
    assert model.generate(["ab" * 500], 0) == [""]


def test_bad_requests_are_refused() -> None:
    model = make()
    for wrong in ({"temperature": 0.0}, {"top_k": 0}, {"top_p": 1.5}, {"length": -1}):
        with pytest.raises(InputError):
            model.generate(["a"], **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="empty"):
        model.score([""])
    for act in (model.score, model.generate):
        with pytest.raises(InputError, match="give a list of texts"):
            act("ab")
        with pytest.raises(InputError, match=r"text 1 is a NoneType"):
            act(["ab", None])  # type: ignore[list-item]
        assert act([]) == []


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


# --- words -----------------------------------------------------------------------------------------------------------


def make_words(cell: str = "gru") -> LanguageModel:
    torch.manual_seed(1)
    vocabulary = Vocabulary.from_text("the sea the shore", level="word", specials=("unknown", "eos"))
    network = LanguageNetwork(LanguageConfig(len(vocabulary), cell, size=16, layers=1, heads=2, dropout=0.4))
    torch.nn.init.normal_(network.output.bias)
    return LanguageModel(network, vocabulary)


@pytest.mark.parametrize("cell", ["gru", "transformer"])
def test_all_lines_of_words_share_one_probability(cell: str) -> None:
    model = make_words(cell)
    words = ["the ", "sea ", "shore ", "ship ", "\n"]
    for length in (1, 2, 3):
        scores = model.score(["".join(some) for some in itertools.product(words, repeat=length)])
        assert {score.symbols for score in scores} == {length}
        assert sum(math.exp(score.log_prob) for score in scores) == pytest.approx(1.0, abs=1e-5)


def test_a_line_of_words_follows_the_end_of_another() -> None:
    model = make_words()
    eos, the, sea = (model.vocabulary.index(word) for word in ("<eos>", "the", "sea"))
    with torch.no_grad():
        log_probs = model.network(torch.tensor([[eos, the, sea]]))[0][0].log_softmax(-1)
    by_hand = float(log_probs[0, the] + log_probs[1, sea])
    assert model.score(["the sea"])[0].log_prob == pytest.approx(by_hand, abs=1e-5)
    assert model.score(["the sea\n"])[0].log_prob == pytest.approx(by_hand + float(log_probs[2, eos]), abs=1e-5)
    assert model.score(["the"])[0].symbols == 1
    assert model.score(["  the\tsea "])[0].log_prob == model.score(["the sea"])[0].log_prob
    with pytest.raises(InputError, match="empty"):
        model.score(["  "])


def test_written_words_are_parted_by_spaces_and_lines() -> None:
    model = make_words()
    for prefix in ("", "the", "the ", "the sea\n", "the ship"):
        text = model.generate([prefix], 40, temperature=2.0, seed=3)[0]
        assert "\n" in text
        assert set(text.split()) <= {"the", "sea", "shore"}
        whole = prefix + text
        assert len(whole.split()) + whole.count("\n") == 40 + len(prefix.split()) + prefix.count("\n")
        assert "  " not in whole
        assert not text.startswith(" ") or (prefix and not prefix[-1].isspace())


def test_a_word_model_comes_back_from_its_bundle(tmp_path: Path) -> None:
    model = make_words()
    voiceseq.save_bundle(
        tmp_path / "b",
        kind="language-model",
        config=model.network.config,
        weights=model.network.state_dict(),
        vocabularies={"symbols": model.vocabulary.to_json()},
    )
    again = voiceseq.load(tmp_path / "b")
    assert again.score(["the sea\nthe ship"]) == model.score(["the sea\nthe ship"])
    assert again.generate(["the"], 9, seed=1) == model.generate(["the"], 9, seed=1)
