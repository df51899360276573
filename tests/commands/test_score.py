"""`voiceseq score` as a user types it: a line out for each line in, the likelier text with the larger number."""

import io
import json
import math
import sys

import pytest
import torch

import voiceseq
from voiceseq.cli.main import main
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.text.vocabulary import Vocabulary

LINES = [
    *(
        b"the sea",
        b"",
        b"  ",
        b"\xef\xbb\xbfthe sea",
        b"a\x00b",
        b"\xff\xfe\x80",
        b"x" * 100_000,
        b"the sea. " * 11_000,
    ),
    *("Привет, мир 日本語 😀".encode(), "a\u2028b\x85c".encode(), b"?!", b"the sea\r"),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Words; an unknown one is one of a hundred."""
    torch.manual_seed(1)
    vocabulary = Vocabulary.from_text("the sea the shore .", level="word", specials=("unknown", "eos"))
    network = LanguageNetwork(LanguageConfig(len(vocabulary), "gru", size=8, layers=1, embedding=4))
    path = voiceseq.save_bundle(
        tmp_path_factory.mktemp("bundles") / "words",
        kind="language-model",
        config=network.config,
        weights=network.state_dict(),
        vocabularies={"symbols": vocabulary.to_json()},
        decoding={"lower": True, "unknown_words": 100},
    )
    return str(path)


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], list[str]]:
    code = main(["score", *words])
    printed = capsys.readouterr()
    return code, printed.out.split("\n")[:-1], printed.err.splitlines()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_line_out_for_each_line_in(
    bundle: str, more: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(LINES)), encoding="utf-8"))
    code, lines, said = run(["--model", bundle, *more], capsys)
    assert (code, len(lines)) == (1, len(LINES))
    assert len(said) == 2  # of the two empty lines
    assert all(line.startswith("voiceseq: ") and len(line) < 250 for line in said)
    if more:
        answers = [json.loads(line) for line in lines]
        assert [answer["log_prob"] is None for answer in answers] == [n in (1, 2) for n in range(len(LINES))]
        assert answers[0]["log_prob"] == answers[3]["log_prob"] == answers[-1]["log_prob"]
        assert [answers[7][key] for key in ("symbols", "unknown")] == [33_000, 0]
    else:
        assert [not line for line in lines] == [n in (1, 2) for n in range(len(LINES))]
        assert float(lines[0].split("\t")[0]) < 0


def test_numbers_are_those_of_the_model(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = voiceseq.load(bundle)
    _, (line, other), _ = run(["The SEA.", "the ship", "--model", bundle, "--json"], capsys)
    found = json.loads(line)
    score = model.score(["the sea ."])[0]
    assert found["log_prob"] == pytest.approx(score.log_prob, abs=1e-3)
    assert found["perplexity"] == pytest.approx(math.exp(-score.log_prob / 3), rel=1e-3)
    assert (found["symbols"], found["unknown"]) == (3, 0)
    tokens = torch.tensor([[model.vocabulary.index("<eos>"), model.vocabulary.index("the")]])
    with torch.no_grad():
        shares = model.network(tokens)[0].log_softmax(-1)
    unknown = float(shares[0, 0, tokens[0, 1]] + shares[0, 1, model.vocabulary.index("<unk>")]) - math.log(100)
    assert json.loads(other)["log_prob"] == pytest.approx(unknown, abs=1e-3)
    assert json.loads(other)["unknown"] == 1


def test_another_kind_of_bundle_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, said = run(["x", "--model", "dates"], capsys)
    assert (code, lines) == (1, [])
    assert "a language model was wanted" in said[-1]


def test_the_default_bundle_knows_pears(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(["the apple and pear salad", "the apple and pair salad"], capsys)
    pear, pair = (float(line.split("\t")[0]) for line in lines)
    assert code == 0
    assert pear > pair
