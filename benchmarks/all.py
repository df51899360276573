"""Run every speed benchmark and write its section of RESULTS.md: ``python benchmarks/all.py [NAME ...]``."""

import importlib
import sys

from results import table, write_section

QUESTIONS = {
    "recurrent": "Speed: recurrent layers against torch.nn",
    "attention": "Speed: attention layers against torch.nn",
    "features": "Speed: features against torchaudio",
    "search": "Speed: search against other decoders, and batched against one by one",
    "listening": "What listening costs, live and whole",
    "soak": "A day of listening",
}


def main() -> int:
    met = True
    for name in sys.argv[1:] or QUESTIONS:
        measured = importlib.import_module(name).measure()
        write_section(QUESTIONS[name], f"python benchmarks/all.py {name}", measured["rows"], measured.get("notes", ""))
        print(f"\n{QUESTIONS[name]}\n\n{table(measured['rows'])}", flush=True)
        met &= all(row.get("met", True) is not False for row in measured["rows"])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
