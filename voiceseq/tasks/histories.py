"""What a recurrent network remembers when an utterance begins. In a stream that is rarely nothing.

A network that only ever begins with an empty state is at a loss in the middle of a stream: minutes of noise carry its
state to where training never was, and it becomes deaf. So states are kept while it learns. Utterances begin with
one of them and leave their own; others belong to streams of steady noise that go on for as long as the training.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceseq.audio.noises import KINDS
from voiceseq.core.masks import nest_tensors
from voiceseq.datasets.batching import step_generator

SAMPLE_RATE = 16_000
PIECE_S = 6.0  # of noise at a time; a stream repeats it until its noise changes
NOISES, AT_ONCE = 32, 8  # streams of noise, and how many of them go on in a step
STEPS = 120  # after which a stream changes to another noise: three minutes of it
LEVEL_DB = (-85.0, -12.0)
VALIDATION = 16  # noises
FRESH = 0.15  # of the utterances begin with an empty state all the same


class Memories:
    """States of a recurrent network at the ends of what it heard; what it hears next begins with one of them."""

    def __init__(self, recurrent: Any, seed: int, rows: int = 128) -> None:
        self.recurrent, self.seed = recurrent, seed
        self.states = _flat(recurrent.zero_state(torch.zeros(1, recurrent.input_size))).repeat(rows, 1)

    def begin(self, rows: int, step: int) -> Any:
        """A state for each of so many rows; some are empty."""
        chance = step_generator(self.seed, step, 17)
        known = self._known()
        state = known[torch.randint(len(known), (rows,), generator=chance)]
        return self._nest(state * (torch.rand(rows, 1, generator=chance) >= FRESH))

    def keep(self, state: Any, step: int) -> None:
        """The rows have ended in this state: it takes the place of older ones."""
        new = _flat(state).detach().float()[: len(self.states)]
        places = torch.randperm(len(self.states), generator=step_generator(self.seed, step, 18))[: len(new)]
        self.states[places] = new

    def stored(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {"states": self.states}

    def restore(self, stored: dict[str, Tensor]) -> None:
        self.states = stored["states"]

    def _known(self) -> Tensor:
        return self.states

    def _nest(self, flat: Tensor) -> Any:
        return _like(self.recurrent.zero_state(flat), flat)


class Histories(Memories):
    """The memories of a phone backbone: half of them are those of streams of steady noise."""

    def __init__(self, backbone: Any, seed: int, rows: int = 128) -> None:
        super().__init__(backbone.recurrent, seed, rows)
        self.backbone, self.noise = backbone, self.states[:1].repeat(NOISES, 1)
        self._made: dict[int, tuple[int, Tensor]] = {}

    @torch.no_grad()
    def go_on(self, step: int) -> None:
        """Some of the noises go on for ``PIECE_S``."""
        places = [(step * AT_ONCE + number) % NOISES for number in range(AT_ONCE)]
        samples = torch.stack([self._sound(place, step) for place in places])
        self.noise[places] = self._hear(samples, self.noise[places])

    @torch.no_grad()
    def after_noise(self, seconds: float = 60.0) -> Tensor:
        """States, as ``taken`` takes them, after so much steady noise of kinds that training never has."""
        samples = torch.stack([steady_noise(self.seed, -1 - row, 0) for row in range(VALIDATION)])
        states = self.states[:1].repeat(VALIDATION, 1) * 0
        for _ in range(round(seconds / PIECE_S)):
            states = self._hear(samples, states)
        return states

    def taken(self, states: Tensor, rows: int) -> Any:
        """One of the states for each of so many rows, in turn."""
        return self._nest(states[torch.arange(rows) % len(states)])

    def stored(self) -> dict[str, Tensor]:
        return {**super().stored(), "noise": self.noise}

    def restore(self, stored: dict[str, Tensor]) -> None:
        super().restore(stored)
        self.noise = stored["noise"]

    def _known(self) -> Tensor:
        return torch.cat((self.states, self.noise.repeat(len(self.states) // NOISES, 1)))

    def _hear(self, samples: Tensor, states: Tensor) -> Tensor:
        """The states after these samples ``(rows, n)``."""
        return _flat(self.backbone(samples, (None, None, None, self._nest(states)))[1][-1])

    def _sound(self, place: int, step: int) -> Tensor:
        era = (step + place * STEPS // NOISES) // STEPS
        if self._made.get(place, (None,))[0] != era:
            self._made[place] = (era, steady_noise(self.seed, place, era))
        return self._made[place][1]


def steady_noise(seed: int, stream: int, era: int) -> Tensor:
    """``(n,)``: hiss, a fan, hum, crackle or chimes at some level; one in eight is silence."""
    rng = np.random.default_rng((seed, stream + 1_000_000, era))
    kind = list(KINDS.values())[int(rng.integers(len(KINDS)))]
    level = 10 ** (rng.uniform(*LEVEL_DB) / 20) * (rng.random() >= 1 / 8)
    samples = kind(rng, round(PIECE_S * SAMPLE_RATE), SAMPLE_RATE)
    return torch.from_numpy((level * samples / (samples.std() + 1e-9)).astype(np.float32))


def _flat(state: Any) -> Tensor:
    """All of a state side by side, ``(rows, numbers)``."""
    return torch.cat(nest_tensors(state), 1)


def _like(state: Any, flat: Tensor) -> Any:
    """``flat`` in the form of ``state``."""
    parts = iter(flat.split([tensor.shape[1] for tensor in nest_tensors(state)], 1))

    def fill(one: Any) -> Any:
        return next(parts) if isinstance(one, Tensor) else tuple(fill(part) for part in one)

    return fill(state)
