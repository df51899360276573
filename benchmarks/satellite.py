"""Does the unmodified wyoming-satellite fire its detection command when our server hears the word?

    python benchmarks/satellite.py [--satellite PYTHON] [--clip FILE] [--word computer]

wyoming-satellite 1.0.0 wants an older `wyoming` than ours, so it lives in an environment of its own, in runs/satellite;
it is made where there is none, unless --satellite names the python of another one. This script stands for Home
Assistant: it connects to the satellite and tells it to run. The satellite reads the clip as its microphone, over and
over, asks our server, and on a detection gives the word to a command, here one that writes it into a file.
"""

import argparse
import asyncio
import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "runs" / "satellite"
PYTHON = HERE / "venv" / "bin" / "python"
RATE = 16_000


def install() -> None:
    venv.create(HERE / "venv", with_pip=True)
    subprocess.run([str(PYTHON), "-m", "pip", "install", "-q", "wyoming-satellite==1.0.0"], check=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running(words: list[str], ready: str, log: Path) -> Iterator[None]:
    """A program, from when it says that it is ready."""
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 300
        while not re.search(ready, log.read_text()):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{shlex.join(words)} did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def write_microphone(clip: Path, path: Path) -> None:
    """Raw 16-bit sound: a second of silence, the clip, two seconds of silence."""
    from voiceseq.audio.files import read_audio

    samples = read_audio(clip, sample_rate=RATE).samples
    quiet = np.zeros(RATE, np.float32)
    path.write_bytes((np.concatenate((quiet, samples, quiet, quiet)) * 32767).astype("<i2").tobytes())


async def stand_for_home_assistant(port: int, go: Path, fired: Path, seconds: float) -> list[str]:
    """Tell the satellite to run, let its microphone begin, and wait until its command has written and we were told.

    The types of what the satellite sends us.
    """
    from wyoming.client import AsyncClient
    from wyoming.satellite import RunSatellite

    heard: list[str] = []
    end = time.monotonic() + seconds
    async with AsyncClient.from_uri(f"tcp://127.0.0.1:{port}") as client:
        await client.write_event(RunSatellite().event())
        go.touch()
        while not (fired.exists() and "run-pipeline" in heard) and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                event = await asyncio.wait_for(client.read_event(), 0.5)
                heard += [] if event is None else [event.type]
        await asyncio.sleep(0.5)
    return heard


def try_satellite(python: str, clip: Path, word: str, seconds: float = 300.0) -> dict[str, Any]:
    wake, satellite = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_microphone(clip, place / "mic.raw")
        fired, go, mic = place / "detected.txt", place / "go", place / "mic.raw"
        wait = f"until test -e {go}; do test -e {mic} || exit; sleep 0.2; done"
        speak = f"{wait}; while cat {mic}; do sleep 1; done"
        serve = [sys.executable, "-m", "voiceseq", "serve", "--model", word, "--port", "0"]
        serve += ["--wyoming", f"tcp://127.0.0.1:{wake}"]
        listen = [python, "-m", "wyoming_satellite", "--name", "test", "--uri", f"tcp://127.0.0.1:{satellite}"]
        listen += ["--no-zeroconf", "--debug", "--mic-command", shlex.join(["sh", "-c", speak])]
        listen += ["--wake-uri", f"tcp://127.0.0.1:{wake}", "--wake-word-name", word]
        listen += ["--detection-command", shlex.join(["tee", "-a", str(fired)])]
        with running(serve, "Wyoming at", place / "serve.log"), running(listen, "Ready", place / "satellite.log"):
            heard = asyncio.run(stand_for_home_assistant(satellite, go, fired, seconds))
        text = fired.read_text().split() if fired.exists() else []
        return {"fired": text, "sent_to_home_assistant": sorted(set(heard)), "met": text == [word]}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--satellite", metavar="PYTHON", help="of an environment that has wyoming-satellite")
    options.add_argument("--clip", type=Path, default=ROOT / "data" / "clips" / "computer.flac")
    options.add_argument("--word", default="computer")
    args = options.parse_args()
    if args.satellite is None and not PYTHON.exists():
        install()
    result = try_satellite(args.satellite or str(PYTHON), args.clip, args.word)
    print(json.dumps(result))
    return int(not result["met"])


if __name__ == "__main__":
    sys.exit(main())
