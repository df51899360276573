"""``voiceseq voices`` as it is typed: what it lists, advises, says and returns."""

import json

import numpy as np
import pytest
import soundfile

from voiceseq.cli.main import main
from voiceseq.datasets.voices import ENGINES, Voice
from voiceseq.datasets.voices.voice import Speech
from voiceseq.errors import InputError


class Choir:
    """Three voices, one of which has lost its own."""

    name, kind, licence, install, timed, blends = "choir", "neural", "CC0", "pip install choir", True, False
    voices = tuple(Voice("choir", "trio", name, licence="CC0") for name in ("ann", "bob", "cid"))

    def find(self, folders):
        return list(self.voices)

    def say(self, pieces, voice, manner):
        if voice.speaker == "cid":
            raise InputError("a sore throat")
        tone = np.sin(np.arange(16_000) / 9).astype("f")
        return Speech(np.concatenate([np.zeros(4000, "f"), tone, np.zeros(4000, "f")]), 16_000)


class Absent(Choir):
    name, install, voices = "absent", "apt install absent", ()


@pytest.fixture
def engines(monkeypatch):
    """Only the engines of the test, whatever the machine has."""

    def become(*present) -> None:
        for name in list(ENGINES):
            monkeypatch.delitem(ENGINES, name)
        for engine in present:
            monkeypatch.setitem(ENGINES, engine.name, engine)

    return become


def test_voices_are_listed_with_speakers_licence_and_advice(engines, capsys):
    engines(Choir(), Absent())
    assert main(["voices"]) == 0
    said = capsys.readouterr().out
    assert [part in said for part in ("choir", "CC0", "trio", "3 speakers in all", "apt install absent")] == [True] * 5
    assert "3 neural speakers are few" in said
    assert main(["voices", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    choir, absent = told["engines"]
    assert told["speakers"] == choir["speakers"] == 3
    assert (choir["voices"], choir["ships"], choir["licences"]) == ({"trio": 3}, True, ["CC0"])
    assert (absent["speakers"], absent["install"]) == (0, "apt install absent")


def test_no_voice_at_all_is_told_in_clear_words(engines, capsys):
    engines(Absent())
    assert main(["voices"]) == 1
    said = capsys.readouterr().out
    assert "no synthesiser voice found" in said
    assert "apt install absent" in said
    assert main(["voices", "--say", "hello", "--out", "nowhere"]) == 1
    assert "no voice to speak with" in capsys.readouterr().err


def test_voices_can_be_heard(engines, tmp_path, capsys):
    engines(Choir())
    code = main(
        ["voices", "--say", "one two three four five", "--out", str(tmp_path / "new/out"), "--count", "3", "--json"]
    )
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert code == 1  # one of three stays silent, and it is told
    assert "choir/trio/cid: a sore throat" in said.err
    assert {row["voice"] for row in rows} == {"choir/trio/ann", "choir/trio/bob"}
    for row in rows:
        samples, rate = soundfile.read(row["file"])
        assert rate == 16_000
        assert len(samples) / rate == pytest.approx(1.1, abs=0.02)
        assert (row["start"], row["end"]) == pytest.approx((0.05, 1.05), abs=0.01)


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (["--say", "hello"], 2, "belong together"),
        (["--out", "x"], 2, "belong together"),
        (["--say", "hello", "--out", "x", "--count", "0"], 2, "give 1 or more"),
        (["--voices", "/no/such/folder"], 1, "no folder"),
        (["--say", "?!", "--out", "x"], 1, "nothing to say"),
    ],
)
def test_mistakes_are_told(engines, capsys, tmp_path, monkeypatch, words, code, wanted):
    monkeypatch.chdir(tmp_path)
    engines(Choir())
    assert main(["voices", *words]) == code
    assert wanted in capsys.readouterr().err
