"""Pairs of texts, numbered and padded: what an encoder-decoder learns from."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voiceseq.errors import InputError
from voiceseq.text.vocabulary import Vocabulary


class PairBatch(NamedTuple):
    """``source (batch, time)``; ``inputs`` begin with the start symbol, ``targets`` end with the end symbol."""

    source: Tensor
    source_lengths: Tensor
    inputs: Tensor
    targets: Tensor
    target_lengths: Tensor


def pad(rows: Sequence[Sequence[int]], value: int = 0) -> tuple[Tensor, Tensor]:
    """``(batch, longest)`` and the lengths; InputError when a row is empty."""
    empty = [number for number, row in enumerate(rows) if not len(row)]
    if empty or not rows:
        raise InputError(f"row {empty[0]} is empty: leave it out" if empty else "a batch without rows came")
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.full((len(rows), int(lengths.max())), value)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = torch.as_tensor(row)
    return padded, lengths


def pair_batch(pairs: Sequence[tuple[str, str]], source: Vocabulary, target: Vocabulary) -> PairBatch:
    """Encode and pad; ``target`` has the special symbols ``bos`` and ``eos``."""
    sources, source_lengths = pad([source.encode(text) for text, _ in pairs])
    bos, eos = target.special("bos"), target.special("eos")
    written = [target.encode(text) for _, text in pairs]
    inputs, lengths = pad([[bos, *row] for row in written])
    targets, _ = pad([[*row, eos] for row in written])
    return PairBatch(sources, source_lengths, inputs, targets, lengths)
