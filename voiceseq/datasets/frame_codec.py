"""Frames of numbers in -1..1 in few bytes: rounded to a few levels, then entropy coded.

A number of the bottleneck changes little from frame to frame, so what came before says much about what comes: each
level is coded with the frequencies of the levels that follow the one before it, in its own dimension. The coder is an
asymmetric numeral system with a 32-bit state. A stream is cut into blocks; every dimension of every block is a *lane*
with a state of its own, and all lanes step together, as arrays.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import BundleError, InputError

Frames = NDArray[np.float32]
Codes = NDArray[np.uint8]

PRECISION = 12  # bits: the frequencies of what may follow add up to 4096
TOTAL = 1 << PRECISION
LOWEST = 1 << 16  # a state is never below this; words of 16 bits leave and enter it
BLOCK = 1024  # frames


def quantise(frames: Frames, levels: int) -> Codes:
    """``frames (time, size)`` in -1..1 as numbers of levels. Raises InputError for other numbers and shapes."""
    if frames.ndim != 2 or not np.isfinite(frames).all() or np.abs(frames).max(initial=0) > 1:
        raise InputError(f"frames of shape {frames.shape} came; (time, size), finite and in -1..1, were wanted")
    return np.round((frames + 1) * ((levels - 1) / 2)).astype(np.uint8)


def dequantise(codes: Codes, levels: int) -> Frames:
    """The middle of each level: at most ``1 / (levels - 1)`` from what was quantised."""
    return (np.arange(levels) * (2 / (levels - 1)) - 1).astype(np.float32)[codes]


class FrameCoder:
    """``coder.encode(codes (time, size)) -> bytes`` and ``coder.decode(bytes, time)``, without loss.

    Args:
        frequencies: ``(size, levels + 1, levels)``: how often a level follows another, out of 4096; the last row of
            contexts is for the first frame of a block. Contexts that never come are all zero.
    """

    def __init__(self, frequencies: NDArray[np.uint16]) -> None:
        self.frequencies = frequencies
        self.size, self.contexts, self.levels = frequencies.shape
        self._frequency = frequencies.astype(np.uint64).reshape(-1, self.levels)
        self._below = np.cumsum(self._frequency, axis=1) - self._frequency
        sums = self._frequency.sum(1)
        if self.contexts != self.levels + 1 or not np.isin(sums, (0, TOTAL)).all():
            raise BundleError("the table of frequencies is damaged: get the bank again")
        self._symbols: NDArray[np.uint8] | None = None

    @classmethod
    def learn(cls, streams: Iterable[Codes], size: int, levels: int) -> "FrameCoder":
        """The frequencies in these streams ``(time, size)``; it can code these and may fail on others."""
        counts = np.zeros(size * (levels + 1) * levels, np.int64)
        for codes in streams:
            counts += np.bincount((_contexts(codes, levels) * levels + codes).ravel(), minlength=len(counts))
        return cls(_normalised(counts.reshape(size, levels + 1, levels)))

    def encode(self, codes: Codes) -> bytes:
        """Last frame first, so that decoding goes forwards. Raises InputError for what the frequencies do not know."""
        codes = np.ascontiguousarray(codes)
        context, symbol = _lanes(_contexts(codes, self.levels)), _lanes(codes.astype(np.int64))
        states = np.full(symbol.shape[1], LOWEST, np.uint64)
        words: list[NDArray[np.uint16]] = []
        for step in reversed(range(len(symbol))):
            active = _active(len(codes), self.size, step)
            frequency = self._frequency[context[step, :active], symbol[step, :active]]
            if not frequency.all():
                raise InputError("these frames have values that were not there when the frequencies were counted")
            state = states[:active]
            full = state >= frequency << np.uint64(32 - PRECISION)
            words.append(state[full].astype(np.uint16))
            state[full] >>= np.uint64(16)
            whole, rest = np.divmod(state, frequency)
            state[:] = (
                (whole << np.uint64(PRECISION)) + rest + self._below[context[step, :active], symbol[step, :active]]
            )
        return states.astype("<u4").tobytes() + np.concatenate([*words[::-1], []]).astype("<u2").tobytes()

    def decode(self, data: bytes, time: int) -> Codes:
        """``(time, size)``. Raises BundleError where the data is not that of ``time`` frames."""
        steps, lanes = _shape(time, self.size)
        if time < 0 or len(data) < 4 * lanes or len(data) % 2:
            raise BundleError(f"{len(data)} bytes are too few for {time} frames: get the bank again")
        states = np.frombuffer(data, "<u4", lanes).astype(np.uint64)
        words = np.frombuffer(data, "<u2", offset=4 * lanes).astype(np.uint64)
        symbols = np.zeros((steps, lanes), np.uint8)
        base = np.arange(lanes) % self.size * self.contexts
        before, place, table = np.full(lanes, self.levels), 0, self._slots()
        for step in range(steps):
            active = _active(time, self.size, step)
            state, slot = states[:active], states[:active] & np.uint64(TOTAL - 1)
            context = base[:active] + before[:active]
            symbol = table[context, slot]
            state[:] = (
                self._frequency[context, symbol] * (state >> np.uint64(PRECISION)) + slot - self._below[context, symbol]
            )
            empty = np.flatnonzero(state < LOWEST)
            taken = words[place : place + len(empty)]
            if len(taken) < len(empty):
                break
            state[empty] = state[empty] << np.uint64(16) | taken
            place += len(empty)
            symbols[step, :active] = before[:active] = symbol
        if place != len(words) or (states != LOWEST).any():
            raise BundleError(f"the data is not that of {time} frames of this bank: get the bank again")
        return _unlaned(symbols, time, self.size)

    def _slots(self) -> NDArray[np.uint8]:
        """``(contexts, 4096)``: whose slot each is."""
        if self._symbols is None:
            lengths = self._frequency.astype(np.int64)
            lengths[lengths.sum(1) == 0, 0] = TOTAL  # never asked for
            names = np.tile(np.arange(self.levels, dtype=np.uint8), len(lengths))
            self._symbols = np.repeat(names, lengths.ravel()).reshape(-1, TOTAL)
        return self._symbols


def _normalised(counts: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Counts as frequencies out of 4096: what came at all has at least one, the most frequent takes the rest."""
    sums = counts.sum(-1, keepdims=True)
    shares = np.round(counts * (TOTAL / np.maximum(sums, 1))).astype(np.int64)
    shares[(counts > 0) & (shares == 0)] = 1
    rest = np.where(sums > 0, TOTAL - shares.sum(-1, keepdims=True), 0)
    most = shares.argmax(-1, keepdims=True)
    np.put_along_axis(shares, most, np.take_along_axis(shares, most, -1) + rest, -1)
    return shares.astype(np.uint16)


