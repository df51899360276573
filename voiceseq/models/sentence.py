"""Reading a sentence: words, their spelling and their context as one vector a word.

Classifier, tagger and masked model are this encoder with a different end; the weights of one start another.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voiceseq.core.masks import check_tokens, reverse_by_length
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.transformer import TransformerConfig, TransformerEncoder
from voiceseq.errors import ConfigError, InputError

MOST = 10_000  # of anything: a stranger's config must not keep us building for ever
UNKNOWN = 0  # the number of the unknown word in every vocabulary of these models


@dataclass(frozen=True)
class SentenceConfig:
    """``cell`` is a recurrent cell of the core (read both ways) or ``transformer``, ``size`` what comes out for a word.

    ``words`` and ``letters`` come from the data. ``spelling`` is the size of what a word's letters tell (0: they are
    not read), ``context`` the size of a bidirectional language model whose states are added to what is known of a word
    (0: none). ``word_dropout`` of the words are read as unknown in training: so the unknown word learns its meaning.

    Raises ConfigError for numbers out of their range.
    """

    words: int = 0
    letters: int = 0
    embedding: int = 100
    spelling: int = 0
    context: int = 0
    context_layers: int = 1
    cell: str = "lstm"
    size: int = 256
    layers: int = 1
    heads: int = 4
    dropout: float = 0.3
    word_dropout: float = 0.0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)}; 1 to {MOST} was wanted"
            for name in ("embedding", "size", "layers", "heads", "context_layers")
            if not 1 <= getattr(self, name) <= MOST
        ]
        for name in ("dropout", "word_dropout"):
            if not 0 <= getattr(self, name) < 1:
                wrong.append(f"{name} is {getattr(self, name)}; 0 <= {name} < 1 was wanted")
        for name in ("size", "spelling", "context"):
            if getattr(self, name) % 2 or getattr(self, name) < 0:
                wrong.append(f"{name} is {getattr(self, name)}; an even number was wanted, half for each direction")
        if wrong:
            raise ConfigError("; ".join(wrong))


class SpellingFeatures(nn.Module):
    """What the letters of a word tell: both ends of a bidirectional LSTM over them, ``(words, size)``."""

    def __init__(self, letters: int, size: int) -> None:
        super().__init__()
        if letters < 1:
            raise ConfigError(f"letters is {letters}; spelling wants a vocabulary of letters: set it from the data")
        self.embedding = nn.Embedding(letters, 32)
        self.network = Recurrent(32, size // 2, bidirectional=True)

    def forward(self, spellings: Tensor, lengths: Tensor) -> Tensor:
        """``(words, letters)`` and how many letters each word has -> ``(words, size)``."""
        check_tokens(spellings, lengths, self.embedding.num_embeddings, "spellings")
        _, ((forward, _), (backward, _)) = self.network(self.embedding(spellings), lengths=lengths)
        return torch.cat((forward, backward), -1)


class BidirectionalStates(nn.Module):
    """A language model in each direction over the same word vectors: the states of all layers, read left and right.

    Layer 0 is the word itself, said twice; layer l is ``[forward_l; backward_l]``, where forward_l at word t has seen
    the words up to t, backward_l those from t on.
    """

    def __init__(self, embedding: int, size: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        half = size // 2
        self.enter = nn.Linear(embedding, half)
        self.forwards = nn.ModuleList(Recurrent(half, half) for _ in range(layers))
        self.backwards = nn.ModuleList(Recurrent(half, half) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor, lengths: Tensor) -> list[Tensor]:
        """``(batch, time, embedding)`` -> the layers, each ``(batch, time, size)``."""
        left = right = self.enter(self.dropout(vectors))
        layers = [torch.cat((left, right), -1)]
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            left = left + ahead(self.dropout(left), lengths=lengths)[0]
            turned = back(self.dropout(reverse_by_length(right, lengths)), lengths=lengths)[0]
            right = right + reverse_by_length(turned, lengths)
            layers.append(torch.cat((left, right), -1))
        return layers


class ContextFeatures(nn.Module):
    """ELMo: ``gamma * sum_l softmax(s)_l h_l`` of the frozen layers h of a bidirectional language model.

    The scales s and gamma belong to the task, the language model does not learn any more.
    """

    def __init__(self, words: int, embedding: int, size: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.states = BidirectionalStates(embedding, size, layers)
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.scales = nn.Parameter(torch.zeros(layers + 1))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """``(batch, time)`` -> ``(batch, time, size)``."""
        with torch.no_grad():
            layers = torch.stack(self.states(self.embedding(words), lengths))
        return self.gamma * torch.einsum("l,lbtf->btf", self.scales.softmax(0), layers)


class SentenceEncoder(nn.Module):
    """``(batch, time)`` words -> ``(batch, time, size)``, zeros in the padding.

    Raises ConfigError for a config without words.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        if config.words < 1:
            raise ConfigError(f"words is {config.words}; set it to the number of words of the data")
        self.config = config
        self.embedding = nn.Embedding(config.words, config.embedding)
        nn.init.normal_(self.embedding.weight, std=0.3)  # about what GloVe's numbers are
        self.spelling = SpellingFeatures(config.letters, config.spelling) if config.spelling else None
        self.context = _context(config) if config.context else None
        self.dropout = nn.Dropout(config.dropout)
        features = config.embedding + config.spelling + config.context
        if config.cell == "transformer":
            self.enter = nn.Linear(features, config.size)
            self.segments = nn.Embedding(2, config.size)
            nn.init.normal_(self.segments.weight, std=0.02)
            self.body: nn.Module = _transformer(config)
        else:
            half, between = config.size // 2, config.dropout if config.layers > 1 else 0.0
            self.body = Recurrent(features, half, config.cell, config.layers, bidirectional=True, dropout=between)

    def forward(
        self,
        words: Tensor,
        lengths: Tensor | None = None,
        spellings: Tensor | None = None,
        spelling_lengths: Tensor | None = None,
        places: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Arguments as of ``SentenceBatch``; ``segments (batch, time)`` of 0 and 1 tell a transformer two texts apart.

        Raises InputError for wrong shapes, lengths and numbers, and for spellings that are wanted and not there.
        """
        lengths = check_tokens(words, lengths, self.config.words, "words")
        frames = self.dropout(self._features(words, lengths, spellings, spelling_lengths, places))
        if self.config.cell != "transformer":
            return self.body(frames, lengths=lengths)[0]
        segments = torch.zeros_like(words) if segments is None else segments
        return self.body(self.enter(frames) + self.segments(segments), lengths)

    def _features(
        self,
        words: Tensor,
        lengths: Tensor,
        spellings: Tensor | None,
        spelling_lengths: Tensor | None,
        places: Tensor | None,
    ) -> Tensor:
        read = words
        if self.training and self.config.word_dropout:
            read = words.masked_fill(torch.rand(words.shape, device=words.device) < self.config.word_dropout, UNKNOWN)
        parts = [self.embedding(read)]
        if self.spelling is not None:
            if spellings is None or spelling_lengths is None or places is None:
                raise InputError("this network reads letters, but no spellings came: make batches with its letters")
            parts.append(self.spelling(spellings, spelling_lengths)[places])
        if self.context is not None:
            parts.append(self.context(words, lengths))
        return torch.cat(parts, -1)


def _context(config: SentenceConfig) -> ContextFeatures:
    return ContextFeatures(config.words, config.embedding, config.context, config.context_layers)


def _transformer(config: SentenceConfig) -> TransformerEncoder:
    return TransformerEncoder(
        TransformerConfig(
            size=config.size,
            heads=config.heads,
            layers=config.layers,
            feed_forward=4 * config.size,
            dropout=config.dropout,
            positions="rotary",
            activation="gelu",
        )
    )
