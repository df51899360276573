"""What a recurrent network remembers when a clip begins. In a stream that is rarely nothing.

A network that only ever begins with an empty state is at a loss in the middle of a stream. So states are kept while it
learns: clips begin with one of them and leave their own.
"""

from typing import Any

import torch
from torch import Tensor

from voiceseq.core.masks import nest_tensors
from voiceseq.datasets.batching import step_generator

FRESH = 0.15  # of the clips begin with an empty state all the same


class Memories:
    """States of a recurrent network at the ends of what it heard; what it hears next begins with one of them."""

    def __init__(self, recurrent: Any, seed: int, rows: int = 128) -> None:
        self.recurrent, self.seed = recurrent, seed
        self.states = _flat(recurrent.zero_state(torch.zeros(1, recurrent.input_size))).repeat(rows, 1)

    def begin(self, rows: int, step: int) -> Any:
        """A state for each of so many rows; some are empty."""
        chance = step_generator(self.seed, step, 17)
        state = self.states[torch.randint(len(self.states), (rows,), generator=chance)]
        state = state * (torch.rand(rows, 1, generator=chance) >= FRESH)
        return _like(self.recurrent.zero_state(state), state)

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


def _flat(state: Any) -> Tensor:
    """All of a state side by side, ``(rows, numbers)``."""
    return torch.cat(nest_tensors(state), 1)


def _like(state: Any, flat: Tensor) -> Any:
    """``flat`` in the form of ``state``."""
    parts = iter(flat.split([tensor.shape[1] for tensor in nest_tensors(state)], 1))

    def fill(one: Any) -> Any:
        return next(parts) if isinstance(one, Tensor) else tuple(fill(part) for part in one)

    return fill(state)
