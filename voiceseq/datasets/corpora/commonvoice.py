"""Mozilla Common Voice as it is unpacked: clips/*.mp3 with validated.tsv, train.tsv, dev.tsv, test.tsv, ..."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from voiceseq.datasets.corpora.rows import Found, Layout, Skipped, keep_parts, locate
from voiceseq.datasets.corpora.table import open_table, read_cells
from voiceseq.errors import InputError

NOT_CLIPS = ("clip_durations", "reported", "validated_sentences", "unvalidated_sentences")
KEPT = {"gender": "gender", "age": "age", "accent": "accent", "accents": "accent"}


def read_commonvoice(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """The tables ``layout.parts`` (say ``train``) of a release's language folder, or one table.

    Without parts it is ``validated``, or every table where there is no such one. The speaker is the beginning of
    ``client_id``.
    """
    for table in _tables(path, layout):
        folders = [table.parent / "clips", table.parent]
        with open_table(table) as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for row in read_cells(table, rows, {"audio": "path", "text": "sentence", "speaker": "client_id"}):
                yield row if isinstance(row, Skipped) else _clip(*row, folders)


def _tables(path: Path, layout: Layout) -> list[Path]:
    if path.is_file():
        return [path]
    names = sorted(table.stem for table in path.glob("*.tsv") if table.stem not in NOT_CLIPS)
    if not names:
        raise InputError(f"{path} has no .tsv of Common Voice; give the language's folder, the one with clips/ in it")
    parts = layout.parts or (("validated",) if "validated" in names else ())
    return [path / f"{name}.tsv" for name in keep_parts(names, parts, path)]


def _clip(where: str, row: dict[str, str], folders: list[Path]) -> Found | Skipped:
    name = row["audio"]
    audio = locate(name, folders) if name else None
    if audio is None:
        return Skipped("missing audio", where, name or "the path is empty")
    number = re.fullmatch(r"common_voice_[\w-]+?_(\d+)", Path(name).stem)
    speaker = f"commonvoice-{row['speaker'][:16]}" if row["speaker"] else None
    extra = {field: row[column] for column, field in KEPT.items() if row.get(column)}
    return Found(f"cv-{number[1] if number else Path(name).stem}", audio, row["text"], speaker, extra=extra)
