"""What recognition costs: beside PocketSphinx, in batches, and in memory for a long file. One thread throughout.

    python benchmarks/speech_cost.py [--model english-small] [--part speed|batch|memory]... [--hours 2]

``speed``   processor seconds per second of audio, greedy, utterance by utterance, PocketSphinx asked in turn
``batch``   the same utterances one by one and in batches, in turn
``memory``  the most memory that `voiceseq transcribe` takes for a file of --hours

Parts that are not asked for keep their rows from an earlier run (runs/peers-speech/cost-MODEL.json).
"""

import argparse
import json
import os
import subprocess
import sys
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import table, write_section
from speech import CORPORA, HERE, ONE_THREAD, RATE, ROOT, Ours, Peer, chosen, stored, test_sets

from voiceseq.datasets.manifest import Clip

Row = dict[str, Any]
SPEED, SHARE, BATCH, MEMORY_MB = 0.05, 1 / 3, 3.0, 1000.0


def speed(ours: Ours, clips: list[Clip]) -> list[Row]:
    peer = Peer("pocketsphinx")
    try:
        for engine in (ours, peer):
            engine.hear(clips[0])
        spent = np.array([[ours.hear(clip).cpu_s, peer.hear(clip).cpu_s] for clip in clips]).sum(0)
    finally:
        peer.close()
    mine, theirs = (spent / sum(clip.duration for clip in clips)).tolist()
    case = f"greedy, {len(clips)} utterances of four corpora, processor s per s of audio"
    row = {"case": case, "ours": mine, "reference": theirs, "ratio": mine / theirs}
    return [
        row | {"target": f"ours <= {SPEED}", "met": mine <= SPEED},
        row | {"target": "<= 1/3 of PocketSphinx", "met": mine / theirs <= SHARE},
    ]


def batch(ours: Ours, clips: list[Clip], repeats: int = 3) -> list[Row]:
    pieces = [np.fromfile(stored(clip), "<i2").astype(np.float32) / 32768 for clip in clips]

    def seconds(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    def alone() -> None:
        for piece in pieces:
            ours.recogniser.recognise([piece], ours.decoding)

    def together() -> None:
        ours.recogniser.recognise(pieces, ours.decoding)

    alone()
    spent = [(seconds(together), seconds(alone)) for _ in range(repeats)]
    mine, reference = np.median(spent, axis=0).tolist()
    case = f"greedy, {len(clips)} utterances of Harper Valley together and one by one, processor s"
    row = {"case": case, "ours": mine, "reference": reference, "ratio": reference / mine}
    return [row | {"target": f"{BATCH:g} times the speed", "met": reference / mine >= BATCH}]


def memory(model: str, clips: list[Clip], hours: float) -> list[Row]:
    """The command's own process; its processor time is told as well."""
    path = long_file(clips, hours)
    command = [sys.executable, "-m", "voiceseq", "transcribe", str(path), "--model", model, "--format", "json"]
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen([*command, "--threads", "1"], stdout=nowhere, env=os.environ | ONE_THREAD, cwd=ROOT)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    peak = used.ru_maxrss / 1024
    cost = (used.ru_utime + used.ru_stime) / (3600 * hours)
    case = f"`voiceseq transcribe` of {hours:g} h, peak MB ({cost:.3f} processor s per s of audio)"
    return [{"case": case, "ours": peak, "target": f"< {MEMORY_MB:g} MB", "met": peak < MEMORY_MB}]


def long_file(clips: list[Clip], hours: float) -> Path:
    """Clips one after the other, half a second apart, again and again until it is long enough."""
    path = HERE / f"long-{hours:g}.wav"
    if path.exists():
        return path
    part = path.with_suffix(".part")
    with wave.open(str(part), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        written, place = 0, 0
        while written < hours * 3600 * RATE:
            samples = np.fromfile(stored(clips[place % len(clips)]), "<i2")
            file.writeframes(samples.tobytes() + bytes(RATE))
            written += len(samples) + RATE // 2
            place += 1
    part.rename(path)
    return path


def measure(model: str, parts: list[str], shared: Path, hours: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    sets = test_sets(shared, 120)
    kept = HERE / f"cost-{Path(model).name}.json"
    rows: dict[str, list[Row]] = json.loads(kept.read_text()) if kept.exists() else {}
    if "speed" in parts:
        rows["speed"] = speed(Ours(f"{model}@greedy"), [clip for name in CORPORA for clip in sets[name][:4]])
    if "batch" in parts:
        rows["batch"] = batch(Ours(f"{model}@greedy"), chosen(sets["harpervalley"], 48))
    if "memory" in parts:
        rows["memory"] = memory(model, [clip for own in sets.values() for clip in own], hours)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(rows))
    return {"benchmark": "speech_cost", "rows": [row for part in rows.values() for row in part]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="english-small")
    parser.add_argument("--part", action="append", choices=("speed", "batch", "memory"))
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.model, args.part or ["speed", "batch", "memory"], args.shared, args.hours)
    name = Path(args.model).name
    if args.json:
        print(json.dumps(found))
    else:
        print(table(found["rows"]))
    write_section(
        f"Speech recognition: what {name} costs",
        f"python benchmarks/speech_cost.py --model {name}",
        found["rows"],
        "One thread. The reference is PocketSphinx 5.1.1 in the first rows, one by one in the batch's.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
