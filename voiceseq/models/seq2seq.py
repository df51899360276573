"""Symbols in, symbols out: a recurrent encoder-decoder, with or without attention."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from voiceseq.core.attention import AdditiveAttention, DotAttention, QueryAttention, ScaledDotAttention
from voiceseq.core.masks import check_tokens
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.shapes import EncoderDecoder, TokenDecoder
from voiceseq.errors import ConfigError

ATTENTIONS = ("additive", "dot", "scaled_dot", "none")


@dataclass(frozen=True)
class Seq2SeqConfig:
    """``source`` and ``target`` are the sizes of the vocabularies and come from the data."""

    source: int = 0
    target: int = 0
    cell: str = "gru"
    size: int = 96
    embedding: int = 32
    layers: int = 1
    dropout: float = 0.0
    attention: str = "additive"

    def __post_init__(self) -> None:
        if self.attention not in ATTENTIONS:
            raise ConfigError(f"attention is '{self.attention}'; choose one of {', '.join(ATTENTIONS)}")
        if self.size % 2:
            raise ConfigError(f"size is {self.size}; an even one was wanted: half of it reads forwards, half backwards")


class Seq2SeqNetwork(nn.Module):
    """A bidirectional encoder reads ``source (batch, time)``; the decoder writes from what it remembers."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        common: dict[str, Any] = {"cell": config.cell, "layers": config.layers, "dropout": config.dropout}
        self.embedding = nn.Embedding(config.source, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        encoder = Recurrent(config.embedding, config.size // 2, bidirectional=True, **common)
        attention = _attention(config)
        context = 0 if attention is None else config.size
        network = Recurrent(config.embedding + context, config.size, **common)
        self.core = EncoderDecoder(encoder, TokenDecoder(config.target, network, config.size, attention))

    def start(self, source: Tensor, lengths: Tensor | None = None) -> Any:
        """Read ``source (batch, time)``: the decoder's state before the first symbol."""
        lengths = check_tokens(source, lengths, self.config.source, "source")
        return self.core.start(self.dropout(self.embedding(source)), lengths)

    def forward(
        self,
        source: Tensor,
        tokens: Tensor,
        lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        sampling: float = 0.0,
    ) -> tuple[Tensor, Tensor | None]:
        """Teacher forcing (or scheduled ``sampling``): logits ``(batch, tokens, target)`` and attention weights."""
        return self.core.decoder(tokens, self.start(source, lengths), token_lengths, sampling)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """``log_probs (rows, target)`` of what follows ``tokens (rows,)``: a scorer for beam search."""
        return self.core.decode_step(tokens, state)


def _attention(config: Seq2SeqConfig) -> QueryAttention | None:
    if config.attention == "additive":
        return AdditiveAttention(config.size, config.size, config.size)
    if config.attention == "none":
        return None
    return (DotAttention if config.attention == "dot" else ScaledDotAttention)(config.size)
