"""The table of engines: which utterances it takes, what it keeps, and how it counts."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

from voiceseq.datasets.manifest import Clip


@pytest.fixture(scope="module")
def speech() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("speech")
    finally:
        sys.path.pop(0)


def clips(**counts: int) -> list[Clip]:
    return [
        Clip(f"{speaker}-{number}", Path("x"), 2.0, text=f"{speaker} says {number % 10}", speaker=speaker)
        for speaker, count in counts.items()
        for number in range(count)
    ]


class Parrot:
    """Hears what was said; every third utterance has a word too many."""

    name = "parrot"

    def hear(self, clip: Clip):
        return type("Answer", (), {"text": self.text(clip), "cpu_s": 0.5})

    def text(self, clip: Clip) -> str:
        return f"{clip.text}, OK Mr. Parrot" if clip.id.endswith("3") else f" {str(clip.text).upper()}."


def test_the_same_utterances_each_time_and_of_every_speaker(speech: ModuleType) -> None:
    rows = clips(anna=50, bert=3, carl=1, dora=50)
    taken = speech.chosen(rows, 24)
    assert taken == speech.chosen(rows[::-1], 24)
    counts = {name: sum(clip.speaker == name for clip in taken) for name in ("anna", "bert", "carl", "dora")}
    assert counts == {"anna": 10, "bert": 3, "carl": 1, "dora": 10}
    assert len({clip.id for clip in taken}) == 24
    assert speech.chosen(rows, 1000)[:24] == taken


def test_rows_of_the_table(speech: ModuleType) -> None:
    sets = {"harpervalley": clips(anna=4, bert=4), "librispeech": clips(carl=2)}
    (row,) = speech.measure([Parrot()], sets, {"anna says zero"}, 2)
    assert row["engine"] == "parrot"
    assert row["harpervalley, WER % (95 %)"] == "25.0 (25.0 to 25.0)"  # 6 words too many in 24
    assert row["of it, sentences not in train"] == "28.6 (25.0 to 33.3)"
    assert row["librispeech, WER % (95 %)"] == "0.0 (0.0 to 0.0)"
    assert row["processor s per s of audio"] == pytest.approx(0.25)
    assert speech.spelt("Mr. Smith's OK") == "mister smith's okay"


def test_answers_are_kept_and_not_asked_again(
    speech: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "HERE", tmp_path)
    rows = clips(anna=4)
    asked = []

    def hear(self, clip):
        asked.append(clip.id)
        return speech.Answer(f"heard {clip.id}", 0.1)

    monkeypatch.setattr(speech.Peer, "hear", hear)
    peer = speech.Peer("some")
    assert peer.text(rows[0]) == peer.text(rows[0]) == "heard anna-0"
    assert speech.ask(speech.Peer("some"), {"a": rows}, 1.0) == 0
    assert asked == [clip.id for clip in rows]
    assert speech.ask(speech.Peer("some"), {"a": clips(anna=6)}, 0.0) == 2
    lines = [json.loads(line) for line in (tmp_path / "answers" / "some.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == asked
