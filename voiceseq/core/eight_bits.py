"""Matrices in 8 bits: what writes a token at a time waits for its weights to come from memory, and a quarter of them
comes four times as fast.

``W x + b`` with ``W[i, j] = scale[i] * whole[i, j]``, whole numbers from -127 to 127: the largest weight of a row
decides its scale. A few rows of input, and their products, are rounded to bfloat16, sums are kept in 32 bits. Many rows
do not wait for memory but for multiplications: where the processor has them for whole numbers (``counts_fast``) the
rows become whole numbers, too, each with its own scale. Every row is worked on by itself, so its answer depends on
the others by no more than that rounding.
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.errors import InputError

MANY = 10  # rows from which on whole numbers are the faster ones (docs/experiments.md)


def round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``(rows, columns)`` -> whole numbers of the same shape in int8, and the scale ``(rows,)`` of each row."""
    if weight.dim() != 2 or not weight.is_floating_point():
        raise InputError(f"a weight of shape {tuple(weight.shape)}, {weight.dtype} came; (rows, columns) was wanted")
    weight = weight.detach().float()
    scale = weight.abs().amax(1, keepdim=True).clamp_(min=1e-30).div_(127)
    return (weight / scale).round_().to(torch.int8), scale[:, 0]


@cache
def counts_fast() -> bool:
    """Whether this processor multiplies whole numbers of 8 bits faster than others (VNNI), and torch knows how."""
    return hasattr(torch, "_int_mm") and torch.cpu._is_vnni_supported()


class EightBitLinear(nn.Module):
    """``nn.Linear`` for inference on the CPU; ``(..., columns)`` -> ``(..., rows)`` in the dtype of the input."""

    whole: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        whole, scale = round_rows(weight)
        self.register_buffer("whole", whole.contiguous())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, frames: Tensor) -> Tensor:
        rows = frames.reshape(-1, frames.shape[-1])
        counting = len(rows) >= MANY and counts_fast() and rows.device.type == "cpu"
        product = (_counted if counting else _rounded)(rows, self.whole, self.scale).to(frames.dtype)
        if self.bias is not None:
            product = product + self.bias
        return product.view(*frames.shape[:-1], -1)


def _counted(rows: Tensor, whole: Tensor, scale: Tensor) -> Tensor:
    steps, sizes = round_rows(rows)
    return torch._int_mm(steps, whole.T).float().mul_(sizes[:, None]).mul_(scale)


def _rounded(rows: Tensor, whole: Tensor, scale: Tensor) -> Tensor:
    rows, scale = rows.bfloat16(), scale.bfloat16()
    kernel = getattr(torch, "_weight_int8pack_mm", None)
    if kernel is None or rows.device.type != "cpu":  # the same numbers, without the speed
        return functional.linear(rows.float(), whole.float() * scale.float()[:, None]).bfloat16()
    return kernel(rows, whole, scale)


def to_eight_bits(module: nn.Module) -> nn.Module:
    """Put an ``EightBitLinear`` in the place of every ``nn.Linear`` inside ``module``, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, EightBitLinear(child.weight, child.bias))
        else:
            to_eight_bits(child)
    return module
