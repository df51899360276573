"""``voiceseq translate [TEXT ...]``: sentences into another language, a line each; empty where that is not possible."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError

if TYPE_CHECKING:
    from voiceseq.inference.translator import Translator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the sentences; without any, the lines of stdin")
    parser.add_argument("--model", default="fra-eng", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--beam", type=int, help="how many translations to weigh (default: the bundle's own)")
    parser.add_argument("--batch", type=int, default=64, help="lines translated at once; 1 answers each as it comes")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw what it looked at for the first sentence")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.translator import Translator

    model = voiceseq.load(args.model)
    if not isinstance(model, Translator):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a translator was wanted")
    if args.batch < 1:
        raise InputError(f"--batch {args.batch}; 1 or more was wanted")
    failed, first = 0, ""
    batch = 1 if not args.texts and sys.stdin.isatty() else args.batch
    for texts in _batches(args.texts or (line.rstrip("\r\n") for line in sys.stdin), batch):
        for text, written in zip(texts, model.translate(texts, args.beam), strict=True):
            if problem := model.problem(text):
                print(f"voiceseq: {text[:40]!r}: {problem}", file=sys.stderr)
                failed += 1
            first = first or (text if written else "")
            if args.json:
                print_json({"text": text, "translation": written})
            else:
                print(written)
        sys.stdout.flush()
    if args.plot:
        draw(model, first, args.plot)
    return 1 if failed else 0


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(texts)
    while some := list(islice(source, size)):
        yield some


def draw(model: "Translator", text: str, path: Path) -> None:
    """What the model looked at while it wrote; InputError where there is nothing to draw or no place for it."""
    from voiceseq.evaluation.plots import plot_attention
    from voiceseq.inference.translator import plain_text

    if not text:
        raise InputError("nothing to draw: no sentence was translated")
    plain = plain_text(text)
    written = model.convert([plain])[0]
    try:
        weights = model.attention(plain, written)
        plot_attention(weights, model.source.split(plain), [*model.target.split(written), "end"], path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
