"""Gaussian outputs: the next value of a series as a mean and a spread; many steps ahead by drawing many futures."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.errors import InputError
from voiceseq.models.frames import FrameNetwork

LEVELS = (0.5, 0.8, 0.95)
FUTURES = 200
SURPRISE = (0.5, 4.0)  # how much narrower or wider what happened lately can make the spread


@dataclass(frozen=True)
class Scaling:
    """What the network reads: ``(y - mean) / spread``; with ``difference`` y is what changed since a season ago.

    ``root`` takes square roots first: for counts, whose spread grows with their size (below 0 counts as 0).
    """

    season: int
    difference: bool
    mean: float
    spread: float
    root: bool = False

    @classmethod
    def of(cls, values: np.ndarray, season: int, difference: bool, root: bool = False) -> "Scaling":
        plain = cls(season, difference, 0.0, 1.0, root).scale(values)
        return cls(season, difference, float(plain.mean()), float(plain.std()) or 1.0, root)

    @property
    def lost(self) -> int:
        """How many of the first values have none a season before."""
        return self.season if self.difference else 0

    def scale(self, values: np.ndarray) -> np.ndarray:
        """``(values,)`` -> ``(values - lost,)``. Raises InputError for too few."""
        if len(values) <= self.lost + 1:
            raise InputError(f"{len(values)} values came; more than {self.lost + 1} were wanted to go on from")
        stable = np.sqrt(np.maximum(values, 0.0)) if self.root else values
        changed = stable[self.season :] - stable[: -self.season] if self.difference else stable
        return (changed - self.mean) / self.spread

    def unscale(self, futures: np.ndarray, values: np.ndarray) -> np.ndarray:
        """``futures (draws, steps)`` of the network as values that follow ``values``."""
        grown = futures * self.spread + self.mean
        if self.difference:
            last = np.sqrt(np.maximum(values, 0.0)) if self.root else values
            grown = np.concatenate((np.tile(last[-self.season :], (len(futures), 1)), grown), 1)
            for step in range(self.season, grown.shape[1]):
                grown[:, step] += grown[:, step - self.season]
            grown = grown[:, self.season :]
        return np.maximum(grown, 0.0) ** 2 if self.root else grown


class Forecast(NamedTuple):
    """``mean``, ``low`` and ``high``, each ``(steps,)``."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def parameters(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """``(..., 2)`` -> mean and standard deviation, each ``(...,)``."""
    return outputs[..., 0], functional.softplus(outputs[..., 1]) + 1e-3


def gaussian_loss(mean: Tensor, spread: Tensor, targets: Tensor) -> Tensor:
    """-log N(target; mean, spread^2) without its constant, the mean over all."""
    return (spread.log() + (targets - mean).square() / (2 * spread.square())).mean()


@torch.no_grad()
def futures(network: FrameNetwork, scaling: Scaling, values: np.ndarray, steps: int, seed: int = 1) -> np.ndarray:
    """``(FUTURES, steps)``: drawn one value after the other, each fed back; the same for the same seed.

    The spread is that of the network times how far off, in its own spreads, it was over the last two seasons.
    """
    known = torch.tensor(scaling.scale(values), dtype=torch.float32)
    outputs, state = network(known[None, :, None])
    state = _repeated(state, FUTURES)
    lately = surprise(outputs[0], known)[-2 * scaling.season :]
    wider = float(lately.square().mean().sqrt().clamp(*SURPRISE)) if len(lately) else 1.0
    mean, spread = parameters(outputs[0, -1].expand(FUTURES, 2))
    generator, drawn = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        value = mean + wider * spread * torch.randn(FUTURES, generator=generator)
        drawn.append(value)
        outputs, state = network.step(value[:, None], state)
        mean, spread = parameters(outputs)
    return scaling.unscale(torch.stack(drawn, 1).double().numpy(), values)


def surprise(outputs: Tensor, values: Tensor) -> Tensor:
    """``outputs (time, 2)`` to ``values (time,)``: how many spreads each value but the first was off its mean."""
    mean, spread = parameters(outputs[:-1])
    return (values[1:] - mean) / spread


def interval(draws: np.ndarray, level: float, widths: np.ndarray | float = 1.0) -> Forecast:
    """The mean of the futures and the middle ``level`` of them, ``widths`` times as wide."""
    mean = draws.mean(0)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Forecast(mean, mean - widths * (mean - low), mean + widths * (high - mean))


def calibrate(
    network: FrameNetwork, scaling: Scaling, values: np.ndarray, ends: np.ndarray, horizon: int, seed: int = 1
) -> dict[str, list[float]]:
    """How much wider the intervals of each level must be at each step ahead to cover what they say (split conformal).

    Forecasts are made from each of the ``ends``; of how far reality lay outside, the level's quantile is the width. It
    is taken a little higher, as few witnesses ask for; forecasts that overlap count as one.
    """
    needed: dict[str, list[np.ndarray]] = {str(level): [] for level in LEVELS}
    for end in ends:
        draws = futures(network, scaling, values[:end], horizon, seed)
        truth = values[end : end + horizon]
        for level in LEVELS:
            mean, low, high = interval(draws, level)
            side = np.where(truth < mean, mean - low, high - mean)
            needed[str(level)].append(np.abs(truth - mean) / np.maximum(side, 1e-9))
    more = 1 + horizon / len(ends)
    return {
        level: np.quantile(np.stack(rows), min(1.0, float(level) * more), axis=0).tolist()
        for level, rows in needed.items()
    }


def _repeated(state: Any, rows: int) -> Any:
    """A state of one row for many."""
    if isinstance(state, Tensor):
        return state.expand(rows, *state.shape[1:]).contiguous()
    return tuple(_repeated(part, rows) for part in state)
