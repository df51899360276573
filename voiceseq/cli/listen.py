"""``voiceseq listen``: wake words from the microphone on a screen, or from files, a line an event."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json, print_table
from voiceseq.errors import BundleError, ConfigError, DeviceError, VoiceseqError

if TYPE_CHECKING:
    from voiceseq.apps.listen.app import Listening
    from voiceseq.apps.listen.following import Command, Following
    from voiceseq.apps.listen.hook import Hook
    from voiceseq.apps.listen.session import Detection, Session
    from voiceseq.audio.microphone import Block

DEFAULT = "six-words"
PCM_RATE = 16_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--model",
        action="append",
        metavar="NAME",
        help=f"a bundle or an .onnx file; repeat for several (default: {DEFAULT})",
    )
    add("--file", action="append", metavar="F", help="a sound file instead of the microphone; repeat for several; - is "
        "raw 16-bit mono PCM on stdin")  # fmt: skip
    add("--device", metavar="D", help="the microphone: its number or a part of its name")
    add("--list-devices", action="store_true", help="list the microphones")
    add(
        "--rate", type=int, metavar="HZ", help=f"ask the microphone for this rate; of --file -: {PCM_RATE} if not given"
    )
    add("--threshold", type=float, metavar="X", help="0 to 1, for all words (default: each bundle's own)")
    add(
        "--on-detect",
        metavar="CMD",
        help="run this for each event: no shell, the event as JSON on stdin, one at a time",
    )
    add("--then", choices=("transcribe",), help="write down what is said after a wake word, until a second of silence")
    add("--then-model", default="english-small", metavar="NAME", help="the bundle that does (default: %(default)s)")
    add("--on-detect-limit", type=float, default=10.0, metavar="S", help="seconds it may take (default: %(default)g)")
    add("--plain", action="store_true", help="lines instead of the screen")
    add("--plot", type=Path, metavar="FILE.png", help="draw the scores of a file")
    add("--save-dir", type=Path, default=Path("saved"), metavar="DIR", help="where the keys f and m save the last "
        "seconds (default: %(default)s)")  # fmt: skip
    add("--save-cap", type=float, default=200.0, metavar="MB", help="save no more than this (default: %(default)g)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.list_devices:
        return list_microphones(args.json)
    check(args)
    return listen_to_files(args) if args.file else listen_live(args)


def check(args: argparse.Namespace) -> None:
    mistakes = []
    if args.file and args.device is not None:
        mistakes.append("--device is for the microphone and --file for files: give one of them")
    if args.plot and len(args.file or ()) != 1:
        mistakes.append("--plot draws one file: give one --file with it")
    if args.threshold is not None and not 0 < args.threshold < 1:
        mistakes.append(f"--threshold {args.threshold:g}: more than 0 and less than 1 was wanted")
    if args.rate is not None and not 1000 <= args.rate <= 1_000_000:
        mistakes.append(f"--rate {args.rate}: 1,000 to 1,000,000 was wanted")
    for name in ("on_detect_limit", "save_cap"):
        if not getattr(args, name) > 0:
            mistakes.append(f"--{name.replace('_', '-')} {getattr(args, name):g}: more than 0 was wanted")
    if mistakes:
        raise ConfigError("; ".join(mistakes))


def list_microphones(as_json: bool) -> int:
    from dataclasses import asdict

    from voiceseq.audio.microphone import NO_DEVICE, list_devices

    devices = list_devices()
    if as_json:
        for device in devices:
            print_json(asdict(device))
    elif devices:
        rows = [(str(d.index), d.full_name, f"{d.channels} channels", f"{d.sample_rate} Hz") for d in devices]
        print_table([(*row, "default" if d.default else "") for row, d in zip(rows, devices, strict=True)])
    else:
        raise DeviceError(NO_DEVICE)
    return 0


def open_session(args: argparse.Namespace) -> "Session":
    """The detectors of every --model. Raises BundleError for a bundle that is no detector."""
    import voiceseq
    from voiceseq.apps.listen.session import Session

    detectors: dict[str, Any] = {}
    for name in args.model or [DEFAULT]:
        detectors[name] = voiceseq.load(name)
        if not hasattr(detectors[name], "stream") or not hasattr(detectors[name], "words"):
            raise BundleError(f"{name} is a {type(detectors[name]).__name__}; a wake-word detector was wanted")
    return Session(detectors, args.threshold)


def open_hook(args: argparse.Namespace, say: Any, output: Any) -> "Hook | None":
    if args.on_detect is None:
        return None
    from voiceseq.apps.listen.hook import Hook

    return Hook(args.on_detect, say, limit_s=args.on_detect_limit, output=output)


def open_following(args: argparse.Namespace) -> "Following | None":
    """Who hears the commands. Raises BundleError for a bundle that is no recogniser of speech."""
    if args.then is None:
        return None
    import voiceseq
    from voiceseq.apps.listen.following import Following

    transcriber = voiceseq.load(args.then_model)
    if not isinstance(transcriber, voiceseq.Transcriber):
        raise BundleError(f"{args.then_model} is a {type(transcriber).__name__}; a recogniser of speech was wanted")
    return Following(transcriber)


def complain(text: str) -> None:
    print(f"voiceseq: {text}", file=sys.stderr, flush=True)


# --- files -----------------------------------------------------------------------------------------------------------


def listen_to_files(args: argparse.Namespace) -> int:
    """A line an event; a file that cannot be read is told, the others go on, and the exit code is 1."""
    hook = open_hook(args, complain, sys.stderr)
    session, following = open_session(args), open_following(args)
    failed = False
    for name in args.file:
        trace = Trace(session) if args.plot else None
        try:
            for found in detect(name, session, args.rate or PCM_RATE, trace, following):
                show_event({"file": name, **found.as_json()}, args.json)
                if hook is not None:
                    hook.wait()  # a file can wait, so that no event goes without its command
                    hook.fire({"file": name, **found.as_json()})
        except VoiceseqError as error:
            session.finish()
            if following is not None:
                following.finish()
            complain(f"error: {error}")
            failed = True
        else:
            if trace is not None:
                trace.plot(args.plot, name)
    if hook is not None:
        hook.wait()
    return int(failed)


def detect(
    name: str, session: "Session", pcm_rate: int, trace: "Trace | None", following: "Following | None"
) -> "Iterator[Detection | Command]":
    """The detections of one file as they are found, and commands; memory does not grow with its length."""
    blocks = pcm_blocks(pcm_rate) if name == "-" else file_blocks(name)
    for detected, commands in heard(session, blocks, following):
        if trace is not None:
            trace.add(detected)
        yield from detected
        yield from commands


def heard(
    session: "Session", blocks: "Iterator[Block]", following: "Following | None"
) -> "Iterator[tuple[list[Detection], list[Command]]]":
    for block in blocks:
        found = session.hear(block)
        yield found, following.hear(block, found) if following is not None else []
    yield session.finish(), following.finish() if following is not None else []


def file_blocks(name: str) -> "Iterator[Block]":
    from voiceseq.audio.files import audio_info, stream_audio
    from voiceseq.audio.microphone import Block

    progress = Progress(name, audio_info(name).duration_s)
    frames = 0
    for audio in stream_audio(name, block_s=1.0):
        yield Block(audio.samples, audio.sample_rate, frames / audio.sample_rate)
        frames += len(audio.samples)
        progress.at(frames / audio.sample_rate)
        for warning in audio.warnings:
            complain(f"warning: {warning}")
    progress.end()


def pcm_blocks(sample_rate: int) -> "Iterator[Block]":
    """stdin as it comes; a sample that is cut in two waits for its other half."""
    import numpy as np

    from voiceseq.audio.microphone import Block

    frames, rest = 0, b""
    while data := os.read(sys.stdin.fileno(), 2 * sample_rate):
        data = rest + data
        whole = len(data) // 2 * 2
        rest = data[whole:]
        samples = np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)
        yield Block(samples, sample_rate, frames / sample_rate)
        frames += len(samples)
    if rest:
        complain("warning: stdin ended in the middle of a sample: 16-bit PCM was wanted")


def show_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event)
    elif "text" in event:
        print(f"{event['file']}  {event['start']:.2f} s  {event['word']}: {event['text']}")
    else:
        print(f"{event['file']}  {event['time']:.2f} s  {event['word']}  {event['score']:.2f}")
    sys.stdout.flush()


class Trace:
    """The scores of a whole file, for a picture."""

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.pieces: list[list[Any]] = [[] for _ in session.ears]
        self.heard: list[tuple[str, float]] = []

    def add(self, found: "list[Detection]") -> None:
        self.heard += [(one.word, one.time) for one in found]
        for pieces, ear in zip(self.pieces, self.session.ears, strict=True):
            pieces.append(ear.scores)

    def plot(self, path: Path, title: str) -> None:
        import numpy as np

        from voiceseq.evaluation.trace import plot_trace

        rows = self.session.rows
        whole = {ear: np.concatenate(pieces) for ear, pieces in zip(self.session.ears, self.pieces, strict=True)}
        scores = {row.word: whole[row.ear][:, row.column] for row in rows}
        frames = min(map(len, scores.values()))
        times = rows[0].ear.detector.times(np.arange(frames))
        thresholds = {row.word: row.threshold for row in rows}
        plot_trace(times, {word: row[:frames] for word, row in scores.items()}, thresholds, self.heard, path, title)


class Progress:
    """How far, how fast and how long still, on a terminal's stderr, once two seconds have passed."""

    def __init__(self, name: str, duration_s: float | None) -> None:
        self.name, self.duration_s = name, duration_s
        self.began = self.shown = time.monotonic()
        self.used = False

    def at(self, seconds: float) -> None:
        now = time.monotonic()
        if now - self.shown < (1 if self.used else 2) or not sys.stderr.isatty():
            return
        self.shown, self.used = now, True
        speed = seconds / (now - self.began)
        left = f", {max(0.0, self.duration_s - seconds) / speed:.0f} s left" if self.duration_s else ""
        print(f"\r\033[K{Path(self.name).name}: {seconds:,.0f} s heard, {speed:.0f}x{left}", end="", file=sys.stderr)

    def end(self) -> None:
        if self.used:
            print("\r\033[K", end="", file=sys.stderr)


# --- the microphone --------------------------------------------------------------------------------------------------


def listen_live(args: argparse.Namespace) -> int:
    from voiceseq.apps.listen.app import Listening
    from voiceseq.apps.listen.saving import Saver
    from voiceseq.audio.microphone import Microphone, find_device

    screen = not args.json and not args.plain and sys.stdin.isatty() and sys.stdout.isatty()
    device = int(args.device) if args.device and args.device.isdecimal() else args.device
    with quiet_libraries(getattr(args, "verbose", False)):
        find_device(device)  # at once, before the models are loaded
        hook = open_hook(args, complain, None if screen else sys.stderr)
        session, following = open_session(args), open_following(args)
        saver = Saver(args.save_dir, args.save_cap)
        with Microphone(device, sample_rate=args.rate) as microphone:
            app = Listening(microphone, session, saver, hook, (lambda text: None) if screen else complain, following)
            if hook is not None:
                hook.say = app.say
            try:
                show_screen(app) if screen else show_lines(app, args.json)
            finally:
                if hook is not None:
                    hook.stop()
    return 0


def show_screen(app: "Listening") -> None:
    try:
        from voiceseq.apps.listen.terminal import show
    except ImportError:  # Windows has no curses
        complain("no screen without curses (pip install windows-curses); lines instead")
        show_lines(app, False)
    else:
        show(app)


def show_lines(app: "Listening", as_json: bool) -> None:
    from voiceseq.apps.listen.app import clock
    from voiceseq.apps.listen.following import Command

    assert app.microphone.info is not None
    words = ", ".join(row.word for row in app.session.rows)
    complain(
        f"listening to {app.microphone.info.full_name} at {app.microphone.sample_rate} Hz for {words}; Ctrl-C ends"
    )
    while not app.done:
        for found in app.step(0.5):
            if as_json:
                print_json(found.as_json())
            elif isinstance(found, Command):
                print(f"{clock(found.start)}  {found.word}: {found.text}")
            else:
                print(f"{clock(found.time)}  {found.word}  {found.score:.2f}")
            sys.stdout.flush()


@contextlib.contextmanager
def quiet_libraries(verbose: bool) -> Iterator[None]:
    """ALSA and PortAudio write to stderr behind Python's back, into the screen; ``-v`` lets them.

    Python's own stderr keeps the terminal; the file descriptor 2 of the libraries leads nowhere.
    """
    try:
        ours = sys.stderr.fileno() == 2
    except (OSError, ValueError):  # somebody has put something else in its place
        ours = False
    if verbose or not ours:
        yield
        return
    shown = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    python, sys.stderr = sys.stderr, shown
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(shown.fileno(), 2)
        sys.stderr = python
        shown.close()
        os.close(nowhere)
