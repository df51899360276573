"""Letters to sounds of many languages at once: a bidirectional network reads the word, CTC writes its phones.

A letter stands for nothing, one sound or a few, and sounds come in the order of the letters: that is CTC, with
``slots`` places a letter. CTC's places do not know of each other, so the guess of each layer goes into the next one,
which can mend it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_tokens
from voiceseq.core.recurrent import Recurrent
from voiceseq.errors import ConfigError, InputError


@dataclass(frozen=True)
class LetterConfig:
    """``letters``, ``phones`` (the blank, 0, is one of them) and ``languages`` come from the data; ``size`` is that of
    both directions together. Raises ConfigError for numbers out of their range."""

    letters: int = 0
    phones: int = 0
    languages: int = 1
    cell: str = "gru"
    size: int = 256
    layers: int = 2
    slots: int = 2
    dropout: float = 0.2

    def __post_init__(self) -> None:
        for name in ("size", "layers", "slots", "languages"):
            if not 1 <= getattr(self, name) <= 100_000:
                raise ConfigError(f"{name} is {getattr(self, name)}; 1 to 100000 was wanted")
        if self.size % 2 or not 0 <= self.dropout < 1:
            raise ConfigError(f"size {self.size}, dropout {self.dropout}; an even size, 0 <= dropout < 1 wanted")


class LetterNetwork(nn.Module):
    """``found = network(letters (batch, time), language, phones (n,), lengths)``: words of one language at a time.

    ``phones`` are the numbers of the sounds that this language has, the blank first: only they are computed. One tensor
    of log-probabilities a layer, ``(batch, time * slots, n)``; the last one counts. Raises ConfigError for a config
    without letters or phones, InputError for a language or letters that there are not.
    """

    def __init__(self, config: LetterConfig) -> None:
        super().__init__()
        if min(config.letters, config.phones) < 1:
            raise ConfigError(f"letters is {config.letters}, phones {config.phones}; set both by the data")
        self.config = config
        self.embedding = nn.Embedding(config.letters, config.size)
        self.languages = nn.Embedding(config.languages, config.size)
        self.layers = nn.ModuleList(
            Recurrent(config.size, config.size // 2, cell=config.cell, bidirectional=True) for _ in range(config.layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.size) for _ in range(config.layers))
        self.output, self.back = (
            nn.Parameter(torch.randn(config.slots, config.phones, config.size) * config.size**-0.5) for _ in range(2)
        )
        self.bias = nn.Parameter(torch.zeros(config.slots, config.phones))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, letters: Tensor, language: int, phones: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        lengths = check_tokens(letters, lengths, self.config.letters)
        if not 0 <= language < self.config.languages:
            raise InputError(f"language {language} came; 0 to {self.config.languages - 1} was wanted")
        output, back = (weight[:, phones].flatten(0, 1) for weight in (self.output, self.back))
        bias = self.bias[:, phones].flatten()
        frames = self.dropout(self.embedding(letters) + self.languages.weight[language])
        found: list[Tensor] = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            if found:
                frames = frames + found[-1].exp().unflatten(1, (-1, self.config.slots)).flatten(2) @ back
            outputs, _ = layer(frames, lengths=lengths)
            frames = self.dropout(norm(frames + outputs))
            logits = nn.functional.linear(frames, output, bias).float()
            found.append(logits.unflatten(2, (self.config.slots, -1)).flatten(1, 2).log_softmax(-1))
        return found
