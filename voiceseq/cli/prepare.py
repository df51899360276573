"""``voiceseq prepare KIND PATH -o M.jsonl``: a manifest of somebody's recordings, and a report of what was left out."""

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from voiceseq.cli.options import add_json, print_json
from voiceseq.datasets.corpora import KINDS, Layout
from voiceseq.datasets.corpora.prepare import FAILURES, Report, Wanted, select, split_by_speaker, summary
from voiceseq.datasets.download import SOURCES, Source, archive_name, listed_checksum, obtain, parse_checksum
from voiceseq.datasets.manifest import Clip, write_manifests
from voiceseq.errors import ConfigError, InputError
from voiceseq.text.normalise import Digits

FIELDS = ("audio", "text", "speaker", "id", "offset", "end", "duration")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=kinds.replace("%", "%%"))
    parser.add_argument("path", type=Path, metavar="PATH", help="the corpus: a folder, or the table of csv and tsv")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="M.jsonl", help="the manifest (.gz packs it)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a manifest that is there")
    parser.add_argument("--min-s", type=seconds, default=0.1, help="leave out shorter clips (default: %(default)s)")
    parser.add_argument("--max-s", type=seconds, default=math.inf, help="leave out longer clips (default: none is)")
    add_text(parser)
    parser.add_argument(
        "--split", type=shares, default={}, metavar="dev=0.1,test=0.1", help="by speaker; writes M-train, M-dev, M-test"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: %(default)s)")
    add_layout(parser)
    add_download(parser)
    add_json(parser)


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text", choices=("normalise", "keep", "ignore"), default="normalise",
        help="English words in a-z, the text as it is, or clips without text too (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--digits", choices=get_args(Digits), default="words", help="spell numbers out, or leave such clips out"
    )


