"""``voiceseq bundle show|verify|export``: what a bundle holds, whether it is whole, a copy of it. Without torch."""

import argparse
import math
import sys
from collections.abc import Iterator
from typing import Any

from voiceseq.bundles import Bundle, export_bundle, load_bundle, shipped_bundles, verify_bundle
from voiceseq.cli.options import add_json, add_verbose, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shipped = ", ".join(shipped_bundles()) or "none here"
    actions = parser.add_subparsers(metavar="show|verify|export", required=True)
    for action, text, example in (
        (show, "print what a bundle holds", "voiceseq bundle show shakespeare"),
        (verify, "check every file against its sha256", "voiceseq bundle verify shakespeare.zip"),
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
    sizes = {name: f"{size:,} symbols" for name, size in facts["vocabularies"].items()}
    files = {name: f"{size:,} bytes" for name, size in facts["files"].items()}
    facts |= {"vocabularies": sizes, "files": files}
    print_table(list(rows({name.replace("_", " "): value for name, value in facts.items()})))
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
    sizes = {name: count_symbols(vocabulary) for name, vocabulary in bundle.vocabularies.items()}
    stored = sorted({dtype for dtype, _ in bundle.tensors.values()})
    parameters = sum(math.prod(shape) for _, shape in bundle.tensors.values())
    facts |= {"vocabularies": sizes, "tensors": len(bundle.tensors), "parameters": parameters, "stored_as": stored}
    return facts | {"files": {name: entry.size for name, entry in bundle.files.items()}}


def count_symbols(vocabulary: Any) -> int:
    """Of a vocabulary as ``Vocabulary.to_json`` writes it, or of a plain list."""
    symbols = vocabulary.get("symbols") if isinstance(vocabulary, dict) else vocabulary
    return len(symbols) if isinstance(symbols, list) else 0


def rows(settings: dict[str, Any], margin: str = "") -> Iterator[tuple[str, str]]:
    """One row a setting, nested ones indented, the items of a list marked by "-"; what is empty is left out."""
    for name, value in settings.items():
        label = margin + name
        if name == "_target_" or value in (None, {}, []):
            continue
        if isinstance(value, dict):
            yield label, ""
            yield from rows(value, margin + "  ")
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            yield label, ""
            for item in value:
                for number, (inner, cell) in enumerate(rows(item)):
                    yield f"{margin}  {'  ' if number else '- '}{inner}", cell
        else:
            yield label, text(value)


def text(value: Any) -> str:
    """One readable cell."""
    if isinstance(value, list):
        return " ".join(text(item) for item in value)
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
