"""Many files by many workers: the same bytes whoever does them, whoever is killed in between."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import fsspec
import numpy as np
import pytest
from file_server import file_server
from places import ROOT
from small_speech import small_bundle

from voiceseq import remote
from voiceseq.audio.files import read_audio, write_audio
from voiceseq.cli import transcribe_outputs
from voiceseq.cli.main import main
from voiceseq.cli.transcribe_engines import DEATHS, run_parts
from voiceseq.cli.transcribe_outputs import INDEX, Item, find_items, make_parts
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.errors import VoiceseqError
from voiceseq.inference.pooling import Failure
from voiceseq.inference.transcripts import Transcript

NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'voiceseq[ray]'"
)
FILES = 10
PART = 2  # files


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A bundle, and a folder of short recordings of people."""
    folder = tmp_path_factory.mktemp("speech")
    small_bundle(folder / "bundle")
    clip = read_audio(ROOT / "data/clips/two-words.flac", sample_rate=16_000).samples
    (folder / "sounds").mkdir()
    rng = np.random.default_rng(0)
    for number in range(FILES):
        first, count = int(rng.integers(0, len(clip) - 40_000)), int(rng.integers(20_000, 40_000))
        write_audio(folder / "sounds" / f"{number}.wav", clip[first : first + count], 16_000)
    return folder


@pytest.fixture(scope="module")
def wanted(speech):
    """What one process writes, in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcribe_outputs, "PART_FILES", PART)
        assert main(words(speech, speech / "local")) == 0
    return written(speech / "local")


def words(speech: Path, out: Path, *more: str) -> list[str]:
    given = ["--model", str(speech / "bundle"), "--format", "json", "txt", "--out", str(out), "--threads", "1"]
    return ["transcribe", str(speech / "sounds"), *given, *more]


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SCRIPT = f"""
import sys, time
from voiceseq.cli import main, transcribe_outputs as outputs

if __name__ == "__main__":  # a process that is spawned imports the main module
    write = outputs.Outputs.write
    outputs.PART_FILES = {PART}
    outputs.Outputs.write = lambda *given: (write(*given), time.sleep(0.2))
    sys.exit(main.main(sys.argv[1:]))
