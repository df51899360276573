"""Universal transformer: one block applied again and again; each frame decides by itself when it has thought enough."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceseq.core.masks import check_frames, lengths_mask, parameter_dtype, tracing
from voiceseq.core.transformer import EncoderBlock, TransformerConfig, added_positions, attention_mask, last_norm
from voiceseq.errors import ConfigError


class UniversalOutput(NamedTuple):
    """``outputs (batch, time, size)``; ``ponder (batch, time)``, the cost N + R of each frame, whose mean over the
    valid frames is added to a loss; ``halting (batch, time, layers)``, the weights of the steps, which sum to 1. All
    are zero in the padding."""

    outputs: Tensor
    ponder: Tensor
    halting: Tensor


class UniversalEncoder(nn.Module):
    """An encoder whose ``config.layers`` steps share one block, with adaptive computation time (Graves' ACT).

    Step n sees where a frame stands and how deep it is: ``s_n = block(s_{n-1} + position + depth_n)``, and its halting
    probability is ``p_n = sigmoid(w . s_n + b)``. A frame stops at the first N where ``p_1 + ... + p_N`` reaches
    ``threshold`` (at the latest at the last step); its state then stays as it is, for the others to look at. The output
    is ``sum_n h_n s_n`` with ``h_n = p_n`` before N and ``h_N = R = 1 - (p_1 + ... + p_{N-1})``.
    """

    def __init__(self, config: TransformerConfig, threshold: float = 0.99) -> None:
        super().__init__()
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold is {threshold}; 0 < threshold < 1 was wanted")
        self.config, self.threshold = config, threshold
        self.positions = added_positions(config)
        self.depths = nn.Parameter(torch.randn(config.layers, config.size) * 0.02)
        self.block = EncoderBlock(config)
        self.halt = nn.Linear(config.size, 1)
        self.norm = last_norm(config)

    def forward(self, frames: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> UniversalOutput:
        """``frames (batch, time, size)``, ``lengths`` and ``mask`` as in ``TransformerEncoder``.

        Raises ``InputError`` for wrong shapes, dtypes, lengths, NaN or infinite values.
        """
        lengths = check_frames(frames, lengths, self.config.size, dtype=parameter_dtype(self))
        valid = lengths_mask(lengths, frames.shape[1])
        mask = attention_mask(valid, mask, frames)
        positions = torch.arange(frames.shape[1], device=frames.device)[None]

        state, running, halting = frames, valid, []
        halted = ponder = frames.new_zeros(valid.shape)
        outputs = torch.zeros_like(frames)
        for step in range(self.config.layers):
            if not tracing() and not bool(running.any()):
                break
            state = torch.where(running[..., None], self._deeper(step, state, mask, positions), state)
            weight, stops = self._halt(step, state, halted, running)
            outputs = outputs + weight[..., None] * state
            halted = halted + weight
            ponder = ponder + running + weight.masked_fill(~stops, 0.0)
            running = running & ~stops
            halting.append(weight)
        weights = F.pad(torch.stack(halting, -1), (0, self.config.layers - len(halting)))
        return UniversalOutput(self.norm(outputs).masked_fill(~valid[..., None], 0.0), ponder, weights)

    def _deeper(self, step: int, state: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        state = state + self.depths[step]
        return self.block(state if self.positions is None else self.positions(state, positions), mask, positions)

    def _halt(self, step: int, state: Tensor, halted: Tensor, running: Tensor) -> tuple[Tensor, Tensor]:
        """The weight of this step and which frames stop at it, both ``(batch, time)``."""
        probability = self.halt(state)[..., 0].sigmoid()
        enough = halted + probability >= self.threshold
        stops = running if step == self.config.layers - 1 else running & enough
        return torch.where(stops, 1.0 - halted, probability).masked_fill(~running, 0.0), stops
