"""The language network: one symbol at a time, many at once, and past its context, always the same answer."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voiceseq.errors import ConfigError, InputError
from voiceseq.models.language import LanguageConfig, LanguageNetwork, Spelling
from voiceseq.tasks.language import TextData
from voiceseq.text.files import read_text
from voiceseq.text.vocabulary import Vocabulary

CONFIG = LanguageConfig(7, size=16, layers=2, heads=2, context=6, dropout=0.3)
CELLS = ["lstm", "gru", "lstm_peephole", "transformer"]


def make(cell: str, context: int = 6) -> LanguageNetwork:
    torch.manual_seed(1)
    network = LanguageNetwork(dataclasses.replace(CONFIG, cell=cell, context=context)).eval()
    torch.nn.init.normal_(network.output.bias)
    return network


def by_steps(network: LanguageNetwork, tokens: Tensor) -> tuple[Tensor, Any]:
    state, rows = None, []
    for token in tokens.unbind(1):
        log_probs, state = network.step(token, state)
        rows.append(log_probs)
    return torch.stack(rows, 1), state


@settings(deadline=None, max_examples=40)
@given(cell=st.sampled_from(CELLS), context=st.integers(2, 9), cuts=st.lists(st.integers(0, 30), max_size=4))
@torch.no_grad()
def test_reading_in_any_pieces_is_stepping(cell: str, context: int, cuts: list[int]) -> None:
    network = make(cell, context)
    tokens = torch.randint(7, (2, 30), generator=torch.Generator().manual_seed(len(cuts)))
    state, pieces = None, []
    for start, end in pairwise(sorted({0, *cuts, 30})):
        logits, state = network.read(tokens[:, start:end], state)
        pieces.append(logits.log_softmax(-1))
    stepped, last = by_steps(network, tokens)
    torch.testing.assert_close(torch.cat(pieces, 1), stepped, atol=1e-5, rtol=1e-5)
    following = torch.tensor([3, 4])
    torch.testing.assert_close(network.step(following, state)[0], network.step(following, last)[0])


@torch.no_grad()
def test_a_full_context_goes_on_from_its_newer_half() -> None:
    """By hand: context 6, so symbols 0-5 are read alone; symbol 6 sees 4-6, ... 9 sees 4-9, 10 sees 8-10."""
    network = make("transformer", context=6)
    tokens = torch.randint(7, (1, 12), generator=torch.Generator().manual_seed(1))
    stepped, _ = by_steps(network, tokens)
    first = [0] * 6 + [4] * 4 + [8] * 2
    for place, start in enumerate(first):
        alone = network(tokens[:, start : place + 1])[0][:, -1].log_softmax(-1)
        torch.testing.assert_close(stepped[:, place], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_recurrent_step_takes_the_cells_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make("lstm")
    _, state = network.read(torch.tensor([[1, 2, 3]]))
    monkeypatch.setattr(network.body, "forward", lambda *args, **more: pytest.fail("a whole forward for one symbol"))
    log_probs, _ = network.step(torch.tensor([4]), state)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(1))


@torch.no_grad()
def test_reading_is_few_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(*args, **more)

    for cell, most in (("gru", 1), ("transformer", 3)):
        network, calls = make(cell, context=16), 0
        forward = network.body.forward
        monkeypatch.setattr(network.body, "forward", counted)
        network.read(torch.zeros(1, 30, dtype=torch.long))
        assert 1 <= calls <= most


@pytest.mark.parametrize(
    "wrong", [{"context": 1}, {"context": 0}, {"dropout": 1.0}, {"dropout": -0.1}, {"layers": 0}, {"layers": 10**9}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LanguageConfig(7, **wrong)


def test_a_network_without_symbols_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"vocabulary.*0.*data"):
        LanguageNetwork(LanguageConfig())


# --- how a text is spelt ---------------------------------------------------------------------------------------------

WORDS = Vocabulary.from_text("the sea the shore", level="word", specials=("unknown", "eos"))
LETTERS = Vocabulary.from_text("ab\n", specials=("unknown",))


def test_each_line_of_words_ends_with_eos() -> None:
    spelling, eos = Spelling(WORDS), WORDS.special("eos")
    the, sea, unknown = WORDS.index("the"), WORDS.index("sea"), WORDS.special("unknown")
    assert spelling.line_end == eos
    assert spelling.encode("the sea\n\n <unk> the\n") == [the, sea, eos, eos, unknown, the, eos]
    assert spelling.encode("") == []
    assert spelling.encode("<eos>") == [unknown]
    assert spelling.decode([the, sea, eos, eos, unknown, the, eos]) == "the sea\n\n<unk> the\n"


def test_characters_keep_their_newline() -> None:
    spelling = Spelling(LETTERS)
    assert spelling.line_end == LETTERS.index("\n")
    assert spelling.encode("ab\na\n") == LETTERS.encode("ab\na\n")
    assert spelling.decode(LETTERS.encode("ab\na\n")) == "ab\na\n"


@given(st.lists(st.lists(st.sampled_from(["the", "sea", "shore"]), max_size=4), min_size=1, max_size=5))
def test_spelling_comes_back(lines: list[list[str]]) -> None:
    text = "\n".join(map(" ".join, lines))
    assert Spelling(WORDS).decode(Spelling(WORDS).encode(text)) == text


def test_words_without_an_end_of_line_are_refused() -> None:
    with pytest.raises(InputError, match="no 'eos' symbol"):
        Spelling(Vocabulary.from_text("the sea", level="word", specials=("unknown",)))


def test_word_data_ends_every_line(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.txt", tmp_path / "valid.txt"
    train.write_text("the sea\n \nthe <unk> shore\n" * 9)
    valid.write_text("the sea\nthe ship")  # the last line is not ended
    data = TextData(str(train), str(valid), level="word", window=5, batch=2)
    assert data.vocabulary.symbols == ("<unk>", "<eos>", "the", "sea", "shore")
    eos = data.vocabulary.special("eos")
    assert int((data.windows.stream == eos).sum()) == 27
    assert len(data.windows.stream) == 9 * (5 + 3)
    the, sea, unknown = data.vocabulary.index("the"), data.vocabulary.index("sea"), data.vocabulary.special("unknown")
    assert data.held_out.tolist() == [eos, the, sea, eos, the, unknown, eos]  # the first is only looked back on


def test_word_data_is_never_cut_within_a_word(tmp_path: Path) -> None:
    for text in ("northern lights\n" * 21, "northern lights " * 21):
        (tmp_path / "train.txt").write_text(text)
        data = TextData(str(tmp_path / "train.txt"), level="word", window=5, batch=2)
        assert set(data.vocabulary.symbols) == {"<unk>", "<eos>", "northern", "lights"}
        assert data.vocabulary.special("unknown") not in data.held_out.tolist()
        assert len(data.held_out) > 3


def test_wikitext_has_its_published_counts(shared: Path) -> None:
    folder = shared / "data" / "text" / "wikitext2"
    train, valid = (next(folder.glob(f"*{part}*")) for part in ("train", "valid"))
    data = TextData(str(train), str(valid), level="word")
    assert len(data.vocabulary) == 33_278
    assert len(data.windows.stream) == 2_088_628
    assert len(data.held_out) - 1 == 217_646
    assert read_text(valid).count("\n") == 3_760
