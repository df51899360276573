"""Letters to sounds of 21 languages on the development words of SIGMORPHON 2021: words wrong, language by language.

    python benchmarks/letters.py [--model BUNDLE] [--beam 8]

Wants the shared data (VOICESEQ_SHARED, else ../shared). The baselines are those that the task's own page gives: English
45.13 %, the mean of the ten languages of 8,000 words 9.35 %, of the ten of 800 words 22.40 %. Writes its section of
RESULTS.md.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
from results import table, write_section

import voiceseq
from voiceseq.core.distance import edit_distance
from voiceseq.tasks.letters import read_words

WORDS = Path(os.environ.get("VOICESEQ_SHARED", "../shared")) / "data" / "text" / "g2p"
BASELINES = {"high": 45.13, "medium": 9.35, "low": 22.40}


def errors(model: Any, language: str, path: Path, beam: int | None) -> dict[str, Any]:
    """Word and phone error in percent."""
    words = read_words(str(path))
    guessed = model.pronounce([word.letters for word in words], language, beam)
    edits = [edit_distance(word.phones, ways[0] if ways else ()) for word, ways in zip(words, guessed, strict=True)]
    return {
        "words": len(words),
        "word error %": 100 * sum(edit > 0 for edit in edits) / len(words),
        "phone error %": 100 * sum(edits) / sum(len(word.phones) for word in words),
    }


def measure(model: Any, beam: int | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for group, baseline in BASELINES.items():
        paths = sorted((WORDS / group).glob("*_dev.tsv*"))
        some = [{"group": group, "language": p.name.partition("_dev")[0]} for p in paths]
        some = [row | errors(model, row["language"], p, beam) for row, p in zip(some, paths, strict=True)]
        mean = {key: sum(row[key] for row in some) / len(some) for key in ("word error %", "phone error %")}
        met = {"target": baseline, "met": mean["word error %"] <= baseline}
        total = sum(row["words"] for row in some)
        rows += [*some, {"group": group, "language": "mean", "words": total} | mean | met]
    return rows


def groups(model: Any) -> dict[str, Any]:
    """The means alone."""
    rows = [row for row in measure(model) if row["language"] == "mean"]
    return {f"words wrong, %, {row['group']} (baseline {row['target']})": row["word error %"] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pronounce-ipa")
    parser.add_argument("--beam", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(voiceseq.load(args.model), args.beam)
    notes = (
        "Development words; the target is the baseline of the shared task. "
        "One network for all languages, n-grams of pairs for each."
    )
    write_section("Pronunciation of 21 languages (SIGMORPHON 2021)", "python benchmarks/letters.py", rows, notes)
    print(table(rows))
    return 0 if all(row.get("met", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
