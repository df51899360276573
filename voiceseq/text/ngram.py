"""Back-off n-gram language models: read and write ARPA files, score words, serve the searches.

``log p(w | context) = log_prob(context w)`` where the model lists that n-gram, else
``backoff(context) + log p(w | context less its first word)``. Log-probabilities here are natural; ARPA's are base 10.
The numbers live in arrays, one set an order (`Grams`), and are compiled once into the automaton of
`voiceseq.core.scorers.NgramTable`, on which all scoring runs.
"""

import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.core.scorers import Floats, Ints, NgramTable
from voiceseq.errors import InputError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
LN10 = math.log(10.0)
SPACES = frozenset(" \t\n\r\v\f\0")
MISSING_UNKNOWN = -100.0  # log10, for a file without <unk>: possible, and never worth it


class Grams(NamedTuple):
    """The n-grams of one order."""

    words: NDArray[np.int32]  # (count, order)
    log_prob: Floats  # (count,) natural
    backoff: Floats  # (count,) natural; 0 at the highest order


class NgramModel:
    """``words``: the vocabulary, ``<s>``, ``</s>`` and ``<unk>`` among it; ``orders[n - 1]``: its n-grams.

    Every word has a unigram, in the order of ``words``; the context of every n-gram is an n-gram.
    """

    def __init__(self, words: Sequence[str], orders: Sequence[Grams]) -> None:
        self.words = tuple(words)
        self.index = {word: i for i, word in enumerate(self.words)}
        self.orders = tuple(orders)
        missing = [word for word in (BEGIN, END, UNKNOWN) if word not in self.index]
        if missing or len(self.index) != len(self.words):
            raise InputError(f"the n-gram vocabulary lacks {missing} or holds a word twice; give each word once")
        if not self.orders or not np.array_equal(self.orders[0].words[:, 0], np.arange(len(self.words))):
            raise InputError("the unigrams do not follow the vocabulary; one for each word, in order, was wanted")

    @property
    def order(self) -> int:
        return len(self.orders)

    @cached_property
    def _states(self) -> "_States":
        return _States(self)

    @cached_property
    def table(self) -> NgramTable:
        """The automaton for the searches."""
        return _compile(self)

    def score(self, words: Sequence[str], begin: bool = True, end: bool = True) -> list[float]:
        """Natural log-probability of each word in turn (of ``</s>`` last); words not listed are ``<unk>``."""
        ids = [self.index.get(word, self.table.unknown) for word in words] + [self.table.end] * end
        state, scores = (self.table.begin if begin else 0), []
        for word in ids:
            log_prob, state = self.advance(state, word)
            scores.append(log_prob)
        return scores

    def log_probs(self, sequences: Iterable[Sequence[str]], boundaries: bool = True) -> Floats:
        """``(events,)``: what `score` gives for each sequence in turn, for long texts: all positions at once.

        An event is a word or, with ``boundaries``, the ``</s>`` behind a sequence. Without, a sequence is a piece of
        running text whose first word stands in no context.
        """
        word, place = self._symbols(sequences, boundaries)
        log_prob = np.concatenate([np.zeros(1), *(grams.log_prob for grams in self.orders)])
        backoff = np.concatenate([np.zeros(1), *(grams.backoff for grams in self.orders)])
        total, gram = np.zeros(len(word)), np.zeros(len(word), np.int64)
        for n in range(self.order):
            # the context of n words: the n-gram that ended one word earlier, -1 where there is none such
            context = np.where(place >= n, np.roll(gram, 1), -1)
            gram = self._states.follow(n, context, word)
            total = np.where(gram >= 0, log_prob[gram], total + np.where(context >= 0, backoff[context], 0.0))
        return total[place > 0] if boundaries else total

    def perplexity(self, sequences: Iterable[Sequence[str]], boundaries: bool = True) -> float:
        """``exp(-mean log p)`` over the events of `log_probs`. Raises InputError when there are none."""
        log_probs = self.log_probs(sequences, boundaries)
        if not len(log_probs):
            raise InputError("a text without words came; perplexity wants at least one event")
        return float(np.exp(-log_probs.mean()))

    def _symbols(self, sequences: Iterable[Sequence[str]], boundaries: bool) -> tuple[Ints, Ints]:
        """The words of all sequences, and how many come before each in its own."""
        if isinstance(sequences, str):
            raise InputError("a string came; a list of sequences was wanted, e.g. [line.split() for line in text]")
        begin, end, unknown = (self.index[word] for word in (BEGIN, END, UNKNOWN))
        words: list[int] = []
        starts: list[int] = []
        for sequence in sequences:
            starts.append(len(words))
            inner = [self.index.get(word, unknown) for word in sequence]
            words += [begin, *inner, end] if boundaries else inner
        lengths = np.diff([*starts, len(words)])
        return np.array(words, np.int64), np.arange(len(words)) - np.repeat(np.array(starts, np.int64), lengths)

    def advance(self, state: int, word: int) -> tuple[float, int]:
        """One step of the automaton: log p(word | state) and the next state."""
        table, total = self.table, 0.0
        while True:
            first, last = table.first[state], table.first[state + 1]
            arc = first + int(np.searchsorted(table.word[first:last], word))
            if arc < last and table.word[arc] == word:
                return total + float(table.log_prob[arc]), int(table.target[arc])
            total += float(table.backoff[state])
            state = int(table.shorter[state])

    def token_words(self, symbols: Sequence[str], end: int | None = None) -> torch.Tensor:
        """``(vocabulary,)`` for `NgramScorer`: the word of each symbol, ``<unk>`` where there is none."""
        words = [self.index.get(symbol, self.table.unknown) for symbol in symbols]
        if end is not None:
            words[end] = self.table.end
        return torch.tensor(words, dtype=torch.long)

    def spellings(self, symbols: Sequence[str]) -> list[tuple[int, ...]]:
        """Each word as token ids of one-character ``symbols``; empty where it cannot be spelt, as for ``<s>``."""
        token = {symbol: i for i, symbol in enumerate(symbols)}
        special = {BEGIN, END, UNKNOWN}
        return [
            tuple(token[c] for c in word) if word not in special and all(c in token for c in word) else ()
            for word in self.words
        ]


