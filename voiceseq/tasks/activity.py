"""Activity in a clip, many-to-one over frames: does the digit go left, go right, or turn?"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from voiceseq.datasets.digits import MOVES, clip
from voiceseq.tasks.rows import ClassData

CLIPS = 4096  # different ones of training


class ActivityData(ClassData):
    """Clips made of the digits for training, ``validation`` clips of digits that were written by others."""

    classes = MOVES

    def __init__(
        self, batch: int = 64, steps_per_epoch: int = 64, validation: int = 512, seed: int = 1, overfit: bool = False
    ) -> None:
        super().__init__(batch, steps_per_epoch, seed, overfit)
        self.rows = Clips(seed, CLIPS)
        self.held_out = [made(seed, number, True) for number in range(validation)]
        self.sources = [{"name": "digits of scikit-learn", "licence": "CC BY 4.0 (UCI, Alpaydin and Kaynak 1998)"}]


class Clips(Sequence[Any]):
    """The clips of a seed, made when they are asked for."""

    def __init__(self, seed: int, count: int) -> None:
        self.seed, self.size = seed, count

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> Any:
        return made(self.seed, number)


@lru_cache(maxsize=2 * CLIPS)
def made(seed: int, number: int, held_out: bool = False) -> tuple[np.ndarray, int]:
    return clip(seed, number, held_out)
