"""What every synthesiser shares: a voice, a manner of speaking, and the sound that comes of them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Span = tuple[float, float]


@dataclass(frozen=True)
class Voice:
    """One speaker of one synthesiser. ``ships``: the licence allows models that learned from it to be given away."""

    engine: str
    name: str
    speaker: str = ""
    accent: str = "en-us"
    licence: str = ""
    ships: bool = True
    path: Path | None = None

    @property
    def label(self) -> str:
        return "/".join(part for part in (self.engine, self.name, self.speaker) if part)


@dataclass(frozen=True)
class Manner:
    """How a text is said: the same text, voice and manner give the same samples.

    ``speed``   1 is the voice's own pace, 2 is twice as fast
    ``pitch``   a factor (espeak, pico)
    ``noise``, ``rhythm``  Piper's freedom of sound and of durations
    ``other``, ``share``   a second voice of the same model and how much of it is blended in, 0..1
    ``accent``  whose pronunciation: an espeak language; empty for the voice's own
    ``rules``   names of ``phonemes.RULES``, applied in order to what the neural voices are given to say
    """

    speed: float = 1.0
    pitch: float = 1.0
    noise: float = 0.667
    rhythm: float = 0.8
    other: Voice | None = None
    share: float = 0.0
    accent: str = ""
    rules: tuple[str, ...] = ()
    seed: int = 0

    def told(self) -> dict[str, Any]:
        """What differs from the default, for a manifest."""
        fields = ((field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self))
        told = {name: value for name, value, default in fields if value != default}
        if self.other is not None:
            told["other"] = self.other.label
        return told


@dataclass(frozen=True)
class Speech:
    """``samples (n,)``, and where the engine knows it when each of the pieces was said, in seconds."""

    samples: Samples
    sample_rate: int
    spans: tuple[Span, ...] | None = None


class Engine(Protocol):
    """A synthesiser: ``find`` lists its voices (none where it is not installed), ``say`` speaks the pieces as one
    sentence. ``timed``: it tells when each piece was said; ``blends``: two voices of a model make a third."""

    name: str
    kind: str
    licence: str
    install: str
    timed: bool
    blends: bool

    def find(self, folders: Sequence[Path]) -> list[Voice]: ...

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech: ...


def sentence_of(pieces: Sequence[str]) -> str:
    """The pieces as one text: a space between two, but none before punctuation."""
    text = ""
    for piece in filter(None, (piece.strip() for piece in pieces)):
        text += piece if not text or piece[0] in ",.;:?!" else f" {piece}"
    return text


@dataclass(frozen=True)
class Sentence:
    """A text with the phrase marked: ``before``, ``phrase``, ``after``, any but the phrase empty."""

    phrase: str
    before: str = ""
    after: str = ""

    @property
    def pieces(self) -> tuple[str, str, str]:
        return self.before, self.phrase, self.after

    @property
    def text(self) -> str:
        return sentence_of(self.pieces)
