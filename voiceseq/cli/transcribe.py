"""``voiceseq transcribe FILES``: sound to text with times, file by file or live from the microphone."""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import print_json
from voiceseq.errors import BundleError, ConfigError, InputError

if TYPE_CHECKING:
    from voiceseq.cli.transcribe_engines import Crew
    from voiceseq.cli.transcribe_outputs import Item, Outputs
    from voiceseq.cli.transcribe_progress import Meter
    from voiceseq.inference.pooling import Failure
    from voiceseq.inference.speech import SpeechEvent
    from voiceseq.inference.transcriber import Settings, Transcriber, Transcript

DEFAULT = "english-small"
FORMATS = ("txt", "srt", "vtt", "tsv", "json")
ENGINES = ("local", "ray")
A_LINE = ("txt", "json")  # what several files may share stdout with
QUEUE_S = 3.0  # of sound that may wait when the machine is too slow for live speech


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="sound or video files, folders of them, manifests (.jsonl), URLs of "
        "all these (s3, gs, https), or - for stdin")  # fmt: skip
    add("--model", default=DEFAULT, metavar="NAME", help="name or path of a bundle (default: %(default)s)")
    add("--format", nargs="+", default=["txt"], metavar="F", help=f"one or several of {' '.join(FORMATS)} (default: "
        "txt)")  # fmt: skip
    add("--out", type=Path, metavar="DIR", help="write files here; what is done is skipped the next time")
    add("--again", action="store_true", help="with --out: do again what is done")
    add("--channels", default="mix", metavar="C", help="mix, separate, or the number of one from 0 (default: mix)")
    add("--rate", type=int, metavar="HZ", help="stdin is raw 16-bit mono PCM of this rate, not a file")
    add("--batch-seconds", type=float, default=60.0, metavar="S", help="sound that is recognised at once; 0: piece by "
        "piece (default: %(default)g)")  # fmt: skip
    add("--threads", type=int, metavar="N", help="processor threads (default: torch's own choice; 1 for workers)")
    many = parser.add_argument_group("many files")
    add = many.add_argument
    add("--workers", type=int, metavar="N", help="processes that share the files (default: 1; with ray all there is)")
    add("--engine", choices=ENGINES, default="local", help="who runs them: this machine, or Ray (default: %(default)s)")
    add("--address", metavar="A", help="with --engine ray: the cluster, HOST:PORT or auto (default: a new one, here)")
    search = parser.add_argument_group("search")
    add = search.add_argument
    add("--decoder", metavar="D", help="how to search; a wrong name lists what the bundle has (default: its own)")
    add("--beam", type=int, metavar="N", help="how many readings to follow (default: the bundle's own)")
    add("--lm", type=Path, metavar="LM", help="a language model: an ARPA file, or the bundle of a neural one")
    add("--lm-weight", type=float, metavar="W", help="how much it counts (default: the bundle's own)")
    add("--hotwords", action="append", default=[], metavar="W,W", help="words or phrases to expect, commas between")
    add("--hotword-weight", type=float, metavar="W", help="how much they count (default: the bundle's own)")
    add("--nbest", type=int, default=1, metavar="N", help="readings of each segment, in JSON (default: 1)")
    live = parser.add_argument_group("live")
    add = live.add_argument
    add("--live", action="store_true", help="from the microphone: partial and final results as they come")
    add("--file", metavar="F", help="with --live: a sound file instead of the microphone; - is raw PCM on stdin")
    add("--device", metavar="D", help="with --live: the microphone, its number or a part of its name")


def run(args: argparse.Namespace) -> int:
    part_formats(args)
    check(args)
    if args.threads is not None:
        import torch

        torch.set_num_threads(args.threads)
    return transcribe_live(args) if args.live else transcribe_files(args)


