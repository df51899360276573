"""Encoders of acoustic models: from the frames of the convolutions to frames that know what is around them.

Each is called as ``frames, lengths = encoder(frames (batch, time, inputs), lengths)``; ``outputs`` is how many features
its frames have, ``factor`` how many frames of input make one. Those that look back only (``causal``) also stream:
``frames, state = encoder.advance(frames, state)`` and ``encoder.flush(state)`` for what was waiting for a future.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.conformer import ConformerConfig, ConformerEncoder
from voiceseq.core.convolution import ResidualConvolutions, strided_lengths
from voiceseq.core.masks import nest_tensors, zero_padding
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.streaming import StreamingEncoder
from voiceseq.core.transformer import TransformerEncoder

Encoded = tuple[Tensor, Tensor]


class AcousticEncoder(nn.Module):
    """The contract."""

    outputs: int
    factor: int = 1
    causal: bool = False
    lookahead: int = 0  # frames of its own input that must come after a frame before it is answered

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        """Whole utterances: ``(batch, time, inputs)`` -> ``(batch, ceil(time / factor), outputs)``, and lengths."""
        raise NotImplementedError

    def advance(self, frames: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next piece of a stream, ``(batch, 1 or more, inputs)``; the outputs that are ready, and the state."""
        raise NotImplementedError

    def flush(self, state: Any) -> Tensor | None:
        """The outputs that were waiting for a future; None where nothing waits."""
        return None


class RecurrentEncoder(AcousticEncoder):
    """A stack of recurrent layers, both ways or (``causal``) forwards alone.

    Forwards alone, a frame may be answered ``delay`` frames late, when what follows it is known; after the last frame
    come zeros.
    """

    def __init__(
        self, inputs: int, size: int, cell: str, layers: int, dropout: float, causal: bool = False, delay: int = 0
    ) -> None:
        super().__init__()
        self.causal, self.lookahead = causal, delay
        self.recurrent = Recurrent(
            inputs, size, cell, layers, bidirectional=not causal, dropout=dropout, layer_norm=True, residual=True
        )
        self.outputs = self.recurrent.output_size

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        late = self.lookahead
        if not late:
            return self.recurrent(frames, lengths=lengths)[0], lengths
        frames = functional.pad(zero_padding(frames, lengths), (0, 0, 0, late))
        return zero_padding(self.recurrent(frames, lengths=lengths + late)[0][:, late:], lengths), lengths

    def advance(self, frames: Tensor, state: Any) -> tuple[Tensor, Any]:
        inner, owed = (None, self.lookahead) if state is None else state
        outputs, inner = self.recurrent(frames, inner)
        return outputs[:, owed:], (inner, max(0, owed - frames.shape[1]))

    def flush(self, state: Any) -> Tensor | None:
        if state is None or not self.lookahead:
            return None
        first = next(iter(nest_tensors(state[0])))
        rest = first.new_zeros(first.shape[0], self.lookahead, self.recurrent.input_size)
        return self.advance(rest, state)[0]


class PyramidEncoder(AcousticEncoder):
    """Listen, attend and spell's listener: each layer but the first reads two neighbouring frames of the one below.

    So every layer has half as many frames, and the top one is ``2 ** (layers - 1)`` times shorter. The last of an odd
    number of frames is read with zeros beside it.
    """

    def __init__(self, inputs: int, size: int, cell: str, layers: int, dropout: float) -> None:
        super().__init__()
        self.outputs, self.factor = 2 * size, 2 ** (layers - 1)
        sizes = [inputs] + [4 * size] * (layers - 1)
        self.layers = nn.ModuleList(
            Recurrent(width, size, cell, bidirectional=True, layer_norm=True) for width in sizes
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        frames, _ = self.layers[0](frames, lengths=lengths)
        for layer in self.layers[1:]:
            frames, lengths = pairs(self.dropout(frames)), strided_lengths(lengths, 2)
            frames, _ = layer(frames, lengths=lengths)
        return frames, lengths


def pairs(frames: Tensor) -> Tensor:
    """``(batch, time, features)`` -> ``(batch, ceil(time / 2), 2 features)``: neighbours side by side."""
    frames = nn.functional.pad(frames, (0, 0, 0, frames.shape[1] % 2))
    return frames.unflatten(1, (-1, 2)).flatten(2)


class ConvolutionEncoder(AcousticEncoder):
    """The phone backbone's residual convolutions; ``above`` recurrent layers, both ways, read their frames in pairs.

    Without layers above it looks back only. With a ``delay`` the layers above do so too: they read every frame and
    answer that many frames late.
    """

    def __init__(
        self, size: int, layers: int, cell: str, above: int, above_size: int, dropout: float, delay: int = 0
    ) -> None:
        super().__init__()
        self.convolutions = ResidualConvolutions(size, layers, dropout=dropout)
        self.causal, self.lookahead = above == 0 or delay > 0, delay
        self.factor = 1 if self.causal else 2
        inputs = self.factor * size
        self.above = RecurrentEncoder(inputs, above_size, cell, above, dropout, self.causal, delay) if above else None
        self.outputs = size if self.above is None else self.above.outputs

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        frames, _ = self.convolutions(frames, lengths=lengths)
        if self.above is None:
            return frames, lengths
        return self.above(frames, lengths) if self.causal else self.above(pairs(frames), strided_lengths(lengths, 2))

    def advance(self, frames: Tensor, state: Any) -> tuple[Tensor, Any]:
        below, above = (None, None) if state is None else state
        frames, below = self.convolutions(frames, below)
        if self.above is not None:
            frames, above = self.above.advance(frames, above)
        return frames, (below, above)

    def flush(self, state: Any) -> Tensor | None:
        return None if state is None or self.above is None else self.above.flush(state[1])


class AttentionEncoder(AcousticEncoder):
    """A transformer or conformer over the whole utterance."""

    def __init__(self, encoder: TransformerEncoder | ConformerEncoder) -> None:
        super().__init__()
        self.stack, self.outputs = encoder, encoder.size

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        return self.stack(frames, lengths), lengths


class ChunkedEncoder(AcousticEncoder):
    """A causal conformer that looks at its own chunk and a few before: the same on whole utterances and on a stream."""

    causal = True

    def __init__(self, config: ConformerConfig, chunk: int, left_chunks: int) -> None:
        super().__init__()
        self.stack = StreamingEncoder(ConformerEncoder(config), chunk, left_chunks)
        self.outputs, self.lookahead = config.size, self.stack.lookahead

    def forward(self, frames: Tensor, lengths: Tensor) -> Encoded:
        return self.stack.whole(frames, lengths), lengths

    def advance(self, frames: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.stack(frames, state)

    def flush(self, state: Any) -> Tensor | None:
        return None if state is None else self.stack.flush(state)
