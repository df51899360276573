"""The Shakespeare language model: its loss with the CPU time that training took, and what ships.

    python benchmarks/shakespeare.py [OVERRIDES]     train by the real command, in runs/benchmark
    python benchmarks/shakespeare.py --shipped       evaluate the shipped bundle

Both write RESULTS.md. The validation text is that of conf/data/shakespeare.yaml.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from results import table, write_section

import voiceseq
from voiceseq.datasets.windows import stream_pieces
from voiceseq.text.files import read_text
from voiceseq.training.config import compose_config

TARGET_LOSS, TARGET_MINUTES = 1.60, 30.0  # of a run within half an hour
BEST = 1.47  # of what ships


def trained(overrides: list[str]) -> tuple[str, dict]:
    runs = Path("runs/benchmark")
    start = time.monotonic()
    command = ["voiceseq", "train", "experiment=shakespeare", f"runs={runs}", *overrides]
    subprocess.run([sys.executable, "-m", *command], check=True)
    wall = (time.monotonic() - start) / 60
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (used.ru_utime + used.ru_stime) / 60
    newest = max(runs.glob("shakespeare/*/result.json"), key=lambda path: path.stat().st_mtime)
    loss = json.loads(newest.read_text())["metrics"]["val/loss"]
    return "Character language model on Shakespeare", {
        "model": "shakespeare",
        "validation nats/char": loss,
        "target": TARGET_LOSS,
        "CPU minutes (both cores added)": minutes,
        "wall minutes": wall,
        "met": loss <= TARGET_LOSS and minutes <= TARGET_MINUTES,
    }


@torch.no_grad()
def shipped() -> tuple[str, dict]:
    """Every character of the validation text but the first, in 32 rows, the state carried along each row."""
    model = voiceseq.load("shakespeare")
    text = read_text(compose_config(["experiment=shakespeare"]).data.validation)
    symbols = torch.tensor(model.vocabulary.encode(text))
    total, state, rows = 0.0, None, 32
    for inputs, targets in stream_pieces(symbols, 128, rows):
        logits, state = model.network(inputs, state if len(inputs) == rows else None)
        total += float(torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum"))
    size = sum(entry.size for entry in voiceseq.load_bundle("shakespeare").files.values())
    loss = total / (len(symbols) - 1)
    return "The shipped bundle `shakespeare`", {
        "validation nats/char": loss,
        "characters": len(symbols) - 1,
        "bundle MB": size / 1e6,
        "target": BEST,
        "met": loss <= BEST,
    }


def main() -> int:
    title, row = shipped() if "--shipped" in sys.argv else trained(sys.argv[1:])
    write_section(title, " ".join(["python benchmarks/shakespeare.py", *sys.argv[1:]]), [row])
    print(table([row]))
    return 0 if row.get("met", True) else 1


if __name__ == "__main__":
    sys.exit(main())
