"""DNA as frames of numbers, and the table of stretches that are promoters or not."""

import numpy as np

from voiceseq.errors import InputError
from voiceseq.text.files import read_text

BASES = "acgt"
PLACES = 57  # the stretches begin at the same place before the gene: where a base stands says as much as what it is
FEATURES = PLACES * len(BASES)


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
    """``(bases, 228)``: each base at its place, all else zero. Raises InputError for other letters and too many."""
    if not bases or (strange := set(bases) - set(BASES)):
        raise InputError(f"{bases[:30]!r}: {sorted(strange) if bases else 'nothing'} came; a, c, g and t were wanted")
    if len(bases) > PLACES:
        raise InputError(f"{bases[:30]!r}... has {len(bases)} bases; at most {PLACES} were wanted")
    frames = np.zeros((len(bases), PLACES, len(BASES)), np.float32)
    frames[np.arange(len(bases)), np.arange(len(bases)), [BASES.index(base) for base in bases]] = 1
    return frames.reshape(len(bases), FEATURES)
