"""Positions: how an order-blind attention learns where each frame stands.

Positions are whole numbers ``(batch, time)``, or ``(1, time)`` where all rows agree, and always given, never counted
inside: a stream or a key/value cache goes on from where it stopped by passing larger ones. ``-1`` marks padding (whose
result nobody reads).

Two kinds are added to the frames before the first block (``SinusoidalPositions``, ``LearnedPositions``); two act inside
every attention, on distances alone (``RotaryPositions`` turns queries and keys, ``RelativePositions`` adds to scores).
"""

import torch
from torch import Tensor, nn

from voiceseq.core.masks import tracing
from voiceseq.errors import ConfigError, InputError


def positions_after(previous: Tensor, valid: Tensor) -> Tensor:
    """Number the frames that follow ``previous (batch,)`` earlier ones: ``(batch, time)``, -1 where not ``valid``."""
    time = torch.arange(valid.shape[1], device=valid.device)
    return torch.where(valid, previous[:, None] + time, -1)


def angles(positions: Tensor, size: int, base: float = 10_000.0) -> Tensor:
    """``position / base^(2i/size)`` for i < size/2: ``(batch, time)`` -> ``(batch, time, size/2)``.

    In double precision, since a stream of a day has positions at which a float32 angle is off by a whole radian.
    """
    real = torch.float32 if positions.device.type == "mps" else torch.float64
    rates = base ** (-torch.arange(0, size, 2, dtype=real, device=positions.device) / size)
    return positions[..., None].to(real) * rates


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """``(batch, time)`` -> ``(batch, time, size)``: sine on even features, cosine on odd ones."""
    phase = angles(positions, size)
    return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(-2)


class SinusoidalPositions(nn.Module):
    """``x_t + [sin, cos](t / 10000^(2i/size))``: no parameters, no longest length."""

    def __init__(self, size: int) -> None:
        super().__init__()
        _check_even(size, "sinusoidal positions")
        self.size = size

    def forward(self, frames: Tensor, positions: Tensor) -> Tensor:
        """``frames (batch, time, size)``, ``positions (batch, time)`` -> frames with their position added."""
        return frames + sinusoids(positions, self.size).to(frames.dtype)


class LearnedPositions(nn.Module):
    """``x_t + P_t`` with one learned vector for each of ``max_length`` positions; beyond them an ``InputError``."""

    def __init__(self, size: int, max_length: int) -> None:
        super().__init__()
        if max_length < 1:
            raise ConfigError(f"max_length is {max_length}; learned positions want at least 1")
        self.table = nn.Parameter(torch.randn(max_length, size) * 0.02)

    def forward(self, frames: Tensor, positions: Tensor) -> Tensor:
        """``frames (batch, time, size)``, ``positions (batch, time)`` -> frames with their position added."""
        known = self.table.shape[0]
        if not tracing() and int(positions.max()) >= known:
            raise InputError(
                f"position {int(positions.max())} was reached but only {known} are learned: "
                "cut the input, raise max_length, or use sinusoidal, rotary or relative positions"
            )
        return frames + self.table[positions.clamp(min=0)]


class RotaryPositions(nn.Module):
    """Turn each pair of features by an angle proportional to the position (RoPE).

    Pairs are (i, i + size/2). Turned by their own positions, a query and a key meet in a score that depends on the
    difference of the two alone.
    """

    def __init__(self, head_size: int, base: float = 10_000.0) -> None:
        super().__init__()
        _check_even(head_size, "rotary positions (the size of one head)")
        self.head_size = head_size
        self.base = base

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """``heads (batch, head, time, head_size)``, ``positions (batch, time)`` -> the same, turned."""
        phase = angles(positions, self.head_size, self.base)[:, None]
        cos, sin = phase.cos().to(heads.dtype), phase.sin().to(heads.dtype)
        first, second = heads.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class RelativePositions(nn.Module):
    """Add ``q_i . r_d`` to the score of query i and key j, with ``d = j - i`` clipped to ``max_distance`` (Shaw).

    One vector per distance, shared by the heads. Only differences enter, so a cached key needs no rewriting.
    """

    def __init__(self, head_size: int, max_distance: int) -> None:
        super().__init__()
        if max_distance < 1:
            raise ConfigError(f"max_distance is {max_distance}; relative positions want at least 1")
        self.head_size, self.max_distance = head_size, max_distance
        self.table = nn.Parameter(torch.randn(2 * max_distance + 1, head_size) * head_size**-0.5)

    def forward(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """``query (batch, head, queries, head_size)``, positions ``(batch, queries)`` and ``(batch, keys)``
        -> ``(batch, head, queries, keys)``, to be added to the unscaled scores."""
        distance = key_positions[:, None, :] - query_positions[:, :, None]
        index = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        by_distance = query @ self.table.T
        return by_distance.gather(-1, index[:, None].expand(*query.shape[:-1], index.shape[-1]))


def _check_even(size: int, what: str) -> None:
    if size < 2 or size % 2:
        raise ConfigError(f"{what} pair the features up: an even size was wanted, {size} came")
