"""Nothing is lost but the rounding, and little is wasted."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.datasets.frame_codec import BLOCK, FrameCoder, dequantise, quantise
from voiceseq.errors import BundleError, InputError


def sticky(rng: np.random.Generator, time: int, size: int, levels: int) -> np.ndarray:
    """Levels that mostly stay as they are."""
    moves = rng.choice([-1, 0, 1], (time, size), p=[0.1, 0.8, 0.1])
    return np.clip(np.cumsum(moves, 0) + levels // 2, 0, levels - 1).astype(np.uint8)


@settings(max_examples=20, deadline=None)
@given(
    times=st.lists(
        st.sampled_from([0, 1, 2, 77, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 300]), min_size=1, max_size=2
    ),
    size=st.integers(1, 5),
    levels=st.integers(2, 64),
    seed=st.integers(0, 1000),
    smooth=st.booleans(),
)
def test_codes_come_back_as_they_were(times: list[int], size: int, levels: int, seed: int, smooth: bool) -> None:
    rng = np.random.default_rng(seed)
    draw = (
        (lambda time: sticky(rng, time, size, levels))
        if smooth
        else (lambda time: rng.integers(levels, size=(time, size)))
    )
    streams = [draw(time).astype(np.uint8) for time in times]
    coder = FrameCoder.learn(streams, size, levels)
    stored = FrameCoder(coder.frequencies)  # what a reader of the file has
    for codes in streams:
        assert np.array_equal(stored.decode(coder.encode(codes), len(codes)), codes)


def test_the_size_is_the_entropy() -> None:
    """What comes, given what came before, by counting pairs in a dictionary; a lane costs 4 bytes more."""
    levels, size = 16, 4
    codes = sticky(np.random.default_rng(3), 4 * BLOCK, size, levels)
    bits = 0.0
    for column in codes.T.astype(int):
        pairs, firsts = {}, {}
        for one, two in pairwise(column):
            pairs[one, two] = pairs.get((one, two), 0) + 1
            firsts[one] = firsts.get(one, 0) + 1
        bits -= sum(count * np.log2(count / firsts[one]) for (one, _), count in pairs.items())
    data = FrameCoder.learn([codes], size, levels).encode(codes)
    assert bits / 8 * 0.98 < len(data) < bits / 8 * 1.02 + 4 * size * 5


@given(st.integers(2, 64), st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=50))
def test_rounding_is_within_half_a_step(levels: int, values: list[float]) -> None:
    frames = np.array(values, np.float32)[:, None]
    assert np.abs(dequantise(quantise(frames, levels), levels) - frames).max() <= 1 / (levels - 1) + 1e-6
    assert np.array_equal(dequantise(quantise(np.float32([[-1, 1]]), levels), levels), [[-1, 1]])


def test_damage_is_seen() -> None:
    codes = sticky(np.random.default_rng(1), 200, 3, 8)
    coder = FrameCoder.learn([codes], 3, 8)
    data = coder.encode(codes)
    rng = np.random.default_rng(2)
    spoilt = [data[:-2], data[:-1], data + b"\0\0", data[:3], b""]
    for place in rng.integers(len(data), size=30):
        spoilt.append(data[:place] + bytes([data[place] ^ (1 << rng.integers(8))]) + data[place + 1 :])
    for bad in spoilt:
        with pytest.raises(BundleError):
            coder.decode(bad, len(codes))
    with pytest.raises(BundleError):
        coder.decode(data, len(codes) - 1)
    with pytest.raises(BundleError):
        FrameCoder(coder.frequencies + np.uint16(1))


def test_what_cannot_be_coded_is_refused() -> None:
    coder = FrameCoder.learn([np.zeros((10, 2), np.uint8)], 2, 4)
    with pytest.raises(InputError):
        coder.encode(np.full((10, 2), 3, np.uint8))
    for frames in (np.float32([[np.nan]]), np.float32([[1.5]]), np.zeros(4, np.float32)):
        with pytest.raises(InputError):
            quantise(frames, 16)
