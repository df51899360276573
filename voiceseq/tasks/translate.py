"""Training translation: pairs of sentences in subwords, those of like length together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from voiceseq.datasets.batching import shuffled_rows
from voiceseq.datasets.corpora.parallel import read_parallel
from voiceseq.datasets.pairs import PairBatch
from voiceseq.tasks.transduce import PairData, Pairs, TransduceTask
from voiceseq.text.vocabulary import Vocabulary

TOGETHER = 16  # steps whose pairs are sorted by length, so that a batch is hardly padded
SPECIALS = ("unknown", "bos", "eos")


class TranslationData(PairData):
    """``train`` and ``validation``: two line-aligned files each, or one table whose ``columns`` are the two languages.

    The subwords, ``symbols`` of each language, are learned from the sentences of training. Pairs with a side of more
    than ``longest`` subwords are left out of training. Raises InputError for files that do not serve.
    """

    kind = "translator"

    def __init__(
        self,
        train: Sequence[str],
        validation: Sequence[str],
        columns: Sequence[int] = (0, 1),
        symbols: int = 5000,
        longest: int = 60,
        batch: int = 128,
        steps_per_epoch: int = 200,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        pairs = read_parallel(*train, columns=columns)
        held_out = read_parallel(*validation, columns=columns)
        source, target = (
            Vocabulary.from_text([pair[side] for pair in pairs], "subword", size=symbols, specials=SPECIALS)
            for side in (0, 1)
        )
        super().__init__(source, target, {"": held_out}, steps_per_epoch, overfit)
        self.sizes = {pair: (len(source.encode(pair[0])), len(target.encode(pair[1]))) for pair in set(pairs)}
        self.rows: Pairs = [pair for pair in pairs if max(self.sizes[pair]) <= longest]
        self.batch, self.seed = batch, seed
        self.group: tuple[int, Pairs] = (-1, [])
        self.sources = [{"name": Path(path).name, "licence": licence} for path in train]

    def pairs(self, step: int) -> Pairs:
        """A part of the rows of ``TOGETHER`` steps, those of like length."""
        group, part = divmod(step, TOGETHER)
        if group != self.group[0]:
            rows = shuffled_rows(group, len(self.rows), TOGETHER * self.batch, self.seed)
            self.group = group, sorted((self.rows[row] for row in rows), key=self.sizes.__getitem__)
        return self.group[1][part * self.batch : (part + 1) * self.batch]


class TranslationTask(TransduceTask):
    """Cross entropy with teacher forcing; there are many good translations, so none is counted as wholly right."""

    decoding: ClassVar[dict[str, Any]] = {"beam": 5, "alpha": 1.0, "max_length": 200}

    def measure(self, batch: PairBatch) -> dict[str, float]:
        return {}
