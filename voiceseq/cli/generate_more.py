"""``voiceseq generate`` with what is no language model: names of a kind, chorales as MIDI files; a line each."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from voiceseq.cli.options import print_json
from voiceseq.errors import BundleError, InputError


def run(model: Any, args: argparse.Namespace) -> int:
    """Lines are kinds of names (``dinosaur``), or the files that chorales go to; exit code as of every command."""
    write = writer(model, args)
    failed = 0
    for number, line in enumerate(args.prefixes or (line.rstrip("\r\n") for line in sys.stdin)):
        try:
            text = write(line, None if args.seed is None else args.seed + number)
        except InputError as error:
            text = ""
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
        print_json({"prefix": line, "text": text}) if args.json else print(text, flush=True)
    return 1 if failed else 0


def writer(model: Any, args: argparse.Namespace) -> Callable[[str, int | None], str]:
    """What makes the answer to a line, by a seed. Raises BundleError for a bundle that generates nothing."""
    from voiceseq.inference.composer import Composer, write_midi
    from voiceseq.inference.names import NameWriter

    if isinstance(model, NameWriter):
        return lambda kind, seed: model.write([kind.strip().lstrip("\ufeff")], args.temperature, seed)[0]
    if isinstance(model, Composer):
        return lambda path, seed: str(write_midi(model.compose(args.length, seed, args.temperature), path))
    wanted = "a bundle of names, of music or a language model was wanted"
    raise BundleError(f"{args.model} is a {type(model).__name__}; {wanted}")
