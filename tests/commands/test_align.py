"""`voiceseq align` as a user meets it, with the bundles that ship."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from places import ROOT

from voiceseq.cli import align
from voiceseq.cli.main import main

CLIP = str(ROOT / "data" / "clips" / "two-words.flac")
TEXT = "Alexa, turn on the kitchen light. Thank you, and Jarvis, is it going to rain?"
WORDS = re.findall("[a-z]+", TEXT.lower())


def test_words_as_a_table_and_as_json(capsys) -> None:
    assert main(["align", CLIP, TEXT]) == 0
    shown = capsys.readouterr()
    assert [line.split()[2] for line in shown.out.splitlines()] == ["word", *WORDS]
    assert shown.err == ""
    assert main(["align", CLIP, TEXT, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["word"] for row in found["words"]] == WORDS
    assert (found["file"], found["duration"]) == (CLIP, pytest.approx(5.3661, abs=1e-3))


def test_a_text_file_both_formats_and_a_picture(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    text, out, picture = tmp_path / "said.txt", tmp_path / "a" / "out", tmp_path / "words.png"
    text.write_text(TEXT)
    words = ["align", CLIP, str(text), "--format", "textgrid", "json", "--out", str(out), "--plot", str(picture)]
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in out.iterdir()) == ["two-words.TextGrid", "two-words.json"]
    assert (out / "two-words.TextGrid").read_text().count('text = "kitchen"') == 1
    assert [row["word"] for row in json.loads((out / "two-words.json").read_text())["words"]] == WORDS
    assert picture.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    monkeypatch.setattr(align, "UNLIKELY", 2.0)
    assert main(["align", CLIP, "-", "--format", "textgrid"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (out / "two-words.TextGrid").read_text()
    assert "hardly fits the sound" in shown.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([CLIP, TEXT, "--format", "json", "textgrid"], 2, "want --out DIR"),
        ([CLIP, "gone.txt"], 1, "no file gone.txt"),
        ([CLIP, " !? "], 1, "nothing that can be said"),
        ([CLIP, TEXT * 20], 1, "does not fit into 5.37 s"),
        (["gone.wav", TEXT], 1, "gone.wav"),
        ([CLIP, TEXT, "--model", "alexa"], 1, "a Detector came"),
        ([CLIP, TEXT, "--plot", "/gone/x.png"], 1, "--plot /gone/x.png cannot be written"),
        ([CLIP, TEXT, "--out", "/proc/none"], 1, "cannot be made"),
    ],
)
def test_mistakes_are_a_line(words: list[str], code: int, message: str, capsys) -> None:
    assert main(["align", *words]) == code
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown
