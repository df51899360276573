"""``voiceseq wakeword record PHRASE``: prompts, a countdown, a take, a check, playback, and a key to keep it."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from voiceseq.audio.microphone import Microphone
    from voiceseq.audio.takes import TakeReport
    from voiceseq.datasets.manifest import Clip

MANIFEST = "manifest.jsonl"
PROMPTS = (
    "in your normal voice",
    "louder, as if from the next room",
    "softly",
    "from further away: two steps back",
    "fast",
    "slowly",
    "with your head turned away",
    "as a question",
)
BEAT_S = 0.5  # of the countdown
HANG_S = 4.0  # a microphone that gives nothing for so long is gone
KEYS = {"": "keep", "k": "keep", "a": "again", "s": "skip", "q": "quit"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phrase", help="what is to be said")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"takes the recordings and {MANIFEST}")
    parser.add_argument("--speaker", default="me", metavar="NAME", help="who speaks (default: %(default)s)")
    parser.add_argument("--count", type=int, default=10, metavar="N", help="takes wanted of this speaker (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="length of a take (%(default)g)")
    parser.add_argument("--device", metavar="D", help="the microphone: its number or a part of its name")
    parser.add_argument("--no-playback", action="store_true", help="do not play takes back")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    check(args)
    from voiceseq.audio.microphone import find_device
    from voiceseq.cli.listen import quiet_libraries

    booth = Booth(args.out, args.phrase, args.speaker)
    device = int(args.device) if args.device and args.device.isdecimal() else args.device
    with quiet_libraries(getattr(args, "verbose", False)):
        if len(booth.takes) < args.count:
            find_device(device)
            welcome(args, booth)
        try:
            collect(args, booth, device)
        finally:
            tell(f"{len(booth.takes)} of {args.count} takes of {args.phrase!r} by {args.speaker} are in {args.out}")
    if args.json:
        print_json({"folder": str(args.out), "takes": len(booth.takes), "recordings": len(booth.rows)})
    else:
        print(f'next    voiceseq wakeword new "{args.phrase}" --recordings {args.out}')
    return 0


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError with all that is wrong, InputError for a phrase that nobody can say."""
    from voiceseq.text.pronounce import phrase_words

    phrase_words(args.phrase)
    mistakes = []
    if args.count < 1:
        mistakes.append(f"--count {args.count}: at least 1 was wanted")
    if not 1 <= args.seconds <= 30:
        mistakes.append(f"--seconds {args.seconds:g}: 1 to 30 was wanted")
    if not args.speaker.strip():
        mistakes.append("--speaker is empty: a name was wanted")
    if not sys.stdin.isatty():
        mistakes.append("recording asks after each take and nobody is there to answer: run it in a terminal")
    if mistakes:
        raise ConfigError("; ".join(mistakes))


