"""What recognisers of speech share: what they are asked, and what they answer.

A recogniser takes pieces of 16 kHz sound no longer than ``longest_s`` and answers each with its n best hypotheses, best
first; cutting long audio into pieces and joining the answers is the ``Transcriber``'s work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Word:
    """A word with its seconds and how sure the recogniser is of it, 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float

    def later(self, seconds: float) -> "Word":
        return replace(self, start=self.start + seconds, end=self.end + seconds)


@dataclass(frozen=True)
class Hypothesis:
    """One reading of a piece: no words and an empty text where nothing was said. ``score`` is its log-probability."""

    text: str
    score: float
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Decoding:
    """How to search. ``None`` leaves the choice to the bundle. ``lm`` is the path of an ARPA file."""

    decoder: str | None = None
    beam: int | None = None
    nbest: int = 1
    lm: str | None = None
    lm_weight: float | None = None
    hotwords: tuple[str, ...] = ()
    hotword_weight: float | None = None


@dataclass(frozen=True)
class SpeechEvent:
    """What a live recogniser says: ``partial`` may still change, ``final`` will not. Seconds of the audio heard."""

    kind: Literal["partial", "final"]
    text: str
    start: float
    end: float
    words: tuple[Word, ...] = ()


class Recogniser(Protocol):
    """Speech to hypotheses; ``decoders`` are the names that ``Decoding.decoder`` may have, the default one first."""

    name: str
    language: str
    longest_s: float
    decoders: tuple[str, ...]

    def recognise(self, pieces: Sequence[Samples], decoding: Decoding) -> list[list[Hypothesis]]:
        """For each piece its n best hypotheses, best first, with times counted from the piece's start.

        But for rounding, the answers do not depend on which pieces come together. Raises InputError for a
        decoder it does not have.
        """
        ...


class LiveSpeech(Protocol):
    """One listener's stream; owns all state, resampling included."""

    def feed(self, samples: Samples) -> list[SpeechEvent]: ...

    def finish(self) -> list[SpeechEvent]: ...

    def reset(self) -> None: ...


class LiveRecogniser(Recogniser, Protocol):
    """A recogniser that can also listen."""

    def stream(self, sample_rate: int = SAMPLE_RATE) -> LiveSpeech: ...
