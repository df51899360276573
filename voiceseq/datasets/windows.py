"""One long stream of symbols, cut into windows: what a language model reads."""

import torch
from torch import Tensor

from voiceseq.datasets.batching import own_share, shuffled_rows, step_generator
from voiceseq.errors import InputError


class Windows:
    """Random windows of ``size`` symbols with the symbol after each, the same for the same seed and step.

    The stream is cut at a new random offset in each pass and the windows of a pass are shuffled. What does not fill a
    window at either end (less than two windows in all) rests until another pass.
    """

    def __init__(self, stream: Tensor, size: int, batch: int, seed: int) -> None:
        if len(stream) <= size:
            raise InputError(f"the text has {len(stream)} symbols; a window of {size} wants more: give a longer text")
        self.stream, self.size, self.batch, self.seed = stream, size, batch, seed
        self.rows = max(1, (len(stream) - 1) // size - 1)

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> tuple[Tensor, Tensor]:
        """``(inputs, targets)``, each ``(batch, size)``; the targets are one symbol ahead."""
        rows = own_share(shuffled_rows(step, self.rows, self.batch, self.seed), rank, world)
        slack = len(self.stream) - 1 - self.rows * self.size
        number = step * self.batch // self.rows
        offset = int(torch.randint(slack + 1, (), generator=step_generator(self.seed, number, 1)))
        starts = torch.tensor(rows) * self.size + offset
        index = starts[:, None] + torch.arange(self.size + 1)
        window = self.stream[index]
        return window[:, :-1], window[:, 1:]


def stream_pieces(stream: Tensor, size: int, batch: int) -> list[tuple[Tensor, Tensor]]:
    """The whole stream in order as ``batch`` parallel rows in pieces of ``size``, for evaluation with carried state.

    Each row is a contiguous part of the stream; every symbol but the first is a target exactly once (the last, shorter
    row comes as a piece of its own with one row).
    """
    targets = len(stream) - 1
    if targets < 1:
        raise InputError(f"the text has {len(stream)} symbols; at least 2 were wanted to predict one from another")
    batch = min(batch, targets)
    length = targets // batch
    index = torch.arange(batch)[:, None] * length + torch.arange(length)
    pieces = [(stream[i], stream[i + 1]) for i in index.split(size, dim=1)]
    rest = torch.arange(batch * length, targets)[None]
    return pieces + ([(stream[rest], stream[rest + 1])] if rest.numel() else [])
