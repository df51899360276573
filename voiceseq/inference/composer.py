"""Music at work: a chorale drawn chord by chord, and written as a MIDI file."""

import struct
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.datasets.corpora.chorales import KEYS, LOWEST
from voiceseq.errors import BundleError, InputError
from voiceseq.models.frames import FrameConfig, FrameNetwork

TICKS = 480  # of a quarter


class Composer:
    """``voiceseq.load("chorales")``: ``compose(steps=64, seed=1)`` is a piano roll ``(steps, 88)``."""

    def __init__(self, network: FrameNetwork) -> None:
        self.network = network.eval()

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings or weights that do not make a composer."""
        network = bundle.network(FrameNetwork, FrameConfig)
        if (network.config.features, network.config.outputs) != (KEYS, KEYS):
            raise BundleError(f"{bundle.path} is not made for the {KEYS} keys of a piano")
        return cls(network)

    @torch.no_grad()
    def compose(self, steps: int = 64, seed: int | None = None, temperature: float = 0.7) -> np.ndarray:
        """``(steps, 88)`` of 0 and 1, each step drawn from the chances that the ones before it leave; none is silent.

        Raises InputError for steps or a temperature out of range.
        """
        if not 1 <= steps <= 100_000 or not temperature > 0:
            raise InputError(f"steps {steps}, temperature {temperature}: 1 to 100000, and above 0, were wanted")
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
        chord, state, roll = torch.zeros(1, KEYS), None, []
        for _ in range(steps):
            logits, state = self.network.step(chord, state)
            chances = chances_of(logits, temperature)
            chord = (torch.rand(1, KEYS, generator=generator) < chances).float()
            if not chord.any():
                chord[0, logits.argmax()] = 1.0
            roll.append(chord[0])
        return torch.stack(roll).numpy()

    @torch.no_grad()
    def loss(self, roll: np.ndarray) -> float:
        """-log P of a piano roll ``(steps, 88)``, in nats a step."""
        targets = torch.as_tensor(roll, dtype=torch.float32)[None]
        logits, _ = self.network(torch.nn.functional.pad(targets, (0, 0, 1, 0))[:, :-1])
        keys: Any = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return float(keys.sum(-1).mean())


def chances_of(logits: Tensor, temperature: float) -> Tensor:
    """``(1, 88)``: how likely each key is; whatever the temperature, as many keys sound on average as at 1.

    Divided by a temperature alone, keys that are less likely than not would fall silent, one voice after the other.
    """
    wanted, low, high = logits.sigmoid().sum(), -50.0, 50.0
    for _ in range(40):  # the sum grows with what is added to all logits
        middle = (low + high) / 2
        too_many = bool(((logits + middle) / temperature).sigmoid().sum() > wanted)
        low, high = (low, middle) if too_many else (middle, high)
    return ((logits + low) / temperature).sigmoid()


def chords(roll: np.ndarray) -> str:
    """A piano roll as text: the MIDI numbers of a chord with commas between, chords with spaces ("-" is silence)."""
    return " ".join(",".join(str(LOWEST + key) for key in np.flatnonzero(step)) or "-" for step in roll)


def midi_bytes(roll: np.ndarray, quarters_a_minute: int = 90) -> bytes:
    """A piano roll ``(steps, 88)``, a step a quarter, as a MIDI file; what sounds on is held, not struck again."""
    events = [b"\x00\xff\x51\x03" + (60_000_000 // quarters_a_minute).to_bytes(3, "big")]
    silent = np.zeros((1, KEYS))
    changes = np.diff(np.concatenate((silent, roll > 0, silent)).astype(int), axis=0)
    wait = 0
    for row in changes:
        for sign, status, loudness in ((-1, 0x80, 0), (1, 0x90, 80)):
            for key in np.flatnonzero(row == sign):
                events.append(variable_length(wait) + bytes([status, LOWEST + int(key), loudness]))
                wait = 0
        wait += TICKS
    track = b"".join(events) + b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, 0, 1, TICKS) + b"MTrk" + struct.pack(">I", len(track)) + track


def variable_length(number: int) -> bytes:
    """Seven bits a byte, the highest first; all but the last have their eighth bit set."""
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(number & 0x7F | 0x80)
    return bytes(reversed(parts))


def write_midi(roll: np.ndarray, path: str | Path) -> Path:
    """Raises InputError where the file cannot be written."""
    try:
        Path(path).write_bytes(midi_bytes(roll))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{str(path)[:60]!r} cannot be written ({error}); give a .mid in a folder that exists"
        ) from error
    return Path(path)
