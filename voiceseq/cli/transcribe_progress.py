"""How far, how fast and how long still: on a terminal one line that changes, else a line now and then."""

import sys
import time
from collections.abc import Sequence

from voiceseq.inference.transcriber import Progress

FIRST_S = 2.0  # nothing is said about what takes less
EVERY_S = {True: 0.5, False: 15.0}  # on a terminal, and elsewhere


class Meter:
    """Of files with these ``sizes`` (bytes), whose sum tells how much is left; use it in a ``with`` statement.

    Args:
        summary: tell at the end what was done, even if it was fast.
    """

    def __init__(self, sizes: Sequence[int], summary: bool = False) -> None:
        self.sizes, self.summary = sizes, summary
        self.screen = sys.stderr.isatty()
        self.finished = 0
        self._progress = Progress(-1, 0.0, None, 0.0, 0.0)
        self._earlier_s = 0.0  # of the files before this one
        self._began = time.monotonic()
        self._next = self._began + FIRST_S
        self._shown = False

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.clear()
        elapsed = time.monotonic() - self._began
        if kind is None and (self.summary or elapsed > FIRST_S):
            files = f"{self.finished} file{'' if self.finished == 1 else 's'}"
            speed = self.read_s / max(1e-9, elapsed)
            say(f"{files}, {clock(self.read_s)} of sound in {clock(elapsed)} ({speed:.1f}x)")

    @property
    def read_s(self) -> float:
        return self._earlier_s + self._progress.read_s

    @property
    def share(self) -> float:
        """Of the work that is done: of the bytes that are read, less the speech that still waits."""
        now = self._progress
        if now.file < 0:  # workers tell nothing but what they have done
            return self.finished / max(1, len(self.sizes))
        part = min(1.0, now.read_s / now.whole_s) if now.whole_s else 0.0
        sizes = list(self.sizes)
        read = sum(sizes[: max(0, now.file)]) + part * (sizes[now.file] if 0 <= now.file < len(sizes) else 0)
        return read / max(1, sum(sizes)) * now.recognised_s / max(1e-9, now.recognised_s + now.waiting_s)

    def watch(self, progress: Progress) -> None:
        if progress.file != self._progress.file:
            self._earlier_s += self._progress.read_s
        self._progress = progress
        self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S[self.screen]
            self._show(now - self._began)

    def done(self, elsewhere_s: float = 0.0) -> None:
        """One more file; ``elsewhere_s`` seconds of sound that a worker heard, and nobody watched."""
        self.finished += 1
        self._earlier_s += elsewhere_s
        if elsewhere_s:
            self._tell()

    def clear(self) -> None:
        """Take the line from the screen, for others to write on it."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self._shown = False

    def _show(self, elapsed: float) -> None:
        left = f", {clock(elapsed / self.share - elapsed)} left" if self.share > 0.01 else ""
        files = f"{self.finished} of {len(self.sizes)} files, " if len(self.sizes) > 1 else ""
        text = f"{files}{clock(self.read_s)} of sound, {self.read_s / elapsed:.1f}x{left}"
        if self.screen:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self._shown = True
        else:
            say(text)


def say(text: str) -> None:
    print(f"voiceseq: {text}", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """``1:02:03``, ``2:03`` or ``4.2 s``"""
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, whole = divmod(round(seconds), 3600)
    return f"{hours}:{whole // 60:02}:{whole % 60:02}" if hours else f"{whole // 60}:{whole % 60:02}"
