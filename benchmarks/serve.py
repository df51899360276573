"""How many live streams does `voiceseq serve` carry on this machine, and what happens at twice that?

    python benchmarks/serve.py [--streams 25 50 100] [--speech MODEL --speakers 8] [--seconds 20] [--soak MINUTES]
                               [--json] [--write]

Clients send 80 ms of sound every 80 ms, as a microphone would, from another process on the same machine (``cores`` is
what the server and its workers took, ``clients' cores`` what they took themselves). Latency is from sending a piece to
the answer that covers it, for every piece of every client after the first two seconds. Targets: 100 wake-word streams
with a p99 under 200 ms, 8 live transcriptions under 700 ms. At twice the room the surplus must be told at once, and the
others keep their latency. ``--soak`` watches the memory of the server and its workers instead. ``--write`` puts the
table into RESULTS.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

CLIPS = Path(__file__).resolve().parent.parent / "data" / "clips"
RATE, CHUNK_S, WARM_S = 16_000, 0.08, 2.0
WAKE_TARGET_S, SPEECH_TARGET_S = 0.2, 0.7


@contextmanager
def server(models: list[str], **limits: int) -> Iterator[tuple[str, int]]:
    """Its address and process number."""
    words = [sys.executable, "-m", "voiceseq", "serve", "--port", "0"]
    words += [word for model in models for word in ("--model", model)]
    words += [word for name, value in limits.items() for word in ("--limit", f"{name}={value}")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"voiceseq: http://(\S+)", said)):
            said = process.stderr.readline()
            if not said:
                raise SystemExit("the server did not start")
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield f"ws://{found[1]}", process.pid
        drain.kill()
    finally:
        process.terminate()
        process.wait(60)


def sounds(seconds: float, count: int) -> list[bytes]:
    """People who speak, over and over, 16 bits; each client begins at another place."""
    from voiceseq.audio.files import read_audio

    pause = np.zeros(RATE, np.float32)
    paths = [*sorted(CLIPS.glob("*.flac")), *sorted((CLIPS / "speech").glob("*.flac"))]
    whole = np.concatenate([part for path in paths for part in (read_audio(path, sample_rate=RATE).samples, pause)])
    places = np.random.default_rng(1).permutation(count) * (len(whole) // count)
    said = (np.resize(np.roll(whole, -place), round(seconds * RATE)) for place in places)
    return [(one * 32767).astype("<i2").tobytes() for one in said]


async def client(
    url: str, first: dict[str, Any], data: bytes, start_s: float, latencies: list[float], told: list[float]
) -> str:
    """One microphone; what became of it. ``told`` gets the seconds after which it knew that it was refused."""
    await asyncio.sleep(start_s)
    came = time.perf_counter()
    size = round(CHUNK_S * RATE) * 2
    sent: dict[int, float] = {}
    try:
        async with connect(url, max_size=None, compression=None) as socket:
            await socket.send(json.dumps(first | {"rate": RATE, "scores": True}))
            await socket.recv()
            began = time.perf_counter()

            async def listen() -> None:
                done = 0
                async for message in socket:
                    event = json.loads(message)
                    now = time.perf_counter()
                    while event["type"] == "scores" and (done + 1) * CHUNK_S <= event["time"] + 1e-6:
                        at = sent.pop(done)
                        done += 1
                        if at - began > WARM_S:
                            latencies.append(now - at)

            listening = asyncio.create_task(listen())
            for number in range(len(data) // size):
                await asyncio.sleep(max(0.0, began + number * CHUNK_S - time.perf_counter()))
                sent[number] = time.perf_counter()
                await socket.send(data[number * size : (number + 1) * size])
            await socket.send(json.dumps({"type": "finish"}))
            await listening
            return "served"
    except InvalidStatus as error:
        told.append(time.perf_counter() - came)
        return f"refused {error.response.status_code}"
    except ConnectionClosed as error:
        return f"closed {error.rcvd.code if error.rcvd else ''}"


async def load(url: str, first: dict[str, Any], count: int, seconds: float) -> tuple[list[float], list[str], float]:
    """Latencies, what became of each client, and how long the slowest refusal took."""
    latencies: list[float] = []
    told: list[float] = []
    starts = np.random.default_rng(0).uniform(0, 2, count).tolist()
    clients = zip(sounds(seconds, count), starts, strict=True)
    ends = await asyncio.gather(*(client(url, first, data, start, latencies, told) for data, start in clients))
    return latencies, list(ends), max(told, default=0.0)


def family(root: int) -> list[Path]:
    """The folders in /proc of a process and its children."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            numbers = re.findall(r"^P?Pid:\s+(\d+)", status.read_text(), re.MULTILINE)
            found += [status.parent] if str(root) in (status.parent.name, numbers[1]) else []
    return found


def memory(root: int) -> float:
    """MB resident of the server and its workers."""
    sizes = (re.search(r"VmRSS:\s+(\d+)", (one / "status").read_text()) for one in family(root))
    return sum(int(size[1]) / 1024 for size in sizes if size)


def processor(root: int) -> float:
    """Seconds that the server and its workers have worked."""
    times = ((one / "stat").read_text().rpartition(")")[2].split()[11:13] for one in family(root))
    return sum(map(int, (tick for pair in times for tick in pair))) / os.sysconf("SC_CLK_TCK")


