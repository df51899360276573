"""Readers of the layouts that speech comes in; each gives ``Found`` clips and what it ``Skipped``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from voiceseq.datasets.corpora.commonvoice import read_commonvoice
from voiceseq.datasets.corpora.folder import read_folder
from voiceseq.datasets.corpora.kaldi import read_kaldi
from voiceseq.datasets.corpora.librispeech import read_librispeech
from voiceseq.datasets.corpora.rows import Found, Layout, Skipped
from voiceseq.datasets.corpora.table import read_csv, read_tsv

Reader = Callable[[Path, Layout], Iterator[Found | Skipped]]


@dataclass(frozen=True)
class Kind:
    """A row of the table: the reader, what it reads, and which settings of ``Layout`` it looks at."""

    read: Reader
    help: str
    settings: tuple[str, ...] = ()


KINDS = {
    "folder": Kind(read_folder, "audio files with a .txt of the same name beside each", ("speaker_pattern",)),
    "csv": Kind(read_csv, "a table with a row a clip, cells between commas (or ; or |)", ("columns", "root")),
    "tsv": Kind(read_tsv, "the same between tabs", ("columns", "root")),
    "librispeech": Kind(read_librispeech, "SPEAKER/CHAPTER folders with .trans.txt files", ("parts",)),
    "commonvoice": Kind(read_commonvoice, "clips/ with validated.tsv, train.tsv, ...", ("parts",)),
    "kaldi": Kind(read_kaldi, "wav.scp, text, utt2spk, segments", ("parts", "root")),
}

__all__ = ["KINDS", "Found", "Kind", "Layout", "Reader", "Skipped"]
