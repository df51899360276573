"""What a client of a live stream asks for, and its bytes as samples."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError

FORMATS = {"u8": 1, "s16le": 2, "s24le": 3, "s32le": 4, "f32le": 4}  # bytes a sample
WIDTHS = {1: "u8", 2: "s16le", 3: "s24le", 4: "s32le"}  # of Wyoming
SLOWEST, FASTEST, CHANNELS = 4_000, 384_000, 8
MOST = 64  # models or words that one client names


@dataclass(frozen=True)
class Order:
    """The first message of a stream: how the sound comes, and what listens to it."""

    rate: int = 16_000
    format: str = "s16le"
    channels: int = 1
    models: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    hotwords: tuple[str, ...] = ()
    scores: bool = False

    @classmethod
    def from_message(cls, message: Any) -> "Order":
        """Raises InputError with all that is wrong."""
        if not isinstance(message, dict):
            raise InputError('the first message was wanted as a JSON object, such as {"rate": 16000}')
        if message.get("type", "start") != "start":
            raise InputError("the first message says how the sound comes; its type was wanted as start, or left out")
        given = {key: value for key, value in message.items() if key not in ("type", "token", "model")}
        wrong = [f"unknown {key!r}" for key in sorted(given.keys() - asdict(cls()).keys())]
        if isinstance(message.get("model"), str):
            given.setdefault("models", [message["model"]])
        wrong += [text for key, text in CHECKS.items() if key in given and not _holds(key, given[key])]
        if wrong:
            raise InputError("; ".join(wrong))
        lists = {key: tuple(given[key]) for key in ("models", "hotwords") if key in given}
        return cls(**given | lists)

    @property
    def frame_bytes(self) -> int:
        return FORMATS[self.format] * self.channels

    def bytes_of(self, seconds: float) -> int:
        """How many bytes, in whole frames; at least one frame."""
        return max(1, round(seconds * self.rate)) * self.frame_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


CHECKS = {
    "rate": f"rate: a whole number from {SLOWEST} to {FASTEST} was wanted",
    "format": f"format: one of {', '.join(FORMATS)} was wanted",
    "channels": f"channels: 1 to {CHANNELS} was wanted",
    "models": f"models: a list of at most {MOST} names was wanted",
    "hotwords": f"hotwords: a list of at most {MOST} words was wanted",
    "thresholds": "thresholds: numbers over 0 and at most 1 by word were wanted",
    "scores": "scores: true or false was wanted",
}


def _holds(key: str, value: Any) -> bool:
    if key in ("rate", "channels"):
        least, most = (SLOWEST, FASTEST) if key == "rate" else (1, CHANNELS)
        return type(value) is int and least <= value <= most
    if key in ("models", "hotwords"):
        return isinstance(value, list) and len(value) <= MOST and all(_short(one) for one in value)
    if key == "thresholds":
        return are_thresholds(value)
    return isinstance(value, bool) if key == "scores" else isinstance(value, str) and value in FORMATS


def are_thresholds(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MOST:
        return False
    return all(type(one) in (int, float) and 0 < one <= 1 for one in value.values())


def _short(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200


class Pcm:
    """Bytes in pieces of any size -> samples; a frame that is cut in two waits for its other half."""

    def __init__(self, order: Order) -> None:
        self.format, self.channels, self.width = order.format, order.channels, order.frame_bytes
        self.rest = b""

    def feed(self, data: bytes) -> NDArray[Any]:
        """``(frames,)``, or ``(channels, frames)``."""
        data = self.rest + data
        whole = len(data) // self.width * self.width
        self.rest = data[whole:]
        samples = _samples(data[:whole], self.format)
        return samples if self.channels == 1 else samples.reshape(-1, self.channels).T


def _samples(data: bytes, form: str) -> NDArray[Any]:
    if form == "s24le":  # the upper three bytes of four
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0]
    return np.frombuffer(data, {"u8": "u1", "s16le": "<i2", "s32le": "<i4", "f32le": "<f4"}[form])
