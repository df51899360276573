"""Lengths, masks and the checks at the border, against plain loops and random shapes."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voiceseq.core.masks import (
    DIVERGED,
    causal_mask,
    check_dtype,
    check_finite,
    check_frames,
    check_lengths,
    check_piece,
    check_sizes,
    check_tokens,
    chunk_mask,
    lengths_mask,
    masked_mean,
    masked_softmax,
    parameter_dtype,
    reverse_by_length,
    zero_padding,
)
from voiceseq.errors import InputError, VoiceseqError

some_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5), extra=st.integers(0, 3))
def test_lengths_mask(lengths: list[int], extra: int) -> None:
    size = max(lengths) + extra
    expected = [[t < length for t in range(size)] for length in lengths]
    assert lengths_mask(torch.tensor(lengths), size).tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_causal_mask(size: int) -> None:
    assert causal_mask(size).tolist() == [[key <= query for key in range(size)] for query in range(size)]


@settings(deadline=None)
@given(
    size=st.integers(1, 20),
    chunk=st.integers(1, 7),
    left=st.none() | st.integers(0, 4),
    lookahead=st.integers(0, 9),
)
def test_chunk_mask(size: int, chunk: int, left: int | None, lookahead: int) -> None:
    mask = chunk_mask(size, chunk, left, lookahead).tolist()
    for query in range(size):
        for key in range(size):
            chunks_back = query // chunk - key // chunk
            in_the_past = chunks_back >= 0 and (left is None or chunks_back <= left)
            last_of_chunk = query // chunk * chunk + chunk - 1
            in_the_future = last_of_chunk < key <= last_of_chunk + lookahead
            assert mask[query][key] == (in_the_past or in_the_future)


@pytest.mark.parametrize("chunk", [0, -2])
def test_chunk_mask_wants_a_chunk(chunk: int) -> None:
    with pytest.raises(InputError, match=f"chunk is {chunk}; at least 1 was wanted"):
        chunk_mask(5, chunk)


@settings(deadline=None)
@given(lengths=some_lengths, extra=st.integers(0, 3), features=st.none() | st.integers(1, 3))
def test_reverse_by_length(lengths: list[int], extra: int, features: int | None) -> None:
    shape = (len(lengths), max(lengths) + extra) + (() if features is None else (features,))
    frames = torch.randn(shape)
    turned = reverse_by_length(frames, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        assert turned[row, :length].tolist() == frames[row, :length].tolist()[::-1]
        assert torch.equal(turned[row, length:], frames[row, length:])
    assert torch.equal(reverse_by_length(turned, torch.tensor(lengths)), frames)


@settings(deadline=None)
@given(data=st.data(), rows=st.integers(1, 4), size=st.integers(1, 6))
def test_masked_softmax(data: st.DataObject, rows: int, size: int) -> None:
    values = st.lists(st.lists(st.floats(-50, 50), min_size=size, max_size=size), min_size=rows, max_size=rows)
    keep = st.lists(st.lists(st.booleans(), min_size=size, max_size=size), min_size=rows, max_size=rows)
    scores, mask = data.draw(values), data.draw(keep)
    weights = masked_softmax(torch.tensor(scores).double(), torch.tensor(mask))
    for row in range(rows):
        total = sum(math.exp(score) for score, kept in zip(scores[row], mask[row], strict=True) if kept)
        for column in range(size):
            expected = math.exp(scores[row][column]) / total if mask[row][column] else 0.0
            assert float(weights[row, column]) == pytest.approx(expected, abs=1e-6)
            assert mask[row][column] or float(weights[row, column]) == 0.0


def test_masked_softmax_of_nothing_is_zero_with_finite_gradients() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[False] * 3, [True, False, True]]))
    assert weights[0].tolist() == [0.0, 0.0, 0.0]
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[0].any()
    torch.testing.assert_close(masked_softmax(scores, None), scores.softmax(-1))


@settings(deadline=None)
@given(lengths=some_lengths, extra=st.integers(0, 3))
def test_masked_mean_is_blind_to_padding(lengths: list[int], extra: int) -> None:
    frames = torch.randn(len(lengths), max(lengths) + extra, 2).double()
    for row, length in enumerate(lengths):
        frames[row, length:] = torch.inf
    means = masked_mean(frames, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(means[row], frames[row, :length].mean(0))


# ---- the border ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    batch=st.integers(0, 3), time=st.integers(0, 4), features=st.integers(1, 3), wanted=st.none() | st.integers(1, 3)
)
def test_check_frames_accepts_what_fits_and_nothing_else(
    batch: int, time: int, features: int, wanted: int | None
) -> None:
    frames = torch.randn(batch, time, features)
    if batch and time and wanted in (None, features):
        assert check_frames(frames, None, wanted).tolist() == [time] * batch
    else:
        with pytest.raises(InputError, match=r"frames has shape .* wanted"):
            check_frames(frames, None, wanted)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(-2, 6), min_size=1, max_size=4), size=st.integers(1, 4))
def test_check_lengths_accepts_one_to_size(lengths: list[int], size: int) -> None:
    given_lengths = torch.tensor(lengths, dtype=torch.int32)
    if all(1 <= length <= size for length in lengths):
        checked = check_lengths(given_lengths, len(lengths), size)
        assert checked.dtype == torch.long
        assert checked.tolist() == lengths
    else:
        with pytest.raises(InputError) as caught:
            check_lengths(given_lengths, len(lengths), size)
        guilty = min(lengths) if min(lengths) < 1 else max(lengths)
        assert f"lengths[{lengths.index(guilty)}] is {guilty}" in str(caught.value)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([[3, 3]]), r"lengths has shape \(1, 2\); a batch of 2 wants \(2,\)"),
        (torch.tensor([3]), r"lengths has shape \(1,\)"),
        (torch.tensor(3), r"lengths has shape \(\)"),
        (torch.tensor([3.0, 2.0]), "lengths has dtype torch.float32; give whole numbers"),
        (torch.tensor([True, True]), "lengths has dtype torch.bool"),
    ],
)
def test_check_lengths_refuses(lengths: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_lengths(lengths, 2, 3)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (torch.zeros(3), r"frames has shape \(3,\); \(batch, time, feature\) was wanted"),
        (torch.zeros(1, 2, 3, 4), r"frames has shape \(1, 2, 3, 4\)"),
        (torch.zeros(1, 2, 3, dtype=torch.long), r"frames has dtype torch.int64; .*frames.float\(\)"),
        (torch.zeros(0, 2, 3), "at least one row and one frame"),
    ],
)
def test_check_frames_refuses(frames: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_frames(frames)


@settings(deadline=None)
@given(
    place=st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3)),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_one_bad_value_anywhere_is_found(place: tuple[int, int, int], bad: float) -> None:
    frames = torch.randn(2, 3, 4)
    check_finite(frames)
    frames[place] = bad
    with pytest.raises(InputError, match="frames holds 1 NaN or infinite values"):
        check_frames(frames, torch.tensor([1, 3]))
    with pytest.raises(VoiceseqError):
        check_finite(frames)
    with pytest.raises(ValueError, match="keys holds 1"):
        check_finite(frames, "keys")


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-1, 6), min_size=2, max_size=2), min_size=1, max_size=3),
    vocabulary=st.integers(1, 6),
)
def test_check_tokens_accepts_the_vocabulary_alone(rows: list[list[int]], vocabulary: int) -> None:
    tokens = torch.tensor(rows)
    if all(0 <= token < vocabulary for row in rows for token in row):
        assert check_tokens(tokens, None, vocabulary).tolist() == [2] * len(rows)
    else:
        with pytest.raises(InputError, match=rf"tokens holds -?\d+; 0 to {vocabulary - 1} was wanted"):
            check_tokens(tokens, None, vocabulary)


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.long), 0, "the vocabulary has 0 symbols"),
        (torch.zeros(3, dtype=torch.long), 5, r"tokens has shape \(3,\)"),
        (torch.zeros(2, 3), 5, "dtype torch.float32"),
        (torch.zeros(2, 0, dtype=torch.long), 5, "at least one row and one token"),
    ],
)
def test_check_tokens_refuses(tokens: Tensor, vocabulary: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_tokens(tokens, None, vocabulary)


def test_export_has_no_data_dependent_checks() -> None:
    class Checked(torch.nn.Module):
        def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
            return frames * check_frames(frames, lengths)[:, None, None]

    program = torch.export.export(Checked(), (torch.randn(2, 3, 4), torch.tensor([3, 1])))
    assert program.module()(torch.ones(2, 3, 4), torch.tensor([2, 1]))[:, 0, 0].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("values", [[[[1.0]]], np.zeros((1, 1, 1), np.float32), None])
def test_what_is_no_tensor_is_refused(values: Any) -> None:
    kind = type(values).__name__
    with pytest.raises(InputError, match=rf"frames is a {kind}; a tensor was wanted"):
        check_frames(values)
    with pytest.raises(InputError, match=rf"keys is a {kind}; a tensor was wanted"):
        check_finite(values, "keys")
    with pytest.raises(InputError, match=rf"tokens is a {kind}; a tensor was wanted"):
        check_tokens(values, None, 3)
    if values is not None:
        with pytest.raises(InputError, match=rf"lengths is a {kind}; a tensor was wanted"):
            check_frames(torch.zeros(1, 1, 1), values)


def test_frames_of_another_dtype_than_the_network() -> None:
    check_frames(torch.zeros(1, 2, 3), dtype=torch.float32)
    check_frames(torch.zeros(1, 2, 3).double(), dtype=torch.float64)
    check_frames(torch.zeros(1, 2, 3), dtype=None)
    with pytest.raises(
        InputError, match=r"keys has dtype torch.float64; torch.float32 was wanted: .*\.to\(torch.float32"
    ):
        check_frames(torch.zeros(1, 2, 3).double(), name="keys", dtype=torch.float32)
    with pytest.raises(InputError, match=r"has dtype torch.bfloat16; torch.float32 was wanted"):
        check_frames(torch.zeros(1, 2, 3).bfloat16(), dtype=torch.float32)


def test_autocast_joins_what_it_can_cast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        check_dtype(torch.zeros(1), torch.float32)
        check_dtype(torch.zeros(1).bfloat16(), torch.float32)
        check_dtype(torch.zeros(1), torch.bfloat16)
        with pytest.raises(InputError, match=r"dtype torch.float64"):  # autocast leaves double as it is
            check_dtype(torch.zeros(1).double(), torch.float32)


def test_the_dtype_of_a_module_is_that_of_its_first_real_parameter() -> None:
    assert parameter_dtype(torch.nn.Linear(1, 1).double()) is torch.float64
    assert parameter_dtype(torch.nn.Identity()) is None
    numbers = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1, dtype=torch.int8), requires_grad=False)])
    assert parameter_dtype(numbers) is None
    assert parameter_dtype(torch.nn.ModuleList([numbers, torch.nn.Linear(1, 1)])) is torch.float32


def test_the_advice_is_the_callers() -> None:
    bad = torch.full((1, 2, 3), math.nan)
    with pytest.raises(InputError, match="replace them before the network sees them"):
        check_frames(bad)
    with pytest.raises(InputError, match=r"logits holds 6 NaN .*diverged: lower the learning rate or clip") as caught:
        check_frames(bad, name="logits", advice=DIVERGED)
    assert "replace" not in str(caught.value)


@pytest.mark.parametrize("running", [False, True])
def test_a_piece_may_be_empty_once_it_runs(running: bool) -> None:
    frames = torch.randn(3, 4, 2)
    assert check_piece(frames, None, 2, running).tolist() == [4, 4, 4]
    assert check_piece(frames, torch.tensor([4, 1, 2], dtype=torch.int32), 2, running).tolist() == [4, 1, 2]
    for lengths, message in (([4, -1, 2], r"lengths\[1\] is -1"), ([4, 1, 5], r"lengths\[2\] is 5 but")):
        with pytest.raises(InputError, match=message):
            check_piece(frames, torch.tensor(lengths), 2, running)
    if running:
        assert check_piece(frames, torch.tensor([4, 0, 2]), 2, running).tolist() == [4, 0, 2]
    else:
        with pytest.raises(InputError, match=r"lengths\[1\] is 0"):
            check_piece(frames, torch.tensor([4, 0, 2]), 2, running)
    with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
        check_piece(frames.double(), None, 2, running, torch.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"left_chunks": -1}, "left_chunks is -1; at least 0"),
        ({"lookahead": -2}, "lookahead is -2; at least 0"),
    ],
)
def test_chunk_mask_refuses(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chunk_mask(**({"size": 4, "chunk": 2} | options))


def test_sizes_are_whole_and_large_enough() -> None:
    check_sizes(size=1, heads=np.int64(4))
    check_sizes(0, lookahead=0)
    for value in (0, -1, 2.5, 2.0, "3", None):
        with pytest.raises(InputError, match=r"heads is .*at least 1 was wanted"):
            check_sizes(size=1, heads=value)


def test_zero_padding_touches_the_padding_alone() -> None:
    frames = torch.randn(2, 3, 4)
    padded = zero_padding(frames, torch.tensor([3, 1]))
    assert padded[0].equal(frames[0])
    assert padded[1, :1].equal(frames[1, :1])
    assert not padded[1, 1:].any()
