"""``voiceseq pronounce [PHRASE ...]``: how words are said, in CMU's phones, a line each; empty where nothing is."""

import argparse
import sys
from pathlib import Path

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phrases", nargs="*", metavar="PHRASE", help="words; without any, the lines of stdin")
    parser.add_argument("--model", default="pronounce-en", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--dictionary", type=Path, metavar="FILE", help="a dictionary in CMU's form, asked first")
    parser.add_argument("--beam", type=int, help="how many ways to weigh (default: the bundle's own)")
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="print N ways, tabs between (default: 1)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.pronounce import Pronouncer, found_dictionary
    from voiceseq.text.pronounce import read_dictionary, syllables

    model = voiceseq.load(args.model)
    if not isinstance(model, Pronouncer):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a pronouncer was wanted")
    if args.n_best < 1 or (args.beam is not None and args.beam < args.n_best):
        raise InputError(f"--n-best {args.n_best}, --beam {args.beam}; 1 or more, and a beam as wide, were wanted")
    dictionary = read_dictionary(args.dictionary) if args.dictionary else found_dictionary()
    failed = 0
    for phrase in args.phrases or (line.rstrip("\r\n") for line in sys.stdin):
        try:
            ways = model.pronounce([phrase], args.beam, args.n_best, dictionary)[0]
        except InputError as error:
            ways = []
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
        said = [" ".join(way) for way in ways]
        if args.json:
            print_json({"text": phrase, "pronunciations": said, "syllables": syllables(ways[0]) if ways else 0})
        else:
            print("\t".join(said), flush=True)
    return 1 if failed else 0
