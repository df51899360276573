"""Bach's chorales as piano rolls: for each quarter which of the 88 keys sound."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from voiceseq.errors import InputError
from voiceseq.text.files import read_text

LOWEST, KEYS = 21, 88  # MIDI number of the lowest key


def read_chorales(path: str) -> list[np.ndarray]:
    """The chorales of a JSON file, each ``(steps, 88)`` of 0 and 1. Raises InputError for anything else."""
    try:
        return [piano_roll(chorale) for chorale in json.loads(read_text(path))]
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} holds no chorales ({error}); lists of steps of MIDI pitches were wanted") from error


def piano_roll(steps: Sequence[Sequence[Any]]) -> np.ndarray:
    """``(steps, 88)`` of the MIDI pitches of each step. Raises InputError for pitches that a piano lacks."""
    roll = np.zeros((len(steps), KEYS), np.float32)
    for row, pitches in zip(roll, steps, strict=True):
        for pitch in pitches:
            if not LOWEST <= int(pitch) < LOWEST + KEYS:
                raise InputError(f"the pitch {pitch} came; {LOWEST} to {LOWEST + KEYS - 1} were wanted")
            row[int(pitch) - LOWEST] = 1.0
    return roll
