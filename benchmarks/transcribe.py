"""Transcribing many files and long ones: batches against one by one, the memory of two hours, and no text from noise.

    python benchmarks/transcribe.py --model BUNDLE [--files 60] [--hours 2] [--json]

Files are utterances of the dev parts of the shared corpora, each a wav of its own. One by one and batches alternate,
all on one thread; the ratio is that of the medians. The same is asked of the command: one for all files, and one for
each of them, which loads the model anew. The long file is made of the same utterances, with pauses; its
peak memory is that of a process which does nothing else. Noise and music are those that no training has heard, each
a file of its own, and silence of the computer's making.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import soundfile
import torch
from results import table, write_section

import voiceseq
from voiceseq.audio.files import read_clip
from voiceseq.datasets.manifest import held_out, read_manifest
from voiceseq.inference.speech import SAMPLE_RATE
from voiceseq.inference.transcriber import Failure, Settings, Transcriber

SPEECH = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "speech"
CORPORA = ("librispeech", "commonvoice", "speechocean762", "harpervalley")
COMMANDS = 12  # files of which each has a command of its own
REPEATS, HELD_OUT_NOISE = 3, 0.4  # the share of noises that conf/data keeps for tests
MEMORY = """
import resource, sys, torch, voiceseq
torch.set_num_threads(1)
found = voiceseq.load(sys.argv[1]).transcribe(sys.argv[2])
print(found.duration, len(found.words), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure(model: str, files: int = 60, hours: float = 2.0) -> dict[str, Any]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), files)
        rows = [batches(voiceseq.load(model), paths), commands(model, paths[:COMMANDS])]
        rows += nothing_said(voiceseq.load(model))
        if hours:
            rows.append(memory(model, write_long(Path(folder), paths, hours)))
    return {"benchmark": "transcribe", "rows": rows}


def write_files(folder: Path, count: int) -> list[Path]:
    """As many utterances of each corpus."""
    paths = []
    for corpus in CORPORA:
        rows = [json.loads(line) for line in (SPEECH / corpus / "manifest-dev.jsonl").open()]
        for row in rows[:: max(1, len(rows) * len(CORPORA) // count)][: count // len(CORPORA)]:
            samples = read_clip(SPEECH / row["audio"], row["offset"], row["duration"], SAMPLE_RATE)
            paths.append(folder / f"{row['id']}.wav")
            soundfile.write(paths[-1], samples, SAMPLE_RATE)
    return paths


def write_long(folder: Path, paths: list[Path], hours: float) -> Path:
    pause = np.zeros(SAMPLE_RATE // 2, np.float32)
    with soundfile.SoundFile(folder / "long.flac", "w", SAMPLE_RATE, 1) as file:
        for path in itertools.cycle(paths):
            file.write(np.concatenate([soundfile.read(path, dtype="float32")[0], pause]))
            if file.frames >= hours * 3600 * SAMPLE_RATE:
                return folder / "long.flac"
    raise AssertionError


def batches(transcriber: Transcriber, paths: list[Path]) -> dict[str, Any]:
    seconds = sum(soundfile.info(path).duration for path in paths)
    list(transcriber.transcribe_files(paths[:2]))  # what is made ready once
    took: dict[float, list[float]] = {Settings.batch_s: [], 0.0: []}
    texts: dict[float, list[str]] = {}
    for _ in range(REPEATS):
        for batch_s, times in took.items():
            began = time.perf_counter()
            found = list(transcriber.transcribe_files(paths, Settings(batch_s=batch_s)))
            times.append(time.perf_counter() - began)
            texts[batch_s] = ["" if isinstance(one, Failure) else one.text for one in found]
    ours, reference = (median(times) for times in took.values())
    return {
        "case": f"{len(paths)} files, {seconds:.0f} s of sound, batches of {Settings.batch_s:g} s against one by one",
        "ours_s": ours,
        "reference_s": reference,
        "ratio": reference / ours,
        "target": 3.0,
        "met": reference >= 3.0 * ours,
        "same texts": texts[Settings.batch_s] == texts[0.0],
    }


def commands(model: str, paths: list[Path]) -> dict[str, Any]:
    def run(*files: Path) -> float:
        began = time.perf_counter()
        command = [sys.executable, "-m", "voiceseq", "transcribe", "--model", model, "--threads", "1"]
        subprocess.run([*command, *map(str, files)], capture_output=True, check=True)
        return time.perf_counter() - began

    ours, reference = run(*paths), sum(run(path) for path in paths)
    return {
        "case": f"`voiceseq transcribe` of {len(paths)} files: one command against a command each",
        "ours_s": ours,
        "reference_s": reference,
        "ratio": reference / ours,
        "target": 3.0,
        "met": reference >= 3.0 * ours,
    }


def nothing_said(transcriber: Transcriber) -> list[dict[str, Any]]:
    """How often there is a text where nobody speaks."""
    sounds: dict[str, list[np.ndarray]] = {"noise": [], "music": []}
    for clip in read_manifest(SPEECH / "wakeword" / "noise" / "manifest.jsonl"):
        if held_out(clip.id, HELD_OUT_NOISE):
            kind = "music" if clip.extra["kind"] == "music" else "noise"
            sounds[kind].append(read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE))
    chance = np.random.default_rng(1)
    hiss = [(level * chance.standard_normal(10 * SAMPLE_RATE)).astype(np.float32) for level in (0.0, 1e-4, 1e-2, 0.1)]
    sounds["silence and hiss"] = [*hiss, np.full(SAMPLE_RATE, 0.3, np.float32), np.zeros(1, np.float32)]
    rows = []
    for kind, some in sounds.items():
        texts = [transcriber.transcribe(samples, SAMPLE_RATE).text for samples in some]
        said = [text for text in texts if text]
        minutes = sum(map(len, some)) / SAMPLE_RATE / 60
        case = f"{len(some)} recordings of {kind}, {minutes:.1f} minutes: how many have a text"
        rows.append({"case": case, "ours": len(said), "target": 0, "met": not said})
        print(f"{kind}: {said}", file=sys.stderr)
    return rows


def memory(model: str, path: Path) -> dict[str, Any]:
    ran = subprocess.run([sys.executable, "-c", MEMORY, model, path], capture_output=True, text=True, check=True)
    duration, words, peak = map(float, ran.stdout.split())
    case = f"one file of {duration / 3600:.1f} hours, {words:.0f} words: peak memory in MB"
    return {"case": case, "ours": peak, "target": 1000.0, "met": peak < 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="english-small")
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--hours", type=float, default=2.0, help="of the long file; 0 leaves it out")
    parser.add_argument("--json", action="store_true", help="print one line and leave RESULTS.md alone")
    args = parser.parse_args()
    measured = measure(args.model, args.files, args.hours)
    if args.json:
        print(json.dumps(measured))
        return
    name = Path(args.model).name
    command = f"python benchmarks/transcribe.py --model {name} --files {args.files} --hours {args.hours:g}"
    write_section(f"Transcribing many files and long ones: {name}", command, measured["rows"])
    print(table(measured["rows"]))


if __name__ == "__main__":
    main()