def part_formats(args: argparse.Namespace) -> None:
    """``--format json a.wav``: what follows the formats and is none of them is a file."""
    words = [word for given in args.format for word in (given.split(",") if given not in FORMATS else [given])]
    count = next((place for place, word in enumerate(words) if word not in FORMATS), len(words))
    if count:
        args.files += [] if count == len(words) else args.format[len(args.format) - (len(words) - count) :]
    args.format = list(dict.fromkeys(words[:count] or words))


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError with all that is wrong."""
    mistakes = [f"no format {one!r}: {', '.join(FORMATS)} were wanted" for one in args.format if one not in FORMATS]
    mistakes += check_live(args) if args.live else check_files(args)
    if args.channels not in ("mix", "separate") and not args.channels.isdecimal():
        mistakes.append(f"--channels {args.channels}: mix, separate or a number from 0 was wanted")
    for name, least in (
        ("beam", 1),
        ("nbest", 1),
        ("threads", 1),
        ("workers", 1),
        ("rate", 1000),
        ("batch_seconds", 0),
    ):
        value = getattr(args, name)
        if value is not None and not least <= value <= 1_000_000:
            mistakes.append(f"--{name.replace('_', '-')} {value:g}: {least:,} or more was wanted")
    if args.beam is not None and args.beam < args.nbest:
        mistakes.append(f"--nbest {args.nbest} wants a --beam as wide, not {args.beam}")
    if args.lm is not None and not args.lm.exists():
        mistakes.append(f"--lm {args.lm}: there is no such file or bundle")
    if mistakes:
        raise ConfigError("; ".join(mistakes))


def check_files(args: argparse.Namespace) -> list[str]:
    mistakes = []
    if not args.files:
        mistakes.append("no files: name some, or folders, or - for stdin, or --live for the microphone")
    if args.files.count("-") > 1:
        mistakes.append("- is there more than once; stdin can be read once")
    if args.rate is not None and "-" not in args.files:
        mistakes.append("--rate is of raw sound on stdin: give - for a file, or leave --rate away")
    if args.out is None and len(args.format) > 1:
        mistakes.append(f"{len(args.format)} formats cannot share stdout: give --out DIR")
    if args.again and args.out is None:
        mistakes.append("--again wants --out DIR")
    if args.address is not None and args.engine != "ray":
        mistakes.append("--address is for --engine ray")
    if workers_wanted(args) and "-" in args.files:
        mistakes.append("stdin is read by this process alone: leave --workers and --engine away")
    mistakes += [f"--{name} is for --live" for name in ("file", "device") if getattr(args, name) is not None]
    return mistakes


def check_live(args: argparse.Namespace) -> list[str]:
    mistakes = []
    if args.files:
        mistakes.append("--live hears the microphone; without it, files are transcribed (--live --file F tries one)")
    if workers_wanted(args):
        mistakes.append("--live hears one microphone: leave --workers and --engine away")
    if args.out is not None or args.format not in (["txt"], ["json"]):
        mistakes.append("--live prints txt or json lines")
    if args.file is not None and args.device is not None:
        mistakes.append("--device is for the microphone and --file for a file: give one of them")
    return mistakes


def open_transcriber(args: argparse.Namespace) -> "Transcriber":
    """Raises BundleError for another kind of bundle, ConfigError for a decoder that it does not have."""
    import voiceseq

    transcriber = voiceseq.load(args.model)
    if not isinstance(transcriber, voiceseq.Transcriber):
        raise BundleError(f"{args.model} is a {type(transcriber).__name__}; a recogniser of speech was wanted")
    decoders = transcriber.recogniser.decoders
    if args.decoder is not None and args.decoder not in decoders:
        raise ConfigError(f"--decoder {args.decoder}: {args.model} has {', '.join(decoders)}")
    return transcriber


def settings_of(args: argparse.Namespace) -> "Settings":
    from voiceseq.inference.transcriber import make_settings

    return make_settings(
        channels=int(args.channels) if args.channels.isdecimal() else args.channels,
        batch_s=args.batch_seconds,
        decoder=args.decoder,
        beam=args.beam,
        nbest=args.nbest,
        lm=None if args.lm is None else str(args.lm),
        lm_weight=args.lm_weight,
        hotwords=tuple(word for given in args.hotwords for one in given.split(",") if (word := one.strip())),
        hotword_weight=args.hotword_weight,
    )


def complain(text: str) -> None:
    print(f"voiceseq: {text}", file=sys.stderr, flush=True)


# --- files -----------------------------------------------------------------------------------------------------------


def transcribe_files(args: argparse.Namespace) -> int:
    """Every file that can be; what failed is told at the end, with exit code 1."""
    from voiceseq.cli.transcribe_outputs import Outputs, find_items, look_up, make_parts
    from voiceseq.cli.transcribe_progress import Meter

    items, failed = find_items(args.files)
    outputs = None if args.out is None else Outputs(args.out, args.format, args.model, settings_of(args))
    if outputs is not None:
        items, twice = outputs.name(items)
        failed += twice
    elif len(items) > 1 and args.format[0] not in A_LINE:
        raise ConfigError(f"{len(items)} files cannot share stdout as {args.format[0]}: give --out DIR")
    look_up(items)
    left = items if outputs is None else skip_done(items, outputs, args.again)
    if left:
        parts = make_parts(left) if outputs is None else outputs.parts(items, left)
        with Meter([item.size for part in parts for item in part], args.out is not None) as meter:
            failed += transcribe_parts(args, parts, set(left), outputs, meter)
    elif outputs is not None and outputs.cut_off:
        outputs.finish()
    if outputs is not None:
        outputs.close()
    return tell_failures(failed, getattr(args, "verbose", False))


def skip_done(items: "list[Item]", outputs: "Outputs", again: bool) -> "list[Item]":
    left = items if again else [item for item in items if not outputs.done(item)]
    if len(left) < len(items):
        complain(f"{len(items) - len(left)} of {len(items)} files are done and skipped (--again does them anew)")
    return left


def transcribe_parts(
    args: argparse.Namespace, parts: "list[list[Item]]", left: "set[Item]", outputs: "Outputs | None", meter: "Meter"
) -> "list[Failure]":
    """All parts; of a part that is done once more to the end, only what is ``left`` is given out."""
    from voiceseq.inference.pooling import Failure

    failed = []
    try:
        for item, found in results(args, parts, outputs is None, meter):
            if isinstance(found, Failure):
                failed += [found] if item in left else []
            elif item in left:
                meter.clear()
                for warning in found.warnings:
                    complain(f"warning: {warning}")
                failed += give(item, found, outputs, args.format[0])
            meter.done(found.duration if workers_wanted(args) and not isinstance(found, Failure) else 0.0)
        if outputs is not None:
            outputs.finish()
    finally:
        if outputs is not None:
            outputs.close()
    return failed


def results(
    args: argparse.Namespace, parts: "list[list[Item]]", ordered: bool, meter: "Meter"
) -> "Iterator[tuple[Item, Transcript | Failure]]":
    """What became of each item, by the engine that was asked for."""
    from voiceseq.cli.transcribe_engines import run_parts, transcribe_part

    settings = settings_of(args)
    if not workers_wanted(args):
        transcriber = open_transcriber(args)
        for part in parts:
            yield from zip(part, transcribe_part(transcriber, part, settings, meter.watch, args.rate), strict=True)
        return
    open_transcriber(args)  # a wrong bundle or decoder is told before any worker is hired
    crew = open_crew(args, settings, len(parts))
    try:
        found = run_parts(crew, parts)
        for some, answers in in_order(found, parts) if ordered else found:
            yield from zip(some, answers, strict=True)
    finally:
        crew.close()


def in_order(found: "Iterator[tuple[Any, list[Any]]]", parts: "list[list[Item]]") -> "Iterator[tuple[Any, list[Any]]]":
    """Answers of parts, which may come in pieces and in any order, item by item in the order of the parts."""
    known: dict[int, Any] = {}  # by the item itself: one file may be named twice
    waiting = deque(item for part in parts for item in part)
    for some, answers in found:
        known |= dict(zip(map(id, some), answers, strict=True))
        while waiting and id(waiting[0]) in known:
            item = waiting.popleft()
            yield [item], [known.pop(id(item))]


def workers_wanted(args: argparse.Namespace) -> bool:
    return args.engine == "ray" or (args.workers or 1) > 1


def open_crew(args: argparse.Namespace, settings: "Settings", parts: int) -> "Crew":
    from functools import partial

    from voiceseq.cli.transcribe_engines import Processes, Worker

    if args.engine == "ray":
        from voiceseq.cli.transcribe_ray import Ray

        return Ray(args.workers, args.address, args.model, settings, args.threads)
    return Processes(min(args.workers, parts), partial(Worker, args.model, settings, args.threads or 1))


def give(item: "Item", transcript: "Transcript", outputs: "Outputs | None", kind: str) -> "list[Failure]":
    """To the item's files, or to stdout; what could not be written."""
    from voiceseq.inference.formats import FORMATS as WRITERS
    from voiceseq.inference.pooling import Failure

    if outputs is None:
        print(transcript.text) if kind == "txt" else print(WRITERS[kind](transcript), end="")
        sys.stdout.flush()
        return []
    try:
        outputs.write(item, transcript)
    except InputError as error:
        return [Failure(item.name, str(error))]
    return []


