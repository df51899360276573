"""``voiceseq tag [TEXT ...]``: names marked in the text, or words with their parts of speech; a line each."""

import argparse
import sys

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the texts; without any, the lines of stdin")
    parser.add_argument("--model", default="wnut17", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--tokens", action="store_true", help="the words stand between spaces: cut nowhere else")
    parser.add_argument("--columns", action="store_true", help="print word/tag, of names too")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.tagger import Tagger

    model = voiceseq.load(args.model)
    if not isinstance(model, Tagger):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a tagger was wanted")
    for text in args.texts or (line.rstrip("\r\n") for line in sys.stdin):
        (tagged,) = model.tag([text], pretokenised=args.tokens or None)
        if args.json:
            print_json(
                {
                    "text": text,
                    "tokens": tagged.words,
                    "tags": list(tagged.tags),
                    "probabilities": [round(value, 4) for value in tagged.probabilities],
                    "spans": [
                        {"start": start, "end": end, "type": kind, "text": tagged.text[start:end]}
                        for start, end, kind in tagged.spans
                    ],
                }
            )
        elif args.columns:
            print(" ".join(f"{word}/{tag}" for word, tag in zip(tagged.words, tagged.tags, strict=True)), flush=True)
        else:
            print(tagged.marked(), flush=True)
    return 0
