from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.datasets.batching import EpochSteps, own_share, shuffled_rows, step_generator, training_loader
from voiceseq.datasets.windows import Windows, stream_pieces
from voiceseq.errors import InputError


@given(rows=st.integers(1, 40), batch=st.integers(1, 12), passes=st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_each_pass_reads_every_row_once(rows: int, batch: int, passes: int) -> None:
    steps = -(-rows * passes // batch)
    read = [row for step in range(steps) for row in shuffled_rows(step, rows, batch, seed=3)]
    for number in range(passes):
        assert sorted(read[number * rows : (number + 1) * rows]) == list(range(rows))


def test_passes_and_seeds_differ_and_repeat() -> None:
    first, second = (shuffled_rows(step, 50, 50, 1) for step in (0, 1))
    assert first != second
    assert first != shuffled_rows(0, 50, 50, 2)
    assert first == shuffled_rows(0, 50, 50, 1)


def test_generators_depend_on_each_number_and_its_place() -> None:
    seeds = {step_generator(*numbers).initial_seed() for numbers in [(1,), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2)]}
    assert len(seeds) == 6


def test_loader_gives_the_steps_of_its_epoch_on_any_number_of_workers() -> None:
    for workers in (0, 2):
        loader = training_loader(lambda step: torch.tensor([step]), 4, workers)
        assert isinstance(loader.sampler, EpochSteps)
        loader.sampler.set_epoch(3)
        assert [int(batch) for batch in loader] == [12, 13, 14, 15]
    assert [int(batch) for batch in training_loader(lambda step: torch.tensor([step]), 3, overfit=True)] == [0, 0, 0]


def test_shares_make_up_the_batch() -> None:
    rows = list(range(12))
    assert Counter(own_share(rows, 0, 3) + own_share(rows, 1, 3) + own_share(rows, 2, 3)) == Counter(rows)
    with pytest.raises(InputError, match="multiple of 5"):
        own_share(rows, 0, 5)


@given(length=st.integers(12, 200), size=st.integers(1, 5), batch=st.integers(1, 6), seed=st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_windows_read_on_by_one_symbol(length: int, size: int, batch: int, seed: int) -> None:
    stream = torch.arange(length)
    inputs, targets = Windows(stream, size, batch, seed)(5)
    assert inputs.shape == targets.shape == (batch, size)
    assert torch.equal(inputs + 1, targets)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(size))


@given(length=st.integers(2, 90), size=st.integers(1, 9), batch=st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_pieces_hold_every_symbol_as_a_target_once(length: int, size: int, batch: int) -> None:
    pieces = stream_pieces(torch.arange(length), size, batch)
    assert Counter(int(t) for _, targets in pieces for t in targets.flatten()) == Counter(range(1, length))
    assert all(torch.equal(inputs + 1, targets) for inputs, targets in pieces)


def test_short_texts_are_refused() -> None:
    with pytest.raises(InputError, match="longer text"):
        Windows(torch.arange(8), 8, 1, 1)
    with pytest.raises(InputError, match="at least 2"):
        stream_pieces(torch.arange(1), 8, 1)
    with pytest.raises(InputError, match="no rows"):
        shuffled_rows(0, 0, 1, 1)
