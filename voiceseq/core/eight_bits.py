"""Matrices in 8 bits: what writes a token at a time waits for its weights to come from memory, and a quarter of them
comes four times as fast.

``W x + b`` with ``W[i, j] = scale[i] * whole[i, j]``, whole numbers from -127 to 127: the largest weight of a row
decides its scale. Inputs and products are rounded to bfloat16, sums are kept in 32 bits; every row of the input is
worked on by itself, so its answer does not depend on the others.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.errors import InputError


def round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``(rows, columns)`` -> whole numbers of the same shape in int8, and the scale ``(rows,)`` of each row."""
    if weight.dim() != 2 or not weight.is_floating_point():
        raise InputError(f"a weight of shape {tuple(weight.shape)}, {weight.dtype} came; (rows, columns) was wanted")
    scale = weight.detach().float().abs().amax(1).clamp(min=1e-30) / 127
    return (weight.detach().float() / scale[:, None]).round().to(torch.int8), scale


class EightBitLinear(nn.Module):
    """``nn.Linear`` for inference on the CPU; ``(..., columns)`` -> ``(..., rows)`` in the dtype of the input."""

    whole: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        whole, scale = round_rows(weight)
        self.register_buffer("whole", whole.contiguous())
        self.register_buffer("scale", scale.bfloat16())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, frames: Tensor) -> Tensor:
        rows = frames.reshape(-1, frames.shape[-1]).bfloat16()
        product = _product(rows, self.whole, self.scale).to(frames.dtype)
        if self.bias is not None:
            product = product + self.bias
        return product.view(*frames.shape[:-1], -1)


def _product(rows: Tensor, whole: Tensor, scale: Tensor) -> Tensor:
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
