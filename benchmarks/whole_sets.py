"""Recognisers on whole development sets by ``voiceseq evaluate``: errors, confidences, search or model at fault.

    python benchmarks/whole_sets.py [BUNDLE...] [--out runs/whole]

A report that lies in the folder is not made again. "Fault of the search": the share of wrong sentences for which the
model holds the truth likelier than what was found.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from results import write_section
from speech import CORPORA


def interval(found: dict[str, float]) -> str:
    return f"{100 * found['rate']:.1f} ({100 * found['low']:.1f} to {100 * found['high']:.1f})"


def row(bundle: str, corpus: str, report: dict[str, Any]) -> dict[str, Any]:
    total, calibration, search = report["all"], report["calibration"], report["search"]
    found = {
        "bundle": Path(bundle).name,
        "corpus": corpus,
        "utterances": total["utterances"],
        "speakers": total["speakers"],
        "WER % (95 %)": interval(total["wer"]),
        "CER % (95 %)": interval(total["cer"]),
        "wrong sentences %": round(100 * total["wrong_sentences"], 1),
    }
    found |= {"confidence": "", "right": "", "off by": ""}
    if calibration and calibration["words"]:
        found |= {"confidence": round(calibration["confidence"], 3), "right": round(calibration["right"], 3)}
        found["off by"] = round(calibration["expected_error"], 3)
    return found | {"fault of the search %": round(100 * search["search"]["of_wrong"], 1) if search else ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", default=["english-small", "harper-valley"])
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("runs/whole"))
    args = parser.parse_args()
    rows = []
    for bundle in args.bundles:
        for corpus in CORPORA if Path(bundle).name != "harper-valley" else ("harpervalley",):
            out = args.out / f"{Path(bundle).name}-{corpus}"
            manifest = args.shared / "speech" / corpus / "manifest-dev.jsonl"
            command = [sys.executable, "-m", "voiceseq", "evaluate", bundle, "--manifest", str(manifest)]
            if not (out / "report.json").exists():
                subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
            rows.append(row(bundle, corpus, json.loads((out / "report.json").read_text())))
            print(rows[-1], flush=True)
    notes = """Each bundle by its own decoder, in batches; intervals over speakers. "confidence" and "right" are means
over the words that were written, "off by" is the mean distance between the two in ten bins of confidence."""
    names = " ".join(Path(bundle).name for bundle in args.bundles)
    write_section("Whole development sets", f"python benchmarks/whole_sets.py {names}", rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
