"""``voiceseq score [TEXT ...]``: how likely each text is to a language model; a line each, empty where it is empty."""

import argparse
import sys

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the texts; without any, the lines of stdin")
    parser.add_argument("--model", default="wikitext2", help="name or path of a bundle (default: %(default)s)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the natural log-probability and, after a tab, the perplexity; the likelier text has the larger first."""
    import voiceseq
    from voiceseq.inference.language import LanguageModel

    model = voiceseq.load(args.model)
    if not isinstance(model, LanguageModel):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a language model was wanted")
    failed = 0
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        try:
            (found,) = model.score([text])
        except InputError as error:
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
            print_json(
                {"text": text, "log_prob": None, "perplexity": None, "symbols": 0, "unknown": 0}
            ) if args.json else print()
            continue
        if args.json:
            numbers = {"log_prob": round(found.log_prob, 4), "perplexity": float(f"{found.perplexity:.6g}")}
            print_json({"text": text} | numbers | {"symbols": found.symbols, "unknown": found.unknown})
        else:
            print(f"{found.log_prob:.3f}\t{found.perplexity:.4g}", flush=True)
    return 1 if failed else 0
