"""One error analysis for all text tasks: groups are complete, rarity is counted, faults are told apart by score."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.cli import main
from voiceseq.evaluation.answers import KINDS, searched
from voiceseq.evaluation.text import Answer, by_length, letters, text_report


def answers() -> list[Answer]:
    texts = ["a", "a b", "a b c", "a b c d", "a rare e", "a b"]
    return [
        Answer(text, "x", "x" if i % 2 else "y", float(i % 2), float(i), None if i % 2 else "model")
        for i, text in enumerate(texts)
    ]


def test_groups_of_length_are_ordered_complete_and_part_no_equals() -> None:
    rows = answers()
    lengths = [len(row.source.split()) for row in rows]
    groups = by_length(rows, lengths)
    assert sum(len(some) for _, _, some in groups) == len(rows)
    assert [low for low, _, _ in groups] == sorted(low for low, _, _ in groups)
    assert all(a[1] < b[0] for a, b in pairwise(groups))


def test_rarity_is_that_of_the_rarest_word_in_training_or_in_the_other_rows() -> None:
    report = text_report(answers(), seen=["a " * 200, "b " * 10, "c c", "d"])
    groups = {row["from"]: row["items"] for row in report["by_rarity"]}
    assert groups == {0: 1, 1: 2, 5: 2, 100: 1}  # rare and e; c and d; b; a
    alone = text_report(answers())
    assert {row["from"]: row["items"] for row in alone["by_rarity"]} == {0: 2, 1: 3, 5: 1}
    assert report["all"] == {"items": 6, "right": 0.5, "loss": 2.5, "search": 0, "model": 3}
    assert len(report["wrong"]) == 3
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert letters("ab") == ["^ab", "ab$"]
    assert letters("") == ["^$"]


def test_a_search_is_at_fault_where_the_model_likes_the_reference_more() -> None:
    scores = {"found": -2.0, "better": -1.0, "worse": -3.0, "unspellable": -math.inf}
    rows = [("t", "better"), ("t", "worse"), ("t", "found"), ("t", "unspellable")]
    found = searched(rows, ["found"] * 4, lambda texts, outputs: [scores[output] for output in outputs])
    assert [one.fault for one in found] == ["search", "model", None, "model"]
    assert [one.right for one in found] == [0.0, 0.0, 1.0, 0.0]


def test_the_score_of_what_was_found_is_that_of_the_search() -> None:
    model = voiceseq.load("dates")
    texts = ["July 20th 1969", "23 April, 1564"]
    best = [found[0] for found in model.candidates(texts)]
    again = model.scores(texts, [one.text for one in best])
    torch.testing.assert_close(torch.tensor(again), torch.tensor([one.score for one in best]), atol=1e-4, rtol=0)
    assert model.scores(texts, ["1969-07-20", "no date"])[1] == -math.inf


def test_the_command_reports_any_text_bundle(tmp_path: Path, capsys) -> None:
    rows = tmp_path / "dates.tsv"
    rows.write_text("\ufeffJuly 20th 1969\t1969-07-20\n23 April, 1564\t1564-04-24\n", encoding="utf-8")
    assert main.main(["evaluate", "dates", "--manifest", str(rows), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["all", "2", "50.0%"]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["all"]["model"] == 1  # the wrong one of the two references
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", *report["plots"]}
    assert main.main(["evaluate", "dates", "--manifest", str(rows), "--seen", str(rows), "--json"]) == 0
    assert [row["from"] for row in json.loads(capsys.readouterr().out)["by_rarity"]] == [1]  # each was seen once
    jsonl = tmp_path / "dates.jsonl"
    jsonl.write_text('{"text": "July 20th 1969", "target": "1969-07-20"}\n')
    assert main.main(["evaluate", "dates", "--manifest", str(jsonl), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["all"]["right"] == 1.0
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be\n")
    assert main.main(["evaluate", "shakespeare", "--manifest", str(text), "--json"]) == 0
    assert 0.5 < json.loads(capsys.readouterr().out)["all"]["loss"] < 4


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        (b"", [], "no pair"),
        (b"one column\n", [], "no column 1"),
        (b"\xff\xfea\tb\n", [], "not UTF-8"),
        (b"a\tb\n", ["--columns", "x"], "two numbers"),
        (b"a\tb\n", ["--target", "absent.txt"], "cannot be read"),
    ],
)
def test_bad_rows_are_a_line(tmp_path: Path, capsys, content: bytes, more: list[str], said: str) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_bytes(content)
    assert main.main(["evaluate", "dates", "--manifest", str(rows), *more]) in (1, 2)
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_every_text_kind_can_be_asked() -> None:
    known = {kind for kind, place in voiceseq.KINDS.items() if place.startswith("voiceseq.")}  # not those of tests
    text = known - {"backbone", "trigger", "recogniser", "whisper", "bidirectional-lm"}
    assert text <= set(KINDS)
