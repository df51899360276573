"""A classifier of texts, many-to-one: a sentence encoder, a pool over its words, one linear layer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_lengths, lengths_mask
from voiceseq.core.shapes import Pool
from voiceseq.core.transformer import unknown_option
from voiceseq.errors import ConfigError
from voiceseq.models.sentence import SentenceConfig, SentenceEncoder

POOLS = ("mean", "max", "last", "attention")
LEFT_OUT = 0.5  # of the votes in training: no text may be known by its rarest pair of words


@dataclass(frozen=True)
class ClassifierConfig(SentenceConfig):
    """``classes`` comes from the data; ``pool`` is mean, max, last or attention.

    Of a network that reads both ways, "last" is the last state of each direction: the last word's of the one, the
    first word's of the other. ``ngrams`` is the number of places for votes of word pairs (0: they have none).
    """

    classes: int = 0
    pool: str = "attention"
    ngrams: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = unknown_option("pool", self.pool, POOLS)
        wrong += [f"ngrams is {self.ngrams}; 0 to 16777216 was wanted"] if not 0 <= self.ngrams <= 2**24 else []
        if wrong:
            raise ConfigError("; ".join(wrong))


class NgramVotes(nn.Module):
    """A straight way past the encoder: each different word and pair of neighbours votes for the classes.

        votes(text) = 4 / sqrt(n) * sum of v[g] over its n different words and pairs g

    is a logistic regression on words and pairs, which long texts have enough of. A pair's place is a hash of its words.
    """

    def __init__(self, words: int, pairs: int, classes: int) -> None:
        super().__init__()
        self.words, self.pairs = words, pairs
        self.votes = nn.Embedding(words + pairs, classes)
        nn.init.zeros_(self.votes.weight)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """``(batch, time)``, ``(batch,)`` -> ``(batch, classes)``."""
        valid = lengths_mask(lengths, words.shape[1])
        pairs = self.words + (words[:, :-1] * 1_000_003 + words[:, 1:]) % self.pairs
        grams = torch.cat((words.masked_fill(~valid, -1), pairs.masked_fill(~valid[:, 1:], -1)), 1).sort(1).values
        counted = grams >= 0
        counted[:, 1:] &= grams[:, 1:] != grams[:, :-1]
        number = counted.sum(1, keepdim=True)
        if self.training:
            counted &= torch.rand(grams.shape, device=grams.device) >= LEFT_OUT
        weights = counted / number.sqrt() * (4 / (1 - LEFT_OUT) if self.training else 4)
        return torch.einsum("bg,bgc->bc", weights, self.votes(grams.clamp(min=0)))


class ClassifierNetwork(nn.Module):
    """``logits = network(words, lengths, ...)``, ``(batch, classes)``.

    Raises ConfigError for a config without classes.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        if config.classes < 1:
            raise ConfigError(f"classes is {config.classes}; set it to the number of classes of the data")
        self.config = config
        self.encoder = SentenceEncoder(config)
        self.pool = Pool(config.pool, config.size)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.size, config.classes)
        self.ngrams = NgramVotes(config.words, config.ngrams, config.classes) if config.ngrams else None

    def forward(self, words: Tensor, lengths: Tensor | None = None, *spelling: Tensor | None) -> Tensor:
        """Arguments as of ``SentenceEncoder``."""
        lengths = check_lengths(lengths, words.shape[0], words.shape[1], words.device)
        frames = self.encoder(words, lengths, *spelling)
        pooled = self.pool(frames, lengths) if self.config.pool != "last" else self._last(frames, lengths)
        logits = self.output(self.dropout(pooled))
        return logits if self.ngrams is None else logits + self.ngrams(words, lengths)

    def attention(self, words: Tensor, lengths: Tensor | None = None, *spelling: Tensor | None) -> Tensor:
        """``(batch, time)``: how much each word counted. Raises InputError for another pool than attention."""
        return self.pool.attend(self.encoder(words, lengths, *spelling), lengths)[1]

    def _last(self, frames: Tensor, lengths: Tensor) -> Tensor:
        last = self.pool(frames, lengths)
        if self.config.cell == "transformer":
            return last
        half = self.config.size // 2
        return torch.cat((last[:, :half], frames[:, 0, half:]), -1)