def tell_failures(failed: "list[Failure]", verbose: bool) -> int:
    for failure in failed:
        complain(f"error: {failure.details if verbose and failure.details else failure.reason}")
    if len(failed) > 1:
        complain(f"{len(failed)} files failed")
    return int(bool(failed))


# --- live ------------------------------------------------------------------------------------------------------------


def transcribe_live(args: argparse.Namespace) -> int:
    from voiceseq.audio.microphone import Microphone, find_device
    from voiceseq.cli.listen import PCM_RATE, file_blocks, pcm_blocks, quiet_libraries
    from voiceseq.inference.live import live_events
    from voiceseq.inference.speech import Decoding, LiveSpeech

    device = int(args.device) if args.device and args.device.isdecimal() else args.device
    with quiet_libraries(getattr(args, "verbose", False)):
        if args.file is None:
            find_device(device)  # at once, before the model is loaded
        transcriber, decoding = open_transcriber(args), settings_of(args).decoding
        own = None if decoding == Decoding() else decoding

        def open_stream(rate: int) -> LiveSpeech:
            return transcriber.stream(rate, own)

        if args.file is not None:
            blocks = pcm_blocks(args.rate or PCM_RATE) if args.file == "-" else file_blocks(args.file)
            return show_events(live_events(open_stream, blocks), args.format == ["json"])
        with Microphone(device, sample_rate=args.rate, queue_s=QUEUE_S) as microphone:
            assert microphone.info is not None
            complain(f"listening to {microphone.info.full_name} at {microphone.sample_rate} Hz; Ctrl-C ends")
            return show_events(live_events(open_stream, microphone_blocks(microphone)), args.format == ["json"])


