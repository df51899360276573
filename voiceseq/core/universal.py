"""Universal transformer: one block applied again and again, each frame deciding by itself when it has thought enough."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from voiceseq.core.attention import mask_axes
from voiceseq.core.masks import check_frames, lengths_mask
from voiceseq.core.positions import positions_after, sinusoids
from voiceseq.core.transformer import EncoderBlock, TransformerConfig, last_norm
from voiceseq.errors import ConfigError


class UniversalOutput(NamedTuple):
    """``outputs (batch, time, size)``; ``ponder (batch, time)``, the cost N + R of each frame, whose mean over the
    valid frames is added to a loss; ``halting (batch, time, layers)``, the weight of each step, which sum to 1. All are
    zero in the padding."""

    outputs: Tensor
    ponder: Tensor
    halting: Tensor


class UniversalEncoder(nn.Module):
    """An encoder whose ``config.layers`` steps share one block, with adaptive computation time (Graves' ACT).

    Step n sees where a frame stands and how deep it is: ``s_n = block(s_{n-1} + position + depth_n)``, and its halting
    probability is ``p_n = sigmoid(w . s_n + b)``. A frame stops at the first N where ``p_1 + ... + p_N`` passes
    ``threshold`` (at the latest at the last step); its state then stays as it is, for the others to look at. The output
    is ``sum_n h_n s_n`` with ``h_n = p_n`` before N and ``h_N = R = 1 - (p_1 + ... + p_{N-1})``.
    """

    def __init__(self, config: TransformerConfig, threshold: float = 0.99) -> None:
        super().__init__()
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold is {threshold}; 0 < threshold < 1 was wanted")
        if config.positions == "learned":
            raise ConfigError("positions is 'learned'; sinusoidal, rotary, relative or none was wanted")
        self.config, self.threshold = config, threshold
        self.block = EncoderBlock(config)
        self.depths = nn.Parameter(torch.randn(config.layers, config.size) * 0.02)
        self.halt = nn.Linear(config.size, 1)
        self.norm = last_norm(config)

    def forward(self, frames: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> UniversalOutput:
        """``frames (batch, time, size)``, ``lengths`` and ``mask`` as in ``TransformerEncoder``.

        Raises ``InputError`` for wrong shapes, lengths, NaN or infinite values.
        """
        lengths = check_frames(frames, lengths, self.config.size)
        batch, time, size = frames.shape
        valid = lengths_mask(lengths, time)
        mask = valid[:, None] & (mask_axes(mask, batch, 1, time, time)[:, 0] if mask is not None else True)
        positions = positions_after(torch.zeros_like(lengths), valid)
        where = sinusoids(positions, size).to(frames.dtype) if self.config.positions == "sinusoidal" else 0.0

        state, running, steps = frames, valid, self.config.layers
        total = frames.new_zeros(batch, time)
        ponder = frames.new_zeros(batch, time)
        mean = torch.zeros_like(frames)
        halting = []
        for step in range(steps):
            new = self.block(state + where + self.depths[step], mask, positions, valid)
            state = torch.where(running[..., None], new, state)
            probability = self.halt(state)[..., 0].sigmoid()
            stops = running & ((total + probability >= self.threshold) | (step == steps - 1))
            weight = torch.where(stops, 1.0 - total, probability).masked_fill(~running, 0.0)
            ponder = ponder + running.to(frames.dtype) + weight.masked_fill(~stops, 0.0)
            mean = mean + weight[..., None] * state
            total = total + weight
            halting.append(weight)
            running = running & ~stops
        outputs = self.norm(mean).masked_fill(~valid[..., None], 0.0)
        return UniversalOutput(outputs, ponder, torch.stack(halting, -1))