"""


def begin(speech: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    """The real command in small parts, each of which takes a moment."""
    script = out.with_suffix(".py")
    script.write_text(SCRIPT)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(script), *words(speech, out, *more)], **pipes, env=environment())


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def until_some_are_done(process: "subprocess.Popen[str]", out: Path, count: int) -> None:
    end = time.monotonic() + 300
    while len(list(out.glob("*.json"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def workers_of(pid: int) -> list[int]:
    """Its processes that have a worker in them."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = int(status.read_text().split("PPid:")[1].split()[0])
            command = (status.parent / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if (parent == pid and b"spawn_main" in command) or b"ray::Worker" in command:
            found.append(int(status.parent.name))
    return found


ENGINES = [
    pytest.param(["--workers", "2"], id="processes"),
    pytest.param(["--workers", "2", "--engine", "ray"], id="ray", marks=NEEDS_RAY),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_worker_and_a_killed_run_lose_nothing(speech, wanted, tmp_path, engine, monkeypatch, capsys):
    out = tmp_path / "out"
    process = begin(speech, out, *engine)
    until_some_are_done(process, out, 1)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    until_some_are_done(process, out, 5)
    process.kill()
    assert process.communicate()[0] == ""  # nobody but us writes there
    assert not [name for name in written(out) if name.endswith(".part")]
    monkeypatch.setattr(transcribe_outputs, "PART_FILES", PART)
    assert main(words(speech, out)) == 0
    assert "files are done and skipped" in capsys.readouterr().err
    assert written(out) == wanted


def test_a_run_that_goes_on_repeats_the_parts_of_the_one_before(speech, wanted, tmp_path, monkeypatch) -> None:
    """What is recognised together may differ in the last digit from what is not."""
    monkeypatch.setattr(transcribe_outputs, "PART_FILES", PART)
    write, done = transcribe_outputs.Outputs.write, []

    def stop(self, item, transcript):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(item.name)
        write(self, item, transcript)

    monkeypatch.setattr(transcribe_outputs.Outputs, "write", stop)
    assert main(words(speech, tmp_path / "o")) == 130
    monkeypatch.setattr(transcribe_outputs.Outputs, "write", write)
    outputs = transcribe_outputs.Outputs
    parts, seen = outputs.parts, []
    monkeypatch.setattr(outputs, "parts", lambda *given: seen.append(parts(*given)) or seen[0])
    assert main(words(speech, tmp_path / "o")) == 0
    assert [[item.path.stem for item in part] for part in seen[0]] == [["2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]
    assert written(tmp_path / "o") == wanted


def test_to_stdout_in_the_order_of_the_files(speech, capfd) -> None:
    files = [str(speech / "sounds" / f"{number}.wav") for number in (3, 1, 3)]
    more = ["--model", str(speech / "bundle"), "--format", "json", "--workers", "2", "--threads", "1"]
    assert main(["transcribe", *files, *more]) == 0
    assert [json.loads(line)["file"] for line in capfd.readouterr().out.splitlines()] == files


def test_wrong_usage(speech, capsys, monkeypatch) -> None:
    for more, said in [
        (["--address", "auto"], "--address is for --engine ray"),
        (["--workers", "0"], "--workers 0"),
        (["--workers", "2"], "stdin is read by this process alone"),
    ]:
        assert main(["transcribe", "a.wav", "-", "--model", str(speech / "bundle"), *more]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["transcribe", str(speech / "sounds"), "--model", str(speech / "bundle"), "--engine", "ray"]) != 0
    assert "pip install 'voiceseq[ray]'" in capsys.readouterr().err


# --- who does what ---------------------------------------------------------------------------------------------------


class FakeCrew:
    """``deadly`` names kill whoever has them; others are answered last come, first served."""

    size = 2

    def __init__(self, *deadly: str) -> None:
        self.deadly, self.given, self.busy = deadly, [], deque()

    def give(self, number, part) -> None:
        assert len(self.busy) < self.size
        self.given.append([item.name for item in part])
        self.busy.append((number, part))

    def take(self):
        number, part = self.busy.pop()
        if any(item.name in self.deadly for item in part):
            return number, "exit code -9"
        return number, [Transcript(item.name, 1.0, "en", ()) for item in part]

    def close(self) -> None:
        pass


def items(*names: str) -> list[Item]:
    return [Item(name, Path(name)) for name in names]


def test_only_the_deadly_file_is_lost() -> None:
    crew = FakeCrew("bad")
    found = {one.file: one for _, some in run_parts(crew, [items("a", "b"), items("c", "bad", "d")]) for one in some}
    assert sorted(found) == ["a", "b", "bad", "c", "d"]
    assert [name for name, one in found.items() if isinstance(one, Failure)] == ["bad"]
    assert "died 3 times (exit code -9)" in found["bad"].reason
    assert crew.given.count(["c", "bad", "d"]) == DEATHS
    assert crew.given.count(["bad"]) == 1


def test_workers_that_cannot_live_are_told() -> None:
    with pytest.raises(VoiceseqError, match="before they have done anything: exit code -9"):
        list(run_parts(FakeCrew("a", "b"), [items("a"), items("b")]))


def test_parts_are_some_short_files_or_one_long(tmp_path) -> None:
    sizes = [10, 10, 9_000_000, 10, 5_000_000, 5_000_000]
    files = []
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}.wav").touch()
        os.truncate(tmp_path / f"{number}.wav", size)
        files.append(Item(str(number), tmp_path / f"{number}.wav"))
    assert [[item.name for item in part] for part in make_parts(files)] == [["0", "1"], ["2"], ["3", "4"], ["5"]]
    assert list(map(len, make_parts(items(*map(str, range(150)))))) == [64, 64, 22]


# --- manifests and URLs ----------------------------------------------------------------------------------------------


def test_a_manifest_names_the_clips(speech, tmp_path, capsys) -> None:
    source = ROOT / "data/clips/two-words.flac"
    rows = [Clip("one", source, 2.0, 1.0), Clip("part/../two", source, 1.5, 2.0), Clip("gone", tmp_path / "x.wav", 1.0)]
    write_manifest(tmp_path / "m.jsonl", rows)
    given = ["transcribe", str(tmp_path / "m.jsonl"), "--model", str(speech / "bundle"), "--format", "json"]
    assert main([*given, "--out", str(tmp_path / "o")]) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert sorted(path.relative_to(tmp_path / "o").as_posix() for path in (tmp_path / "o").rglob("*.json")) == [
        *("one.json", "part/__/two.json"),
    ]
    found = json.loads((tmp_path / "o/one.json").read_text())
    assert (found["file"], found["duration"]) == ("one", 2.0)
    write_audio(tmp_path / "one.wav", read_audio(source, offset_s=1.0, duration_s=2.0).samples, 16_000)
    assert main(["transcribe", str(tmp_path / "one.wav"), "--model", str(speech / "bundle"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == found["text"]


def test_from_urls_to_urls(speech, wanted, tmp_path, capsys) -> None:
    (tmp_path / "in").symlink_to(speech / "sounds")
    with file_server(tmp_path) as (url, _):
        more = ["--model", str(speech / "bundle"), "--format", "json", "txt", "--threads", "1"]
        assert main(["transcribe", f"{url}/in/", "--out", f"{url}/out", *more]) == 0
        texts = {name: data for name, data in wanted.items() if name.endswith(".txt")}
        assert {name: data for name, data in written(tmp_path / "out").items() if name.endswith(".txt")} == texts
        assert len((tmp_path / "out" / INDEX).read_text().splitlines()) == FILES
        capsys.readouterr()
        (tmp_path / "out/3.txt").unlink()
        assert main(["transcribe", f"{url}/in/", "--out", f"{url}/out", *more]) == 0
        assert f"{FILES - 1} of {FILES} files are done" in capsys.readouterr().err
        assert main(["transcribe", f"{url}/in/3.wav", f"{url}/in/gone.wav", "--out", "memory://box/o", *more]) == 1
        assert "gone.wav: there is no such file" in capsys.readouterr().err
        assert main(["transcribe", f"{url}/in/3.wav", "--out", f"{url}/forbidden", *more]) != 0
        assert "refused (403" in capsys.readouterr().err
    assert remote.read_bytes("memory://box/o/3.txt") == texts["3.txt"]
    fsspec.filesystem("memory").store.clear()
    remote.forget_all()


def test_a_folder_behind_a_url_leads_nowhere_else() -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    for name in ("a.wav", "sub/b.ogg", "notes.txt"):
        system.pipe_file(f"memory://box/{name}", b"x")
    found, failed = find_items(["memory://box"])
    assert not failed
    assert [(str(item.output), remote.url_of(item.path)) for item in found] == [
        ("a.wav", "memory://box/a.wav"),
        ("sub/b.ogg", "memory://box/sub/b.ogg"),
    ]
    system.store.clear()
