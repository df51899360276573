from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.datasets.pairs import pad, pair_batch
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.transduce import Decoding, Transducer
from voiceseq.models.seq2seq import ATTENTIONS, Seq2SeqConfig, seq2seq
from voiceseq.text.vocabulary import Vocabulary

SOURCE = Vocabulary.from_text("abcdef", specials=("unknown",))
TARGET = Vocabulary.from_text("01234", specials=("bos", "eos"))


def make(attention: str = "additive", cell: str = "gru") -> Transducer:
    torch.manual_seed(2)
    config = Seq2SeqConfig(len(SOURCE), len(TARGET), cell, 16, embedding=8, layers=2, attention=attention)
    return Transducer(seq2seq(config), SOURCE, TARGET, Decoding(max_length=6))


@pytest.mark.parametrize(("attention", "cell"), [*((name, "gru") for name in ATTENTIONS), ("none", "transformer")])
def test_a_text_is_read_the_same_alone_and_in_company(attention: str, cell: str) -> None:
    model = make(attention, cell)
    texts = ["a", "abcdef", "fed"]
    together = model.candidates(texts, beam=3, nbest=3)
    for text, found in zip(texts, together, strict=True):
        alone = model.candidates([text], beam=3, nbest=3)[0]
        assert [candidate.text for candidate in alone] == [candidate.text for candidate in found]
        assert [candidate.score for candidate in alone] == pytest.approx([c.score for c in found], abs=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm", "transformer"])
def test_scores_are_those_of_teacher_forcing(cell: str) -> None:
    model = make(cell=cell)
    batch = pair_batch([("fed", model.convert(["fed"])[0])], SOURCE, TARGET)
    with torch.no_grad():
        logits = model.network(batch.source, batch.inputs, batch.source_lengths, batch.target_lengths)
    total = logits.log_softmax(-1).gather(2, batch.targets[..., None]).sum()
    assert model.candidates(["fed"], nbest=1)[0][0].score == pytest.approx(float(total), abs=1e-4)


@pytest.mark.parametrize("cell", ["gru", "transformer"])
def test_attention_is_a_distribution_over_the_input(cell: str) -> None:
    weights = make(cell=cell).attention("fedcba", "012")
    assert weights.shape == (4, 6)
    torch.testing.assert_close(weights.sum(1), torch.ones(4))
    with pytest.raises(InputError, match="no attention"):
        make("none").attention("fed")


def test_bad_texts_and_settings_are_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        make().convert(["abc", ""])
    assert len(make().convert(["日本 abc"])) == 1  # strange symbols are unknown, not an error
    with pytest.raises(ConfigError, match="additive, dot, scaled_dot, none"):
        Seq2SeqConfig(attention="luong")
    with pytest.raises(ConfigError, match="even"):
        Seq2SeqConfig(size=7)
    with pytest.raises(InputError, match="row 1 is empty"):
        pad([[1], []])


def test_a_beam_is_what_was_asked_for() -> None:
    model = make()
    assert len(model.candidates(["abc"])[0]) == model.decoding.beam == 4
    assert len(model.candidates(["abc"], beam=2)[0]) == 2
    assert len(model.candidates(["abc"], beam=3, nbest=1)[0]) == 1
    for wrong in (0, -1):
        with pytest.raises(InputError, match=rf"beam\b.*{wrong}"):
            model.convert(["abc"], beam=wrong)
    with pytest.raises(InputError, match=r"nbest 5 .* beam of 4"):
        model.candidates(["abc"], nbest=5)
    for wrong in ({"beam": 0}, {"alpha": -1.0}, {"alpha": float("nan")}, {"max_length": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Decoding(**wrong)


def test_texts_come_as_a_list() -> None:
    model = make()
    for act in (model.convert, model.candidates):
        with pytest.raises(InputError, match="give a list of texts"):
            act("abc")
        with pytest.raises(InputError, match="text 0 is a int"):
            act([3])  # type: ignore[list-item]
        assert act([]) == []
    assert model.convert(text for text in ["abc"]) == model.convert(["abc"])  # type: ignore[arg-type]


def test_a_text_of_no_words_is_refused() -> None:
    words = Vocabulary.from_text("one two", level="word", specials=("unknown",))
    model = Transducer(seq2seq(Seq2SeqConfig(len(words), len(TARGET), size=8)), words, TARGET)
    with pytest.raises(InputError, match="text 1 is empty"):
        model.convert(["one", " "])


def test_a_bundle_gives_the_same_model(tmp_path: Path) -> None:
    model = make()
    voiceseq.save_bundle(
        tmp_path / "b.zip",
        kind="transducer",
        config=model.network.config,
        weights=model.network.state_dict(),
        vocabularies={"source": SOURCE.to_json(), "target": TARGET.to_json()},
        decoding={"beam": 3, "alpha": 0.5, "max_length": 6},
    )
    again = voiceseq.load(tmp_path / "b.zip")
    assert again.decoding == Decoding(3, 0.5, 6)
    assert len(again.candidates(["abc"])[0]) == 3
    assert again.attention("abc").equal(model.attention("abc", again.convert(["abc"])[0]))
