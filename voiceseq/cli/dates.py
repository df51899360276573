"""``voiceseq dates [TEXT ...]``: dates as people write them to ISO dates, a line each; an empty line where none is."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError

if TYPE_CHECKING:
    from voiceseq.inference.transduce import Transducer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the dates; without any, the lines of stdin")
    parser.add_argument("--model", default="dates", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--beam", type=int, help="how many readings to weigh (default: the bundle's own)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw what it looked at for the first date read")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.dates import read_dates
    from voiceseq.inference.transduce import Transducer

    model = voiceseq.load(args.model)
    if not isinstance(model, Transducer):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a transducer was wanted")
    first: tuple[str, str] | None = None
    failed = 0
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        (reading,) = read_dates(model, [text], args.beam)
        if args.json:
            print_json({"text": text, "date": reading.date, "probability": round(reading.probability, 6)})
        else:
            print(reading.date or "", flush=True)
        if reading.date is None:
            failed += 1
        else:
            first = first or (text, reading.date)
    if failed:
        print(f"voiceseq: no date was found in {failed} of the lines", file=sys.stderr)
    if args.plot:
        if first is None:
            raise InputError("nothing to draw: no date was found; give --plot with a date")
        draw(model, *first, args.plot)
    return 1 if failed else 0


def draw(model: "Transducer", text: str, date: str, path: Path) -> None:
    """What the model looked at in ``text`` while it wrote ``date``; InputError where the file cannot be written."""
    from voiceseq.evaluation.plots import plot_attention
    from voiceseq.inference.dates import plain_text

    text = plain_text(text)
    weights = model.attention(text, date)
    try:
        plot_attention(weights, text, [*date, "end"], path)
    except (OSError, ValueError) as error:  # ValueError: a kind of picture that there is not
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
