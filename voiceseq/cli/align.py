"""``voiceseq align AUDIO TEXT``: when each word of a known text is said."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voiceseq.cli.evaluate import make_folder
from voiceseq.cli.options import print_json, print_table
from voiceseq.errors import ConfigError, InputError
from voiceseq.remote import output

if TYPE_CHECKING:
    from voiceseq.inference.align import Aligner, Alignment

FORMATS = {"json": ".json", "textgrid": ".TextGrid"}
UNLIKELY = 0.15  # a mean confidence below this is what wrong texts get


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("audio", metavar="AUDIO", help="a sound or video file")
    parser.add_argument(
        "text", metavar="TEXT", help="what is said in it: a text file, the words themselves, or - (stdin)"
    )
    parser.add_argument(
        "--model", default="backbone", metavar="NAME",
        help="a bundle that hears phones, or a recogniser with CTC (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--pronouncer", default="pronounce-en", metavar="NAME", help="how words are said, for phones")
    parser.add_argument("--dictionary", type=Path, metavar="FILE", help="a dictionary in CMU's form, asked first")
    parser.add_argument("--format", nargs="+", choices=FORMATS, metavar="F", help="json, textgrid, or both with --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write AUDIO's name with .json and .TextGrid here")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="the spectrogram with the words")


def run(args: argparse.Namespace) -> int:
    if args.out is None:
        return align(args)
    with output(args.out) as args.out:  # a URL gets what was written here
        return align(args)


def align(args: argparse.Namespace) -> int:
    formats = list(dict.fromkeys(args.format or (["json"] if args.out else [])))
    if args.out is None and len(formats) > 1:
        raise ConfigError(f"--format {' '.join(formats)}: two formats want --out DIR; stdout takes one")
    if args.out is not None:
        make_folder(args.out)
    if args.plot is not None and not args.plot.parent.is_dir():
        raise InputError(f"--plot {args.plot} cannot be written: there is no such folder")
    text = read_words(args.text)
    found = open_aligner(args).align(args.audio, text)
    for warning in found.warnings:
        print(f"voiceseq: warning: {warning}", file=sys.stderr)
    if found.confidence < UNLIKELY:
        print(f"voiceseq: {args.audio}: the text hardly fits the sound; is it the right one?", file=sys.stderr)
    if args.out is not None:
        write(found, args.out / Path(args.audio).stem, formats)
    elif formats == ["json"]:
        print_json(found.to_json())
    elif formats:
        print(found.to_textgrid(), end="")
    else:
        rows = [(f"{one.start:.2f}", f"{one.end:.2f}", one.word, f"{one.confidence:.2f}") for one in found.words]
        print_table([("start", "end", "word", "confidence"), *rows])
    if args.plot is not None:
        plot(found, args)
    return 0


def read_words(given: str) -> str:
    """The text of a file where there is one of this name, else the words themselves."""
    from voiceseq.text.files import read_text

    if given == "-":
        return sys.stdin.read()
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):  # a text too long for a name, or with a NUL
        is_file = False
    if not is_file and given.endswith(".txt") and " " not in given:
        raise InputError(f"no file {given}; give one that exists, or the words that are said")
    return read_text(given) if is_file else given


def open_aligner(args: argparse.Namespace) -> "Aligner":
    import voiceseq
    from voiceseq.inference.align import Aligner
    from voiceseq.inference.phones import PhoneRecogniser
    from voiceseq.text.pronounce import read_dictionary

    model = voiceseq.load(args.model)
    if not isinstance(model, PhoneRecogniser):
        return Aligner.of(model)
    dictionary = read_dictionary(args.dictionary) if args.dictionary else None
    return Aligner.of(model, voiceseq.load(args.pronouncer), dictionary)


def write(found: "Alignment", stem: Path, formats: list[str]) -> None:
    """Each file in one step, so that it is whole or not there."""
    import json

    texts = {"json": lambda: json.dumps(found.to_json(), ensure_ascii=False) + "\n", "textgrid": found.to_textgrid}
    for name in formats:
        path = stem.with_name(stem.name + FORMATS[name])
        part = path.with_name(f".{path.name}.partial")
        try:
            part.write_text(texts[name](), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error}); give another --out") from error


def plot(found: "Alignment", args: argparse.Namespace) -> None:
    from voiceseq.audio.files import read_audio
    from voiceseq.evaluation.words_picture import LONGEST_S, plot_words

    sound = read_audio(args.audio, sample_rate=16_000, duration_s=LONGEST_S)
    plot_words(sound.samples, sound.sample_rate, found.words, args.plot, Path(args.audio).name)
