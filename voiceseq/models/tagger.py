"""A tagger: a tag for each word, by a sentence encoder and, on top, a CRF or a softmax at each place."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voiceseq.core.crf import CRF
from voiceseq.core.losses import cross_entropy
from voiceseq.core.masks import check_lengths
from voiceseq.errors import ConfigError
from voiceseq.models.sentence import SentenceConfig, SentenceEncoder


@dataclass(frozen=True)
class TaggerConfig(SentenceConfig):
    """``tags`` comes from the data; without ``crf`` each word's tag is chosen by itself.

    ``further`` tags of another kind are learned beside them (0: none), only to make the encoder know more.
    """

    tags: int = 0
    further: int = 0
    crf: bool = True


class TaggerNetwork(nn.Module):
    """``emissions = network(words, lengths, ...)``, ``(batch, time, tags)``; then ``loss`` or ``decode`` of them.

    Raises ConfigError for a config without tags.
    """

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        if config.tags < 1:
            raise ConfigError(f"tags is {config.tags}; set it to the number of tags of the data")
        self.config = config
        self.encoder = SentenceEncoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.size, config.tags)
        self.further = nn.Linear(config.size, config.further) if config.further else None
        self.crf = CRF(config.tags) if config.crf else None

    def forward(self, words: Tensor, lengths: Tensor | None = None, *spelling: Tensor | None) -> Tensor:
        """Arguments as of ``SentenceEncoder``."""
        return self.output(self.read(words, lengths, *spelling))

    def read(self, words: Tensor, lengths: Tensor | None = None, *spelling: Tensor | None) -> Tensor:
        """``(batch, time, size)``: what ``output`` and ``further`` look at."""
        return self.dropout(self.encoder(words, lengths, *spelling))

    def loss(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """-log P(tags), the mean over the valid words."""
        if self.crf is None:
            return cross_entropy(emissions.float(), tags, lengths)
        return self.crf(emissions.float(), tags, lengths)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> list[list[int]]:
        """The best tags of each row."""
        if self.crf is not None:
            return [path.tags for path in self.crf.decode(emissions.float(), lengths)]
        lengths = check_lengths(lengths, *emissions.shape[:2])
        rows = emissions.argmax(-1).tolist()
        return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]

    def probabilities(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``(batch, time, tags)``: how probable each tag is at each place."""
        if self.crf is None:
            return emissions.detach().softmax(-1)
        return self.crf.marginals(emissions.float(), lengths)
