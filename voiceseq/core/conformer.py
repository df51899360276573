"""Conformer: a transformer encoder that also listens locally, with a convolution inside every block.

Its norms are layer norms: each frame is normalised by itself, so that padding and batch mates change nothing, in
training either (a batch norm would count them). With ``causal=True`` the convolution looks back only, its last frames
go in and out as a tensor, and the encoder can stream (``voiceseq.core.streaming``).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceseq.core.transformer import AttentionBlock, Encoder, FeedForward, Residual, StackConfig
from voiceseq.errors import ConfigError, InputError


@dataclass(frozen=True)
class ConformerConfig(StackConfig):
    """The settings of a conformer; ``kernel`` frames under each convolution (odd unless ``causal``)."""

    positions: str = "relative"
    kernel: int = 15
    causal: bool = False

    def mistakes(self) -> list[str]:
        """What is wrong with the settings, in words."""
        return super().mistakes() + kernel_mistakes(self.kernel, self.causal)


def kernel_mistakes(kernel: int, causal: bool) -> list[str]:
    """A list with one message when no convolution has this kernel."""
    if kernel < 1:
        return [f"kernel is {kernel}; at least 1 was wanted"]
    if not causal and kernel % 2 == 0:
        return [f"kernel is {kernel}; an odd one was wanted, to look equally far to both sides (or causal=True)"]
    return []


class ConformerConvolution(nn.Module):
    """Pointwise, GLU, depthwise convolution, layer norm, swish, pointwise; ``(batch, time, size)`` in and out."""

    def __init__(self, size: int, kernel: int, causal: bool) -> None:
        super().__init__()
        mistakes = kernel_mistakes(kernel, causal)
        if mistakes:
            raise ConfigError(mistakes[0])
        self.kernel, self.causal = kernel, causal
        self.widen = nn.Linear(size, 2 * size)
        self.depthwise = nn.Conv1d(size, size, kernel, groups=size)
        self.norm = nn.LayerNorm(size)
        self.mix = nn.Linear(size, size)

    def start(self, frames: Tensor) -> Tensor:
        """The silence before the first frame: ``(batch, kernel - 1, size)`` zeros, half as many if not causal."""
        before = self.kernel - 1 if self.causal else self.kernel // 2
        return frames.new_zeros(frames.shape[0], before, frames.shape[2])

    def forward(
        self, frames: Tensor, valid: Tensor | None = None, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``frames (batch, time, size)``, ``valid (batch, time)`` -> the same shape as frames, and the context.

        ``context (batch, kernel - 1, size)`` is what a causal convolution saw last; pass it on with the next piece.
        One that sees the future cannot go on and raises ``InputError``.
        """
        if context is not None and not self.causal:
            raise InputError("a context came for a convolution that sees the future: build it with causal=True")
        gated = F.glu(self.widen(frames), dim=-1)
        if valid is not None:
            gated = gated.masked_fill(~valid[..., None], 0.0)
        seen = torch.cat((self.start(frames) if context is None else context, gated), 1)
        after = 0 if self.causal else self.kernel // 2
        filtered = self.depthwise(F.pad(seen.transpose(1, 2), (0, after))).transpose(1, 2)
        return self.mix(F.silu(self.norm(filtered))), seen[:, seen.shape[1] - (self.kernel - 1) :]


class ConformerBlock(AttentionBlock):
    """Half a feed-forward, self-attention, convolution, half a feed-forward, norm."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__(config, "pre")
        size, dropout = config.size, config.dropout
        self.first = FeedForward(size, config.feed_forward, dropout, "silu")
        self.around_first = Residual(size, dropout)
        self.convolution = ConformerConvolution(size, config.kernel, config.causal)
        self.around_convolution = Residual(size, dropout)
        self.second = FeedForward(size, config.feed_forward, dropout, "silu")
        self.around_second = Residual(size, dropout)
        self.norm = nn.LayerNorm(size)

    def before(self, frames: Tensor) -> Tensor:
        """Half a feed-forward."""
        return self.around_first.leave(frames, 0.5 * self.first(self.around_first.enter(frames)))

    def start(self, frames: Tensor) -> tuple[Tensor, ...]:
        """What the causal convolution saw before the first frame; nothing for one that sees the future."""
        return (self.convolution.start(frames),) if self.convolution.causal else ()

    def after(
        self, frames: Tensor, attended: Tensor, valid: Tensor | None, context: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Convolution, half a feed-forward, norm; the context is the convolution's."""
        frames = self.around_attention.leave(frames, attended)
        convolved, last = self.convolution(self.around_convolution.enter(frames), valid, *context)
        frames = self.around_convolution.leave(frames, convolved)
        frames = self.around_second.leave(frames, 0.5 * self.second(self.around_second.enter(frames)))
        return self.norm(frames), (last,) if context else ()


class ConformerEncoder(Encoder):
    """A stack of ``ConformerBlock``: ``forward(frames, lengths=None, mask=None)`` as in ``TransformerEncoder``."""

    def __init__(self, config: ConformerConfig) -> None:
        blocks: list[AttentionBlock] = [ConformerBlock(config) for _ in range(config.layers)]
        super().__init__(config, blocks, nn.Identity())
        self.config = config
