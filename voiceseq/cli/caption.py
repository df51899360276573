"""``voiceseq caption [FILE ...]``: what is on each picture, or happens in each clip (GIF); a line each.

With the bundle ``promoters`` the words are DNA: promoter or other.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import BundleError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="pictures; without any, the lines of stdin name them")
    parser.add_argument("--model", default="digit-captions", help="name or path of a bundle (default: %(default)s)")
    parser.add_argument("--beam", type=int, help="how many captions to weigh (default: the bundle's own)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw where it looked in the first picture")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import voiceseq
    from voiceseq.inference.captioner import Captioner, FrameClassifier, read_clip, read_frames

    model = voiceseq.load(args.model)
    if not isinstance(model, Captioner | FrameClassifier):
        raise BundleError(f"{args.model} is a {type(model).__name__}; a captioner or a classifier of clips was wanted")
    if args.beam is not None and args.beam < 1:
        raise InputError(f"--beam {args.beam}; 1 or more was wanted")
    failed = 0
    first: tuple[Any, str] | None = None
    for file in args.files or (line.rstrip("\r\n") for line in sys.stdin):
        try:
            if isinstance(model, Captioner):
                frames = read_frames(file)
                text = model.caption(frames[:1], args.beam)[0]
                first = first or (frames[0], text)
            else:
                text = model.classify([read_clip(model, file)])[0].label
        except InputError as error:
            text = ""
            failed += 1
            print(f"voiceseq: {error}", file=sys.stderr)
        print_json({"file": file, "caption": text}) if args.json else print(text, flush=True)
    if args.plot:
        draw(model, first, args.plot)
    return 1 if failed else 0


def draw(model: Any, first: tuple[Any, str] | None, path: Path) -> None:
    from voiceseq.evaluation.plots import plot_attention
    from voiceseq.inference.captioner import Captioner

    if first is None or not isinstance(model, Captioner):
        raise InputError("nothing to draw: --plot shows where a captioner looked in a picture that could be read")
    weights = model.looks(*first)
    try:
        plot_attention(weights, [str(i) for i in range(weights.shape[1])], [*first[1].split(), "end"], path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
