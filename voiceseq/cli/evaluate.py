"""``voiceseq evaluate BUNDLE --manifest M.jsonl``: how good a bundle is, in the measure of its own task."""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli import evaluate_text
from voiceseq.cli.options import add_json, print_json, print_table
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.remote import output

if TYPE_CHECKING:
    from voiceseq.datasets.manifest import Clip

Rows = list[tuple[str, ...]]
Measured = tuple[dict[str, Any], Rows, list[str]]

# What measures a bundle of each kind: it takes arguments and model, gives a report, rows of a table, lines below it.
KINDS = {
    "trigger": "voiceseq.cli.evaluate:evaluate_trigger",
    "recogniser": "voiceseq.cli.evaluate:evaluate_speech",
    "whisper": "voiceseq.cli.evaluate:evaluate_speech",
}
TEXT = "voiceseq.cli.evaluate_text:evaluate_text"  # every kind of evaluation/answers.py


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
    add_speech_arguments(parser)
    evaluate_text.add_arguments(parser)
    add_json(parser)


def add_speech_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speech recognition")
    group.add_argument("--decoder", help="how to search (default: the bundle's own)")
    group.add_argument("--beam", type=int, help="how wide to search (default: the bundle's own)")
    group.add_argument("--lm", metavar="LM", help="a language model to search with: an ARPA file, or a bundle")
    group.add_argument("--lm-weight", type=float, help="how much it counts (default: the bundle's own)")
    group.add_argument(
        "--seen", action="append", type=Path, default=[], metavar="TRAIN.jsonl",
        help="what it was trained on (may be repeated): sentences that are not in there are counted apart, too",
    )  # fmt: skip
    group.add_argument(
        "--group", action="append", default=[], metavar="FIELD", help="a row for each value of this manifest field"
    )
    group.add_argument(
        "--batch-seconds", type=float, default=60.0, help="audio recognised at once (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    if args.out is None:
        return evaluate(args)
    with output(args.out) as args.out:  # a URL gets what was written here
        return evaluate(args)


def evaluate(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.bundles import load_bundle
    from voiceseq.evaluation.answers import KINDS as TEXT_KINDS

    kind = load_bundle(args.bundle).kind
    kinds = KINDS | dict.fromkeys(TEXT_KINDS, TEXT)
    if kind not in kinds:
        raise BundleError(f"{args.bundle} is a {kind!r}; evaluate measures {', '.join(kinds)}")
    module, _, name = kinds[kind].partition(":")
    measure: Callable[[argparse.Namespace, Any], Measured] = getattr(importlib.import_module(module), name)
    if args.out is not None:
        make_folder(args.out)
    report, rows, notes = measure(args, voiceseq.load(args.bundle))
    report = {"bundle": str(args.bundle), "kind": kind, "manifest": str(args.manifest), **report}
    if args.out is not None:
        write_report(args.out / "report.json", report)
    if args.json:
        print_json(report)
    else:
        print_table(rows)
        for note in notes:
            print(note)
    return 1 if report.get("failed") else 0


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


def evaluate_trigger(args: argparse.Namespace, detector: Any) -> Measured:
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
    return report, trigger_table(report), []


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


# --- speech recognition ----------------------------------------------------------------------------------------------


def evaluate_speech(args: argparse.Namespace, transcriber: Any) -> Measured:
    """Word and character errors, confusions, calibration, the search; with --out also pictures and every utterance."""
    from voiceseq.datasets.manifest import iterate_manifest, read_manifest
    from voiceseq.evaluation.speech import hear, search_report, speech_report, write_utterances
    from voiceseq.evaluation.speech_plots import plot_speech
    from voiceseq.inference.speech import Decoding

    if not args.batch_seconds > 0 or (args.beam is not None and args.beam < 1):
        raise ConfigError(f"--batch-seconds {args.batch_seconds}, --beam {args.beam}; above 0 were wanted")
    clips = read_manifest(args.manifest, check_files=False)
    known = {"speaker", *(name for clip in clips for name in clip.extra)}
    if unknown := [name for name in args.group if name not in known]:
        raise ConfigError(
            f"--group {unknown[0]}: no row of {args.manifest} has it; there are {', '.join(sorted(known))}"
        )
    seen = [clip.text or "" for path in args.seen for clip in iterate_manifest(path, check_files=False)]
    decoding = Decoding(decoder=args.decoder, beam=args.beam, lm=args.lm, lm_weight=args.lm_weight)
    line = Line()
    try:
        hearing = hear(transcriber, clips, decoding, args.batch_seconds, line.show)
    finally:
        line.clear()
    report = speech_report(hearing, args.group, seen if args.seen else None)
    report |= {"search": search_report(transcriber.recogniser, hearing, decoding)}
    report |= {"decoder": args.decoder or transcriber.recogniser.decoders[0], "beam": args.beam, "lm": args.lm}
    for row in hearing.failed:
        print(f"voiceseq: {row['id']}: {row['why']}", file=sys.stderr)
    if args.out is not None:
        write_utterances(hearing, args.out / "utterances.jsonl")
        report["plots"] = [path.name for path in plot_speech(report, args.out)]
    return report, speech_table(report), speech_notes(report)


def speech_table(report: dict[str, Any]) -> Rows:
    """What people read: all, what occurs in training and what does not, groups; each with its intervals."""
    rows: Rows = [("set", "utterances", "words", "sub, ins, del", "WER (95 %)", "CER (95 %)", "wrong sentences")]
    rows += [error_line(name, report[name]) for name in ("all", "seen", "unseen") if name in report]
    for field, found in report["groups"].items():
        rows += [error_line(f"{field}: {row['name']}", row) for row in found]
    return rows


def speech_notes(report: dict[str, Any]) -> list[str]:
    """A line each of edits, confusions, confidences, search and cost."""
    edits = report["edits"]["characters"]
    counts = ", ".join(f"{edits[name]} {name}" for name in ("substitutions", "insertions", "deletions"))
    notes = [f"{counts} in {edits['reference']} characters"]
    confused = [f"{row['said']} > {row['heard']} ({row['count']})" for row in report["confused"]["substituted"][:5]]
    notes += [f"most confused: {', '.join(confused)}"] if confused else []
    if report["calibration"]:
        notes.append(f"expected calibration error {report['calibration']['expected_error']:.3f}")
    if search := report["search"]:
        faults = ", ".join(f"{name} {search[name]['count']}" for name in ("search", "model"))
        notes.append(f"{search['wrong']} sentences are wrong; at fault: {faults}")
    minutes = report["seconds"] / 60
    return [*notes, f"{report['cpu_s_per_s']:.3f} processor seconds a second of audio ({minutes:.1f} minutes)"]


def error_line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    rates = [
        "-" if row[rate] is None else f"{row[rate]['rate']:.1%} ({row[rate]['low']:.1%} to {row[rate]['high']:.1%})"
        for rate in ("wer", "cer")
    ]
    wrong = "-" if row["wrong_sentences"] is None else f"{row['wrong_sentences']:.1%}"
    edits = ", ".join(str(row[edit]) for edit in ("substitutions", "insertions", "deletions"))
    return (name, str(row["utterances"]), str(row["words"]), edits, *rates, wrong)


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
