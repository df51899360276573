"""Averaged weights: smoother than the last ones, and free of the beginning of a short run."""

import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor


class AveragedWeights(WeightAveraging):
    """Exponential average of the weights after each step; validated, and kept, in their place.

    The decay grows to its full value as (1 + n) / (10 + n) with the steps n: with 0.998 at once, a run of 900 steps
    would still hold a sixth of the weights that it started with.
    """

    def __init__(self, decay: float) -> None:
        def average(before: Tensor, now: Tensor, steps: Tensor | int) -> Tensor:
            if not before.is_floating_point():  # a mask or a count has no average
                return now
            return torch.lerp(before, now, 1 - warm_decay(decay, steps))

        super().__init__(avg_fn=average)


def warm_decay(decay: float, steps: Tensor | int) -> float:
    """How much of the average stays at step ``steps``."""
    return min(decay, (1 + int(steps)) / (10 + int(steps)))
