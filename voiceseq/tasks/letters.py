"""Training letters to sounds of many languages: lists of words with their phones, one file a language."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.datasets.batching import shuffled_rows
from voiceseq.datasets.pairs import pad
from voiceseq.errors import InputError
from voiceseq.models.letters import LetterConfig, LetterNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.rows import RowData
from voiceseq.text.files import read_text
from voiceseq.text.ngram import arpa, packed
from voiceseq.text.pairing import ORDER, marks_file, pairs_file, train_marks, train_pairs
from voiceseq.text.pronounce import Pronunciation, spelt
from voiceseq.text.vocabulary import Vocabulary

TOGETHER = 8  # steps whose words are sorted by length, so that a batch is hardly padded


class Word(NamedTuple):
    """A word's letters and its phones."""

    letters: str
    phones: Pronunciation


class Words(NamedTuple):
    """Words of one language: ``letters (batch, time)``, ``sounds (batch, most)`` as places in ``phones (n,)``."""

    letters: Tensor
    lengths: Tensor
    language: int
    phones: Tensor
    sounds: Tensor
    sound_lengths: Tensor


def read_words(path: str) -> list[Word]:
    """A word, a tab and its phones with spaces between them a line. Raises InputError for another line."""
    words = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        word, tab, phones = line.partition("\t")
        if not (tab and spelt(word) and phones.split()):
            raise InputError(f"{path}, line {number}: {line[:40]!r}; a word, a tab and its phones were wanted")
        words.append(Word(spelt(word), tuple(phones.split())))
    return words


class LetterData(RowData):
    """``languages``: the name of each with its two lists of words, for training and validation.

    A batch is of one language; one with n words comes up in proportion to n^``balance``, times what ``often`` says of
    it. Words that ``slots`` places a letter cannot say are left out of training. Raises InputError for files that do
    not serve.
    """

    def __init__(
        self,
        languages: Mapping[str, Sequence[str]],
        balance: float = 0.5,
        often: Mapping[str, float] | None = None,
        slots: int = 2,
        batch: int = 256,
        steps_per_epoch: int = 300,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__(batch, steps_per_epoch, seed, overfit)
        self.names = tuple(languages)
        lists = [read_words(train) for train, _ in languages.values()]
        self.held_out = [read_words(dev) for _, dev in languages.values()]
        self.letters = Vocabulary.from_text("".join(w.letters for words in lists for w in words), specials=("unknown",))
        self.lists = lists
        heard = [{phone for word in words for phone in word.phones} for words in lists]
        self.phones = Vocabulary(("<blank>", *sorted(set().union(*heard))), "word", ("blank",))
        self.heard = [("<blank>", *sorted(phones)) for phones in heard]
        self.rows = [[word for word in words if needed(word) <= slots * len(word.letters)] for words in lists]
        weights = [(often or {}).get(name, 1.0) for name in languages]
        self.turns = turns([len(words) ** balance * w for words, w in zip(lists, weights, strict=True)])
        self.sources = [{"name": Path(train).name, "licence": licence} for train, _ in languages.values()]

    def make(self, step: int, rank: int = 0, world: int = 1) -> Words:
        """Words of like length of the language whose turn it is: a part of those of ``TOGETHER`` of its turns."""
        passes, place = divmod(step, len(self.turns))
        language = self.turns[place]
        turn = passes * self.turns.count(language) + self.turns[:place].count(language)
        group, part = divmod(turn, TOGETHER)
        rows = self.rows[language]
        numbers = shuffled_rows(group, len(rows), TOGETHER * self.batch, self.seed + language)
        words = sorted((rows[number] for number in numbers), key=lambda word: len(word.letters))
        return self.collate(words[part * self.batch : (part + 1) * self.batch][rank::world], language)

    def collate(self, rows: Sequence[Word], language: int | None = None) -> Words:
        places = {phone: place for place, phone in enumerate(self.heard[language or 0])}
        letters, lengths = pad([self.letters.encode(word.letters) for word in rows])
        sounds, sound_lengths = pad([[places.get(phone, 0) or 1 for phone in word.phones] for word in rows])
        return Words(letters, lengths, language or 0, self.numbers(language or 0), sounds, sound_lengths)

    def numbers(self, language: int) -> Tensor:
        """``(n,)``: the phones of a language, as numbers of the vocabulary."""
        return torch.tensor([self.phones.index(phone) for phone in self.heard[language]])

    def val_dataloader(self) -> DataLoader[Any]:
        """A batch holds 256 words of one language; a sound that was never heard there makes its word wrong."""
        batches = []
        for language, words in enumerate(self.held_out):
            ordered = sorted(words, key=lambda word: len(word.letters))
            batches += [self.collate(ordered[i : i + 256], language) for i in range(0, len(ordered), 256)]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def turns(shares: Sequence[float], count: int = 200) -> list[int]:
    """Whose turn it is, ``count`` times: each number as often as its share says, as evenly spread as can be."""
    total, had = sum(shares), [0] * len(shares)
    order = []
    for turn in range(1, count + 1):
        number = max(range(len(shares)), key=lambda i: shares[i] / total * turn - had[i])
        had[number] += 1
        order.append(number)
    return order


def needed(word: Word) -> int:
    """The places that CTC wants for its phones: one each, and one between two equal ones."""
    return len(word.phones) + sum(one == other for one, other in pairwise(word.phones))


class LetterTask(SequenceTask):
    """CTC after each layer, the mean of them; validation tells the share of words that are wrong at the first guess.

    ``pair_order``: of the n-gram models of pairs that go into the bundle beside the network; 0 for none.
    """

    monitor = "val/wrong"

    def __init__(
        self, model: LetterConfig, optimiser: OptimiserConfig, data: LetterData, pair_order: int = ORDER
    ) -> None:
        super().__init__(optimiser)
        self.pair_order = pair_order
        letters, phones, languages = len(data.letters), len(data.phones), len(data.names)
        self.network = LetterNetwork(dataclasses.replace(model, letters=letters, phones=phones, languages=languages))
        self.data = data

    def loss(self, batch: Words) -> tuple[Tensor, int, dict[str, float]]:
        found = self.network(batch.letters, batch.language, batch.phones, batch.lengths)
        slots, count = self.network.config.slots, len(batch.letters)
        losses = [
            ctc_loss(log_probs, batch.sounds, slots * batch.lengths, batch.sound_lengths, impossible="skip").loss
            for log_probs in found
        ]
        if self.training:
            return torch.stack(losses).mean(), count, {}
        guesses = ctc_greedy(found[-1], slots * batch.lengths)
        rows = zip(guesses, batch.sounds, batch.sound_lengths, strict=True)
        wrong = sum(list(guess.tokens) != row[:length].tolist() for guess, row, length in rows)
        return losses[-1], count, {"wrong": wrong / count}

    def parts(self) -> BundleParts:
        data = self.data
        vocabularies = {"letters": data.letters, "phones": data.phones, "languages": Vocabulary(data.names, "word")}
        decoding = {"beam": 8, "phones": dict(zip(data.names, data.heard, strict=True))}
        config = dataclasses.asdict(self.network.config)
        written = {name: vocabulary.to_json() for name, vocabulary in vocabularies.items()}
        files = {}
        if self.pair_order:
            for name, words in zip(data.names, data.lists, strict=True):
                files[pairs_file(name)] = packed(arpa(train_pairs(words, self.pair_order)))
                files[marks_file(name)] = packed(arpa(train_marks(words, self.pair_order)))
        return BundleParts("letters", config, written, decoding, data.sources, files)
