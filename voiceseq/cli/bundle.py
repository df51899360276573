"""``voiceseq bundle show|verify|export|import``: what a bundle holds, whether it is whole, a copy, others' weights.

All without torch, but for ``import`` and for ``export --format onnx``, which compares its graph with torch.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from voiceseq.bundles import Bundle, export_bundle, load_bundle, shipped_bundles, verify_bundle
from voiceseq.cli.options import add_json, add_verbose, print_json, print_table
from voiceseq.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shipped = ", ".join(shipped_bundles()) or "none here"
    actions = parser.add_subparsers(metavar="show|verify|export|import", required=True)
    for action, text, example in (
        (show, "print what a bundle holds", "voiceseq bundle show shakespeare"),
        (verify, "check every file against its sha256", "voiceseq bundle verify shakespeare.zip"),
        (
            export,
            "copy a bundle to one .zip or to a folder, or turn a wake word or a recogniser into one ONNX file",
            "voiceseq bundle export alexa alexa.onnx --format onnx",
        ),
    ):
        sub = actions.add_parser(action.__name__, help=text, description=text, epilog=f"example: {example}")
        sub.add_argument("bundle", help=f"a folder, a .zip or a shipped name ({shipped})")
        sub.set_defaults(action=action)
        if action is export:
            add_export(sub)
        add_json(sub)
        add_verbose(sub)
    add_import(actions)


def add_export(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "target", nargs="?", help="where to write: a name that ends in .zip or .onnx, or a folder "
        "(default with --format onnx: BUNDLE.onnx)",
    )  # fmt: skip
    sub.add_argument("--format", choices=("bundle", "onnx"), help="bundle, unless the target's name ends in .onnx")
    sub.add_argument("--quantize", choices=("int8",), help="of ONNX: weights in 8 bits, a third of the size")
    sub.add_argument(
        "--and", dest="others", action="append", default=[], metavar="BUNDLE",
        help="of ONNX: another wake word on the same backbone, into the same graph; may be repeated",
    )  # fmt: skip

    sub.add_argument(
        "--manifest", type=Path, metavar="M.jsonl",
        help="of ONNX: recordings with texts that a recogniser is compared on (default: the shipped clips)",
    )  # fmt: skip


def add_import(actions: Any) -> None:
    text = "make a bundle of weights that others trained: OpenAI's Whisper (English models)"
    example = "voiceseq bundle import whisper tiny.en.pt --vocabulary gpt2.tiktoken --out tiny-en"
    sub = actions.add_parser("import", help=text, description=text, epilog=f"example: {example}")
    sub.add_argument("kind", choices=("whisper",), help="whose weights they are")
    sub.add_argument("weights", type=Path, metavar="FILE", help="the checkpoint as its makers publish it")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write: a folder or a .zip")
    sub.add_argument(
        "--vocabulary", type=Path, metavar="FILE",
        help="the pieces, gpt2.tiktoken of the package openai-whisper (default: beside the weights, or installed)",
    )  # fmt: skip
    sub.add_argument(
        "--text", type=Path, action="append", default=[], metavar="FILE",
        help="keep the pieces that such text needs (.txt, .gz, a manifest; may be repeated; each counts the same)",
    )  # fmt: skip
    sub.add_argument("--pieces", type=int, default=5000, metavar="N", help="how many of them (default: %(default)s)")
    sub.set_defaults(action=import_weights)
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


def import_weights(args: argparse.Namespace) -> int:
    from voiceseq.models.whisper_weights import import_whisper

    path = import_whisper(args.weights, args.out, args.vocabulary, args.text, args.pieces)
    if args.json:
        print_json({"path": str(path)})
    else:
        print(path)
    return 0


def export(args: argparse.Namespace) -> int:
    if args.format == "onnx" or (args.format is None and str(args.target).endswith(".onnx")):
        return export_graph(args)
    if args.target is None or args.quantize or args.others:
        raise ConfigError("a copy of a bundle wants a target, and nothing of what --format onnx takes")
    path = export_bundle(args.bundle, args.target)
    if args.json:
        print_json({"path": str(path)})
    else:
        print(path)
    return 0


def export_graph(args: argparse.Namespace) -> int:
    from voiceseq.inference.onnx_speech import KINDS as SPEECH

    target = args.target or f"{Path(args.bundle).name.removesuffix('.zip')}.onnx"
    return (export_speech_graph if load_bundle(args.bundle).kind in SPEECH else export_words)(args, target)


def export_speech_graph(args: argparse.Namespace, target: str) -> int:
    from voiceseq.export.speech import export_speech

    if args.others:
        raise ConfigError("--and joins wake words; a recogniser of speech is a graph by itself")
    report = export_speech(args.bundle, target, args.quantize, args.manifest)
    if args.json:
        print_json({name: str(value) if name == "path" else value for name, value in vars(report).items()})
        return 0
    print(report.path)
    print(f"{report.bytes:,} bytes, weights in {report.weights}, hears {report.hears}", file=sys.stderr)
    said = f"largest difference of a {report.compared} {report.difference:.1e}"
    if report.wer is not None:
        said += f"; WER {report.wer:.2f} % ({report.torch_wer:.2f} % by torch)"
    print(f"compared with torch on {report.clips} clips: {said}", file=sys.stderr)
    return 0


def export_words(args: argparse.Namespace, target: str) -> int:
    from voiceseq.export.onnx import export_onnx

    if args.manifest is not None:
        raise ConfigError("--manifest checks a recogniser of speech; wake words are checked on the shipped clips")
    report = export_onnx([args.bundle, *args.others], target, args.quantize)
    facts = {name: getattr(report, name) for name in ("bytes", "words", "weights", "difference", "clips", "events")}
    if args.json:
        print_json({"path": str(report.path), **facts})
        return 0
    print(report.path)
    print(
        f"{report.bytes:,} bytes, weights in {report.weights}, listens for {', '.join(report.words)}", file=sys.stderr
    )
    print(
        f"compared with torch on {report.clips} clips, chunk by chunk: largest difference of a score "
        f"{report.difference:.1e}; same events ({report.events})", file=sys.stderr,
    )  # fmt: skip
    return 0
