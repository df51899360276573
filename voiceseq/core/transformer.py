"""Transformers: encoder and decoder stacks of attention and feed-forward blocks, pre- or post-norm.

``TransformerEncoder`` sees the whole input (or what a mask lets it see). ``TransformerDecoder`` looks back only, with
or without a memory to look at, and carries a key/value cache: any cut of its input into pieces gives the same output.

All of it works on ``(batch, time, size)``; embedding tokens and predicting them is the models' business.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from voiceseq.core.attention import Cache, MultiHeadAttention, mask_axes
from voiceseq.core.masks import (
    causal_mask,
    check_frames,
    check_piece,
    check_state,
    lengths_mask,
    nest_tensors,
    parameter_dtype,
)
from voiceseq.core.positions import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    positions_after,
)
from voiceseq.errors import ConfigError, InputError

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}
NORMS = ("pre", "post")
POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "none")


@dataclass(frozen=True)
class StackConfig:
    """What every stack of attention blocks has; ``max_length`` is for learned positions, ``max_distance`` relative."""

    size: int = 256
    heads: int = 4
    layers: int = 6
    feed_forward: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    positions: str = "sinusoidal"
    max_length: int = 2048
    max_distance: int = 64

    def __post_init__(self) -> None:
        """Raise one ``ConfigError`` that names every mistake."""
        mistakes = self.mistakes()
        if mistakes:
            raise ConfigError("; ".join(mistakes))

    def mistakes(self) -> list[str]:
        """What is wrong with the settings, in words."""
        found = [
            f"{name} is {getattr(self, name)}; at least 1 was wanted"
            for name in ("size", "heads", "layers", "feed_forward", "max_length", "max_distance")
            if getattr(self, name) < 1
        ]
        found += [
            f"{name} is {getattr(self, name)}; 0 <= {name} < 1 was wanted"
            for name in ("dropout", "attention_dropout")
            if not 0 <= getattr(self, name) < 1
        ]
        if self.heads > 0 and self.size % self.heads:
            found.append(f"{self.heads} heads do not divide size {self.size}: choose size as a multiple of heads")
        return found + unknown_option("positions", self.positions, POSITIONS)


@dataclass(frozen=True)
class TransformerConfig(StackConfig):
    """The settings of a transformer; ``norm`` and ``positions`` and ``activation`` by name."""

    norm: str = "pre"
    activation: str = "gelu"

    def mistakes(self) -> list[str]:
        """What is wrong with the settings, in words."""
        found = super().mistakes() + unknown_option("norm", self.norm, NORMS)
        return found + unknown_option("activation", self.activation, tuple(ACTIVATIONS))


def unknown_option(name: str, value: str, valid: tuple[str, ...]) -> list[str]:
    """A list with one message when ``value`` is none of the ``valid`` ones."""
    return [] if value in valid else [f"{name} is {value!r}; one of {', '.join(valid)} was wanted"]


def added_positions(config: StackConfig) -> SinusoidalPositions | LearnedPositions | None:
    """The positions that are added to the frames, if the config's are of that kind."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.size)
    return LearnedPositions(config.size, config.max_length) if config.positions == "learned" else None


