"""DNA as frames of numbers, and the table of stretches that are promoters or not."""

import numpy as np

from voiceseq.errors import InputError
from voiceseq.text.files import read_text

BASES = "acgt"
FEATURES = 3 * len(BASES)


def read_promoters(path: str) -> list[tuple[str, int]]:
    """``(bases, class)`` of a table with + or -, a name and the bases a line. Raises InputError."""
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split("\t")
        if len(cells) != 3 or cells[0] not in ("+", "-"):
            raise InputError(f"{path}, line {number}: {line[:40]!r}; + or -, a name, the bases were wanted, by tabs")
        rows.append((cells[2].strip().lower(), "+-".index(cells[0])))
    return rows


def frames_of(bases: str) -> np.ndarray:
    """``(bases, 12)``: each base with the one before and the one after it. Raises InputError for other letters."""
    if not bases or (strange := set(bases) - set(BASES)):
        raise InputError(f"{bases[:30]!r}: {sorted(strange) if bases else 'nothing'} came; a, c, g and t were wanted")
    single = np.eye(len(BASES), dtype=np.float32)[[BASES.index(base) for base in bases]]
    padded = np.pad(single, ((1, 1), (0, 0)))
    return np.concatenate((padded[:-2], single, padded[2:]), 1)