class _States:
    """Numbers of n-grams: 0 the empty one, then order by order. Those below the highest are the automaton's states."""

    def __init__(self, model: NgramModel) -> None:
        self.words = len(model.words)
        self.keys: list[Ints] = []  # of order n: number of the context * words + last word, sorted
        self.numbers: list[Ints] = []
        for grams in model.orders:
            self.count = 1 + sum(map(len, self.keys))  # of states, when the loop is at the highest order
            context = self.find(grams.words[:, :-1])
            if (context < 0).any():
                raise InputError("an n-gram's context is no n-gram itself; list every context with its own probability")
            key = context * self.words + grams.words[:, -1]
            sort = np.argsort(key)
            self.keys.append(key[sort])
            self.numbers.append(self.count + sort)

    def follow(self, order: int, context: Ints, word: Ints) -> Ints:
        """The number of the n-gram ``context word``, -1 where there is none; the context has ``order`` words."""
        if not len(self.keys[order]):
            return np.full(len(word), -1)
        key = context * self.words + word
        place = np.searchsorted(self.keys[order], key).clip(max=len(self.keys[order]) - 1)
        return np.where((context >= 0) & (self.keys[order][place] == key), self.numbers[order][place], -1)

    def find(self, words: NDArray[np.int32]) -> Ints:
        """``(count, order)`` -> the number of each n-gram, -1 where it is none."""
        state = np.zeros(len(words), dtype=np.int64)
        for order, column in enumerate(words.T):
            state = self.follow(order, state, column)
        return state

    def longest(self, words: NDArray[np.int32]) -> Ints:
        """The state of the longest suffix that is one."""
        state = np.zeros(len(words), dtype=np.int64)
        for first in reversed(range(words.shape[1])):
            found = self.find(words[:, first:])
            state = np.where((found >= 0) & (found < self.count), found, state)
        return state


