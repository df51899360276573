"""``voiceseq COMMAND``: finds the command, runs it, and turns whatever happens into an exit code.

0 done, 1 some input failed, 2 wrong usage, 130 stopped by Ctrl-C, 141 nobody reads the output any more.
A command is a module with ``add_arguments(parser)`` and ``run(args) -> int``, imported only when it is asked for.
"""

import argparse
import contextlib
import difflib
import importlib
import io
import os
import sys
import traceback
from dataclasses import dataclass

from voiceseq import __version__
from voiceseq.cli.options import add_verbose
from voiceseq.errors import BundleError, ConfigError, VoiceseqError


@dataclass(frozen=True)
class Command:
    """A row of the table: ``raw`` passes the words on as ``overrides``.

    ``bundle`` is used when no --model is given; ``recipe`` makes one where the installation has none.
    """

    module: str
    help: str
    example: str
    bundle: str | None = None
    recipe: str | None = None
    raw: bool = False


COMMANDS = {
    "train": Command(
        "voiceseq.cli.train",
        "train a model and leave a bundle",
        "voiceseq train experiment=dates",
        raw=True,
    ),
    "listen": Command(
        "voiceseq.cli.listen",
        "hear wake words: live from the microphone, or in files",
        "voiceseq listen --file talk.wav --json",
    ),
    "transcribe": Command(
        "voiceseq.cli.transcribe",
        "write down what is said: in files of any length and kind, or live",
        "voiceseq transcribe talk.mp3 --format txt srt json --out transcripts",
        bundle="english-small",
    ),
    "align": Command(
        "voiceseq.cli.align",
        "tell when each word of a known text is said in a recording",
        "voiceseq align talk.mp3 talk.txt --format textgrid",
        bundle="backbone",
        recipe="voiceseq train experiment=backbone",
    ),
    "wakeword": Command(
        "voiceseq.cli.wakeword",
        "make a wake word from a typed phrase, record people who say it, make it better",
        'voiceseq wakeword new "hey luna"',
    ),
    "generate": Command(
        "voiceseq.cli.generate",
        "write on from a beginning",
        'voiceseq generate "ROMEO:"',
        bundle="shakespeare",
        recipe="voiceseq train experiment=shakespeare data.train=TEXT data.validation=null",
    ),
    "score": Command(
        "voiceseq.cli.score",
        "tell how likely texts are: log-probability and perplexity, a line each",
        'voiceseq score "the apple and pear salad" "the apple and pair salad"',
        bundle="wikitext2",
        recipe="voiceseq train experiment=wikitext2",
    ),
    "dates": Command(
        "voiceseq.cli.dates",
        "read dates as people write them: ISO dates, a line each",
        'voiceseq dates "July 20th 1969"',
        bundle="dates",
        recipe="voiceseq train experiment=dates",
    ),
    "pronounce": Command(
        "voiceseq.cli.pronounce",
        "tell how words are said: CMU's phones, a line each",
        'voiceseq pronounce "hey luna"',
        bundle="pronounce-en",
        recipe="voiceseq train experiment=pronounce data.dictionary=CMUDICT data.common=null",
    ),
    "classify": Command(
        "voiceseq.cli.classify",
        "tell the class of texts, such as positive or negative, a line each",
        'voiceseq classify "a gripping, funny film"',
        bundle="sst2",
        recipe="voiceseq train experiment=sst2 data.train=TSV data.validation=TSV data.vectors=null",
    ),
    "tag": Command(
        "voiceseq.cli.tag",
        "mark the names in texts, or tag words with their parts of speech",
        'voiceseq tag "Yesterday, Harry Potter met Hermione Granger."',
        bundle="wnut17",
        recipe="voiceseq train experiment=wnut17 data.train=CONLL data.validation=CONLL data.vectors=null",
    ),
    "fill": Command(
        "voiceseq.cli.fill",
        "tell which word stands at [MASK]",
        'voiceseq fill "let\'s make [MASK] chicken"',
        bundle="masked",
        recipe="voiceseq train experiment=masked data.train=TEXT data.validation=TEXT data.vectors=null",
    ),
    "translate": Command(
        "voiceseq.cli.translate",
        "translate sentences, a line each",
        'voiceseq translate "Où est la gare ?"',
        bundle="fra-eng",
        recipe="voiceseq train experiment=fra-eng data.train=[PAIRS.tsv] data.validation=[MORE.tsv]",
    ),
    "embed": Command(
        "voiceseq.cli.embed",
        "look at word vectors: neighbours, likeness, analogies, how good they are",
        'voiceseq embed king "king queen" "man king woman"',
        bundle="word-vectors",
        recipe="voiceseq train experiment=word-vectors data.train=TEXT",
    ),
    "caption": Command(
        "voiceseq.cli.caption",
        "tell what is on a picture of digits, or happens in a clip of one",
        "voiceseq caption picture.png",
        bundle="digit-captions",
        recipe="voiceseq train experiment=digit-captions",
    ),
    "forecast": Command(
        "voiceseq.cli.forecast",
        "go on with a series of numbers, with intervals",
        'voiceseq forecast "354 355 356 358 359 357 355 353 351 352 353 355 355 357" --steps 3',
        bundle="co2",
        recipe="voiceseq train experiment=co2",
    ),
    "evaluate": Command(
        "voiceseq.cli.evaluate",
        "measure a bundle on recordings it has not learned from: report.json and plots",
        "voiceseq evaluate alexa --manifest words.jsonl --negatives speech.jsonl --conditions clean,10db --out report",
    ),
    "prepare": Command(
        "voiceseq.cli.prepare",
        "make a manifest of recordings: your own folder or table, or a public corpus",
        "voiceseq prepare folder recordings/ -o manifest.jsonl",
    ),
    "voices": Command(
        "voiceseq.cli.voices",
        "list the synthesiser voices on this machine, and how to get more",
        "voiceseq voices",
    ),
    "serve": Command(
        "voiceseq.cli.serve",
        "serve wake words and transcription: OpenAI's API, WebSockets, Home Assistant, a page",
        "voiceseq serve --wyoming tcp://127.0.0.1:10400",
    ),
    "bundle": Command(
        "voiceseq.cli.bundle",
        "show, verify or export a bundle",
        "voiceseq bundle show shakespeare",
    ),
    "tasks": Command(
        "voiceseq.cli.tasks",
        "list what voiceseq can do, each with an example",
        "voiceseq tasks",
    ),
    "doctor": Command(
        "voiceseq.cli.doctor",
        "tell what works on this machine: packages, accelerators, audio, codecs",
        "voiceseq doctor",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    speak_utf8()
    verbose = "-v" in words or "--verbose" in words
    try:
        code = dispatch(words)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: --help, or wrong usage
        return exit_code(stop)
    except KeyboardInterrupt:
        print("voiceseq: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        mute_stdout()
        return 141
    except Exception as error:
        return report(error, verbose)


def dispatch(words: list[str]) -> int:
    place = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    top = top_parser()
    top.parse_args(words[:place])  # --help and --version end here
    if place == len(words):
        top.print_help(sys.stderr)
        return 2
    name, rest = words[place], words[place + 1 :]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        top.error(f"no command {name!r}{f'; did you mean {near[0]!r}?' if near else ''} (voiceseq --help lists all)")
    command = COMMANDS[name]
    module = importlib.import_module(command.module)
    if command.raw:
        overrides = [word for word in rest if word not in ("-v", "--verbose")]
        return int(module.run(argparse.Namespace(overrides=overrides)))
    parser = command_parser(name, command)
    module.add_arguments(parser)
    args = parser.parse_args(rest)
    check_default_bundle(command, args)
    return int(module.run(args))


def check_default_bundle(command: Command, args: argparse.Namespace) -> None:
    """Say how to get the bundle that the command uses when none is named, where there is none."""
    if command.bundle is None or getattr(args, "model", None) != command.bundle:
        return
    from voiceseq.bundles.reading import locate

    try:
        locate(command.bundle)
    except BundleError as error:
        recipe = f"train it: {command.recipe}, then --model RUN/bundle" if command.recipe else "name one by --model"
        raise BundleError(f"no bundle {command.bundle!r} comes with this installation; {recipe}") from error


def top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name.ljust(width)}  {command.help}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="voiceseq",
        usage="voiceseq [-h] [--version] [-v] COMMAND ...",
        description="Wake words, transcription and sequence models on your own machine.",
        epilog=f"commands:\n{listed}\n\nexample: voiceseq tasks\n`voiceseq COMMAND --help` tells more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"voiceseq {__version__}")
    add_verbose(parser)
    return parser


def command_parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"voiceseq {name}",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example: {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",
    )
    add_verbose(parser)
    return parser


def report(error: Exception, verbose: bool) -> int:
    """One line on stderr, after the traceback where it was asked for; the code of a usage or an input error."""
    if verbose:
        traceback.print_exception(error)
    lines = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, VoiceseqError):
        print(f"voiceseq: error: {lines}", file=sys.stderr)
    elif isinstance(error, ModuleNotFoundError) and error.name:  # the listener alone is installed, or a package is gone
        print(
            f"voiceseq: error: this needs {error.name}, which is not installed: pip install voiceseq", file=sys.stderr
        )
    else:
        again = "" if verbose else "; run again with -v for the details"
        print(f"voiceseq: error: unexpected {type(error).__name__}: {lines}{again}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk, or a reader that is gone
        mute_stdout()
    return 2 if isinstance(error, ConfigError) else 1


def exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def speak_utf8() -> None:
    """UTF-8 whatever the locale says; what has no UTF-8 form is escaped on the way out and replaced on the way in."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def mute_stdout() -> None:
    """Send what is still buffered nowhere, so that Python's own last flush stays quiet."""
    with contextlib.suppress(OSError, ValueError):  # not a real file under test
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