def _contexts(codes: Codes, levels: int) -> NDArray[np.int64]:
    """``(time, size)``: which row of the table each code is coded with."""
    before = np.vstack([codes[:1], codes[:-1]]).astype(np.int64)
    before[::BLOCK] = levels
    return before + np.arange(codes.shape[1]) * (levels + 1)


def _shape(time: int, size: int) -> tuple[int, int]:
    """Steps and lanes of ``time`` frames."""
    return min(time, BLOCK), -(-time // BLOCK) * size


def _active(time: int, size: int, step: int) -> int:
    """How many lanes have this step: the last block may be shorter."""
    return (time - step - 1) // BLOCK * size + size


def _lanes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """``(time, size)`` -> ``(steps, blocks * size)``; zeros where the last block has ended."""
    time, size = values.shape
    steps, lanes = _shape(time, size)
    padded = np.zeros((lanes // size * BLOCK, size), values.dtype)
    padded[:time] = values
    return padded.reshape(-1, BLOCK, size).swapaxes(0, 1).reshape(BLOCK, lanes)[:steps]


def _unlaned(lanes: Codes, time: int, size: int) -> Codes:
    steps, count = lanes.shape
    return lanes.reshape(steps, count // size, size).swapaxes(0, 1).reshape(-1, size)[:time]
