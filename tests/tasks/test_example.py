"""The example of docs/new-task.md: short, and it learns."""

import subprocess
import sys
from pathlib import Path

from places import ROOT

import voiceseq

EXAMPLE = ROOT / "docs" / "example"


def test_a_new_task_is_under_100_lines() -> None:
    assert len((EXAMPLE / "reverse.py").read_text().splitlines()) < 100


def test_it_runs_as_the_page_says_and_learns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "voiceseq", "train", "--config-dir", str(EXAMPLE / "conf"), "experiment=reverse"]
    settings = ["progress=false", "trainer.max_epochs=3", f"runs={tmp_path}"]
    environment = {"PYTHONPATH": str(EXAMPLE), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([*command, *settings], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    (bundle,) = tmp_path.glob("reverse/*/bundle")
    words = ["hello", "abcde", "voiced"]
    assert voiceseq.load(bundle).convert(words) == [word[::-1] for word in words]