def _compile(model: NgramModel) -> NgramTable:
    """Each n-gram is an arc from its context to its longest suffix that is a context."""
    states, below = model._states, model.orders[:-1]
    source = np.concatenate([states.find(grams.words[:, :-1]) for grams in model.orders])
    word = np.concatenate([grams.words[:, -1] for grams in model.orders]).astype(np.int64)
    log_prob = np.concatenate([grams.log_prob for grams in model.orders])
    target = [states.longest(grams.words) for grams in below] + [states.longest(model.orders[-1].words[:, 1:])]
    backoff = np.concatenate([np.zeros(1), *(grams.backoff for grams in below)])
    shorter = np.concatenate([np.zeros(1, np.int64), *(states.longest(grams.words[:, 1:]) for grams in below)])
    sort = np.lexsort((word, source))
    first = np.searchsorted(source[sort], np.arange(states.count + 1)).astype(np.int64)
    # a context that nothing follows and whose back-off is free says what its suffix says: go there at once
    useful = (np.diff(first) > 0) | (backoff != 0)
    same = np.where(useful, np.arange(states.count), shorter)
    for _ in below:
        same = same[same]
    begin = same[states.longest(np.array([[model.index[BEGIN]]], dtype=np.int32))[0]]
    arrays = first, word[sort], log_prob[sort], same[np.concatenate(target)[sort]], backoff, same[shorter]
    return NgramTable(*arrays, int(begin), model.index[END], model.index[UNKNOWN])


