"""What tagger, classifier and masked model share at work: the coder of their bundle, and texts in batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from voiceseq.bundles import Bundle
from voiceseq.datasets.sentences import ROLES, SentenceBatch, SentenceCoder, sorted_parts
from voiceseq.errors import InputError
from voiceseq.inference.opening import open_vocabulary
from voiceseq.models.sentence import UNKNOWN, SentenceConfig
from voiceseq.text.vocabulary import Vocabulary

TOGETHER = 32  # sentences read at once
Result = TypeVar("Result")


def open_coder(bundle: Bundle, config: SentenceConfig) -> SentenceCoder:
    """The words of a bundle, and its letters where its network reads them. Raises BundleError where they do not fit."""
    words = open_vocabulary(bundle, "words", config.words, check=_roles)
    letters = open_vocabulary(bundle, "letters", config.letters, check=_unknown) if config.spelling else None
    return SentenceCoder(words, letters)


def _roles(vocabulary: Vocabulary) -> None:
    numbers = {role: vocabulary.special(role) for role in ROLES}
    if numbers["unknown"] != UNKNOWN or vocabulary.level != "word":
        raise InputError("these are no words, or the unknown one is not the first")


def _unknown(vocabulary: Vocabulary) -> None:
    vocabulary.special("unknown")
    if vocabulary.level != "character":
        raise InputError("these are no letters")


def read_all(
    sentences: Sequence[Sequence[str]], coder: SentenceCoder, read: Callable[[SentenceBatch], Sequence[Result]]
) -> list[Result]:
    """``read`` of each sentence, in order; those of like length are read together. None may be empty."""
    results: dict[int, Result] = {}
    for part in sorted_parts([len(sentence) for sentence in sentences], TOGETHER):
        found = read(coder.batch([sentences[number] for number in part]))
        results |= dict(zip(part, found, strict=True))
    return [results[number] for number in range(len(sentences))]


def windows(length: int, size: int, around: int) -> Iterator[tuple[int, int, int, int]]:
    """(begin, start, stop, end): parts ``start:stop`` of at most ``size``, each to be read as ``begin:end``."""
    for start in range(0, length, size):
        stop = min(start + size, length)
        yield max(0, start - around), start, stop, min(length, stop + around)
