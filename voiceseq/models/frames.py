"""Frames of numbers in: one answer, an answer a frame, or a text out."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_frames
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.shapes import POOLS, Pool
from voiceseq.errors import ConfigError
from voiceseq.models.seq2seq import RecurrentSeq2Seq, Seq2SeqConfig


@dataclass(frozen=True)
class FrameConfig:
    """A recurrent network over frames of ``features`` numbers, ``outputs`` numbers out (both come from the data).

    ``pool`` ("last", "mean", "max", "attention") makes one answer of a sequence; "none" gives one a frame. Raises
    ConfigError for numbers out of their range, an unknown pool, and both directions with an answer a frame.
    """

    features: int = 0
    outputs: int = 0
    cell: str = "gru"
    size: int = 64
    layers: int = 1
    dropout: float = 0.0
    bidirectional: bool = False
    pool: str = "none"

    def __post_init__(self) -> None:
        rules = [
            (self.pool in ("none", *POOLS), f"pool is {self.pool!r}; one of none, {', '.join(POOLS)}"),
            (1 <= self.size <= 100_000 and 1 <= self.layers <= 100, "size 1 to 100000, layers 1 to 100"),
            (0 <= self.dropout < 1, f"dropout is {self.dropout}; 0 <= dropout < 1"),
            (not (self.bidirectional and self.pool == "none"), "both directions with pool none: a pool"),
        ]
        if wrong := [message for holds, message in rules if not holds]:
            raise ConfigError("; ".join(wrong) + " was wanted")


class FrameNetwork(nn.Module):
    """``outputs, state = network(frames (batch, time, features), state, lengths)``; pooled: ``(batch, outputs)``.

    Raises ConfigError for a config without features or outputs.
    """

    def __init__(self, config: FrameConfig) -> None:
        super().__init__()
        if min(config.features, config.outputs) < 1:
            raise ConfigError(f"features is {config.features}, outputs {config.outputs}; set both by the data")
        self.config = config
        self.body = Recurrent(
            config.features,
            config.size,
            cell=config.cell,
            layers=config.layers,
            dropout=config.dropout,
            bidirectional=config.bidirectional,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.pool = None if config.pool == "none" else Pool(config.pool, self.body.output_size)
        self.output = nn.Linear(self.body.output_size, config.outputs)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        lengths = check_frames(frames, lengths, self.config.features)
        hidden, state = self.body(frames, state, lengths)
        pooled = hidden if self.pool is None else self.pool(hidden, lengths)
        return self.output(self.dropout(pooled)), state

    @torch.no_grad()
    def step(self, frame: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The answer ``(rows, outputs)`` to the next ``frame (rows, features)``, where there is one a frame."""
        hidden, state = self.body.step(frame, state)
        return self.output(hidden), state


class FramesToText(RecurrentSeq2Seq):
    """An encoder-decoder that reads frames instead of symbols: ``config.source`` is the number of their features."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Linear(config.source, config.embedding)  # type: ignore[assignment]

    def start(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Any, Any]:
        lengths = check_frames(source, lengths, self.config.source, "source")
        return self.core.start(self.dropout(torch.tanh(self.embedding(source))), lengths)