def row(case: str, url: str, pid: int, first: dict[str, Any], count: int, seconds: float, target: float | None) -> Any:
    worked, began, ours = processor(pid), time.perf_counter(), time.process_time()
    latencies, ends, told = asyncio.run(load(url, first, count, seconds))
    took = time.perf_counter() - began
    cores, clients = (processor(pid) - worked) / took, (time.process_time() - ours) / took
    p50, p99 = np.percentile(latencies, (50, 99)) if latencies else (np.inf, np.inf)
    refused = sum(end.startswith("refused 503") for end in ends)
    lost = len(ends) - refused - ends.count("served")
    return {
        "case": case,
        "streams": count,
        "served": ends.count("served"),
        "refused": refused,
        "lost": lost,
        "p50_ms": round(1000 * float(p50)),
        "p99_ms": round(1000 * float(p99)),
        "told_within_ms": round(1000 * told) if refused else None,
        "cores": round(cores, 2),
        "clients' cores": round(clients, 2),
        "memory_mb": round(memory(pid)),
        "target": None if target is None else f"p99 under {1000 * target:.0f} ms",
        "met": target is None or bool(p99 < target and not lost),
    }


def measure(args: argparse.Namespace | None = None) -> dict[str, Any]:
    args = args or parser().parse_args([])
    rows = []
    if args.soak:
        models = ["six-words", *([args.speech] if args.speech else [])]
        with server(models) as (url, pid):
            return {"benchmark": "serve", "rows": [soak(url, pid, args)]}
    most = max(args.streams)
    with server(["six-words"], listeners=most) as (url, pid):
        for count in args.streams:
            name = f"{count} wake-word streams (six words)"
            rows.append(row(name, f"{url}/v1/listen", pid, {}, count, args.seconds, WAKE_TARGET_S))
            print(rows[-1], file=sys.stderr, flush=True)
        name = f"{2 * most} come, there is room for {most}"
        rows.append(row(name, f"{url}/v1/listen", pid, {}, 2 * most, args.seconds, WAKE_TARGET_S))
    if args.speech:
        with server([args.speech], speakers=args.speakers) as (url, pid):
            for count in (args.speakers, 2 * args.speakers):
                name = f"{count} live transcriptions, room for {args.speakers}"
                rows.append(row(name, f"{url}/v1/transcribe", pid, {}, count, args.seconds, SPEECH_TARGET_S))
    return {"benchmark": "serve", "rows": rows}


def soak(url: str, pid: int, args: argparse.Namespace) -> dict[str, Any]:
    """Clients come and go; the memory at the end against that after the first tenth of the time."""
    end, sizes, clients = time.monotonic() + 60 * args.soak, [], 0

    async def come_and_go() -> list[str]:
        visits = [load(f"{url}/v1/listen", {}, args.streams[0], 15.0)]
        visits += [load(f"{url}/v1/transcribe", {}, 2, 15.0)] if args.speech else []
        return [end for _, ends, _ in await asyncio.gather(*visits) for end in ends]

    while time.monotonic() < end:
        ends = asyncio.run(come_and_go())
        clients += ends.count("served")
        sizes.append(memory(pid))
        print(f"{(end - time.monotonic()) / 60:.1f} minutes left, {sizes[-1]:.1f} MB", file=sys.stderr, flush=True)
    return soaked(args.soak, clients, sizes)


def soaked(minutes: float, clients: int, sizes: list[float]) -> dict[str, Any]:
    first, half, last = sizes[len(sizes) // 10], sizes[len(sizes) // 2], sizes[-1]
    return {
        "case": f"{minutes:g} minutes of coming and going",
        "clients served": clients,
        "MB after a tenth": round(first, 1),
        "MB after half": round(half, 1),
        "MB at the end": round(last, 1),
        "grown %": round(100 * (last / first - 1), 2),
        "target": "1 % at most",
        "met": last < 1.01 * first,
    }


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--streams", type=int, nargs="+", default=[25, 50, 100])
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--speech", metavar="MODEL")
    options.add_argument("--speakers", type=int, default=8)
    options.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    options.add_argument("--json", action="store_true")
    options.add_argument("--write", action="store_true")
    return options


def main() -> None:
    args = parser().parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result = measure(args)
    if args.json:
        print(json.dumps(result))
        return
    from results import table, write_section

    print(table(result["rows"]))
    if args.write:
        given = [word for word in sys.argv[1:] if word != "--write"]
        if args.soak:
            note = "The server's and its workers' resident memory while clients come, send 15 s of sound, and go."
            command = shlex.join(["python", "benchmarks/serve.py", *given])
            return write_section("The server's memory over time", command, result["rows"], note)
        load = f"Processes that waited for a processor meanwhile: {os.getloadavg()[1]:.0f}, on {os.cpu_count()} cores"
        load += f"; the server's priority: {os.getpriority(os.PRIO_PROCESS, 0)} (below 0 goes before them)."
        command = shlex.join(["python", "benchmarks/serve.py", *given])
        write_section(
            "Live streams served at once", command, result["rows"], f"{__doc__.split(chr(10) * 2)[2]}\n\n{load}"
        )


if __name__ == "__main__":
    main()