def tell(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


# --- what is kept ----------------------------------------------------------------------------------------------------


class Booth:
    """The folder of recordings: ``rows`` is its manifest, ``takes`` what this speaker has said of this phrase.

    A row whose file was deleted counts as not recorded. Raises InputError for a manifest that cannot be read.
    """

    def __init__(self, folder: Path, phrase: str, speaker: str) -> None:
        from voiceseq.datasets.manifest import read_manifest

        self.folder, self.phrase, self.speaker = folder, phrase, speaker
        path = folder / MANIFEST
        rows = read_manifest(path, check_files=False) if path.exists() and path.stat().st_size else []
        self.rows: list[Clip] = [row for row in rows if row.audio.exists()]

    @property
    def takes(self) -> "list[Clip]":
        own = self.speaker, self.phrase
        return [row for row in self.rows if (row.speaker, row.extra.get("word")) == own]

    def keep(self, samples: "NDArray[np.float32]", sample_rate: int, speech: tuple[float, float] | None) -> Path:
        """Write the take and its row: both or neither. Raises AudioError or InputError where that cannot be done."""
        from voiceseq.audio.files import write_audio
        from voiceseq.datasets.manifest import Clip, write_manifest
        from voiceseq.errors import AudioError

        path = self._free()
        duration = len(samples) / sample_rate
        extra: dict[str, Any] = {"word": self.phrase}
        if speech is not None:
            extra |= {"word_start": round(speech[0], 3), "word_end": round(min(speech[1], duration), 3)}
        row = Clip(
            path.relative_to(self.folder).with_suffix("").as_posix(),
            path,
            round(duration, 4),
            text=self.phrase,
            speaker=self.speaker,
            extra=extra,
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AudioError(f"{path.parent} cannot be made: {error.strerror}; choose another --out") from error
        write_audio(path, samples, sample_rate)
        try:
            write_manifest(self.folder / MANIFEST, [*self.rows, row])
        except BaseException:  # Ctrl-C between the two as well
            path.unlink(missing_ok=True)
            raise
        self.rows.append(row)
        return path

    def _free(self) -> Path:
        from voiceseq.apps.listen.saving import folder_name

        where, number = self.folder / folder_name(self.speaker), 1
        while (path := where / f"{folder_name(self.phrase)}-{number:03}.wav").exists():
            number += 1
        return path


# --- one take after the other ----------------------------------------------------------------------------------------


def welcome(args: argparse.Namespace, booth: Booth) -> None:
    have = len(booth.takes)
    if have:
        tell(f"{have} takes by {args.speaker} are there already; {args.count - have} to go")
    tell(f'Say "{args.phrase}" after each countdown. Other people: --speaker NAME. Ctrl-C ends; what is kept stays.')


def collect(args: argparse.Namespace, booth: Booth, device: int | str | None) -> None:
    """Until there are enough takes or the user quits. A take that is skipped is asked for by the next prompt."""
    skipped = 0
    while (have := len(booth.takes)) < args.count:
        prompt = PROMPTS[(have + skipped) % len(PROMPTS)]
        tell(f'\ntake {have + 1} of {args.count}: "{args.phrase}", {prompt}')
        answer = one_take(args, booth, device)
        if answer == "quit":
            return
        skipped += answer == "skip"


def one_take(args: argparse.Namespace, booth: Booth, device: int | str | None) -> str:
    """Record until the user says keep, skip or quit."""
    from voiceseq.audio.microphone import Microphone
    from voiceseq.audio.playback import play
    from voiceseq.audio.takes import check_take

    while True:
        with Microphone(device) as microphone:
            count_down()
            samples, lost_s = record(microphone, args.seconds)
            sample_rate = microphone.sample_rate
        found = check_take(samples, sample_rate)
        show(found, lost_s)
        if not args.no_playback and found.speech is not None:
            play(samples, sample_rate)
        answer = ask()
        if answer == "keep":
            tell(f"  kept as {booth.keep(samples, sample_rate, found.speech)}")
        if answer != "again":
            return answer


def count_down() -> None:
    for number in (3, 2, 1):
        tell(f"  {number} ", end="")
        time.sleep(BEAT_S)
    tell(" now!")


def record(microphone: "Microphone", seconds: float) -> "tuple[NDArray[np.float32], float]":
    """The next ``seconds``, and how much of them is missing. Raises DeviceError for a microphone that is gone."""
    import numpy as np

    while microphone.read(0.0) is not None:  # what was said during the countdown
        pass
    wanted = round(seconds * microphone.sample_rate)
    pieces: list[Any] = []
    lost_s, last = 0.0, time.monotonic()
    while sum(map(len, pieces)) < wanted:
        block = microphone.read(0.2)
        if block is not None:
            lost_s += block.lost_s if pieces else 0.0
            pieces.append(block.samples)
            last = time.monotonic()
        elif microphone.trouble is not None or time.monotonic() - last > HANG_S:
            raise DeviceError("the microphone is gone; what was kept stays: plug it in and run this again to go on")
    return np.concatenate(pieces)[:wanted], lost_s


def show(found: "TakeReport", lost_s: float) -> None:
    """What the check says; a fault is a hint and not a verdict."""
    if found.speech is not None:
        start, end = found.speech
        tell(f"  heard {end - start:.1f} s of speech, {found.loudest_db:.0f} dB at the loudest")
    for fault in found.faults:
        tell(f"  ! {fault}")
    if lost_s > 0.005:
        tell(f"  ! {lost_s:.2f} s of sound were lost: is the machine busy? take it again")


def ask() -> str:
    """What to do with the take; the end of the input quits."""
    while True:
        tell("  [Enter] keep  [a] again  [s] skip  [q] quit: ", end="")
        line = sys.stdin.readline()
        if not line:
            tell("")
            return "quit"
        if (key := line.strip().lower()[:1]) in KEYS:
            return KEYS[key]
