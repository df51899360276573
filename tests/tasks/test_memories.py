"""Clips that begin in the middle of streams: which states they begin with."""

import pytest
import torch

from voiceseq.core.masks import nest_tensors
from voiceseq.core.recurrent import Recurrent
from voiceseq.tasks.memories import FRESH, Memories


def rows_of(state: object) -> torch.Tensor:
    return torch.cat(nest_tensors(state), 1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_what_ended_is_what_begins_again(cell: str) -> None:
    recurrent = Recurrent(3, 5, cell=cell, layers=2)
    memories = Memories(recurrent, seed=1, rows=40)
    _, state = recurrent(torch.randn(40, 6, 3))
    memories.keep(state, step=0)
    ended = {tuple(row) for row in rows_of(state).tolist()}
    begun = rows_of(memories.begin(2000, step=1))
    fresh = (begun == 0).all(1)
    assert {tuple(row) for row in begun[~fresh].tolist()} == ended
    assert abs(float(fresh.float().mean()) - FRESH) < 0.05
    recurrent(torch.randn(2000, 2, 3), memories.begin(2000, step=2))  # it is a state as the network has it


def test_newer_states_take_the_place_of_older_ones() -> None:
    recurrent = Recurrent(3, 5, cell="gru")
    memories = Memories(recurrent, seed=1, rows=16)
    for step in range(200):
        memories.keep((torch.full((4, 5), float(step)),), step)
    assert float(memories.states.min()) > 150
