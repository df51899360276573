"""Wake-word bundles on people and sound that they never learned from, one row a word and condition.

    python benchmarks/heard.py TITLE BUNDLE... [--part test] [--conditions clean,10db,running,telephone] [--free DIR]

Positives are the shared recordings of the bundles' words (``--part`` keeps one part of the people; all of them where
nothing was trained on any). Negatives are eight hours of speech that no training heard (``unheard_speech``), and of
``benchmarks/free_sounds.py`` what its table keeps for tests. Writes a section of RESULTS.md and runs/heard/TITLE.json.
"""

import argparse
import json
import random
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from results import write_section

from voiceseq.datasets.corpora.wakewords import part_of, person, unheard_speech
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.evaluation.conditions import Hardener
from voiceseq.evaluation.streams import sort_rows
from voiceseq.evaluation.wakeword import hear, wakeword_report
from voiceseq.inference.detector import Detector

NOISE_SHARE = 0.4
NOTE = "Words are said one after the other in streams of five minutes, each with 1.5 s of its condition before it."


def percent(found: dict[str, Any]) -> str:
    return f"{100 * found['miss_rate']:.1f} ({100 * found['low']:.1f} to {100 * found['high']:.1f})"


def rows_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for word, found in report["words"].items():
        own, points = found["own_threshold"], found["operating_curve"]["points"]
        rate = own["false_alarms"]["all"]
        for condition, missed in own["conditions"].items():
            row = {"word": word, "condition": condition, "words said": missed["utterances"], "people": missed["people"]}
            row["missed %, own threshold (95 %)"] = percent(missed)
            row["false alarms an hour there (95 %)"] = (
                f"{rate['per_hour']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"
            )
            for point in points:
                at = point["conditions"][condition]["miss_rate"]
                row[f"missed % at {point['wanted_per_hour']:g} FA/h (curve)"] = f"{100 * at:.1f}"
            row["delay, median s"] = missed["delay_median_s"]
            rows.append(row)
    return rows


def unheard_noise(shared: Path) -> list[Clip]:
    """Of the shared noise the part that trains nothing."""
    return [c for c in read_manifest(shared / "speech/wakeword/noise/manifest.jsonl") if held_out(c.id, NOISE_SHARE)]


def negatives(shared: Path, free: Path | None, hours: float) -> list[Clip]:
    clips = unheard_speech(shared / "speech")
    clips += unheard_noise(shared)
    for kind in ("music", "noise") if free else ():
        sounds = [c for c in read_manifest(Path(str(free)) / kind / "manifest.jsonl") if c.extra.get("share") == "test"]
        random.Random(6).shuffle(sounds)
        heard_s = 0.0
        for clip in sounds:
            if heard_s < 3600 * hours:
                clips.append(clip)
                heard_s += clip.duration
    return clips


def measured(
    bundles: Sequence[str], said: list[Clip], quiet: list[Clip], conditions: list[str], shared: Path, seed: int = 0
) -> dict[str, Any]:
    """The report of the bundles on what is ``said`` and on what is quiet about their words."""
    detector, words = Detector.of(bundles), shared / "speech/wakeword"
    positives, others = sort_rows(detector.words, said, quiet)
    rooms = read_manifest(words / "rir/manifest.jsonl")
    hardener = Hardener(unheard_noise(shared), rooms, others.get("speech", ()), seed)
    return wakeword_report(hear(detector, positives, others, conditions, hardener))


def alarms_note(report: dict[str, Any]) -> str:
    hours = ", ".join(f"{hours:.1f} h of {kind}" for kind, hours in report["hours"].items())
    return f"False alarms on {hours}. Curve: thresholds from these very negatives. {NOTE}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("title")
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--part", choices=("train", "dev", "test"))
    parser.add_argument("--conditions", default="clean,10db,running,telephone")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--free", type=Path)
    parser.add_argument("--free-hours", type=float, default=1.5, help="of music and of noise each")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    words = args.shared / "speech/wakeword"
    said = [c for name in ("picovoice", "speech_commands") for c in read_manifest(words / name / "manifest.jsonl")]
    said = [clip for clip in said if args.part in (None, part_of(person(clip)))]
    said = [
        clip for clip in said if not str(clip.extra.get("flag") or "").startswith("aligner")
    ]  # another word is said
    quiet = negatives(args.shared, args.free, args.free_hours)
    report = measured(args.bundles, said, quiet, args.conditions.split(","), args.shared, args.seed)
    rows = rows_of(report)
    name = re.sub(r"[^a-z0-9]+", "-", args.title.lower()).strip("-")
    kept = Path("runs/heard") / f"{name}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(report))
    command = f"python benchmarks/heard.py {shlex.quote(args.title)} " + " ".join(Path(b).name for b in args.bundles)
    command += f" --part {args.part}" if args.part else ""
    command += f" --conditions {args.conditions}" if args.conditions != parser.get_default("conditions") else ""
    command += " --free DIR" if args.free else ""
    write_section(args.title, command, rows, alarms_note(report))
    for row in rows:
        print("  ".join(str(value) for value in row.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
