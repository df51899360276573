"""Rows hold what they say: every frame carries its own number, so that its origin can be read off it."""

import numpy as np
import pytest
import torch

from voiceseq.wakeword.windows import Example, Spot, Windows, gather

FRAME_S = 0.03
# frames (time, 2): who, and which frame
EXAMPLE, STREAM, ALIKE = 1.0, 2.0, 3.0


def numbered(kind: float, count: int, first: int = 0) -> np.ndarray:
    return np.stack([np.full(count, kind), np.arange(first, first + count)], 1).astype(np.float32)


def example(ends) -> Example:
    return Example(numbered(EXAMPLE, 150), ends)


def windows(**changes) -> Windows:
    settings = {
        "examples": [example(((0, 1.5), (1, 3.9)))],
        "streams": [numbered(STREAM, 500), numbered(STREAM, 40, 500), numbered(STREAM, 300, 540)],
        "alike": [numbered(ALIKE, 130), numbered(ALIKE, 30)],
        "batch": 48,
    }
    return Windows(**(settings | changes))


def test_a_batch_is_a_function_of_seed_and_step():
    one, same = windows()(7), windows()(7)
    assert torch.equal(one.frames, same.frames)
    assert one.ends == same.ends
    assert not torch.equal(one.frames, windows()(8).frames)
    assert not torch.equal(one.frames, windows(seed=2)(7).frames)


def test_shares_of_the_rows():
    with_hard = windows(hard=[Spot(0, 200, 0, 1.0)])(1)
    kinds = with_hard.frames[:, 0, 0].tolist()
    assert (kinds.count(EXAMPLE), kinds.count(ALIKE)) == (round(0.34 * 48), round(0.1 * 48))
    assert len(kinds) == 48
    assert windows(alike=())(1).frames[:, 0, 0].tolist().count(STREAM) == 48 - round(0.34 * 48)


def test_rows_are_unbroken_stretches_and_zero_behind_their_length():
    batch = windows(hard=[Spot(2, 150, 0, 1.0)])(3)
    for row, length in zip(batch.frames, batch.lengths.tolist(), strict=True):
        numbers = row[:length, 1]
        assert torch.equal(numbers, numbers[0] + torch.arange(length))
        assert not row[length:].any()
        assert length <= 110


def test_the_ends_of_an_example_move_with_its_window():
    """An end is the same frame of the clip as before, inside the window; and every word inside is told of."""
    seen = set()
    for step in range(20):
        batch = windows()(step)
        for row, length, ends in zip(batch.frames, batch.lengths.tolist(), batch.ends, strict=True):
            if row[0, 0] != EXAMPLE:
                assert ends == ()
                continue
            first = float(row[0, 1]) * FRAME_S
            inside = [(w, at) for w, at in ((0, 1.5), (1, 3.9)) if first <= at < first + length * FRAME_S]
            assert [word for word, _ in ends] == [word for word, _ in inside]
            assert [at + first for _, at in ends] == pytest.approx([at for _, at in inside])
            assert len(ends) >= 1
            seen.add(len(ends))
    assert seen == {1, 2}


def test_a_hard_row_holds_its_spot_and_a_little_after_it():
    for step in range(10):
        batch = windows(hard=[Spot(0, 200, 0, 1.0), Spot(1, 39, 0, 1.0)], shares=(0.0, 1.0, 0.0))(step)
        for row, length in zip(batch.frames, batch.lengths.tolist(), strict=True):
            numbers = row[:length, 1].tolist()
            assert 200 in numbers or 539 in numbers
            assert numbers[-1] <= 200 + 40 or numbers[-1] == 539


def test_anywhere_reaches_every_frame_and_never_crosses_streams():
    batch = windows(shares=(0.0, 0.0, 0.0), batch=4000)(1)
    counted = np.zeros(840)
    for row, length in zip(batch.frames, batch.lengths.tolist(), strict=True):
        numbers = row[:length, 1].numpy().astype(int)
        assert len({int(np.searchsorted([500, 540, 840], number, side="right")) for number in numbers[[0, -1]]}) == 1
        counted[numbers] += 1
    assert counted.min() > 0


def test_rows_of_many_lengths_are_padded():
    batch = gather([Example(numbered(1, 3), ((0, 0.05),)), Example(numbered(2, 5).astype(np.float16))])
    assert batch.frames.shape == (2, 5, 2)
    assert batch.frames.dtype == torch.float32
    assert batch.lengths.tolist() == [3, 5]
    assert batch.ends == (((0, 0.05),), ())
