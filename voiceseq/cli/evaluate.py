"""``voiceseq evaluate BUNDLE --manifest M.jsonl``: how good a bundle is, in the measure of its own task."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json, print_table
from voiceseq.errors import BundleError, ConfigError, InputError

if TYPE_CHECKING:
    from voiceseq.datasets.manifest import Clip

Rows = list[tuple[str, ...]]

# What measures a bundle of each kind: called with the arguments and the model, it gives a report and rows of a table.
KINDS = {"trigger": "voiceseq.cli.evaluate:evaluate_trigger"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", help="name or path of a bundle")
    parser.add_argument("--manifest", type=Path, required=True, metavar="M.jsonl", help="what it is tested on")
    parser.add_argument("--out", type=Path, metavar="DIR", help="report.json, plots and clips of false alarms go here")
    group = parser.add_argument_group("wake words")
    group.add_argument(
        "--negatives", action="append", default=[], metavar="[KIND=]N.jsonl",
        help="audio without the words (may be repeated); KIND is speech, noise or music where its rows do not say",
    )  # fmt: skip
    group.add_argument("--conditions", default="clean", metavar="clean,10db,0db,room,telephone,running")
    group.add_argument("--noise", type=Path, metavar="N.jsonl", help="noise for 10db and 0db (default: pink noise)")
    group.add_argument("--rooms", type=Path, metavar="R.jsonl", help="impulse responses (default: simulated rooms)")
    group.add_argument("--part", choices=("train", "dev", "test"), help="only this part of the people")
    group.add_argument("--seed", type=int, default=0, help="of what the conditions draw (default: %(default)s)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.bundles import load_bundle

    kind = load_bundle(args.bundle).kind
    if kind not in KINDS:
        raise BundleError(f"{args.bundle} is a {kind!r}; evaluate measures {', '.join(KINDS)}")
    module, _, name = KINDS[kind].partition(":")
    measure: Callable[[argparse.Namespace, Any], tuple[dict[str, Any], Rows]] = getattr(
        importlib.import_module(module), name
    )
    if args.out is not None:
        make_folder(args.out)
    report, rows = measure(args, voiceseq.load(args.bundle))
    report = {"bundle": str(args.bundle), "kind": kind, "manifest": str(args.manifest), **report}
    if args.out is not None:
        write_report(args.out / "report.json", report)
    if args.json:
        print_json(report)
    else:
        print_table(rows)
    return 0


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder} cannot be made ({error}); give a folder that can be written to") from error


def write_report(path: Path, report: dict[str, Any]) -> None:
    """In one step, so that a report is whole or not there."""
    part = path.with_name(f".{path.name}.partial")
    try:
        part.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}); make room or give another --out") from error


# --- wake words ------------------------------------------------------------------------------------------------------


def evaluate_trigger(args: argparse.Namespace, detector: Any) -> tuple[dict[str, Any], Rows]:
    """Misses and false alarms in events; with --out also pictures and the seconds that set off false alarms."""
    from voiceseq.datasets.corpora.wakewords import part_of, person
    from voiceseq.datasets.manifest import read_manifest
    from voiceseq.evaluation.conditions import Hardener
    from voiceseq.evaluation.streams import sort_rows
    from voiceseq.evaluation.wakeword import WordHearing, hear, notable_alarms, save_alarms, wakeword_report
    from voiceseq.evaluation.wakeword_plots import plot_wakewords

    rows = [clip for clip in read_manifest(args.manifest) if args.part in (None, part_of(person(clip)))]
    extra = [clip for given in args.negatives for clip in read_negatives(given)]
    positives, negatives = sort_rows(detector.words, rows, extra)
    noises = read_manifest(args.noise) if args.noise else ()
    rooms = read_manifest(args.rooms) if args.rooms else ()
    hardener = Hardener(noises, rooms, negatives.get("speech", ()), args.seed)
    conditions = list(dict.fromkeys(name.strip() for name in args.conditions.split(",") if name.strip()))
    if not conditions:
        raise ConfigError("--conditions is empty; give at least clean")
    line = Line()
    try:
        heard = hear(detector, positives, negatives, conditions, hardener, line.show)
    finally:
        line.clear()
    report = wakeword_report(heard) | {"seed": args.seed, "part": args.part, "noise": str(args.noise or "pink")}
    if args.out is not None:
        alarms = [alarm for word in report["words"] for alarm in notable_alarms(WordHearing.of(heard, word))]
        report["alarms"] = save_alarms(alarms, args.out / "alarms")
        report["plots"] = [path.name for path in plot_wakewords(heard, report, args.out)]
    return report, trigger_table(report)


def read_negatives(given: str) -> "list[Clip]":
    """The rows of ``[KIND=]PATH``; the kind that is given wins over what the rows say."""
    import dataclasses

    from voiceseq.datasets.manifest import read_manifest
    from voiceseq.evaluation.streams import KINDS as SOUNDS

    kind, equals, path = given.partition("=")
    if not equals or kind not in SOUNDS:
        return read_manifest(given)
    return [dataclasses.replace(clip, extra={**clip.extra, "kind": kind}) for clip in read_manifest(path)]


def trigger_table(report: dict[str, Any]) -> Rows:
    """What people read: both readings of every word and condition, the reading named in every line."""
    rows: Rows = [("word", "threshold", "FA/h (95 %)", "condition", "missed (95 %)", "delay median, 95 %")]
    for word, found in report["words"].items():
        own = found["own_threshold"]
        rate = own["false_alarms"].get("all")
        rows += lines(word, f"own, {own['threshold']:.3f}", rate, own["conditions"])
        for point in found.get("operating_curve", {}).get("points", ()):
            name = f"curve, {point['threshold']:.3f} (optimistic)"
            rows += lines(word, name, point, point["conditions"])
    return rows


def lines(word: str, threshold: str, rate: dict[str, Any] | None, conditions: dict[str, Any]) -> Rows:
    alarms = "-" if rate is None else f"{rate['per_hour']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"
    found: Rows = []
    for condition, row in conditions.items():
        missed = f"{row['miss_rate']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
        late = "-" if row["delay_median_s"] is None else f"{row['delay_median_s']:.2f} s, {row['delay_95_s']:.2f} s"
        found.append((word, threshold, alarms, condition, missed, late))
    return found


class Line:
    """A line on the terminal that says what is heard and how fast; nothing where stderr is a file."""

    def __init__(self) -> None:
        self.start = self.next = time.monotonic()
        self.seconds, self.shown = 0.0, False

    def show(self, what: str, seconds: float) -> None:
        self.seconds += seconds
        now = time.monotonic()
        if sys.stderr.isatty() and now >= self.next:
            self.next, self.shown = now + 0.5, True
            speed = self.seconds / max(now - self.start, 1e-3)
            text = f"{what}: {self.seconds / 60:.1f} minutes heard, {speed:.0f} times real time"
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
