"""Killed at any moment and resumed, a run ends with the same weights as one that was never killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from voiceseq.bundles import load_bundle
from voiceseq.errors import VoiceseqError
from voiceseq.training.checkpoints import (
    LAST,
    PREVIOUS,
    SafeCheckpointIO,
    find_resume_point,
    load_checkpoint,
    write_whole,
)

# dropout, averaged weights, a schedule that reads the validations, early stopping and accumulation: all have state
SETTINGS = [
    "experiment=text",
    "progress=false",
    "trainer.max_epochs=6",
    "trainer.precision=32-true",
    "trainer.accumulate_grad_batches=2",
    "data.steps_per_epoch=12",
    "data.window=32",
    "data.batch=8",
    "model.size=24",
    "model.dropout=0.3",
    "schedule=plateau",
    "schedule.warmup=4",
    "schedule.patience=1",
    "optimiser.learning_rate=0.05",
    "ema=0.8",
    "early_stopping=4",
    "threads=1",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = random.Random(1).choices(["the", "sea", "is", "blue", "and", "wide", "we", "sail", "home."], k=3000)
    path = tmp_path_factory.mktemp("text") / "sea.txt"
    path.write_text(" ".join(words))
    return path


def start(text: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "voiceseq", "train", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()[-2000:]


def only_run(folder: Path) -> Path:
    (run,) = (folder / "text").iterdir()
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run / LAST)["state_dict"] | load_bundle(run / "bundle").weights


def wait_for(path: Path, process: subprocess.Popen[bytes], older: float = 0.0) -> None:
    """Until ``path`` is newer than ``older`` or the process has ended."""
    while process.poll() is None and not (path.exists() and path.stat().st_mtime > older):
        time.sleep(0.01)


def test_a_killed_run_ends_like_one_never_killed(text: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(text, *SETTINGS, f"data.train={text}", f"runs={whole}"))
    process = start(text, *SETTINGS, f"data.train={text}", f"runs={broken}")
    while not list(broken.glob("text/*")):
        time.sleep(0.05)
    run, chance = only_run(broken), random.Random(7)
    for _ in range(3):  # killed at the first checkpoint, and at two later moments
        last = run / LAST
        wait_for(last, process, last.stat().st_mtime if last.exists() else 0.0)
        time.sleep(chance.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = start(text, f"resume={run}")
    finish(process)
    expected, found = weights(only_run(whole)), weights(run)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    results = [json.loads((folder / "result.json").read_text()) for folder in (only_run(whole), run)]
    assert results[0] == results[1]
    assert results[0]["steps"] == 36


class Interrupted:
    """A file in which Ctrl-C is pressed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.writes = file, 0

    def write(self, data: bytes) -> int:
        self.writes += 1
        if self.writes == 5:
            raise KeyboardInterrupt
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def test_ctrl_c_while_a_checkpoint_is_written_is_ctrl_c_and_no_full_disk(tmp_path: Path) -> None:
    """torch then says of the file that its end is not where it was."""
    many = {str(number): torch.zeros(1000) for number in range(20)}
    (tmp_path / LAST).write_bytes(b"the one before")
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / LAST, lambda file: torch.save(many, Interrupted(file)))  # type: ignore[arg-type]
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"the one before"]


WRITER = """
import sys, torch
from voiceseq.training.checkpoints import SafeCheckpointIO
number = int(sys.argv[2])
while True:
    checkpoint = {"number": number, "weights": torch.full((300_000,), float(number))}
    SafeCheckpointIO().save_checkpoint(checkpoint, sys.argv[1])
    print(number, flush=True)
    number += 1
"""


def test_a_kill_while_saving_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    path, number, chance = tmp_path / LAST, 0, random.Random(3)
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(path), str(number)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        number = int(process.stdout.readline())
        time.sleep(chance.random() * 0.05)
        process.kill()
        seen = [int(line) for line in process.stdout.read().split()]
        number = max([number, *seen])
        found = find_resume_point(tmp_path)
        assert found is not None
        checkpoint = load_checkpoint(found)
        assert checkpoint["number"] >= number  # what was reported as saved is never lost
        assert bool((checkpoint["weights"] == checkpoint["number"]).all())
        number = checkpoint["number"] + 1


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        SafeCheckpointIO().save_checkpoint({"number": number}, tmp_path / LAST)
    assert load_checkpoint(tmp_path / PREVIOUS)["number"] == 1
    data = (tmp_path / LAST).read_bytes()
    (tmp_path / LAST).write_bytes(data[: len(data) // 2])
    with pytest.warns(UserWarning, match="cannot be read"):
        assert find_resume_point(tmp_path) == tmp_path / PREVIOUS
    (tmp_path / PREVIOUS).write_bytes(b"")
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(VoiceseqError, match="no checkpoint"):
        find_resume_point(tmp_path)
    assert find_resume_point(tmp_path / "elsewhere") is None


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SafeCheckpointIO().save_checkpoint({"number": 1}, tmp_path / LAST)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VoiceseqError, match="MB are free"):
        SafeCheckpointIO().save_checkpoint({"number": 2}, tmp_path / LAST)
    assert load_checkpoint(tmp_path / LAST)["number"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [LAST]
