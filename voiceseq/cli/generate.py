"""``voiceseq generate [PREFIX ...]``: write on from a beginning with a language model."""

import argparse
import sys

from voiceseq.cli.options import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX", help="the beginnings; without any, the lines of stdin")
    parser.add_argument("--model", default="shakespeare", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--length", type=int, default=300, help="characters or words to write (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.8, help="below 1 safer, above wilder (%(default)s)")
    parser.add_argument("--top-k", type=int, help="choose among the k most probable symbols only")
    parser.add_argument("--top-p", type=float, help="choose among the fewest symbols that hold this much probability")
    parser.add_argument("--seed", type=int, help="the same seed writes the same text")
    parser.add_argument("--raw", action="store_true", help="print line breaks as they are, not as \\n")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.language import LanguageModel

    model = voiceseq.load(args.model)
    if not isinstance(model, LanguageModel):
        from voiceseq.cli.generate_more import run as run_more

        return run_more(model, args)
    prefixes = args.prefixes or (line.rstrip("\r\n") for line in sys.stdin)
    for number, prefix in enumerate(prefixes):
        seed = None if args.seed is None else args.seed + number
        (text,) = model.generate([prefix], args.length, args.temperature, args.top_k, args.top_p, seed)
        if args.json:
            print_json({"prefix": prefix, "text": text})
        elif args.raw:
            print(prefix + text)
        else:
            print((prefix + text).replace("\\", "\\\\").replace("\n", "\\n"), flush=True)
    return 0
