"""Batches as a pure function of the step: ``batches[step]`` is the same in every run, on any number of workers.

A run that was killed goes on at its last finished epoch with nothing to restore: the step number says it all.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from voiceseq.errors import InputError


def step_generator(*numbers: int) -> torch.Generator:
    """A generator whose stream depends on the numbers alone (seed, pass, row ...), each mixed in by splitmix64."""
    state = 0
    for number in numbers:
        state = (state ^ number) & 0xFFFFFFFFFFFFFFFF
        state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return torch.Generator().manual_seed(state & 0x7FFFFFFFFFFFFFFF)


def shuffled_rows(step: int, rows: int, batch: int, seed: int) -> list[int]:
    """The ``batch`` row numbers of this step; each pass over the ``rows`` has an order of its own.

    The last rows of a pass that do not fill a batch are completed from the next pass, so none is left out.
    """
    if rows < 1:
        raise InputError("the training data has no rows; give a data set with at least one")
    wanted = range(step * batch, (step + 1) * batch)
    orders = {number: _order(number, rows, seed) for number in {position // rows for position in wanted}}
    return [orders[position // rows][position % rows] for position in wanted]


_ORDERS: dict[tuple[int, int, int], list[int]] = {}


def _order(number: int, rows: int, seed: int) -> list[int]:
    """The row order of one pass; the last few are kept, since every step of a pass asks for the same one."""
    key = (number, rows, seed)
    if key not in _ORDERS:
        while len(_ORDERS) > 4:
            _ORDERS.pop(next(iter(_ORDERS)))
        _ORDERS[key] = torch.randperm(rows, generator=step_generator(seed, number)).tolist()
    return _ORDERS[key]


class StepBatches(Dataset[Any]):
    """``self[step]`` = ``make(step)``; the step is the sampler's."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, step: int) -> Any:
        return self.make(step)


class EpochSteps(Sampler[int]):
    """The step numbers of one epoch: an epoch is ``steps`` batches, wherever the passes over the data end."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from range(self.epoch * self.steps, (self.epoch + 1) * self.steps)

    def __len__(self) -> int:
        return self.steps


def training_loader(make: Callable[[int], Any], steps: int, workers: int = 0, overfit: bool = False) -> DataLoader[Any]:
    """A loader over the steps of an epoch (Lightning calls the sampler's ``set_epoch``); ``overfit`` repeats step 0."""
    if steps < 1:
        raise InputError(f"an epoch of {steps} steps was asked for; give data.steps_per_epoch of 1 or more")
    batches = StepBatches((lambda step: make(0)) if overfit else make)
    kept = workers > 0  # what a worker has decoded stays with it
    return DataLoader(batches, sampler=EpochSteps(steps), batch_size=None, num_workers=workers, persistent_workers=kept)


def own_share(rows: list[int], rank: int, world: int) -> list[int]:
    """The part of a global batch that process ``rank`` of ``world`` works on."""
    if len(rows) % world:
        raise InputError(f"a batch of {len(rows)} cannot be shared by {world} processes; give a multiple of {world}")
    return rows[rank::world]
