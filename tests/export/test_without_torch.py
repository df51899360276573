"""The real command, and the stand-alone example, from an .onnx file where torch is not installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from voiceseq.audio.files import read_audio, write_audio
from voiceseq.cli.main import main

WHOLE, LISTENER = (tomllib.loads((ROOT / place / "pyproject.toml").read_text()) for place in (".", "apps/listener"))
# All that the listener may import besides the standard library: its four packages and what these bring.
ALLOWED = ("voiceseq", "numpy", "onnxruntime", "soxr", "sounddevice", "_sounddevice", "cffi", "_cffi_backend", "google")
LACKING = sorted({*WHOLE["tool"]["setuptools"]["packages"]} - {*LISTENER["tool"]["setuptools"]["packages"]})
BARE = f"""
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        ours = top in {ALLOWED!r} or top in sys.stdlib_module_names or top.startswith("__editable__")
        if name in {LACKING!r} or not ours:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Wall())
from voiceseq.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A graph, and a clip as plain wav: soundfile is not among the four packages."""
    folder = tmp_path_factory.mktemp("pi")
    assert main(["bundle", "export", "six-words", str(folder / "six.onnx"), "--format", "onnx"]) == 0
    for name in ("computer", "two-words"):
        audio = read_audio(ROOT / "data" / "clips" / f"{name}.flac")
        write_audio(folder / f"{name}.wav", audio.samples, audio.sample_rate)
    return folder


def lines(*command: str, stdin: bytes | None = None, cwd: Path | None = None) -> list[dict[str, object]]:
    ran = subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=cwd)
    assert ran.returncode == 0, ran.stderr.decode()
    return [json.loads(line) for line in ran.stdout.decode().splitlines()]


@pytest.fixture(scope="module")
def wanted(folder) -> list[dict[str, object]]:
    """By the bundle, on this installation."""
    words = ("listen", "--model", "six-words", *files(folder), "--json")
    found = lines(sys.executable, "-m", "voiceseq", *words)
    assert found
    return found


def files(folder: Path) -> list[str]:
    return [word for name in ("computer", "two-words") for word in ("--file", str(folder / f"{name}.wav"))]


def rounded(events: list[dict[str, object]]) -> list[dict[str, object]]:
    """Scores to three digits: the last ones are onnxruntime's own."""
    return [event | {"score": round(float(str(event["score"])), 3)} for event in events]


def test_the_listener_is_a_part_of_the_whole() -> None:
    assert {*LISTENER["tool"]["setuptools"]["packages"]} < {*WHOLE["tool"]["setuptools"]["packages"]}
    asked = [re.split("[<>=]", one)[0] for one in LISTENER["project"]["dependencies"]]
    assert sorted(asked) == ["numpy", "onnxruntime", "sounddevice", "soxr"]


def test_the_command_listens_behind_a_wall(folder, wanted) -> None:
    words = ("listen", "--model", str(folder / "six.onnx"), *files(folder), "--json")
    assert rounded(lines(sys.executable, "-c", BARE, *words)) == rounded(wanted)


def test_the_wall_stands() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BARE, "train", "experiment=dates"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "this needs" in ran.stderr
    assert "pip install voiceseq" in ran.stderr


def test_other_rates_and_raw_sound(folder, wanted) -> None:
    """soxr is one of the four; raw sound needs no decoder."""
    audio = read_audio(folder / "computer.wav", sample_rate=48_000)
    pcm = (audio.samples * 32767).astype("<i2").tobytes()
    words = ("listen", "--model", str(folder / "six.onnx"), "--file", "-", "--rate", "48000", "--json")
    found = lines(sys.executable, "-c", BARE, *words, stdin=pcm)
    first = [event for event in wanted if str(event["file"]).endswith("computer.wav")]
    assert [event["word"] for event in found] == [event["word"] for event in first]
    assert np.allclose([event["time"] for event in found], [event["time"] for event in first], atol=0.07)


def test_the_stand_alone_example_hears_the_same(folder, wanted) -> None:
    script = str(ROOT / "apps" / "standalone" / "listen.py")
    for name in ("computer", "two-words"):
        pcm = (read_audio(folder / f"{name}.wav").samples * 32768).astype("<i2").tobytes()
        found = lines(sys.executable, script, str(folder / "six.onnx"), stdin=pcm)
        here = [event for event in wanted if str(event["file"]).endswith(f"{name}.wav")]
        assert rounded(found) == rounded([{key: event[key] for key in ("word", "time", "score")} for event in here])


def test_the_stand_alone_example_is_forty_lines() -> None:
    assert len((ROOT / "apps" / "standalone" / "listen.py").read_text().splitlines()) <= 45


@pytest.mark.slow
def test_a_real_environment_without_torch(folder, wanted, tmp_path) -> None:
    """As docs/raspberry-pi.md says: the listener's wheel and what it asks for, and nothing else."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("voiceseq", "apps"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    venv.create(tmp_path / "pi", with_pip=True)
    python = str(tmp_path / "pi" / "bin" / "python")
    made = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*made, str(source / "apps/listener")], check=True)
    (wheel,) = tmp_path.glob("voiceseq_listener-*.whl")
    asked = ["-m", "pip", "install", "-q", "--no-compile", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    if subprocess.run(
        [python, *asked], check=False, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ).returncode:
        pytest.skip("the four packages cannot be had here")
    for name in ("torch", "numba", "scipy", "soundfile"):
        assert subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 1
    command = str(tmp_path / "pi" / "bin" / "voiceseq")
    words = ("listen", "--model", str(folder / "six.onnx"), *files(folder), "--json")
    assert rounded(lines(command, *words, cwd=tmp_path)) == rounded(wanted)
