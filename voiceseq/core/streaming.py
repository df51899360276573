"""A stream through an encoder: chunks of frames with a bounded past and a little future.

Every block waits until a chunk of its input is complete and ``lookahead`` more frames have come; then the frames of
that chunk look at their own chunk, at ``left_chunks`` before it and at those ``lookahead`` frames. This is what
``chunk_mask`` says, applied in every block, so an encoder trained with that mask streams with the same weights and
gives the same outputs.

The price of exactness: a block's look-ahead wants frames that the block below has finished, so the waits add up, block
by block, in whole chunks (``StreamingEncoder.lookahead``). With ``lookahead=0`` only one chunk is ever waited for.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from voiceseq.core.conformer import ConformerBlock
from voiceseq.core.masks import (
    check_piece,
    check_state,
    chunk_mask,
    nest_shapes,
    nest_tensors,
    parameter_dtype,
    tracing,
)
from voiceseq.core.transformer import AttentionBlock, Encoder
from voiceseq.errors import ConfigError, InputError

StreamState = tuple[Any, ...]
"""``(seen, blocks)``: ``seen (batch,)`` counts the valid frames of each row; a block's state is a ``BlockState``."""

BlockState = tuple[Tensor, Tensor, Tensor, Tensor, tuple[Tensor, ...]]
"""``(start, waiting, keys, values, context)``.

``waiting (batch, frames, size)`` has not been answered yet and begins a chunk, at position ``start (batch,)``; ``keys``
and ``values (batch, head, time, head_size)`` are of the chunks before it that can still be seen and of the waiting
frames; ``context`` is what the block's causal convolution keeps.
"""


