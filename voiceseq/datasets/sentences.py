"""Sentences of words, numbered and padded, with their spelling: what classifiers, taggers and masked models read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from voiceseq.datasets.batching import own_share, shuffled_rows
from voiceseq.datasets.pairs import pad
from voiceseq.text.vocabulary import SPECIALS, Vocabulary
from voiceseq.text.words import normal_form

TOGETHER = 16  # steps whose sentences are sorted by length, so that a batch is hardly padded
LETTERS = 24  # of a word; of a longer one the middle is left out
ROLES = ("unknown", "bos", "eos", "mask")  # in this order: word 0 is the unknown one
ENDS = "\u2402\u2403"  # stand before and after the letters of a word (the pictures of STX and ETX)


class SentenceBatch(NamedTuple):
    """``words (batch, time)``; each different word is spelt once, ``spellings (spelt, letters)``, and word t of row b
    is number ``places[b, t]`` of them. ``labels`` are ``(batch,)`` classes or ``(batch, time)`` tags, ``further`` more
    such tags, to learn from alone."""

    words: Tensor
    lengths: Tensor
    spellings: Tensor | None = None
    spelling_lengths: Tensor | None = None
    places: Tensor | None = None
    labels: Tensor | None = None
    further: Tensor | None = None

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All but the answers: what a network of ``voiceseq.models.sentence`` is called with."""
        return tuple(self[:5])


@dataclass(frozen=True)
class SentenceCoder:
    """From words to numbers: ``words`` by their normal form, and by their ``letters`` where the network reads them."""

    words: Vocabulary
    letters: Vocabulary | None = None

    def numbers(self, sentence: Sequence[str]) -> list[int]:
        """A number for each word; 0 for one that is not known. None for no words."""
        return self.words.encode(" ".join(map(normal_form, sentence)))

    def batch(self, sentences: Sequence[Sequence[str]], labels: Sequence[Any] | None = None) -> SentenceBatch:
        """Pad; ``labels`` are a number a sentence, or a list of them, one a word. InputError for an empty sentence."""
        words, lengths = pad([self.numbers(sentence) for sentence in sentences])
        answers = None
        if labels is not None:
            answers = torch.tensor(labels) if isinstance(labels[0], int) else pad(labels)[0]
        if self.letters is None:
            return SentenceBatch(words, lengths, labels=answers)
        order = {word: number for number, word in enumerate({word: None for row in sentences for word in row})}
        places, _ = pad([[order[word] for word in row] for row in sentences])
        spellings, spelling_lengths = pad([self.letters.encode(spelt(word)) for word in order])
        return SentenceBatch(words, lengths, spellings, spelling_lengths, places, answers)


def spelt(word: str) -> str:
    """The letters that are read: all, or the first and the last of a very long word, between two end signs."""
    half = LETTERS // 2
    return ENDS[0] + (word if len(word) <= LETTERS else word[:half] + word[-half:]) + ENDS[1]


def clipped(words: list[str], most: int | None) -> list[str]:
    """At most ``most`` words: the first and the last, where people say what they mean."""
    if most is None or len(words) <= most:
        return words
    return words[: most // 2] + words[len(words) - (most - most // 2) :]


def word_vocabulary(
    sentences: Iterable[Sequence[str]], minimum_count: int = 1, known: Iterable[str] = ()
) -> Vocabulary:
    """The special symbols, then the words of the sentences (the most frequent first), then further ``known`` ones."""
    counts = Counter(normal_form(word) for sentence in sentences for word in sentence)
    written = [SPECIALS[role] for role in ROLES]
    seen = [word for word, count in counts.items() if count >= minimum_count]
    seen.sort(key=lambda word: (-counts[word], word))
    return Vocabulary(tuple(dict.fromkeys([*written, *seen, *known])), "word", ROLES)


def letter_vocabulary(sentences: Iterable[Sequence[str]], minimum_count: int = 3) -> Vocabulary:
    """The letters that words are spelt in, and the end signs."""
    lines = (spelt(word).replace(" ", "") for sentence in sentences for word in sentence)
    return Vocabulary.from_text(lines, minimum_count=minimum_count, specials=("unknown",))


class GroupedRows:
    """``rows(step)``: this step's share of a shuffled pass over ``sizes``; those of ``TOGETHER`` steps are sorted."""

    def __init__(self, sizes: Sequence[int], batch: int, seed: int) -> None:
        self.sizes, self.batch, self.seed = sizes, batch, seed
        self.group: tuple[int, list[int]] = (-1, [])

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> list[int]:
        group, part = divmod(step, TOGETHER)
        if group != self.group[0]:
            rows = shuffled_rows(group, len(self.sizes), TOGETHER * self.batch, self.seed)
            self.group = group, sorted(rows, key=self.sizes.__getitem__)
        # the parts come in an order of their own: short and long sentences take turns
        part = shuffled_rows(group, TOGETHER, TOGETHER, self.seed + 1)[part]
        return own_share(self.group[1][part * self.batch : (part + 1) * self.batch], rank, world)


def sorted_parts(sizes: Sequence[int], batch: int) -> list[list[int]]:
    """All rows once, those of like size together: for validation."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [order[start : start + batch] for start in range(0, len(order), batch)]