def microphone_blocks(microphone: Any) -> Iterator[Any]:
    """For ever; says what is lost."""
    trouble = None
    while True:
        block = microphone.read(0.5)
        if microphone.trouble != trouble:
            trouble = microphone.trouble
            complain(trouble or "the microphone is back")
        if block is not None:
            if block.lost_s:
                complain(f"{block.lost_s:.2f} s of sound were lost: the machine is too slow for this model")
            yield block


def show_events(events: "Iterator[SpeechEvent]", as_json: bool) -> int:
    """A line a result; on a terminal a partial one is written over by the next."""
    screen = sys.stdout.isatty() and not as_json
    for event in events:
        if as_json:
            print_json(event_json(event))
        elif event.kind == "final":
            print(f"\r\033[K{event.text}" if screen else event.text)
        elif screen:
            print(f"\r\033[K… {event.text[-70:]}", end="")
        sys.stdout.flush()
    return 0


def event_json(event: "SpeechEvent") -> dict[str, Any]:
    words = [
        {
            "word": one.word,
            "start": round(one.start, 3),
            "end": round(one.end, 3),
            "confidence": round(one.confidence, 4),
        }
        for one in event.words
    ]
    times = {"start": round(event.start, 3), "end": round(event.end, 3)}
    return {"kind": event.kind, "text": event.text, **times, "words": words}
