"""A translator takes whatever lines hold: one line out for each line in, in order, however it is searched."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.cli import main
from voiceseq.inference.translator import LONGEST, PART, Translator, plain_text
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.text.vocabulary import Vocabulary

SPECIALS = ("unknown", "bos", "eos")
GERMAN = ["Ein Hund läuft über die Straße.", "Zwei Männer essen Brot!", "Ein Kind schläft."] * 3
ENGLISH = ["A dog runs across the street.", "Two men eat bread!", "A child sleeps."] * 3


@pytest.fixture(scope="module", params=["transformer", "gru"])
def model(request: pytest.FixtureRequest) -> Translator:
    source = Vocabulary.from_text(GERMAN, "subword", size=60, specials=SPECIALS)
    target = Vocabulary.from_text(ENGLISH, "subword", size=50, specials=SPECIALS)
    torch.manual_seed(3)
    config = Seq2SeqConfig(len(source), len(target), request.param, size=8, embedding=8, heads=2, feed_forward=2)
    return Translator(seq2seq(config), source, target)


@pytest.fixture(scope="module")
def bundle(model: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(
        tmp_path_factory.mktemp("b") / "t",
        kind="translator",
        config=dataclasses.asdict(model.network.config),
        weights=model.network.state_dict(),
        vocabularies={"source": model.source.to_json(), "target": model.target.to_json()},
        decoding={"beam": 2, "alpha": 1.0, "max_length": 20},
    )


def test_alone_and_in_company_a_sentence_is_translated_the_same(model: Translator) -> None:
    together = model.translate(GERMAN[:3], beam=3)
    assert together == [model.translate([text], beam=3)[0] for text in GERMAN[:3]]
    assert all("<unk>" not in text for text in together)


def test_what_cannot_be_translated_is_empty_and_said(model: Translator) -> None:
    lines = ["", "   ", "\ufeff\x00", "中文" * 5, "?!", "Ein " * LONGEST, "Ein Hund"]
    found = model.translate(lines, beam=1)
    assert len(found) == len(lines)
    assert found[:6] == [""] * 6
    problems = [model.problem(line) for line in lines]
    assert problems[0] == problems[1] == problems[2] == "the line is empty"
    assert "another language or script" in str(problems[3])
    assert f"at most {LONGEST}" in str(problems[5])
    assert problems[6] is None
    assert model.translate([]) == []


def test_a_long_line_is_cut_into_parts_that_the_model_has_seen(model: Translator) -> None:
    text = "Ein Hund läuft. " * 30 + "e" * 500
    parts = model._parts(text)
    assert len(parts) > 10
    assert all(0 < len(model.source.encode(part)) <= PART for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert model._parts("Ein Hund. Ein Kind.") == ["Ein Hund. Ein Kind."]


def test_plain_text_has_no_invisible_signs_and_composed_letters() -> None:
    assert plain_text("\ufeffStra\u00dfe\u0000  la\u0308uft\tzu\n") == "Straße läuft zu"


def test_the_command_prints_a_line_a_line(bundle: Path, model: Translator) -> None:
    if model.network.config.cell == "gru":
        pytest.skip("the command is the same for both")
    lines = [
        b"\xef\xbb\xbfEin Hund",
        b"",
        b"Zwei M\xc3\xa4nner\r",
        b"\xff\xfe",
        b"Ein " * 30_000,
        "中".encode(),
        b"Ein\x00 Kind",
    ]
    words = [sys.executable, "-m", "voiceseq", "translate", "--model", str(bundle), "--beam", "1"]
    done = subprocess.run(words, input=b"\n".join(lines), capture_output=True)
    assert done.returncode == 1, done.stderr
    assert len(done.stdout.decode().split("\n")) == len(lines) + 1
    assert len(done.stderr.decode().strip().splitlines()) == 4


def test_json_and_picture(bundle: Path, capsys, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    assert main.main(["translate", "Ein Hund", "", "--model", str(bundle), "--json", "--plot", str(picture)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["translation"] == voiceseq.load(bundle).translate(["Ein Hund"])[0]
    assert second == {"text": "", "translation": ""}
    if first["translation"]:
        assert picture.exists()
    assert main.main(["translate", "Ein", "--model", str(bundle), "--beam", "0"]) == 1
    assert main.main(["translate", "Ein", "--model", "dates"]) == 1
