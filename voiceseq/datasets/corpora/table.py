"""Tables with a row a clip: CSV and TSV, with a header that is understood or columns that are named."""

import contextlib
import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

from voiceseq.datasets.corpora.rows import Found, Layout, Skipped, locate
from voiceseq.errors import InputError

# the names by which tables in the wild call each field, best first
HEADERS = {
    "audio": ("audio", "audio_path", "audio_file", "audio_filepath", "path", "file", "filename", "file_name",
              "filepath", "wav", "wav_filename", "wav_path", "clip", "recording"),
    "text": ("text", "sentence", "transcript", "transcription", "normalized_text", "raw_text", "words", "utterance"),
    "speaker": ("speaker", "speaker_id", "spk", "spk_id", "client_id", "reader", "user", "user_id"),
    "id": ("id", "utt_id", "utterance_id", "key", "uid"),
    "offset": ("offset", "start", "start_s", "start_time", "begin"),
    "end": ("end", "end_s", "end_time", "stop"),
    "duration": ("duration", "duration_s", "length_s"),
}  # fmt: skip


def read_csv(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """A CSV file; the separator is the one of , ; | and tab that the first line has most."""
    with open_table(path) as file:
        first = file.readline()
        separator = max(",;|\t", key=first.count)
        file.seek(0)
        # strict: a quote that is never closed is an error and does not swallow the rest of the table
        yield from _rows(path, csv.reader(file, delimiter=separator, strict=True), layout)


def read_tsv(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """A file of cells between tabs; a quotation mark is an ordinary character, as TSV has no quoting."""
    with open_table(path) as file:
        yield from _rows(path, csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), layout)


def read_cells(
    path: Path, rows: Iterable[list[str]], columns: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]] | Skipped]:
    """Where each row is, and its cells by field (``audio``, ``text``, ...; other columns by their own name)."""
    names: list[str] | None = None
    for number, cells in enumerate(_guarded(path, rows), 1):
        if not any(cell.strip() for cell in cells):
            continue
        if names is None:
            by_number = bool(columns) and all(name.isdigit() for name in columns.values())
            names = _numbered_columns(cells, columns, path) if by_number else _named_columns(cells, columns, path)
            if not by_number:
                continue
        if len(cells) != len(names):
            yield Skipped("broken row", f"{path.name}: row {number}", f"{len(cells)} cells, {len(names)} wanted")
            continue
        yield f"{path.name}: row {number}", {name: cell.strip() for name, cell in zip(names, cells, strict=True)}


@contextlib.contextmanager
def open_table(path: Path) -> Iterator[TextIO]:
    """The file for ``csv.reader``; what goes wrong with its bytes while it is read is an ``InputError``."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"the table {path} is not UTF-8 ({error}); convert it, e.g. iconv -f latin1 -t utf-8"
        ) from error
    except OSError as error:
        raise InputError(f"the table {path} cannot be read ({error}); give a CSV or TSV file") from error


def _guarded(path: Path, rows: Iterable[list[str]]) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        line = getattr(rows, "line_num", "?")
        raise InputError(
            f"the table {path} is wrong at line {line} ({error}); look for a lone quotation mark"
        ) from error


def _named_columns(header: list[str], columns: Mapping[str, str], path: Path) -> list[str]:
    """The header with the names of our fields where a column holds one."""
    header = [cell.strip() for cell in header]
    for field, name in columns.items():
        if name not in header:
            raise InputError(f"the table {path} has no column {name!r} for {field}; it has {', '.join(header)}")
    lower = [name.lower() for name in header]
    chosen = {}
    for field, known in HEADERS.items():
        asked = columns.get(field)
        place = header.index(asked) if asked is not None else next((lower.index(k) for k in known if k in lower), None)
        if place is not None and (asked is not None or place not in chosen):
            chosen[place] = field
    if "audio" not in chosen.values():
        raise InputError(
            f"the table {path} has no column for audio among {', '.join(header)}; name it with --columns audio=NAME, "
            "or --columns audio=1,text=2 where there is no header"
        )
    return [chosen.get(place) or (f"column {name}" if name in HEADERS else name) for place, name in enumerate(header)]


def _numbered_columns(cells: list[str], columns: Mapping[str, str], path: Path) -> list[str]:
    names = [f"column {place}" for place in range(1, len(cells) + 1)]
    for field, number in columns.items():
        if not 1 <= int(number) <= len(cells):
            raise InputError(f"the table {path} has {len(cells)} columns, so no column {number} for {field}")
        names[int(number) - 1] = field
    if "audio" not in names:
        raise InputError(f"no column of {path} is named as audio; give e.g. --columns audio=1,text=2")
    return names


def _rows(path: Path, rows: Iterable[list[str]], layout: Layout) -> Iterator[Found | Skipped]:
    folders = [layout.root] if layout.root is not None else [path.parent]
    read = read_cells(path, rows, layout.columns)
    first = next(read, None)
    if first is None:
        raise InputError(f"the table {path} has no rows below its header; give a table with at least one clip")
    for row in itertools.chain([first], read):
        yield row if isinstance(row, Skipped) else _clip(*row, folders)


def _clip(where: str, row: dict[str, str], folders: list[Path]) -> Found | Skipped:
    if not row["audio"]:
        return Skipped("broken row", where, "the audio cell is empty")
    audio = locate(row["audio"], folders)
    if audio is None:
        return Skipped("missing audio", where, row["audio"])
    try:
        offset, duration = _times(row)
    except ValueError as error:
        return Skipped("broken row", where, str(error))
    key = row.get("id") or Path(row["audio"]).with_suffix("").as_posix() + (f"@{offset:g}" if offset else "")
    extra = {name: cell for name, cell in row.items() if cell and name not in HEADERS}
    return Found(key, audio, row.get("text"), row.get("speaker") or None, offset, duration, extra)


def _times(row: dict[str, str]) -> tuple[float, float | None]:
    offset = float(row.get("offset") or 0)
    if row.get("duration"):
        return offset, float(row["duration"])
    return offset, float(row["end"]) - offset if row.get("end") else None