class StreamingEncoder(nn.Module):
    """Run ``encoder`` (a ``TransformerEncoder``, or a causal ``ConformerEncoder``) on a stream.

    Outputs come in whole chunks: a piece of input gives none, one or several. The state does not grow. A piece is
    worked on at once, in a square of itself and the past, so cut a long recording into pieces of a few chunks.
    Raises ``ConfigError`` for settings that cannot be, and for a convolution that sees the future.
    """

    def __init__(self, encoder: Encoder, chunk: int, left_chunks: int, lookahead: int = 0) -> None:
        super().__init__()
        for name, value, least in (("chunk", chunk, 1), ("left_chunks", left_chunks, 0), ("lookahead", lookahead, 0)):
            if value < least:
                raise ConfigError(f"{name} is {value}; at least {least} was wanted")
        if any(isinstance(block, ConformerBlock) and not block.convolution.causal for block in encoder.blocks):
            raise ConfigError("this conformer's convolution sees the future; to stream it, build it with causal=True")
        self.encoder = encoder
        self.chunk, self.left_chunks, self.block_lookahead = chunk, left_chunks, lookahead

    @property
    def lookahead(self) -> int:
        """How many frames after a frame must have come before it is answered, at most (for the first of a chunk).

        The rest of its chunk; for every block but the first a look-ahead rounded up to whole chunks, since that is how
        the block below answers; and the look-ahead of the first block.
        """
        in_chunks = -(-self.block_lookahead // self.chunk) * self.chunk
        return self.chunk - 1 + (len(self.encoder.blocks) - 1) * in_chunks + self.block_lookahead

    def whole(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The same outputs for whole utterances at once, ``(batch, time, size)``: for training."""
        mask = chunk_mask(frames.shape[1], self.chunk, self.left_chunks, self.block_lookahead, frames.device)
        return self.encoder(frames, lengths, mask)

    def forward(
        self, frames: Tensor, state: StreamState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        """``frames (batch, time, size)`` -> the outputs that are ready, ``(batch, 0 or more, size)``, and the state.

        ``lengths (batch,)`` says how many of these frames are a row's own; a row with fewer than all of them has
        ended, gives zeros from there on, and has 0 in the pieces after. Raises ``InputError`` for wrong shapes,
        dtypes or lengths, NaN or infinite values, a state of another batch or encoder, and frames after the end of a
        row.
        """
        lengths = check_piece(frames, lengths, self.encoder.size, state is not None, parameter_dtype(self))
        if state is not None:
            self._check_state(state, frames[:, :0])
        seen, blocks = self._start(frames) if state is None else state
        came = blocks[0][0] + blocks[0][1].shape[1]
        _check_ended(seen, came, lengths)
        frames = self.encoder.positions(frames, _positions(came, frames.shape[1]))
        return self._run(frames, (seen + lengths, blocks), last=False)

    def flush(self, state: StreamState) -> Tensor:
        """The outputs that were waiting for a future, ``(batch, 0 or more, size)``: the stream is over.

        Raises ``InputError`` for no state, or that of another encoder.
        """
        if state is None:
            raise InputError("no state came; flush wants what the last call returned: nothing has been fed yet")
        rows = next((len(tensor) for tensor in nest_tensors(state)), 0)
        self._check_state(state, torch.empty(rows, 0, self.encoder.size))
        no_frames = state[1][0][1][:, :0]
        return self._run(no_frames, state, last=True)[0]

    def _run(self, frames: Tensor, state: StreamState, last: bool) -> tuple[Tensor, StreamState]:
        seen, kept = state
        blocks = []
        for block, block_state in zip(self.encoder.blocks, kept, strict=True):
            frames, new_state = self._block(cast(AttentionBlock, block), frames, seen, block_state, last)
            blocks.append(new_state)
        valid = _positions(kept[-1][0], frames.shape[1]) < seen[:, None]
        return self.encoder.norm(frames).masked_fill(~valid[..., None], 0.0), (seen, tuple(blocks))

    def _block(
        self, block: AttentionBlock, frames: Tensor, seen: Tensor, state: BlockState, last: bool
    ) -> tuple[Tensor, BlockState]:
        """Take frames in, answer the chunks whose look-ahead has come (``last``: all), forget what none will see."""
        start, waiting, keys, values, context = _take_in(block, frames, state)
        ready = waiting.shape[1]
        if not last:
            ready = max(0, ready - self.block_lookahead) // self.chunk * self.chunk
        past = keys.shape[2] - waiting.shape[1]
        outputs = waiting[:, :ready]
        if ready:
            at = _positions(start - past, keys.shape[2])
            valid = at < seen[:, None]
            answered = slice(past, past + ready)
            # keys begin at a chunk, so the mask of the stretch is the mask of the stream
            mask = chunk_mask(keys.shape[2], self.chunk, self.left_chunks, self.block_lookahead, keys.device)
            mask = mask[answered] & valid[:, None]
            normed = block.around_attention.enter(outputs)
            attended, _ = block.attention.attend(normed, (keys, values), mask, at[:, answered], at)
            outputs, context = block.after(outputs, attended, valid[:, answered], context)
        forget = max(0, past + ready - self.left_chunks * self.chunk)
        return outputs, (start + ready, waiting[:, ready:], keys[:, :, forget:], values[:, :, forget:], context)

    def _check_state(self, state: StreamState, no_frames: Tensor) -> None:
        """Check the state's nest for the rows of ``no_frames (batch, 0, size)``."""
        batch, blocks = no_frames.shape[0], []
        for block in (cast(AttentionBlock, block) for block in self.encoder.blocks):
            heads = (batch, block.attention.heads, None, self.encoder.size // block.attention.heads)
            waiting = (batch, None, self.encoder.size)
            blocks.append(((batch,), waiting, heads, heads, nest_shapes(block.start(no_frames))))
        check_state(state, ((batch,), tuple(blocks)), parameter_dtype(self))

    def _start(self, frames: Tensor) -> StreamState:
        none = frames[:, :0]
        zero = torch.zeros(frames.shape[0], dtype=torch.long, device=frames.device)
        blocks = (cast(AttentionBlock, block) for block in self.encoder.blocks)
        empty = ((zero, none, *block.attention.keys_values(none, none), block.start(none)) for block in blocks)
        return zero, tuple(empty)


def _take_in(block: AttentionBlock, frames: Tensor, state: BlockState) -> BlockState:
    """Put the new frames behind those that wait, and their keys and values behind the older ones."""
    start, waiting, keys, values, context = state
    frames = block.before(frames)
    normed = block.around_attention.enter(frames)
    at = _positions(start + waiting.shape[1], frames.shape[1])
    new_keys, new_values = block.attention.keys_values(normed, normed, at)
    waiting = torch.cat((waiting, frames), 1)
    return start, waiting, torch.cat((keys, new_keys), 2), torch.cat((values, new_values), 2), context


def _positions(start: Tensor, count: int) -> Tensor:
    """``(batch, count)``: start, start + 1, ..."""
    return start[:, None] + torch.arange(count, device=start.device)


def _check_ended(seen: Tensor, came: Tensor, lengths: Tensor) -> None:
    again = (seen < came) & (lengths > 0)
    if not tracing() and bool(again.any()):
        row = int(again.int().argmax())
        raise InputError(f"row {row} goes on after its end at frame {int(seen[row])}; give it length 0 from there on")
