"""Names conditioned on a kind (female, male, dinosaur): a vector starts a decoder of letters."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.datasets.batching import shuffled_rows
from voiceseq.datasets.pairs import PairBatch
from voiceseq.errors import InputError
from voiceseq.tasks.rows import FrameTextData, FrameTextTask
from voiceseq.text.files import read_text
from voiceseq.text.vocabulary import Vocabulary


def read_names(path: str, kind: str | None = None) -> list[tuple[str, str]]:
    """``(name, kind)`` of each line: a name, a tab and its kind, or names alone of the ``kind``. Raises InputError."""
    rows = [line.split("\t") for line in read_text(path).splitlines() if line.strip()]
    if kind is None and (wrong := [row for row in rows if len(row) != 2]):
        raise InputError(f"{path}: {wrong[0]} came; a name, a tab and its kind were wanted, or give the kind")
    return [(row[0].strip(), kind or row[1].strip()) for row in rows]


class NameData(FrameTextData):
    """``train`` and ``validation`` have a name, a tab and its kind a line; ``more`` adds files of one kind each.

    Of the files of one kind a tenth is held out, by a hash of the name. Kinds are shown equally often, however many
    names each has: the prior is not the network's business.
    """

    kind = "names"

    def __init__(
        self,
        train: str,
        validation: str,
        more: dict[str, str] | None = None,
        batch: int = 128,
        steps_per_epoch: int = 100,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        learned, held_out = read_names(train), read_names(validation)
        for kind, path in (more or {}).items():
            for name in dict.fromkeys(read_names(path, kind)):
                (held_out if zlib.crc32(name[0].lower().encode()) % 10 == 0 else learned).append(name)
        self.kinds = tuple(dict.fromkeys(kind for _, kind in learned))
        self.features = len(self.kinds)
        target = Vocabulary.from_text("".join(name for name, _ in learned), specials=("unknown", "bos", "eos"))
        source = Vocabulary(self.kinds, "word")
        lists = {kind: [(self.vector(k), name) for name, k in held_out if k == kind] for kind in self.kinds}
        validation_lists = {"": [pair for pairs in lists.values() for pair in pairs]}
        validation_lists |= {f" {kind}": pairs for kind, pairs in lists.items()}
        super().__init__(source, target, validation_lists, steps_per_epoch, overfit)  # type: ignore[arg-type]
        self.rows = {kind: [(self.vector(k), name) for name, k in learned if k == kind] for kind in self.kinds}
        self.batch, self.seed = batch, seed
        self.sources = [{"name": Path(path).name, "licence": licence} for path in (train, *(more or {}).values())]

    def vector(self, kind: str) -> np.ndarray:
        """``(1, kinds)``: a 1 at its place."""
        return np.eye(self.features, dtype=np.float32)[[self.kinds.index(kind)]]

    def pairs(self, step: int) -> Any:
        share = -(-self.batch // self.features)
        rows = [
            self.rows[kind][number]
            for place, kind in enumerate(self.kinds)
            for number in shuffled_rows(step, len(self.rows[kind]), share, self.seed + place)
        ]
        return rows[: self.batch]


class NameTask(FrameTextTask):
    """The loss is in nats a letter; a name is not to be guessed, so nothing is counted as right."""

    def measure(self, batch: PairBatch) -> dict[str, float]:
        return {}
