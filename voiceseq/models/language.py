"""A language model: p(next symbol | the symbols before it), by a recurrent stack or a GPT-style decoder."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_tokens
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.transformer import TransformerConfig, TransformerDecoder
from voiceseq.errors import ConfigError
from voiceseq.text.vocabulary import Vocabulary

MAX_LAYERS = 1000  # a stranger's config must not keep us building for ever


@dataclass(frozen=True)
class LanguageConfig:
    """``cell`` is a recurrent cell of the core (lstm, gru, ...) or ``transformer``; ``vocabulary`` comes from the data.

    ``embedding`` is the size of the symbols' vectors (0: as ``size``); of many words, a smaller one makes reading and
    predicting them cheaper. ``heads``, ``positions`` and ``context`` (how many symbols it can look back on) are the
    transformer's; ``layer_norm`` and ``residual`` are the recurrent stack's (a transformer always has both).

    Raises ConfigError for numbers out of their range.
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
    embedding: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}; at least 1 was wanted")
        if self.embedding < 0:
            raise ConfigError(f"embedding is {self.embedding}; at least 1 was wanted, or 0: as size")
        if not 1 <= self.layers <= MAX_LAYERS:
            raise ConfigError(f"layers is {self.layers}; 1 to {MAX_LAYERS} was wanted")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}; 0 <= dropout < 1 was wanted")
        if self.context < 2:
            raise ConfigError(f"context is {self.context}; at least 2 was wanted: half of it is kept when it is full")


class LanguageNetwork(nn.Module):
    """``logits, state = network(tokens (batch, time), state)``: logits[:, t] tell what follows tokens[:, t].

    Raises ConfigError for a config without symbols.
    """

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        if config.vocabulary < 1:
            raise ConfigError(f"vocabulary is {config.vocabulary}; set it to the number of symbols of the data")
        self.config = config
        self.width = config.embedding or config.size
        self.embedding = nn.Embedding(config.vocabulary, self.width)
        nn.init.normal_(self.embedding.weight, std=self.width**-0.5 if config.tied else 1.0)
        self.dropout = nn.Dropout(config.dropout)
        self.enter, self.leave = _doors(config)
        self.body = _body(config)
        self.output = nn.Linear(self.width, config.vocabulary)
        if config.tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        frames, state = self.frames(tokens, state, lengths)
        return self.output(frames), state

    def frames(self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """``(batch, time, embedding)``: what ``output`` makes logits of."""
        lengths = check_tokens(tokens, lengths, self.config.vocabulary)
        frames, state = self.body(self._embed(tokens), state=state, lengths=lengths)
        return self.dropout(self.leave(frames)), state

    def read(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``step`` for many symbols in few calls: ``tokens (rows, time)`` -> logits ``(rows, time, vocabulary)``.

        Any cut into pieces gives the same. A transformer's state is the symbols that it sees and their cache; when
        there are ``context`` of them, it forgets all but the newer half, the next symbol counted with it.
        """
        if self.endless:
            return self(tokens, state)
        context, pieces = self.config.context, []
        seen, cache = state if state is not None else (tokens[:, :0], None)
        while tokens.shape[1]:
            if seen.shape[1] == context:
                seen, cache = seen[:, context - context // 2 + 1 :], None
            again = seen if cache is None else seen[:, :0]
            new, tokens = tokens.tensor_split([context - seen.shape[1]], 1)
            logits, cache = self(torch.cat((again, new), 1), cache)
            pieces.append(logits[:, again.shape[1] :])
            seen = torch.cat((seen, new), 1)
        return torch.cat(pieces, 1), (seen, cache)

    def step(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``log_probs (rows, vocabulary)`` of what follows ``tokens (rows,)``: a scorer for search and sampling.

        ``state`` is what the last ``step`` or ``read`` returned; None at the start.
        """
        if self.endless:
            frames, state = self.body.step(self._embed(tokens), state)
            logits = self.output(self.dropout(self.leave(frames)))
        else:
            logits, state = self.read(tokens[:, None], state)
            logits = logits[:, 0]
        return logits.log_softmax(-1), state

    @property
    def endless(self) -> bool:
        """Whether the state stays the same size however long the text is (recurrent), or grows up to ``context``."""
        return self.config.cell != "transformer"

    def _embed(self, tokens: Tensor) -> Tensor:
        frames = self.embedding(tokens)
        if self.config.tied:  # small tied weights suit the output; the input wants unit scale
            frames = frames * self.width**0.5
        return self.enter(self.dropout(frames))


def _doors(config: LanguageConfig) -> tuple[nn.Module, nn.Module]:
    """From a symbol's vector into the body and back; a recurrent body takes vectors of any size."""
    width = config.embedding or config.size
    if width == config.size:
        return nn.Identity(), nn.Identity()
    enter = nn.Linear(width, config.size) if config.cell == "transformer" else nn.Identity()
    return enter, nn.Linear(config.size, width)


def _body(config: LanguageConfig) -> Any:
    if config.cell != "transformer":
        return Recurrent(
            config.embedding or config.size,
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


class Spelling:
    """Lines of text as the symbols of a language model and back: a newline is ``<eos>`` where the vocabulary has one.

    Characters may keep "\\n" as it is; words need ``eos``, because the end of a line is no word. Every text is taken to
    begin on a line of its own, so ``line_end`` is what stands before its first symbol.

    Raises InputError for words without ``eos``.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.eos: int | None = None
        if vocabulary.level == "word" or "eos" in vocabulary.specials:
            self.eos = vocabulary.special("eos")
        self.line_end: int = vocabulary.encode("\n")[0] if self.eos is None else self.eos

    def encode(self, text: str) -> list[int]:
        """The symbols of a text, line ends among them; a strange symbol as in ``Vocabulary.encode``."""
        if self.eos is None:
            return self.vocabulary.encode(text)
        lines = [[*self.vocabulary.encode(line), self.eos] for line in text.split("\n")]
        return list(chain.from_iterable(lines))[:-1]  # as many ends as newlines

    def decode(self, symbols: Iterable[int]) -> str:
        """The text: words between spaces, lines between newlines; ``unknown`` shows as "<unk>"."""
        lines: list[list[int]] = [[]]
        for symbol in symbols:
            if symbol == self.eos:
                lines.append([])
            else:
                lines[-1].append(symbol)
        return "\n".join(map(self.vocabulary.decode, lines))
