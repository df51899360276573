"""Training letters to sounds: the words of a pronouncing dictionary, spelt in phones."""

import re
import zlib
from pathlib import Path

from voiceseq.datasets.batching import shuffled_rows
from voiceseq.errors import InputError
from voiceseq.tasks.transduce import PairData, Pairs
from voiceseq.text.files import read_text
from voiceseq.text.ngram import arpa, packed
from voiceseq.text.pairing import ENGLISH, pairs_file, train_pairs
from voiceseq.text.pronounce import LETTERS, PHONES, Pronunciation, read_dictionary
from voiceseq.text.vocabulary import Vocabulary

WORD = re.compile("[a-z]+(?:'[a-z]+)*")  # what `normalise` makes of a word
TOGETHER = 8  # steps whose words are sorted by length, so that a batch is hardly padded
PAIRS = 5, (0, 0, 0, 1, 2)  # order and pruning for 100,000 words: read in a second
MEASURED = 1000  # common words whose share of right answers is told after each epoch


class PronounceData(PairData):
    """The words of a dictionary, every variant a pair; a share of them, never a common word, is held out.

    ``common`` is a file with a word at the start of each line, the most frequent first: its words are all learned, and
    shown twice as often, the first ``often`` of them four times, for they are what people type and the least regular.
    A word is held out together with its plural and possessive. Raises InputError for files that do not serve.
    """

    kind = "pronouncer"

    def __init__(
        self,
        dictionary: str,
        common: str | None = None,
        often: int = 5000,
        held_out: float = 0.03,
        batch: int = 256,
        steps_per_epoch: int = 200,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        words = {word: said for word, said in read_dictionary(dictionary).items() if WORD.fullmatch(word)}
        ranks = {word: rank for rank, word in enumerate(read_words(common) if common else ()) if word in words}
        apart = held_out_words(words, ranks, held_out)
        learned = [word for word in words if word not in apart]
        if not apart or not learned:
            raise InputError(f"{dictionary}: {len(words)} words, {len(apart)} of them held out; give more of both")
        validation = {"": [(word, " ".join(words[word][0])) for word in words if word in apart]}
        if ranks:
            validation[" common"] = [(word, " ".join(words[word][0])) for word in list(ranks)[:MEASURED]]
        source = Vocabulary.from_text(LETTERS)
        target = Vocabulary(("<bos>", "<eos>", *PHONES), "word", ("bos", "eos"))
        super().__init__(source, target, validation, steps_per_epoch, overfit)
        self.rows: Pairs = [
            (word, " ".join(phones))
            for word in learned
            for phones in words[word]
            for _ in range(4 if ranks.get(word, often) < often else 2 if word in ranks else 1)
        ]
        self.batch, self.seed = batch, seed
        self.group: tuple[int, Pairs] = (-1, [])
        self.sources = [{"name": Path(dictionary).name, "licence": licence}]

    def pairs(self, step: int) -> Pairs:
        """A part of the rows of ``TOGETHER`` steps, those of like length."""
        group, part = divmod(step, TOGETHER)
        if group != self.group[0]:
            rows = shuffled_rows(group, len(self.rows), TOGETHER * self.batch, self.seed)
            self.group = group, sorted((self.rows[row] for row in rows), key=lambda pair: len(pair[0]))
        return self.group[1][part * self.batch : (part + 1) * self.batch]

    def files(self) -> dict[str, bytes]:
        """An n-gram model of the learned words' pairs of letters and phones, each word once."""
        words = dict.fromkeys((word, tuple(phones.split())) for word, phones in self.rows)
        return {pairs_file(ENGLISH): packed(arpa(train_pairs(words, *PAIRS)))}


def read_words(path: str) -> list[str]:
    """The first word of each line, in small letters."""
    lines = (line.split(maxsplit=1) for line in read_text(path).splitlines())
    return list(dict.fromkeys(line[0].lower() for line in lines if line))


def held_out_words(words: dict[str, list[Pronunciation]], common: dict[str, int], share: float) -> set[str]:
    """The same words in every run, by a hash of the word without its ending; none that is common."""
    known = {stem(word) for word in common}
    return {
        word for word in words if stem(word) not in known and zlib.crc32(stem(word).encode()) % 10_000 < 1e4 * share
    }


def stem(word: str) -> str:
    """The word without the ending of a plural or possessive."""
    return re.sub("(?<=..)'?s'?$", "", word)
