"""A thousand short files: one process, several, and Ray; with a worker killed in the middle, and with the run itself.

    python benchmarks/scale.py --install                       # once: Ray in an environment of its own, in runs/ray
    python benchmarks/scale.py --model BUNDLE [--files 1000] [--workers 2] [--json]

Every row is the real command over the same folder of files (1.5 to 4 seconds cut from the shipped clips), one thread a
worker. "start" is until the first text is there; "files/s" is from there to the last one; "ms a file" is what a file
takes longer than in a pool of as many processes. "core-s per hour" is the processor time of the workers alone, while
they were watched; "worker MB" the largest of them. In the last rows a worker is killed by SIGKILL when a quarter is
done, and in the last also the run itself at the half, after which the command is given once more. All rows must give
the same bytes as the first.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
from results import table, write_section

from voiceseq.audio.files import write_audio
from voiceseq.export.onnx import shipped_clips

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "runs" / "ray"
PYTHON = HERE / "venv" / "bin" / "python"
TITLE = "A thousand files by several workers"
RATE = 16_000
LIMIT_S = 1800


def install() -> None:
    """Ray beside this environment, whose packages it sees: it is large, and nothing else needs it."""
    venv.create(HERE / "venv", with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "--no-compile", "-c", str(ROOT / "constraints.txt"), "ray>=2.40"]
    subprocess.run(pip, check=True)
    (site,) = HERE.glob("venv/lib/python*/site-packages")
    own = sysconfig.get_path("purelib")
    (site / "beside.pth").write_text(f"import site; site.addsitedir({own!r})\n")


def make_files(folder: Path, count: int) -> float:
    """Hours of sound in them."""
    whole = np.concatenate([samples for _, samples in shipped_clips(RATE)])
    rng, seconds = np.random.default_rng(0), 0.0
    for number in range(count):
        length = int(rng.uniform(1.5, 4.0) * RATE)
        first = int(rng.integers(0, len(whole) - length))
        write_audio(folder / f"{number:05}.wav", whole[first : first + length], RATE)
        seconds += length / RATE
    return seconds / 3600


class Watched:
    """A run of the command, and what its workers took."""

    def __init__(self, model: str, folder: Path, out: Path, *more: str) -> None:
        python = PYTHON if "ray" in more else Path(sys.executable)
        words = [str(python), "-m", "voiceseq", "transcribe", str(folder), "--model", model, "--out", str(out)]
        words += ["--format", "json", "txt", "--threads", "1", *more]
        self.out, self.began, self.first = out, time.monotonic(), 0.0
        self.times: dict[int, float] = {}
        self.sizes: dict[int, float] = {}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.said = out.with_suffix(".err")
        with self.said.open("a") as errors:
            self.process = subprocess.Popen(words, stderr=errors, env=environment, cwd=ROOT)

    @property
    def done(self) -> int:
        return len(list(self.out.glob("*.json")))

    def workers(self) -> list[int]:
        found = []
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                parent = int(status.read_text().split("PPid:")[1].split()[0])
                command = (status.parent / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            pid = int(status.parent.name)
            if (parent == self.process.pid and b"spawn_main" in command) or b"ray::Worker" in command:
                found.append(pid)
        return found or [self.process.pid]

    def look(self) -> None:
        if not self.first and self.done:
            self.first = time.monotonic()
        for pid in self.workers():
            try:
                ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            self.times[pid] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            self.sizes[pid] = max(self.sizes.get(pid, 0.0), pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def until(self, count: int | None = None) -> None:
        """So many files are done, or the run is over."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None and (count is None or self.done < count):
            self.look()
            time.sleep(0.25)
            if time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"{self.out}: not done after {LIMIT_S} s")

    def kill_a_worker(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.out}: over before a worker could be killed:\n{self.said.read_text()[-2000:]}")
        os.kill(self.workers()[0], signal.SIGKILL)


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    workers = ["--workers", str(args.workers)]
    ray = [*workers, "--engine", "ray"]
    cases: list[tuple[str, list[str], int]] = [("one process", [], 0), (f"{args.workers} processes", workers, 0)]
    if PYTHON.exists():
        cases += [(f"Ray, {args.workers} workers", ray, 0), ("Ray, a worker killed", ray, 1)]
        cases += [("Ray, a worker and then the run killed", ray, 2)]
    else:
        print(f"no Ray in {HERE}: python benchmarks/scale.py --install", file=sys.stderr)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "in"
        folder.mkdir()
        hours = make_files(folder, args.files)
        wanted: dict[str, bytes] = {}
        for number, (case, more, killed) in enumerate(cases):
            out = Path(temporary) / f"out{number}"
            rows.append(row(case, args, folder, out, more, killed, hours))
            wanted = wanted or written(out)
            rows[-1]["same bytes"] = written(out) == wanted
            print(rows[-1], file=sys.stderr, flush=True)
            shutil.rmtree(out)
    pool = rows[1]["files/s"]
    for one in rows[2:3]:
        one["ms a file"] = round(1000 * (1 / one["files/s"] - 1 / pool), 1)
    return rows


def row(
    case: str, args: argparse.Namespace, folder: Path, out: Path, more: list[str], killed: int, hours: float
) -> dict[str, Any]:
    run = Watched(args.model, folder, out, *more)
    began = run.began
    if killed:
        run.until(args.files // 4)
        run.kill_a_worker()
    if killed == 2:
        run.until(args.files // 2)
        run.process.kill()
        run.process.wait()
        run = Watched(args.model, folder, out, *more)
    run.until()
    ended = time.monotonic()
    code, count = run.process.wait(), run.done
    found: dict[str, Any] = {"case": case, "files": count, "start, s": None, "all, s": round(ended - began, 1)}
    if not killed:
        found["start, s"] = round(run.first - began, 1)
        found["files/s"] = round(count / (ended - run.first), 1)
        found["core-s per hour"] = round(sum(run.times.values()) / hours)
        found["worker MB"] = round(max(run.sizes.values()))
    return found | {"exit code": code}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make Ray's environment and stop")
    parser.add_argument("--model", help="a recogniser")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON, and RESULTS.md stays as it is")
    args = parser.parse_args()
    if args.install:
        install()
        return 0
    if args.model is None:
        parser.error("--model BUNDLE was wanted")
    rows = measure(args)
    if args.json:
        print(json.dumps({"benchmark": "scale", "rows": rows}))
    else:
        given = [word for word in sys.argv[1:] if word != "--json"]
        load = (
            f"\n\nProcesses that waited for a processor meanwhile: {os.getloadavg()[1]:.0f}, on {os.cpu_count()} cores."
        )
        notes = __doc__.split("\n\n")[2] + load
        write_section(TITLE, shlex.join(["python", "benchmarks/scale.py", *given]), rows, notes)
        print(table(rows))
    return 0 if all(one["same bytes"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
