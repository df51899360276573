"""`voiceseq generate` on a real bundle, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.cli import main
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq
from voiceseq.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    vocabulary = Vocabulary.from_text("abc \n", specials=("unknown",))
    network = LanguageNetwork(LanguageConfig(len(vocabulary), "gru", size=8, layers=1))
    return voiceseq.save_bundle(
        tmp_path_factory.mktemp("bundles") / "letters",
        kind="language-model",
        config=network.config,
        weights=network.state_dict(),
        vocabularies={"symbols": vocabulary.to_json()},
    )


def generate(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voiceseq", "generate", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


def test_one_line_out_for_each_line_in(bundle: Path) -> None:
    done = generate(
        "--model",
        str(bundle),
        "--length",
        "40",
        "--seed",
        "1",
        stdin="abc\n\n日本\r\n\ufeffa\x00b\n" + "c" * 3000 + "\n",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == 5
    assert lines[0].startswith("abc")
    assert lines[2].startswith("日本")
    assert generate("--model", str(bundle), "--length", "40", "--seed", "1", stdin="abc\n").stdout == lines[0] + "\n"


def test_json_and_raw_agree_with_the_plain_form(bundle: Path) -> None:
    settings = ["abc", "--model", str(bundle), "--length", "60", "--seed", "5", "--temperature", "2"]
    plain, raw, machine = (generate(*settings, *more).stdout for more in ([], ["--raw"], ["--json"]))
    row = json.loads(machine)
    assert row["prefix"] == "abc"
    assert raw == "abc" + row["text"] + "\n"
    assert "\n" in row["text"]
    assert plain == raw[:-1].replace("\n", "\\n") + "\n"


def test_words_are_parted(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_text("the sea", level="word", specials=("unknown", "eos"))
    network = LanguageNetwork(LanguageConfig(len(vocabulary), "gru", size=8, layers=1))
    path = voiceseq.save_bundle(
        tmp_path / "words",
        kind="language-model",
        config=network.config,
        weights=network.state_dict(),
        vocabularies={"symbols": vocabulary.to_json()},
    )
    done = generate("--model", str(path), "--length", "30", "--seed", "1", stdin="the\n\nsea \n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == 3
    assert all(set(line.replace("\\n", " ").split()) == {"the", "sea"} for line in lines)


def test_without_its_bundle_the_command_says_how_to_get_one(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr("voiceseq.bundles.reading.shipped_bundles", dict)
    monkeypatch.chdir(tmp_path)
    assert main.main(["generate", "ROMEO:"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "'shakespeare'" in error
    assert "train it: voiceseq train experiment=shakespeare data.train=TEXT" in error
    assert "then --model RUN/bundle" in error
    assert main.main(["generate", "ROMEO:", "--model", "shakspeare"]) == 1
    assert "train it" not in capsys.readouterr().err


def test_a_bundle_of_another_kind_is_refused(tmp_path: Path, capsys) -> None:
    source, target = Vocabulary.from_text("ab"), Vocabulary.from_text("01", specials=("bos", "eos"))
    network = seq2seq(Seq2SeqConfig(len(source), len(target), size=8))
    path = voiceseq.save_bundle(
        tmp_path / "dates",
        kind="transducer",
        config=network.config,
        weights=network.state_dict(),
        vocabularies={"source": source.to_json(), "target": target.to_json()},
    )
    assert main.main(["generate", "a", "--model", str(path)]) == 1
    assert "Transducer" in (error := capsys.readouterr().err)
    assert "language model was wanted" in error


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["a", "--model", "nowhere"], "nowhere", 1),
        (["a", "--temperature", "hot"], "--temperature", 2),
        (["a", "--temperature", "0"], "temperature", 1),
        (["a", "--top-p", "2"], "top_p", 1),
    ],
)
def test_mistakes_get_one_clear_line(bundle: Path, words: list[str], said: str, code: int) -> None:
    words = words if "--model" in words else [*words, "--model", str(bundle)]
    done = generate(*words)
    assert done.returncode == code
    assert done.stdout == ""
    assert said in done.stderr.splitlines()[-1]
