"""``voiceseq bundle show|verify|export``: what a bundle holds, whether it is whole, a copy of it. Without torch."""

import argparse
import math
import sys
from typing import Any

from voiceseq.bundles import Bundle, export_bundle, load_bundle, shipped_bundles, verify_bundle
from voiceseq.cli.options import add_json, add_verbose, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shipped = ", ".join(shipped_bundles()) or "none here"
    actions = parser.add_subparsers(metavar="show|verify|export", required=True)
    for action, text, example in (
        (show, "print what a bundle holds", "voiceseq bundle show shakespeare"),
        (verify, "check every file against its sha256", "voiceseq bundle verify runs/shakespeare/latest/bundle"),
        (export, "copy a bundle to one .zip or to a folder", "voiceseq bundle export shakespeare shakespeare.zip"),
    ):
        sub = actions.add_parser(action.__name__, help=text, description=text, epilog=f"example: {example}")
        sub.add_argument("bundle", help=f"a folder, a .zip or a shipped name ({shipped})")
        sub.set_defaults(action=action)
        if action is export:
            sub.add_argument("target", help="where to write: a name that ends in .zip, or a folder")
        add_json(sub)
        add_verbose(sub)


def run(args: argparse.Namespace) -> int:
    return int(args.action(args))


def show(args: argparse.Namespace) -> int:
    bundle = load_bundle(args.bundle)
    facts = describe(bundle)
    if args.json:
        print_json(facts)
        return 0
    rows = [(name.replace("_", " "), text(value)) for name, value in facts.items() if value not in (None, {}, [])]
    print_table([row for row in rows if row[0] != "files"])
    print_table([("files", ""), *((f"  {name}", f"{size:,} bytes") for name, size in facts["files"].items())])
    return 0


def describe(bundle: Bundle) -> dict[str, Any]:
    """What there is to know, as plain JSON."""
    facts: dict[str, Any] = {
        "path": str(bundle.path),
        "kind": bundle.kind,
        "name": bundle.name,
        "licence": bundle.licence,
    }
    facts |= {"voiceseq_version": bundle.voiceseq_version, "format_version": bundle.format_version}
    settings = ("config", "front_end", "decoding", "metrics", "training", "extra")
    facts |= {name: getattr(bundle, name) for name in settings}
    sizes = {name: len(symbols) for name, symbols in bundle.vocabularies.items() if isinstance(symbols, list | dict)}
    stored = sorted({dtype for dtype, _ in bundle.tensors.values()})
    parameters = sum(math.prod(shape) for _, shape in bundle.tensors.values())
    facts |= {"vocabularies": sizes, "tensors": len(bundle.tensors), "parameters": parameters, "stored_as": stored}
    return facts | {"files": {name: entry.size for name, entry in bundle.files.items()}}


def text(value: Any) -> str:
    """One readable cell: nested settings as name=value."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return " ".join(f"({text(item)})" if isinstance(item, dict) else text(item) for item in value)
    return f"{value:,}" if type(value) is int else str(value)


def verify(args: argparse.Namespace) -> int:
    report = verify_bundle(args.bundle)
    if args.json:
        problems, unlisted = report.problems, list(report.unlisted)
        print_json({"path": str(report.bundle.path), "ok": report.ok, "problems": problems, "unlisted": unlisted})
        return 0 if report.ok else 1
    for name in report.unlisted:
        print(f"voiceseq: note: {name} is not of the bundle and is never read", file=sys.stderr)
    print_table([(name, report.problems.get(name, "ok")) for name in report.bundle.files])
    return 0 if report.ok else 1


def export(args: argparse.Namespace) -> int:
    path = export_bundle(args.bundle, args.target)
    if args.json:
        print_json({"path": str(path)})
    else:
        print(path)
    return 0