def add_layout(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what the corpus looks like")
    group.add_argument("--part", action="append", default=[], metavar="NAME", help="only this part (may be repeated)")
    group.add_argument("--root", type=Path, metavar="DIR", help="csv, tsv, kaldi: where relative audio paths begin")
    group.add_argument(
        "--columns", type=columns, default={}, metavar="audio=NAME,text=NAME",
        help=f"csv, tsv: the columns of {', '.join(FIELDS)}; as numbers from 1 where there is no header",
    )  # fmt: skip
    group.add_argument(
        "--speaker-pattern", type=pattern, metavar="REGEX",
        help="folder: its first group in the path is the speaker, '^(.*?)_' (default: the first folder's name)",
    )  # fmt: skip


def add_download(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("download to PATH first")
    names = ", ".join(SOURCES)
    group.add_argument(
        "--download", action="append", default=[], metavar="NAME", help=f"{names}; or an http(s) address"
    )
    group.add_argument("--sha256", type=sha256, metavar="HEX", help="what the archive's sha256 must be")
    group.add_argument(
        "--checksums", type=Path, metavar="FILE", help="the same from a file as sha256sum or md5sum write"
    )


def run(args: argparse.Namespace) -> int:
    check_usage(args)
    outputs = output_paths(args.output, args.split)
    if not args.overwrite and (there := [path for path in outputs.values() if path.exists()]):
        raise InputError(f"{there[0]} exists; choose another name with -o, or replace it with --overwrite")
    download(args)
    report = Report()
    layout = Layout(tuple(args.part), args.root, args.columns, args.speaker_pattern)
    wanted = Wanted(args.min_s, args.max_s, args.text, args.digits)
    clips = list(counted(select(KINDS[args.kind].read(args.path, layout), wanted, report), report))
    parts = split_by_speaker(clips, args.split, args.seed) if args.split and clips else {"": clips}
    if clips:
        write_manifests({outputs[name]: part for name, part in parts.items()})
    written = [{"path": str(outputs[name]), **summary(part)} for name, part in parts.items()] if clips else []
    tell(args, report, clips, written)
    if not clips:
        raise InputError(f"no clip of {args.path} could be kept, so no manifest was written; see the report")
    return 1 if report.failed else 0


def check_usage(args: argparse.Namespace) -> None:
    """What argparse cannot see. Raises ``ConfigError``."""
    given = {"parts": args.part, "root": args.root, "columns": args.columns, "speaker_pattern": args.speaker_pattern}
    options = {"parts": "--part", "root": "--root", "columns": "--columns", "speaker_pattern": "--speaker-pattern"}
    for setting, value in given.items():
        if value and setting not in KINDS[args.kind].settings:
            users = [name for name, kind in KINDS.items() if setting in kind.settings]
            raise ConfigError(f"{options[setting]} is for {', '.join(users)} and not for {args.kind}; leave it out")
    if args.min_s > args.max_s:
        raise ConfigError(f"--min-s {args.min_s:g} is above --max-s {args.max_s:g}; no clip could be kept")
    if (args.sha256 or args.checksums) and not args.download:
        raise ConfigError("--sha256 and --checksums check a --download; name what to download")
    if args.sha256 and len(args.download) > 1:
        raise ConfigError("one --sha256 cannot be that of several downloads; give --checksums FILE")


def output_paths(output: Path, split: dict[str, float]) -> dict[str, Path]:
    """Part to path: M.jsonl, or M-train.jsonl and its sisters."""
    if not split:
        return {"": output}
    stem, dot, suffix = output.name.partition(".")
    return {part: output.with_name(f"{stem}-{part}{dot}{suffix}") for part in ("train", *split)}


def download(args: argparse.Namespace) -> None:
    sources = [find_source(name, args.kind) for name in args.download]
    for source in sources:
        name = archive_name(source.url)
        checksum = args.sha256 or (listed_checksum(args.checksums, name) if args.checksums is not None else None)
        line = Line()
        try:
            fetched = obtain(source, args.path, checksum, line.bytes)
        finally:
            line.clear()
        print(f"{name}: {'received' if fetched else 'there already'}, licence {source.licence}", file=sys.stderr)


def find_source(name: str, kind: str) -> Source:
    if "://" in name:
        return Source(name, None, "not stated", kind)
    if name not in SOURCES:
        raise ConfigError(f"no download is called {name!r}; choose among {', '.join(SOURCES)}, or give an address")
    if SOURCES[name].kind != kind:
        raise ConfigError(
            f"{name} has the layout {SOURCES[name].kind}; write voiceseq prepare {SOURCES[name].kind} ..."
        )
    return SOURCES[name]


# --- the report ------------------------------------------------------------------------------------------------------


def tell(args: argparse.Namespace, report: Report, clips: list[Clip], written: list[dict[str, Any]]) -> None:
    if args.json:
        skipped = {
            reason: {"count": count, "failure": reason in FAILURES, "examples": report.examples[reason]}
            for reason, count in report.counts.items()
        }
        found = {"kind": args.kind, "path": str(args.path), "rows": report.rows, "seed": args.seed}
        print_json({**found, "kept": summary(clips), "skipped": skipped, "manifests": written})
        return
    say = "{rows} clips, {hours:.2f} hours, {speakers} speakers".format
    print(f"kept {say(**summary(clips))} of {report.rows} rows", file=sys.stderr)
    for row in written:
        print(f"  {row['path']}: {say(**{key: row[key] for key in ('rows', 'hours', 'speakers')})}", file=sys.stderr)
    for reason, count in sorted(report.counts.items(), key=lambda item: -item[1]):
        print(f"skipped {count}: {reason}", file=sys.stderr)
        for example in report.examples[reason]:
            print(f"  {example}", file=sys.stderr)
        if count > len(report.examples[reason]):
            print(f"  and {count - len(report.examples[reason])} more", file=sys.stderr)


class Line:
    """A line on the terminal that is written over; nothing at all where stderr is a file."""

    def __init__(self) -> None:
        self.shown = False
        self.next = self.start = time.monotonic()
        self.first: int | None = None

    def show(self, text: Callable[[], str]) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self.next:
            self.next, self.shown = time.monotonic() + 0.5, True
            print(f"\r\x1b[K{text()[:100]}", end="", file=sys.stderr, flush=True)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        if self.first is None or done < self.first:  # a download that is continued did not begin at 0
            self.first, self.start = done, time.monotonic()
        first = self.first
        self.show(lambda: f"{name}: {transfer(done, total, done - first, time.monotonic() - self.start)}")

    def clear(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def transfer(done: int, total: int | None, new: int, elapsed_s: float) -> str:
    """ "12.0 of 337.9 MB, 3.4 MB/s, 1:36 left"."""
    speed = new / elapsed_s if elapsed_s > 0 else 0.0
    size = f"{done / 1e6:.1f} MB" if total is None else f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
    left = (
        ""
        if total is None or speed == 0
        else f", {int((total - done) / speed) // 60}:{int((total - done) / speed) % 60:02} left"
    )
    return f"{size}, {speed / 1e6:.1f} MB/s{left}"


def counted(clips: Iterable[Clip], report: Report) -> Iterator[Clip]:
    """The same clips, with a count on the terminal as they pass."""
    line = Line()
    try:
        for clip in clips:
            seen = report.rows
            line.show(lambda seen=seen: f"{seen} rows, {seen / max(time.monotonic() - line.start, 1e-3):.0f} a second")  # type: ignore[misc]
            yield clip
    finally:
        line.clear()


# --- how options are written -----------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} came; seconds from 0 on were wanted")
    return value


def sha256(text: str) -> str:
    try:
        return ":".join(parse_checksum(f"sha256:{text}"))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = (word.strip() for word in item.partition("="))
        if not (name and equals and value) or name in found:
            raise argparse.ArgumentTypeError(f"{item!r} came; NAME=VALUE was wanted, each name once, commas between")
        found[name] = value
    return found


def columns(text: str) -> dict[str, str]:
    found = pairs(text)
    if unknown := [name for name in found if name not in FIELDS]:
        raise argparse.ArgumentTypeError(f"no field is called {unknown[0]!r}; choose among {', '.join(FIELDS)}")
    return found


def shares(text: str) -> dict[str, float]:
    try:
        found = {name: float(value) for name, value in pairs(text).items()}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    fair = all(share > 0 for share in found.values()) and sum(found.values()) < 1
    if not fair or "train" in found or not all(re.fullmatch(r"\w[\w-]*", name) for name in found):
        raise argparse.ArgumentTypeError(
            f"{text!r} came; shares above 0 that leave some for train were wanted, such as dev=0.1,test=0.1"
        )
    return found


def pattern(text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression ({error})") from error
    if found.groups < 1:
        raise argparse.ArgumentTypeError(f"{text!r} has no group; put the speaker in parentheses")
    return found