def read_arpa(path: str | Path) -> NgramModel:
    """Read an ARPA file, plain or gzip. Raises InputError with the line at which it is wrong."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rt", encoding="utf-8") if packed else open(path, encoding="utf-8") as text:
            return _ArpaReader(path, text).read()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read as an ARPA language model ({error}); give a whole ARPA file"
        ) from error


class _ArpaReader:
    """Line by line; remembers where it is for the error messages."""

    def __init__(self, path: Path, text: TextIO) -> None:
        self.path, self.text, self.number = path, text, 0
        self.words: list[str] = []
        self.index: dict[str, int] = {}

    def wrong(self, problem: str) -> InputError:
        return InputError(f"{self.path}, line {self.number}: {problem}")

    def lines(self) -> Iterator[str]:
        """What is not blank."""
        for line in self.text:
            self.number += 1
            if line.strip():
                yield line.strip(" \t\r\n")

    def read(self) -> NgramModel:
        lines = self.lines()
        if not any(line == "\\data\\" for line in lines):
            raise self.wrong("the file ended and no \\data\\ came: is it an ARPA file?")
        counts, line = self._counts(lines)
        orders: list[Grams] = []
        for order, count in enumerate(counts, start=1):
            if line != f"\\{order}-grams:":
                raise self.wrong(f"{line!r} came; \\{order}-grams: was wanted")
            orders.append(self._section(lines, order, len(counts), count, orders))
            line = next(lines, "the end of the file")
        if line != "\\end\\":
            raise self.wrong(f"{line!r} came; \\end\\ was wanted: is the file cut off?")
        return self._model(orders)

    def _counts(self, lines: Iterator[str]) -> tuple[list[int], str]:
        counts: list[int] = []
        for line in lines:
            if not line.startswith("ngram "):
                break
            order, _, count = line.removeprefix("ngram ").replace(" ", "").partition("=")
            if order != str(len(counts) + 1) or not count.isdecimal():
                raise self.wrong(f"{line!r} came; ngram {len(counts) + 1}=<count> was wanted")
            counts.append(int(count))
        else:
            line = "the end of the file"
        if not counts:
            raise self.wrong(f"{line!r} came; ngram 1=<count> was wanted")
        return counts, line

    def _section(self, lines: Iterator[str], order: int, highest: int, count: int, lower: list[Grams]) -> Grams:
        known = {tuple(row) for row in lower[-1].words.tolist()} if order > 1 else {()}
        grams: dict[tuple[int, ...], tuple[float, float]] = {}
        for _ in range(count):
            line = next(lines, "\\end\\")
            fields = [field for field in line.replace("\t", " ").split(" ") if field]
            if line.startswith("\\") and len(fields) == 1:
                raise self.wrong(f"{line!r} came after {len(grams)} {order}-grams; {count} were announced")
            gram = self._words(fields[1 : order + 1], order, line)
            if gram in grams or gram[:-1] not in known:
                problem = "comes twice" if gram in grams else f"has no {order - 1}-gram for its context before it"
                raise self.wrong(f"the {order}-gram {' '.join(fields[1 : order + 1])!r} {problem}")
            grams[gram] = self._numbers(fields, order, highest, line)
        values = np.array(list(grams.values())).reshape(-1, 2) * LN10
        return Grams(np.array(list(grams), dtype=np.int32).reshape(-1, order), values[:, 0], values[:, 1])

    def _words(self, words: list[str], order: int, line: str) -> tuple[int, ...]:
        if len(words) != order:
            raise self.wrong(f"{line!r} came; a log-probability, {order} words and perhaps a back-off were wanted")
        if order == 1:
            word = UNKNOWN if words[0] == "<UNK>" else words[0]
            if word not in self.index:
                self.index[word] = len(self.words)
                self.words.append(word)
            return (self.index[word],)
        unknown = [word for word in words if word not in self.index and word != "<UNK>"]
        if unknown:
            raise self.wrong(f"the word {unknown[0]!r} is not among the unigrams")
        return tuple(self.index[UNKNOWN if word == "<UNK>" else word] for word in words)

    def _numbers(self, fields: list[str], order: int, highest: int, line: str) -> tuple[float, float]:
        """Log-probability and back-off in base 10."""
        numbers = [fields[0], *fields[order + 1 :]]
        try:
            values = [float(number) for number in numbers]
        except ValueError:
            values = []
        if not 1 <= len(values) <= 2 or not all(map(math.isfinite, values)) or values[0] > 0:
            raise self.wrong(f"{line!r} came; a log-probability <= 0, {order} words and perhaps a back-off were wanted")
        return values[0], values[1] if len(values) == 2 and order < highest else 0.0

    def _model(self, orders: list[Grams]) -> NgramModel:
        if UNKNOWN not in self.index:
            words = np.append(orders[0].words, [[np.int32(len(self.words))]], axis=0)
            log_prob = np.append(orders[0].log_prob, MISSING_UNKNOWN * LN10)
            orders[0] = Grams(words, log_prob, np.append(orders[0].backoff, 0.0))
            self.words.append(UNKNOWN)
        missing = [word for word in (BEGIN, END) if word not in self.index]
        if missing:
            raise self.wrong(f"the unigrams lack {' and '.join(missing)}; a model of sentences has both")
        return NgramModel(self.words, orders)


def write_arpa(model: NgramModel, path: str | Path) -> None:
    """Write the model as an ARPA file, gzipped where the name ends in ``.gz``.

    Raises InputError for a word that is empty or holds white space, which the format cannot say.
    """
    path = Path(path)
    text = arpa(model)
    path.write_bytes(packed(text) if path.suffix == ".gz" else text.encode())


def arpa(model: NgramModel) -> str:
    """The text of an ARPA file; raises as ``write_arpa``."""
    wrong = [word for word in model.words if not word or not SPACES.isdisjoint(word)]
    if wrong:
        raise InputError(f"the word {wrong[0]!r} cannot stand in an ARPA file; train with another symbol in its place")
    lines = ["\\data\\"]
    lines += [f"ngram {order}={len(grams.words)}" for order, grams in enumerate(model.orders, start=1)]
    for order, grams in enumerate(model.orders, start=1):
        lines.append(f"\n\\{order}-grams:")
        for words, log_prob, backoff in zip(*(field.tolist() for field in grams), strict=True):
            tail = f"\t{backoff / LN10:.7g}" if order < model.order else ""
            lines.append(f"{log_prob / LN10:.7g}\t{' '.join(model.words[i] for i in words)}{tail}")
    return "\n".join([*lines, "\n\\end\\\n"])


def packed(text: str) -> bytes:
    """As in a file whose name ends in ``.gz``; the same text gives the same bytes."""
    return gzip.compress(text.encode(), mtime=0)
