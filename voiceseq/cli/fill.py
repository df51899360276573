"""``voiceseq fill [TEXT ...]``: the most probable word at each [MASK]; a line each, empty where there is no mask."""

import argparse
import sys

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts with [MASK]; without any, the lines of stdin")
    parser.add_argument("--model", default="masked", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--n-best", type=int, default=5, metavar="N", help="how many words --json tells of each mask")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.masked import Filled, MaskedModel

    model = voiceseq.load(args.model)
    if not isinstance(model, MaskedModel):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a masked language model was wanted")
    if args.n_best < 1:
        raise InputError(f"--n-best {args.n_best}; 1 or more was wanted")
    failed = 0
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        try:
            (found,) = model.fill([text], args.n_best)
        except InputError as error:
            found = Filled(text, "", [])
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
        if args.json:
            masks = [
                [{"word": one.word, "probability": round(one.probability, 6)} for one in m] for m in found.candidates
            ]
            print_json({"text": text, "filled": found.filled, "masks": masks})
        else:
            print(found.filled, flush=True)
    return 1 if failed else 0
