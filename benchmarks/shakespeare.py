"""Train the Shakespeare model by the real command and record its loss with the CPU time it took."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from results import table, write_section

TARGET_LOSS, TARGET_MINUTES = 1.60, 30.0


def main() -> int:
    runs = Path("runs/benchmark")
    command = ["voiceseq", "train", "experiment=shakespeare", *sys.argv[1:]]
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", *command, f"runs={runs}"], check=True)
    wall = (time.monotonic() - start) / 60
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (used.ru_utime + used.ru_stime) / 60
    newest = max(runs.glob("shakespeare/*/result.json"), key=lambda path: path.stat().st_mtime)
    loss = json.loads(newest.read_text())["metrics"]["val/loss"]
    row = {
        "model": "shakespeare",
        "validation nats/char": loss,
        "target": TARGET_LOSS,
        "CPU minutes (both cores added)": minutes,
        "wall minutes": wall,
        "met": loss <= TARGET_LOSS and minutes <= TARGET_MINUTES,
    }
    write_section(
        "Character language model on Shakespeare", " ".join(["python benchmarks/shakespeare.py", *sys.argv[1:]]), [row]
    )
    print(table([row]))
    return 0 if row["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