class AbsolutePositions(nn.Module):
    """What stands before the first block: positions added to the frames (where the config says so), then dropout."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.table = added_positions(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, frames: Tensor, positions: Tensor) -> Tensor:
        """``frames (batch, time, size)``, ``positions (batch, time)`` -> the same shape as frames."""
        return self.dropout(frames if self.table is None else self.table(frames, positions))


def self_attention(config: StackConfig) -> MultiHeadAttention:
    """Multi-head self-attention with the rotary or relative positions of the config, if any."""
    head_size = config.size // config.heads
    positions: RotaryPositions | RelativePositions | None = None
    if config.positions == "rotary":
        positions = RotaryPositions(head_size)
    elif config.positions == "relative":
        positions = RelativePositions(head_size, config.max_distance)
    return MultiHeadAttention(config.size, config.heads, dropout=config.attention_dropout, positions=positions)


class Residual(nn.Module):
    """The way around a layer f: ``x + f(norm(x))`` (pre) or ``norm(x + f(x))`` (post)."""

    def __init__(self, size: int, dropout: float, norm: str = "pre") -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def enter(self, frames: Tensor) -> Tensor:
        """What f gets."""
        return self.norm(frames) if self.pre else frames

    def leave(self, frames: Tensor, result: Tensor) -> Tensor:
        """Add what f made of it."""
        frames = frames + self.dropout(result)
        return frames if self.pre else self.norm(frames)


class FeedForward(nn.Sequential):
    """``W2 activation(W1 x + b1) + b2`` at every frame."""

    def __init__(self, size: int, inner: int, dropout: float, activation: str) -> None:
        super().__init__(nn.Linear(size, inner), ACTIVATIONS[activation](), nn.Dropout(dropout), nn.Linear(inner, size))


class AttentionBlock(nn.Module):
    """Self-attention with something ``before`` and something ``after`` it: what an ``Encoder`` is a stack of.

    The three are apart because a stream has to wait for the future between them. ``after`` may need the past, which
    goes in and out as ``context`` (a convolution's last frames; an empty tuple where there is nothing to keep).
    """

    def __init__(self, config: StackConfig, norm: str) -> None:
        super().__init__()
        self.attention = self_attention(config)
        self.around_attention = Residual(config.size, config.dropout, norm)

    def before(self, frames: Tensor) -> Tensor:
        """What happens at each frame before attention."""
        return frames

    def start(self, frames: Tensor) -> tuple[Tensor, ...]:
        """The context of ``after`` before the first of the frames."""
        return ()

    def after(
        self, frames: Tensor, attended: Tensor, valid: Tensor | None, context: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Join ``frames`` and what attention made of them, and finish the block; padding is False in ``valid``."""
        raise NotImplementedError

    def forward(
        self,
        frames: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        """``frames (batch, time, size)`` -> the same shape; ``mask`` and ``positions`` as in ``MultiHeadAttention``."""
        frames = self.before(frames)
        normed = self.around_attention.enter(frames)
        attended, _, _ = self.attention.look(normed, normed, normed, mask, positions=positions)
        return self.after(frames, attended, valid, self.start(frames))[0]


class EncoderBlock(AttentionBlock):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.norm)
        self.feed_forward = FeedForward(config.size, config.feed_forward, config.dropout, config.activation)
        self.around_feed_forward = Residual(config.size, config.dropout, config.norm)

    def after(
        self, frames: Tensor, attended: Tensor, valid: Tensor | None, context: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Add the attention, then the feed-forward layer; it needs no context."""
        frames = self.around_attention.leave(frames, attended)
        result = self.feed_forward(self.around_feed_forward.enter(frames))
        return self.around_feed_forward.leave(frames, result), context


class Encoder(nn.Module):
    """Positions, a stack of blocks, a last norm: what transformer and conformer encoders share."""

    def __init__(self, config: StackConfig, blocks: list[AttentionBlock], norm: nn.Module) -> None:
        super().__init__()
        self.size = config.size
        self.positions = AbsolutePositions(config)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(self, frames: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """``frames (batch, time, size)``, ``lengths (batch,)`` -> ``(batch, time, size)``, zeros in the padding.

        ``mask (time, time)`` or ``(batch, time, time)`` is True where a query (row) may look at a key (column):
        ``causal_mask``, ``chunk_mask``. Raises ``InputError`` for wrong shapes, dtypes or lengths and for NaN.
        """
        padded = lengths is not None
        lengths = check_frames(frames, lengths, self.size, dtype=parameter_dtype(self))
        valid = lengths_mask(lengths, frames.shape[1])
        mask = attention_mask(valid if padded else None, mask, frames)
        positions = torch.arange(frames.shape[1], device=frames.device)[None]
        frames = self.positions(frames, positions)
        for block in self.blocks:
            frames = block(frames, mask, positions, valid if padded else None)
        return self.norm(frames).masked_fill(~valid[..., None], 0.0) if padded else self.norm(frames)


def attention_mask(valid: Tensor | None, mask: Tensor | None, frames: Tensor) -> Tensor | None:
    """Join padding ``(batch, time)`` and a checked mask of who may look at whom: ``(1 or batch, 1 or time, time)``."""
    if mask is not None:
        batch, time = frames.shape[:2]
        mask = mask_axes(mask, batch, 1, time, time)[:, 0]
    if valid is None:
        return mask
    return valid[:, None] if mask is None else valid[:, None] & mask


class TransformerEncoder(Encoder):
    """A stack of ``EncoderBlock``; pre-norm stacks end with one more norm."""

    def __init__(self, config: TransformerConfig) -> None:
        blocks: list[AttentionBlock] = [EncoderBlock(config) for _ in range(config.layers)]
        super().__init__(config, blocks, last_norm(config))
        self.config = config


def last_norm(config: TransformerConfig) -> nn.Module:
    """Pre-norm blocks leave their sum unnormalised; post-norm ones do not."""
    return nn.LayerNorm(config.size) if config.norm == "pre" else nn.Identity()


class DecoderBlock(nn.Module):
    """Self-attention, attention over a memory (where ``memory_size`` is given), feed-forward."""

    def __init__(self, config: TransformerConfig, memory_size: int | None = None) -> None:
        super().__init__()
        self.attention = self_attention(config)
        self.around_attention = Residual(config.size, config.dropout, config.norm)
        self.memory_attention: MultiHeadAttention | None = None
        if memory_size is not None:
            self.memory_attention = MultiHeadAttention(
                config.size, config.heads, key_size=memory_size, dropout=config.attention_dropout
            )
            self.around_memory = Residual(config.size, config.dropout, config.norm)
        self.feed_forward = FeedForward(config.size, config.feed_forward, config.dropout, config.activation)
        self.around_feed_forward = Residual(config.size, config.dropout, config.norm)

    def forward(
        self,
        frames: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        memory: Cache | None = None,
        memory_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Cache, Tensor | None]:
        """``frames (batch, time, size)`` -> the same shape, the cache with the new keys and values, and where it looked
        in the memory, ``(batch, head, time, keys)``, or None.

        ``mask`` and ``positions`` cover all keys, cached and new, as in ``MultiHeadAttention``; ``memory`` is what
        ``memory_attention.keys_values`` made of it, ``memory_mask (batch, 1, keys)``.
        """
        normed = self.around_attention.enter(frames)
        attended, _, cache = self.attention.look(normed, normed, normed, mask, cache, positions)
        frames = self.around_attention.leave(frames, attended)
        weights = None
        if self.memory_attention is not None and memory is not None:
            normed = self.around_memory.enter(frames)
            attended, weights = self.memory_attention.attend(normed, memory, memory_mask, need_weights=need_weights)
            frames = self.around_memory.leave(frames, attended)
        result = self.feed_forward(self.around_feed_forward.enter(frames))
        return self.around_feed_forward.leave(frames, result), cache, weights


DecoderState = tuple[Any, ...]
"""``(positions, caches)``, with a memory ``(positions, caches, memories, memory_mask)``; all tensors batch-first.

``positions (batch, cached)`` numbers the cached frames, -1 where a row had padding; caches and memories hold a
``Cache`` for each block.
"""


class TransformerDecoder(nn.Module):
    """A stack of ``DecoderBlock`` that looks at the present and the past.

    Without ``memory_size`` it is decoder-only (a language model); with it every block also looks at a memory of that
    many features (an encoder's output).
    """

    def __init__(self, config: TransformerConfig, memory_size: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.memory_size = memory_size
        self.positions = AbsolutePositions(config)
        self.blocks = nn.ModuleList(DecoderBlock(config, memory_size) for _ in range(config.layers))
        self.norm = last_norm(config)

    def forward(
        self,
        frames: Tensor,
        memory: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        state: DecoderState | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """``frames (batch, time, size)`` (embedded tokens) -> ``(batch, time, size)`` with zeros in the padding, state.

        ``memory (batch, keys, memory_size)`` is read at the start (``state=None``) and then kept in the state. Rows
        may have different ``lengths``: each goes on from its own last frame, and 0 lets a row of a running state rest.
        Raises ``InputError`` for wrong shapes, dtypes, lengths, NaN or infinite values, a memory missing, unexpected or
        given again, and a state of another batch or decoder.
        """
        lengths = check_piece(frames, lengths, self.config.size, state is not None, parameter_dtype(self))
        if state is None:
            state = self._start(frames, memory, memory_lengths)
        else:
            if memory is not None or memory_lengths is not None:
                raise InputError("a memory came again with a running state; the state has kept it: leave it out")
            self._check_state(state, frames.shape[0])
        return self._run(frames, lengths, state)[:2]

    def memory_weights(
        self, frames: Tensor, memory: Tensor, memory_lengths: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Where each frame looked in the memory, for a picture: ``(batch, layer, head, time, keys)``."""
        lengths = check_frames(frames, lengths, self.config.size, dtype=parameter_dtype(self))
        state = self._start(frames, memory, memory_lengths)
        weights = torch.stack(self._run(frames, lengths, state, need_weights=True)[2], 1)
        return weights * lengths_mask(lengths, frames.shape[1])[:, None, None, :, None]

    def _run(
        self, frames: Tensor, lengths: Tensor, state: DecoderState, need_weights: bool = False
    ) -> tuple[Tensor, DecoderState, list[Tensor]]:
        earlier, caches, *of_memory = state
        none = (None,) * len(self.blocks)
        memories, memory_mask = of_memory or (none, None)
        valid = lengths_mask(lengths, frames.shape[1])
        new = positions_after((earlier >= 0).sum(1), valid)
        keys_at, mask = _looking_back(earlier, new)
        frames = self.positions(frames, keys_at[:, earlier.shape[1] :])
        kept, looked = [], []
        for block, cache, memory in zip(self.blocks, caches or none, memories, strict=True):
            frames, cache, weights = block(frames, mask, keys_at, cache, memory, memory_mask, need_weights)
            kept.append(cache)
            looked.append(weights)
        outputs = self.norm(frames).masked_fill(~valid[..., None], 0.0)
        return outputs, (torch.cat((earlier, new), 1), tuple(kept), *of_memory), looked

    def _start(self, frames: Tensor, memory: Tensor | None, memory_lengths: Tensor | None) -> DecoderState:
        positions = torch.empty(frames.shape[0], 0, dtype=torch.long, device=frames.device)
        if (memory is None) != (self.memory_size is None):
            wanted = "none: it was built without memory_size" if memory is not None else "one at the start"
            came = "no memory" if memory is None else f"a memory of shape {tuple(memory.shape)}"
            raise InputError(f"{came} came; this decoder wants {wanted}")
        if memory is None:
            if memory_lengths is not None:
                raise InputError("memory_lengths came without a memory; give both or neither")
            return (positions, ())
        memory_lengths = check_frames(memory, memory_lengths, self.memory_size, "memory", parameter_dtype(self))
        if memory.shape[0] != frames.shape[0]:
            raise InputError(f"memory has {memory.shape[0]} rows and frames {frames.shape[0]}; give both the same")
        attentions = (cast(MultiHeadAttention, block.memory_attention) for block in self.blocks)
        memories = tuple(attention.keys_values(memory, memory) for attention in attentions)
        return (positions, (), memories, lengths_mask(memory_lengths, memory.shape[1])[:, None])

    def _check_state(self, state: DecoderState, batch: int) -> None:
        """All caches must have as many frames as there are positions, all memories as many as the mask."""
        heads, layers = self.config.heads, self.config.layers
        tensors = nest_tensors(state)
        cached, keys = (tensors[end].shape[-1] if tensors else None for end in (0, -1))
        cache, memory = ((batch, heads, time, self.config.size // heads) for time in (cached, keys))
        wanted: tuple[Any, ...] = ((batch, cached), ((cache, cache),) * layers)
        if self.memory_size is not None:
            wanted += (((memory, memory),) * layers, (batch, 1, keys))
        check_state(state, wanted, parameter_dtype(self))


def _looking_back(earlier: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of all keys, ``(1 or batch, keys)``, and the mask that keeps ``new`` frames from what is later."""
    if earlier.shape[1]:
        positions = torch.cat((earlier, new), 1)[:, None]
        return positions[:, 0], (positions <= new[..., None]) & (positions >= 0)
    # at the start padding comes last, where looking back does not see it: all rows are numbered and masked alike
    time = new.shape[1]
    return torch.arange(time, device=new.device)[None], causal_mask(time, new.device)
