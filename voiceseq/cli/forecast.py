"""``voiceseq forecast [SERIES ...]``: how each series of numbers goes on, a line each: value (low to high) a step."""

import argparse
import re
import sys

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "series", nargs="*", metavar="SERIES", help='"354 355 356 ..."; without any, the lines of stdin'
    )
    parser.add_argument("--model", default="co2", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="how far ahead (default: the bundle's own)")
    parser.add_argument("--level", type=float, default=0.8, help="what the intervals cover: 0.5, 0.8 or 0.95")
    parser.add_argument("--seed", type=int, default=1, help="of the futures that are drawn")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.forecaster import Forecaster

    model = voiceseq.load(args.model)
    if not isinstance(model, Forecaster):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a forecaster was wanted")
    failed = 0
    for text in args.series or (line.rstrip("\r\n") for line in sys.stdin):
        rows: list[tuple[float, float, float]] = []
        try:
            found = model.forecast(numbers(text), args.steps, args.level, args.seed)
            rows = [tuple(round(float(value), 4) for value in row) for row in zip(*found, strict=True)]  # type: ignore[misc]
        except InputError as error:
            failed += 1
            print(f"voiceseq: {text[:30]!r}: {error}", file=sys.stderr)
        if args.json:
            mean, low, high = (list(side) for side in zip(*rows, strict=True)) if rows else ([], [], [])
            print_json({"mean": mean, "low": low, "high": high, "level": args.level})
        else:
            print("  ".join(f"{mean:g} ({low:g} to {high:g})" for mean, low, high in rows), flush=True)
    return 1 if failed else 0


def numbers(text: str) -> list[float]:
    """The numbers of a line, between spaces, commas or semicolons. Raises InputError for what is none."""
    cells = [cell for cell in re.split(r"[\s,;]+", text.strip().lstrip("\ufeff")) if cell]
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise InputError(f"{error}; numbers with spaces or commas between them were wanted") from error
