"""``voiceseq classify [TEXT ...]``: the class of each text, such as positive or negative; a line each."""

import argparse
import sys

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the texts; without any, the lines of stdin")
    parser.add_argument("--model", default="sst2", help="name or path of a bundle (default: %(default)s)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.classifier import Classifier

    model = voiceseq.load(args.model)
    if not isinstance(model, Classifier):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a classifier was wanted")
    empty = 0
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        (found,) = model.classify([text])
        empty += found.label is None
        if args.json:
            shares = {name: round(value, 6) for name, value in found.probabilities.items()}
            print_json(
                {"text": text, "label": found.label, "probability": shares.get(found.label or ""), "classes": shares}
            )
        else:
            print(found.label or "", flush=True)
    if empty:
        print(f"voiceseq: {empty} of the lines hold no word, so they have no class", file=sys.stderr)
    return 1 if empty else 0
