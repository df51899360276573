"""`voiceseq pronounce` with the bundle that ships, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from voiceseq.cli import main
from voiceseq.text.pronounce import PHONES


@pytest.fixture(autouse=True)
def no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICESEQ_DICTIONARY", raising=False)


def test_arguments(capsys) -> None:
    assert main.main(["pronounce", "computer", "Snowboy!", "Smart-Mirror"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["K AH M P Y UW T ER", "S N OW B OY", "S M AA R T M IH R ER"]


def test_one_line_out_for_each_line_of_stdin_whatever_it_holds() -> None:
    good = [b"\xef\xbb\xbfComputer", b"com\x00puter\r", "COMPUTER…".encode(), "\u200bcömputer".encode()]
    bad = [b"", b"   ", b"?!", b"x" * 100_000, b"computer " + "луна".encode(), "日本".encode(), b"\xff\xfe\x80"]
    done = subprocess.run(
        [sys.executable, "-m", "voiceseq", "pronounce"],
        input=b"\n".join([*good, *bad, b"computer"]),
        capture_output=True,
    )
    assert done.returncode == 1, done.stderr
    lines = done.stdout.decode().split("\n")
    assert len(lines) == len(good) + len(bad) + 2
    assert lines[0] == lines[2] == lines[3] == lines[-2] == "K AH M P Y UW T ER"
    assert lines[1]  # NUL is a space: two odd words
    assert lines[4:-2] == [""] * len(bad)
    said = done.stderr.decode().splitlines()
    assert len(said) == len(bad)
    assert all(line.startswith("voiceseq: ") and len(line) < 250 for line in said)


def test_json_and_several_ways(capsys) -> None:
    assert main.main(["pronounce", "--json", "--n-best", "3", "okay voiceseq", ""]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    ways = first.pop("pronunciations")
    assert 1 < len(ways) == len(set(ways)) <= 3
    assert {phone for way in ways for phone in way.split()} <= set(PHONES)
    assert first.pop("syllables") >= 4
    assert first == {"text": "okay voiceseq"}
    assert second == {"text": "", "pronunciations": [], "syllables": 0}
    assert main.main(["pronounce", "--n-best", "3", "okay voiceseq"]) == 0
    assert capsys.readouterr().out == "\t".join(ways) + "\n"


def test_a_dictionary_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    own = tmp_path / "own.dict"
    own.write_text("voiceseq V OY1 S IY2 K\nvoiceseq(2) V OY1 S EH2 K\n")
    wanted = "V OY S IY K\tV OY S EH K\n"
    assert main.main(["pronounce", "Voiceseq", "--n-best", "2", "--dictionary", str(own)]) == 0
    assert capsys.readouterr().out == wanted
    monkeypatch.setenv("VOICESEQ_DICTIONARY", str(own))
    assert main.main(["pronounce", "Voiceseq", "--n-best", "2"]) == 0
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["hey", "--model", "dates"], 1, "a pronouncer was wanted"),
        (["hey", "--beam", "0"], 1, "--beam 0"),
        (["hey", "--n-best", "0"], 1, "--n-best 0"),
        (["hey", "--n-best", "3", "--beam", "2"], 1, "a beam as wide"),
        (["hey", "--n-best", "few"], 2, "--n-best"),
        (["hey", "--dictionary", "no/such.dict"], 1, "such.dict"),
        (["hey", "--model", "nowhere"], 1, "nowhere"),
    ],
)
def test_mistakes_get_a_clear_line(words: list[str], code: int, said: str, capsys) -> None:
    assert main.main(["pronounce", *words]) == code
    printed = capsys.readouterr()
    assert said in printed.err.splitlines()[-1]
    assert printed.out == ""
