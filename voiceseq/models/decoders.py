"""Decoders of acoustic models: they write the text symbol by symbol and look at the encoder's frames meanwhile.

Both begin with the symbol that also ends a text. ``logits = decoder(tokens, frames, lengths)`` is teacher forcing;
``StepScorer(decoder.step, *decoder.start(frames, lengths))`` is the decoder in a search.
"""

from typing import Any

from torch import Tensor, nn

from voiceseq.core.attention import LocationAwareAttention
from voiceseq.core.masks import check_tokens, masked_mean
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.shapes import TokenDecoder
from voiceseq.core.transformer import TransformerConfig, TransformerDecoder


class SpeechDecoder(nn.Module):
    """The contract."""

    def forward(self, tokens: Tensor, frames: Tensor, lengths: Tensor, token_lengths: Tensor | None = None) -> Tensor:
        """``tokens (batch, written)``, ``frames (batch, time, size)`` -> logits ``(batch, written, symbols)``."""
        raise NotImplementedError

    def weights(self, tokens: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
        """``(batch, written, time)``: where it looked while it wrote what follows each of ``tokens``."""
        raise NotImplementedError

    def start(self, frames: Tensor, lengths: Tensor) -> tuple[Any, Any]:
        """The state before the first symbol and the memory that all hypotheses of an utterance share (or None)."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        """``log_probs (rows, symbols)`` of what follows ``tokens (rows,)``, and the next state."""
        raise NotImplementedError


class RecurrentDecoder(SpeechDecoder):
    """Listen, attend and spell's speller: a recurrent network whose attention knows where it looked last."""

    def __init__(self, symbols: int, inputs: int, size: int, cell: str, layers: int, dropout: float) -> None:
        super().__init__()
        attention = LocationAwareAttention(size, inputs, size)
        network = Recurrent(size // 2 + inputs, size, cell, layers, dropout=dropout)
        self.core = TokenDecoder(symbols, network, inputs, attention)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, frames: Tensor, lengths: Tensor, token_lengths: Tensor | None = None) -> Tensor:
        return self.core(tokens, self.start(self.dropout(frames), lengths), token_lengths)[0]

    def weights(self, tokens: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
        return self.core(tokens, self.start(frames, lengths))[1]

    def start(self, frames: Tensor, lengths: Tensor) -> tuple[Any, Any]:
        return self.core.start(masked_mean(frames, lengths), frames, lengths)

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        return self.core.decode_step(tokens, state, memory)


class AttentionDecoder(SpeechDecoder):
    """A transformer decoder; what it writes and what it reads of its own writing share one embedding."""

    def __init__(self, symbols: int, inputs: int, config: TransformerConfig) -> None:
        super().__init__()
        self.symbols, self.scale = symbols, config.size**0.5
        self.written = nn.Embedding(symbols, config.size)
        nn.init.normal_(self.written.weight, std=1 / self.scale)
        self.stack = TransformerDecoder(config, memory_size=inputs)
        self.output = nn.Linear(config.size, symbols)
        self.output.weight = self.written.weight

    def forward(self, tokens: Tensor, frames: Tensor, lengths: Tensor, token_lengths: Tensor | None = None) -> Tensor:
        token_lengths = check_tokens(tokens, token_lengths, self.symbols)
        return self.output(self.stack(self.written(tokens) * self.scale, frames, lengths, lengths=token_lengths)[0])

    def weights(self, tokens: Tensor, frames: Tensor, lengths: Tensor) -> Tensor:
        return self.stack.memory_weights(self.written(tokens) * self.scale, frames, lengths)[:, -1].mean(1)

    def start(self, frames: Tensor, lengths: Tensor) -> tuple[Any, Any]:
        """After the first step the stack's own state holds what it needs of the frames."""
        return (frames, lengths, None), None

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        frames, lengths, inner = state
        embedded = self.written(tokens[:, None]) * self.scale
        outputs, inner = self.stack(embedded, frames, lengths, state=inner)
        return self.output(outputs[:, 0]).log_softmax(-1), (None, None, inner)
