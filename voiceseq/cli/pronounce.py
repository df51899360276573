"""``voiceseq pronounce [PHRASE ...]``: how words are said, a line each; empty where nothing is.

English in CMU's phones, or with ``--language`` words of many languages in IPA.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError

if TYPE_CHECKING:
    from voiceseq.inference.letters import LettersToSounds

DEFAULT = "pronounce-en"
TOGETHER = 128  # words of stdin that are said at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phrases", nargs="*", metavar="PHRASE", help="words; without any, the lines of stdin")
    parser.add_argument("--model", default=DEFAULT, help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--dictionary", type=Path, metavar="FILE", help="a dictionary in CMU's form, asked first")
    parser.add_argument("--beam", type=int, help="how many ways to weigh (default: the bundle's own)")
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="print N ways, tabs between (default: 1)")
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="words of this language in IPA, by pronounce-ipa: ita, fre, eng_us",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.letters import LettersToSounds
    from voiceseq.inference.pronounce import Pronouncer, found_dictionary
    from voiceseq.text.pronounce import read_dictionary, syllables

    if args.n_best < 1 or (args.beam is not None and args.beam < args.n_best):
        raise InputError(f"--n-best {args.n_best}, --beam {args.beam}; 1 or more, and a beam as wide, were wanted")
    other = args.language is not None and args.model == DEFAULT
    model = voiceseq.load("pronounce-ipa" if other else args.model)
    if isinstance(model, LettersToSounds):
        return say(model, args)
    if args.language is not None:
        raise InputError(f"--language {args.language}: {args.model} knows English alone; leave one of the two out")
    if not isinstance(model, Pronouncer):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a pronouncer was wanted")
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


def say(model: "LettersToSounds", args: argparse.Namespace) -> int:
    """Words of one language in IPA, a line each."""
    model.check_language(args.language)
    failed = 0
    source = iter(args.phrases or (line.rstrip("\r\n") for line in sys.stdin))
    while words := list(islice(source, 1 if sys.stdin.isatty() else TOGETHER)):
        for word, ways in zip(words, model.pronounce(words, args.language, args.beam, args.n_best), strict=True):
            if problem := model.problem(word):
                failed += 1
                print(f"voiceseq: {word[:40]!r}: {problem}", file=sys.stderr)
            said = [" ".join(way) for way in ways]
            print_json({"text": word, "pronunciations": said}) if args.json else print("\t".join(said))
        sys.stdout.flush()
    return 1 if failed else 0
