"""Recognisers as ONNX graphs: how large, how near to torch, how fast?

    python benchmarks/onnx_speech.py --case NAME CORPUS [--case NAME CORPUS ...] [--utterances 100] [--json]

Each case is a bundle and a corpus, of whose development set the first utterances are taken. The export's own check
says the largest difference of a probability and the word error rates, by CTC's best path without a language model: of
the graph, and of torch. (A Whisper is read by its decoder, which the graph does not hold; its CTC head is there for the
times of words, and reads badly by itself.) "CPU s an hour" is the acoustic model alone, one thread, the least of three
goes over thirty seconds of the same sound.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import table, write_section

import voiceseq
from voiceseq.audio.files import read_clip
from voiceseq.bundles import load_bundle
from voiceseq.datasets.manifest import Clip, read_manifest, write_manifest
from voiceseq.errors import BundleError
from voiceseq.export.speech import POINTS, _Hearing, export_speech

ROOT = Path(__file__).resolve().parent.parent
TITLE = "Recognisers as ONNX graphs"
RATE, HEARD_S, REPEATS = 16_000, 30.0, 3


def sounds(clips: list[Clip]) -> list[np.ndarray]:
    found, seconds = [], 0.0
    for clip in clips:
        found.append(read_clip(clip.audio, clip.offset, clip.duration, RATE))
        seconds += clip.duration
        if seconds > HEARD_S:
            break
    return found


def cost(hear: Callable[[np.ndarray], Any], pieces: list[np.ndarray]) -> float:
    """Processor seconds for an hour of sound."""
    best = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        for piece in pieces:
            hear(piece)
        best = min(best, time.process_time() - began)
    return best / (sum(map(len, pieces)) / RATE) * 3600


def measure(name: str, manifest: Path, count: int) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    clips = read_manifest(manifest)[:count]
    pieces = sounds(clips)
    by_torch = round(cost(_Hearing(load_bundle(name)).torch_says, pieces), 1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_manifest(Path(folder) / "m.jsonl", clips)
        for weights in (None, "int8"):
            row: dict[str, Any] = {"bundle": Path(name).name, "weights": weights or "float32", "utterances": len(clips)}
            try:
                report = export_speech(name, Path(folder) / "x.onnx", weights, Path(folder) / "m.jsonl")
            except BundleError as error:
                rows.append(row | {"met": False, "target": str(error)})
                continue
            graph = voiceseq.load(report.path)
            row |= {"MB": round(report.bytes / 1e6, 1), "largest difference": report.difference}
            row |= {"WER, graph": report.wer, "WER, torch": report.torch_wer}
            row |= {"CPU s an hour, graph": round(cost(graph.log_probs, pieces), 1), "torch": by_torch}
            target = "1e-4" if weights is None else f"{POINTS} points of WER"
            rows.append(row | {"target": target, "met": True})  # else it would not have been written
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, action="append", required=True, metavar=("NAME", "CORPUS"))
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data", help="where the corpora lie")
    parser.add_argument("--utterances", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one line of JSON, and RESULTS.md stays as it is")
    args = parser.parse_args()
    rows = []
    for name, corpus in args.case:
        rows += measure(name, args.shared / "speech" / corpus / "manifest-dev.jsonl", args.utterances)
    if args.json:
        print(json.dumps({"benchmark": "onnx_speech", "rows": rows}))
        return 0
    command = shlex.join(["python", "benchmarks/onnx_speech.py", *sys.argv[1:]])
    write_section(TITLE, command, rows, __doc__.split("\n\n")[2])
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
