"""What is learned from plain text: a masked language model (BERT) and a bidirectional one (ELMo).

Both keep their weights under the names that tagger and classifier have, so ``start_from`` hands them on.
"""

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_tokens
from voiceseq.errors import ConfigError
from voiceseq.models.sentence import ContextFeatures, SentenceConfig, SentenceEncoder


class MaskedNetwork(nn.Module):
    """Which word stands at a masked place, and whether the second text follows the first; read by a transformer.

    Raises ConfigError for a recurrent cell: it has no place for two texts.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        if config.cell != "transformer":
            raise ConfigError(f"a masked model came with cell {config.cell!r}; choose transformer")
        self.config = config
        self.encoder = SentenceEncoder(config)
        self.project = nn.Sequential(
            nn.Linear(config.size, config.embedding), nn.GELU(), nn.LayerNorm(config.embedding)
        )
        self.bias = nn.Parameter(torch.zeros(config.words))
        self.following = nn.Linear(config.size, 2)

    def forward(self, words: Tensor, lengths: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """``(batch, time)`` -> frames ``(batch, time, size)``; ``segments`` are 0 in the first text, then 1."""
        return self.encoder(words, lengths, segments=segments)

    def logits(self, frames: Tensor) -> Tensor:
        """Frames ``(..., size)`` -> ``(..., words)``: which word stands there, by the table of the words itself."""
        return self.project(frames) @ self.encoder.embedding.weight.T + self.bias

    def follows(self, frames: Tensor) -> Tensor:
        """``(batch, 2)`` logits: a stranger, or what follows; read off at the first symbol."""
        return self.following(frames[:, 0])


class BidirectionalNetwork(nn.Module):
    """A forward and a backward language model over the same words: the next one, the one before.

    Its states are a tagger's ``ContextFeatures``. Raises ConfigError for a config without a context size.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        if config.words < 1 or config.context < 2:
            raise ConfigError(f"words {config.words}, context {config.context}: both want to be set")
        self.config = config
        context = ContextFeatures(config.words, config.embedding, config.context, config.context_layers)
        context.states.dropout.p = config.dropout
        for module in (context.embedding, context.states):
            module.requires_grad_(True)
        for scale in (context.scales, context.gamma):
            scale.requires_grad_(False)  # a task's, not the language model's
        self.encoder = nn.ModuleDict({"context": context})
        self.project = nn.Linear(config.context // 2, config.embedding)
        self.bias = nn.Parameter(torch.zeros(config.words))

    @property
    def context(self) -> ContextFeatures:
        context = self.encoder["context"]
        assert isinstance(context, ContextFeatures)
        return context

    def forward(self, words: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``(batch, time)`` -> what each place says of the next word and of the one before.

        Both are ``(batch, time, embedding)``; times the table of words, plus ``bias``, they are logits.
        """
        lengths = check_tokens(words, lengths, self.config.words, "words")
        top = self.context.states(self.context.embedding(words), lengths)[-1]
        left, right = top.chunk(2, -1)
        return self.project(left), self.project(right)
