"""The real thing: the command as somebody types it, workers as processes that can die, the unmodified satellite."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from places import ROOT
from serving import DEADLY, FAKE, STUCK, catalogue, serving
from voiceseq.apps.serve.limits import Limits


def upload(server, path, model):
    with path.open("rb") as file:
        asked = {"data": {"model": model}, "files": {"file": (path.name, file)}, "timeout": 300}
        return httpx.post(f"{server.url}/v1/audio/transcriptions", **asked)


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def wait_for_the_end_of(workers):
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_and_stops(number):
    words = [sys.executable, "-m", "voiceseq", "serve", "--model", "computer", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r"voiceseq: (http://\S+)", line)))
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/healthz", timeout=60).json()["status"] == "ok"
        assert "voiceseq" in httpx.get(url, timeout=60).text
        workers = children(process.pid)
        assert workers
        process.send_signal(number)
        assert process.wait(120) == 0
        assert '"stopped"' in process.stderr.read()
        wait_for_the_end_of(workers)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_file_that_kills_its_process_harms_nobody_else(clip):
    with serving(catalogue(FAKE, DEADLY, words=("computer",)), Limits(stop_s=5.0), processes=True) as server:
        reply = upload(server, clip, DEADLY)
        assert (reply.status_code, "ended" in reply.json()["error"]["message"]) == (503, True)
        assert upload(server, clip, FAKE).status_code == 200  # it was started again
        assert "voiceseq_worker_ends_total" in httpx.get(f"{server.url}/metrics").text


@pytest.mark.slow
def test_a_file_that_hangs_is_ended(clip, monkeypatch):
    monkeypatch.setattr("voiceseq.apps.serve.workers.CANCEL_S", 1.0)
    with serving(catalogue(FAKE, STUCK, words=("computer",)), Limits(stop_s=5.0, job_s=20.0), processes=True) as server:
        reply = upload(server, clip, STUCK)
        assert (reply.status_code, "longer than" in reply.json()["error"]["message"]) == (422, True)
        assert upload(server, clip, FAKE).status_code == 200


@pytest.mark.slow
def test_workers_end_with_a_server_that_is_killed():
    words = [sys.executable, "-m", "voiceseq", "serve", "--model", "computer", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "http://" in line:
            break
    workers = children(process.pid)
    process.kill()
    process.wait()
    wait_for_the_end_of(workers)


@pytest.fixture
def satellite():
    spec = importlib.util.spec_from_file_location("satellite", ROOT / "benchmarks" / "satellite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_unmodified_satellite_fires_its_command(satellite):
    python = os.environ.get("VOICESEQ_SATELLITE", str(ROOT.parent / "satellite-venv" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip("no wyoming-satellite: $VOICESEQ_SATELLITE names the python of an environment that has it")
    result = satellite.try_satellite(python, ROOT / "data" / "clips" / "computer.flac", "computer")
    assert result["fired"] == ["computer"]


def test_the_satellites_line_of_the_readme_needs_nothing_further(satellite, monkeypatch, tmp_path, capsys):
    """It makes the satellite's environment where there is none, and only once."""
    python = tmp_path / "python"
    made, asked = [], []

    def install():
        made.append(True)
        python.touch()

    def try_satellite(*words):
        asked.append(words)
        return {"met": True}

    for name, value in {"PYTHON": python, "install": install, "try_satellite": try_satellite}.items():
        monkeypatch.setattr(satellite, name, value)
    monkeypatch.setattr(sys, "argv", ["satellite.py"])
    assert (satellite.main(), satellite.main()) == (0, 0)
    assert (len(made), [one[0] for one in asked]) == (1, [str(python)] * 2)
