"""Long sound cut into pieces of speech: at pauses where there are any, with an overlap where there are none.

What lies between pieces is no speech. A piece that had to end inside speech and the next one share ``overlap_s``
seconds around the ``cut``, so that every word is whole in one of them; who joins the answers keeps each word once.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from voiceseq.audio.vad import FRAME, FRAME_S, SAMPLE_RATE, Samples, SpeechActivity
from voiceseq.errors import InputError

SMOOTHING = 5  # frames over which probabilities and energies are averaged
LEAST_S = 0.5  # the shortest piece that one may ask for as the longest


@dataclass(frozen=True)
class Cutting:
    """When speech begins and ends. Probabilities are means over the last 0.16 s.

    Args:
        longest_s: no piece is longer.
        begin, go_on: probabilities at which speech begins, and below which it pauses.
        sure: a piece whose probability never gets so high is dropped.
        pause_s: a pause of this length ends a piece; ``brief_pause_s`` ends one that has half of the longest length.
        padding_s: of what lies before and after speech, so much is kept.
        overlap_s: what two pieces share that are cut inside speech.
    """

    longest_s: float = 20.0
    begin: float = 0.4
    go_on: float = 0.25
    sure: float = 0.8
    pause_s: float = 1.0
    brief_pause_s: float = 0.2
    padding_s: float = 0.3
    overlap_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.longest_s >= LEAST_S:
            raise InputError(f"longest_s is {self.longest_s}; at least {LEAST_S} was wanted")
        if not 0 <= self.go_on <= self.begin <= 1:
            raise InputError(f"go_on is {self.go_on} and begin {self.begin}; 0 <= go_on <= begin <= 1 was wanted")


@dataclass(frozen=True)
class Piece:
    """``samples (n,)`` at 16 kHz from ``start`` seconds on; ``cut`` (seconds) lies in the overlap with the one before,
    if there is one."""

    samples: Samples
    start: float
    cut: float | None = None

    @property
    def duration_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def frames(seconds: float) -> int:
    return max(1, round(seconds / FRAME_S))


class Cutter:
    """One stream of 16 kHz sound: ``feed`` samples in pieces of any size, get the pieces of speech that are complete.

    Any cut of the samples gives the same pieces. It holds ``longest_s`` seconds at most, and the block that was fed.
    """

    def __init__(self, cutting: Cutting | None = None) -> None:
        self.cutting = cutting or Cutting()
        self._longest = frames(self.cutting.longest_s - FRAME_S / 2)
        self._overlap = min(frames(self.cutting.overlap_s), self._longest // 4)
        self._pauses = frames(self.cutting.pause_s), frames(self.cutting.brief_pause_s)
        self._padding = frames(self.cutting.padding_s)
        self.reset()

    def reset(self) -> None:
        """Forget everything: exactly a new stream."""
        self._activity = SpeechActivity()
        self._recent: deque[float] = deque([0.0] * SMOOTHING, SMOOTHING)
        self._held = np.zeros(0, np.float32)
        self._first = 0  # the frame with which ``_held`` begins
        self._frame = 0  # the next frame to be judged
        self._start: int | None = None  # of the piece that is being heard
        self._free = 0  # the first frame that no piece has
        self._cut: int | None = None
        self._last = 0  # the last frame with speech
        self._best = 0.0  # the highest probability in the piece

    @property
    def speaking(self) -> bool:
        """Whether a piece is being heard."""
        return self._start is not None

    @property
    def silence_s(self) -> float:
        """How long nobody has spoken."""
        return (self._frame - 1 - self._last) * FRAME_S if self._frame else 0.0

    @property
    def cut(self) -> float | None:
        """Where the piece that is being heard was parted from the one before, in seconds."""
        return None if self._cut is None else self._cut * FRAME_S

    def feed(self, samples: Samples) -> list[Piece]:
        """``(n,)`` -> the pieces that end in it. Raises InputError for another shape."""
        found = self._activity.feed(samples)
        self._held = np.concatenate((self._held, samples))
        return self._judge(found)

    def finish(self) -> list[Piece]:
        """The rest; after it only ``reset`` makes sense."""
        pieces = self._judge(self._activity.finish())
        if self._start is not None:
            pieces += self._end(min(self._frame, self._last + 1 + self._padding))
        return pieces

    def heard(self) -> Piece | None:
        """The piece that is being heard, as far as it has come."""
        return None if self._start is None else self._piece(self._start, self._frame)

    def _judge(self, probabilities: Samples) -> list[Piece]:
        pieces: list[Piece] = []
        for probability in probabilities.tolist():
            self._recent.append(probability)
            pieces += self._next(sum(self._recent) / SMOOTHING)
        self._forget()
        return pieces

    def _next(self, probability: float) -> list[Piece]:
        frame, self._frame = self._frame, self._frame + 1
        if probability >= (self.cutting.begin if self._start is None else self.cutting.go_on):
            self._last = frame
            if self._start is None:
                self._start = max(self._free, frame + 1 - SMOOTHING - self._padding)
        if self._start is None:
            return []
        self._best = max(self._best, probability)
        length, silence = frame + 1 - self._start, frame - self._last
        if silence >= self._pauses[2 * length >= self._longest]:
            return self._end(frame + 1 - silence + min(self._padding, silence // 2))
        return self._break() if length >= self._longest else []

    def _end(self, end: int) -> list[Piece]:
        assert self._start is not None
        piece, sure = self._piece(self._start, end), self._best >= self.cutting.sure or self._cut is not None
        self._start, self._free, self._cut, self._best = None, end, None, 0.0
        return [piece] if sure else []

    def _break(self) -> list[Piece]:
        """End the piece inside speech, where it is least loud, and begin the next one before that place."""
        assert self._start is not None
        cut = self._quietest(self._start + self._longest // 2, self._start + self._longest - self._overlap)
        piece = self._piece(self._start, cut + self._overlap // 2)
        self._start, self._cut = cut - self._overlap // 2, cut
        return [piece]

    def _quietest(self, first: int, end: int) -> int:
        """The frame of ``first .. end`` around which there is least energy."""
        begin = first - SMOOTHING // 2
        samples = self._samples(begin, end + SMOOTHING // 2)
        energy = np.square(samples, dtype=np.float64).reshape(-1, FRAME).sum(1)
        return first + int(np.convolve(energy, np.ones(SMOOTHING), "valid").argmin())

    def _piece(self, start: int, end: int) -> Piece:
        return Piece(self._samples(start, end).copy(), start * FRAME_S, self.cut)

    def _samples(self, start: int, end: int) -> Samples:
        return self._held[(start - self._first) * FRAME : (end - self._first) * FRAME]

    def _forget(self) -> None:
        """Let go of what no piece can want any more."""
        wanted = self._start if self._start is not None else max(self._free, self._frame - SMOOTHING - self._padding)
        self._held = self._held[max(0, wanted - self._first) * FRAME :].copy()
        self._first = max(self._first, wanted)


def cut_speech(samples: Samples, cutting: Cutting | None = None) -> list[Piece]:
    """The pieces of a whole recording ``(n,)`` at 16 kHz."""
    cutter = Cutter(cutting)
    return cutter.feed(samples) + cutter.finish()
