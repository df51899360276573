"""Symbols in, symbols out: an encoder reads, a decoder writes; recurrent (with or without attention) or transformer."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from voiceseq.core.attention import AdditiveAttention, DotAttention, QueryAttention, ScaledDotAttention
from voiceseq.core.masks import check_tokens
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.shapes import EncoderDecoder, TokenDecoder
from voiceseq.core.transformer import TransformerConfig, TransformerDecoder, TransformerEncoder
from voiceseq.errors import ConfigError

ATTENTIONS = ("additive", "dot", "scaled_dot", "none")
MAX_LAYERS = 1000  # a stranger's config must not keep us building for ever


@dataclass(frozen=True)
class Seq2SeqConfig:
    """``cell`` is a recurrent cell of the core or ``transformer``; ``source`` and ``target``, the sizes of the
    vocabularies, come from the data. ``embedding`` and ``attention`` are the recurrent network's; ``heads``,
    ``positions`` and ``feed_forward`` (how many times the size its inner layers are wide) the transformer's.

    Raises ConfigError for numbers out of their range and an unknown attention."""

    source: int = 0
    target: int = 0
    cell: str = "gru"
    size: int = 96
    embedding: int = 32
    layers: int = 1
    dropout: float = 0.0
    attention: str = "additive"
    heads: int = 4
    positions: str = "sinusoidal"
    feed_forward: int = 4

    def __post_init__(self) -> None:
        if self.attention not in ATTENTIONS:
            raise ConfigError(f"attention is '{self.attention}'; choose one of {', '.join(ATTENTIONS)}")
        for name in ("size", "embedding", "feed_forward"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; at least 1 was wanted")
        if not 1 <= self.layers <= MAX_LAYERS:
            raise ConfigError(f"layers is {self.layers}; 1 to {MAX_LAYERS} was wanted")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}; 0 <= dropout < 1 was wanted")
        if self.size % 2:
            raise ConfigError(f"size is {self.size}; an even one was wanted: half of it reads forwards, half backwards")


class Seq2SeqNetwork(nn.Module):
    """What both kinds have in common: teacher forcing for training, ``start`` and ``step`` for search.

    Raises ConfigError for a config without symbols.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        for side in ("source", "target"):
            if getattr(config, side) < 1:
                raise ConfigError(f"{side} is {getattr(config, side)}; set it to the number of symbols of the data")
        self.config = config
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        source: Tensor,
        tokens: Tensor,
        lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        sampling: float = 0.0,
    ) -> Tensor:
        """``source (batch, time)``, ``tokens (batch, written)`` -> logits ``(batch, written, target)``.

        ``sampling`` is the probability of feeding the decoder its own last symbol (scheduled sampling).
        """
        raise NotImplementedError

    def start(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """Read ``source (batch, time)``: the decoder's state before the first symbol, and its memory or None."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        """``log_probs (rows, target)`` of what follows ``tokens (rows,)``: ``StepScorer(step, *start(source))``."""
        raise NotImplementedError

    def weights(self, source: Tensor, tokens: Tensor, lengths: Tensor | None = None) -> Tensor | None:
        """Where it looked while it wrote ``tokens``: ``(batch, written, time)``, or None without attention."""
        raise NotImplementedError


class RecurrentSeq2Seq(Seq2SeqNetwork):
    """A bidirectional encoder, a decoder that remembers its last state and, with attention, looks at all of them."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        common: dict[str, Any] = {"cell": config.cell, "layers": config.layers, "dropout": config.dropout}
        self.embedding = nn.Embedding(config.source, config.embedding)
        encoder = Recurrent(config.embedding, config.size // 2, bidirectional=True, **common)
        attention = _attention(config)
        context = 0 if attention is None else config.size
        network = Recurrent(config.embedding + context, config.size, **common)
        self.core = EncoderDecoder(encoder, TokenDecoder(config.target, network, config.size, attention))

    def start(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Any, Any]:
        lengths = check_tokens(source, lengths, self.config.source, "source")
        return self.core.start(self.dropout(self.embedding(source)), lengths)

    def forward(
        self,
        source: Tensor,
        tokens: Tensor,
        lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        sampling: float = 0.0,
    ) -> Tensor:
        return self.core.decoder(tokens, self.start(source, lengths), token_lengths, sampling)[0]

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        return self.core.decode_step(tokens, state, memory)

    def weights(self, source: Tensor, tokens: Tensor, lengths: Tensor | None = None) -> Tensor | None:
        return self.core.decoder(tokens, self.start(source, lengths))[1]


class TransformerSeq2Seq(Seq2SeqNetwork):
    """Attention alone: the decoder's every block looks at all that the encoder made of the source."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        stack = TransformerConfig(
            size=config.size,
            heads=config.heads,
            layers=config.layers,
            feed_forward=config.feed_forward * config.size,
            dropout=config.dropout,
            positions=config.positions,
        )
        self.embedding = _embedding(config.source, config.size)
        self.encoder = TransformerEncoder(stack)
        self.written = _embedding(config.target, config.size)
        self.decoder = TransformerDecoder(stack, memory_size=config.size)
        self.output = nn.Linear(config.size, config.target)
        self.output.weight = self.written.weight

    def forward(
        self,
        source: Tensor,
        tokens: Tensor,
        lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        sampling: float = 0.0,
    ) -> Tensor:
        if sampling:
            raise ConfigError("scheduled sampling is for recurrent decoders; a transformer learns all steps at once")
        token_lengths = check_tokens(tokens, token_lengths, self.config.target)
        memory, lengths = self._read(source, lengths)
        frames, _ = self.decoder(self._embed(tokens), memory, lengths, lengths=token_lengths)
        return self.output(frames)

    def start(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """What was read and its lengths; after the first step the decoder's own state, which holds what it needs."""
        return (*self._read(source, lengths), None), None

    def step(self, tokens: Tensor, state: Any, memory: Any = None) -> tuple[Tensor, Any]:
        read, lengths, inner = state
        frames, inner = self.decoder(self._embed(tokens[:, None]), read, lengths, state=inner)
        return self.output(frames[:, 0]).log_softmax(-1), (None, None, inner)

    def weights(self, source: Tensor, tokens: Tensor, lengths: Tensor | None = None) -> Tensor | None:
        memory, lengths = self._read(source, lengths)
        return self.decoder.memory_weights(self._embed(tokens), memory, lengths)[:, -1].mean(1)

    def _read(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        lengths = check_tokens(source, lengths, self.config.source, "source")
        return self.encoder(self.embedding(source) * self.config.size**0.5, lengths), lengths

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.written(tokens) * self.config.size**0.5


def seq2seq(config: Seq2SeqConfig) -> Seq2SeqNetwork:
    """The network that the config asks for."""
    return TransformerSeq2Seq(config) if config.cell == "transformer" else RecurrentSeq2Seq(config)


def _embedding(symbols: int, size: int) -> nn.Embedding:
    embedding = nn.Embedding(symbols, size)
    nn.init.normal_(embedding.weight, std=size**-0.5)  # times sqrt(size) on the way in, as it is on the way out
    return embedding


def _attention(config: Seq2SeqConfig) -> QueryAttention | None:
    if config.attention == "additive":
        return AdditiveAttention(config.size, config.size, config.size)
    if config.attention == "none":
        return None
    return (DotAttention if config.attention == "dot" else ScaledDotAttention)(config.size)
