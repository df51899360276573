"""A language model: p(next symbol | the symbols before it), by a recurrent stack or a GPT-style decoder."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_tokens
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.transformer import TransformerConfig, TransformerDecoder
from voiceseq.errors import ConfigError


@dataclass(frozen=True)
class LanguageConfig:
    """``cell`` is a recurrent cell of the core (lstm, gru, ...) or ``transformer``; ``vocabulary`` comes from the data.

    ``heads``, ``positions`` and ``context`` (how many symbols it can look back on) are the transformer's.
    """

    vocabulary: int = 0
    cell: str = "lstm"
    size: int = 512
    layers: int = 2
    dropout: float = 0.2
    layer_norm: bool = False
    residual: bool = False
    tied: bool = True
    heads: int = 4
    positions: str = "rotary"
    context: int = 256

    def __post_init__(self) -> None:
        if self.vocabulary < 0 or self.size < 1 or self.layers < 1:
            raise ConfigError(f"{self}: vocabulary, size and layers must be positive")


class LanguageNetwork(nn.Module):
    """``logits, state = network(tokens (batch, time), state)``: logits[:, t] tell what follows tokens[:, t]."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.size)
        nn.init.normal_(self.embedding.weight, std=config.size**-0.5 if config.tied else 1.0)
        self.dropout = nn.Dropout(config.dropout)
        self.body = _body(config)
        self.output = nn.Linear(config.size, config.vocabulary)
        if config.tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        lengths = check_tokens(tokens, lengths, self.config.vocabulary)
        frames = self.embedding(tokens)
        if self.config.tied:  # small tied weights suit the output; the input wants unit scale
            frames = frames * self.config.size**0.5
        frames, state = self.body(self.dropout(frames), state=state, lengths=lengths)
        return self.output(self.dropout(frames)), state

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``log_probs (rows, vocabulary)`` of what follows ``tokens (rows,)``: a scorer for search and sampling.

        A transformer's state is its tokens and their cache; at ``context`` of them it goes on from the newer half.
        """
        if self.endless:
            logits, state = self(tokens[:, None], state)
            return logits[:, -1].log_softmax(-1), state
        seen, cache = state if state is not None else (tokens.new_empty(len(tokens), 0), None)
        seen = torch.cat((seen, tokens[:, None]), 1)
        if seen.shape[1] > self.config.context:
            seen, cache = seen[:, -(self.config.context // 2) :], None
        logits, cache = self(seen if cache is None else tokens[:, None], cache)
        return logits[:, -1].log_softmax(-1), (seen, cache)

    @property
    def endless(self) -> bool:
        """Whether the state stays the same size however long the text is (recurrent), or grows with it."""
        return self.config.cell != "transformer"


def _body(config: LanguageConfig) -> nn.Module:
    if config.cell != "transformer":
        return Recurrent(
            config.size,
            config.size,
            cell=config.cell,
            layers=config.layers,
            dropout=config.dropout,
            layer_norm=config.layer_norm,
            residual=config.residual,
        )
    return TransformerDecoder(
        TransformerConfig(
            size=config.size,
            heads=config.heads,
            layers=config.layers,
            feed_forward=4 * config.size,
            dropout=config.dropout,
            positions=config.positions,
            activation="gelu",
        )
    )
