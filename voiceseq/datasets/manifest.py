"""Manifests: which stretch of which audio file is which clip. The one reader and writer of the whole project.

A manifest is JSON lines (``.jsonl``, or ``.jsonl.gz``), a row a clip::

    {"id": "ls-84-1-0003", "audio": "part-00.opus", "offset": 12.345, "duration": 9.9, "text": "...", "speaker": "84"}

``id``, ``audio`` and ``duration`` are wanted; ``offset`` is 0 and ``text`` and ``speaker`` are None where they are left
out; any further field is kept in ``extra``. Times are seconds. A relative ``audio`` is looked for beside the manifest
first and then in the folder above, so that a corpus ``speech/librispeech/manifest.jsonl`` may also write its paths from
``speech/``; where it is in neither place, the path beside the manifest is meant. What is written is always relative to
the manifest. Manifest and audio may be URLs (`voiceseq.remote`); audio of a manifest that is one lies beside it, and is
looked for when it is read.
"""

import contextlib
import gzip
import hashlib
import json
import math
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from voiceseq.errors import InputError
from voiceseq.remote import local_copy, local_path, output, url_of

FIELDS = ("id", "audio", "offset", "duration", "text", "speaker")
MISTAKES = 20  # named in one message; reading stops there


@dataclass(frozen=True, slots=True)
class Clip:
    """``duration`` seconds of the file ``audio`` from ``offset`` on; ``extra`` has what else the row said."""

    id: str
    audio: Path
    duration: float
    offset: float = 0.0
    text: str | None = None
    speaker: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_manifest(path: str | Path, check_files: bool = True) -> list[Clip]:
    """All clips of a manifest, or one ``InputError`` that names every wrong row (see ``iterate_manifest``)."""
    return list(iterate_manifest(path, check_files))


def iterate_manifest(path: str | Path, check_files: bool = True) -> Iterator[Clip]:
    """The clips of a manifest one by one; only the ids are remembered, so a million rows fit.

    ``check_files`` also wants every audio file to be there. Raises ``InputError`` with the line and field of up to 20
    mistakes. Reading stops giving clips at the first mistake and goes on only to find the others.
    """
    path = Path(path)
    rows = _Rows(path, check_files)
    empty = True
    for number, line in _lines(path):
        if not line.strip():
            continue
        empty = False
        clip = rows.read(number, line)
        if clip is not None and not rows.mistakes:
            yield clip
        if len(rows.mistakes) >= MISTAKES:
            break
    if rows.mistakes:
        raise InputError(_complaint(path, rows.mistakes))
    if empty:
        raise InputError(f"the manifest {path} has no rows; make one with `voiceseq prepare`")


def write_manifest(path: str | Path, clips: Iterable[Clip]) -> int:
    """Write a manifest in one step, audio relative to it; return the number of rows. See ``write_manifests``."""
    return write_manifests({path: clips})[0]


def write_manifests(manifests: Mapping[str | Path, Iterable[Clip]]) -> list[int]:
    """Write several manifests, all or none; return their numbers of rows.

    Raises ``InputError`` where a row cannot be written as JSON, an id comes twice, or a file cannot be written; then
    whatever was there before is still there.
    """
    if any(url_of(path) for path in manifests):
        return [_send(Path(path), clips) for path, clips in manifests.items()]
    staged: list[tuple[Path, Path]] = []
    try:
        counts = []
        for path, clips in manifests.items():
            target = local_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.append((target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial"), target))
            counts.append(_write(*staged[-1], clips))
        for temporary, target in staged:
            os.replace(temporary, target)
        return counts
    except OSError as error:
        raise InputError(f"the manifest cannot be written ({error}); make room or choose another path") from error
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)


# --- reading ---------------------------------------------------------------------------------------------------------


class _Rows:
    """What must be remembered from row to row: the ids that were there, the mistakes so far."""

    def __init__(self, path: Path, check_files: bool) -> None:
        self.check_files = check_files
        self.mistakes: list[str] = []
        self.seen: dict[str, int] = {}
        self.find = lru_cache(maxsize=4096)(_Finder(path.parent))

    def read(self, number: int, line: bytes) -> Clip | None:
        """The clip of a line, or None after noting what is wrong with it."""
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            return self.note(number, f"is not UTF-8 ({error.reason} at byte {error.start + 1})")
        except (ValueError, RecursionError) as error:
            return self.note(number, f"is not JSON ({error})")
        if not isinstance(row, dict):
            return self.note(number, f'is {_kind(row)}; an object like {{"id": ..., "audio": ...}} was wanted')
        faults = list(_faults(row))
        audio, found = self.find(row["audio"]) if not faults else (Path(), True)
        if not faults and self.check_files and not found:
            faults.append(f"audio: no file {row['audio']!r} beside the manifest or in the folder above it")
        if isinstance(key := row.get("id"), str) and (first := self.seen.setdefault(key, number)) != number:
            faults.append(f"id: {key!r} is already the id of line {first}")
        for fault in faults:
            self.note(number, fault)
        return None if faults else _clip(row, audio)

    def note(self, number: int, fault: str) -> Clip | None:
        self.mistakes.append(f"line {number}: {fault}")
        return None


class _Finder:
    """Where a row's ``audio`` is, and whether there is such a file: beside the manifest, else in the folder above."""

    def __init__(self, folder: Path) -> None:
        self.beside, self.above = folder, folder / os.pardir if folder.name in ("", os.pardir) else folder.parent

    def __call__(self, audio: str) -> tuple[Path, bool]:
        audio = str(local_path(audio))
        for place in (audio, self.beside):
            if url_of(place):
                return (Path(audio) if place is audio else self.beside / audio), True  # whoever reads it will see
        for folder in (self.beside, self.above):
            if os.path.isfile(path := folder / audio):
                return path, True
        return self.beside / audio, False


def _clip(row: dict[str, Any], audio: Path) -> Clip:
    extra = {name: value for name, value in row.items() if name not in FIELDS}
    offset = row.get("offset")
    return Clip(
        id=row["id"],
        audio=audio,
        duration=float(row["duration"]),
        offset=0.0 if offset is None else float(offset),
        text=row.get("text"),
        speaker=row.get("speaker"),
        extra=extra,
    )


def _faults(row: dict[str, Any]) -> Iterator[str]:
    for name in ("id", "audio"):
        if name not in row:
            yield f"{name}: is missing"
        elif not isinstance(row[name], str) or not row[name].strip() or "\0" in row[name]:
            yield f"{name}: {_shown(row[name])} came; a text that is not empty was wanted"
    for name in ("text", "speaker"):
        if not isinstance(row.get(name), str | None):
            yield f"{name}: {_shown(row[name])} came; a text or null was wanted"
    if "duration" not in row:
        yield "duration: is missing"
    elif not _seconds(row["duration"]) or row["duration"] <= 0:
        yield f"duration: {_shown(row['duration'])} came; seconds above 0 were wanted"
    if row.get("offset") is not None and (not _seconds(row["offset"]) or row["offset"] < 0):
        yield f"offset: {_shown(row['offset'])} came; seconds from 0 on were wanted"


def _seconds(value: object) -> bool:
    """A number that is finite as a float; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", dict: "an object", type(None): "null"}.get(type(value), "a single value")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, without the byte order mark; gzip is told by its first bytes, whatever the name."""
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"the manifest {path} cannot be read ({error}); give a .jsonl or .jsonl.gz file") from error


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    with local_copy(path) as here, here.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file


def _complaint(path: Path, mistakes: list[str]) -> str:
    number = len(mistakes)
    if number >= MISTAKES:
        head = f"the manifest {path} is wrong in at least {number} places (reading stopped there)"
    else:
        head = f"the manifest {path} is wrong in {number} {'place' if number == 1 else 'places'}"
    return "\n  ".join([f"{head}:", *mistakes[:MISTAKES]])


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(temporary: Path, target: Path, clips: Iterable[Clip]) -> int:
    folder = str(target.parent) if url_of(target) else os.path.realpath(target.parent)
    seen: set[str] = set()
    with temporary.open("xb") as raw:
        # no name and no date in the gzip header: the same clips make the same bytes
        zipped = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if target.suffix == ".gz" else None
        out = cast(BinaryIO, zipped or raw)
        for clip in clips:
            if clip.id in seen:
                raise InputError(f"the id {clip.id!r} comes twice in what is to be {target}; ids name one clip each")
            seen.add(clip.id)
            out.write(_line(clip, folder))
        if zipped is not None:
            zipped.close()
        raw.flush()
        os.fsync(raw.fileno())
    return len(seen)


def _send(path: Path, clips: Iterable[Clip]) -> int:
    """To a URL, which has nothing relative to it but what is below the same folder."""
    with output(path) as here:
        return _write(here, path, clips)


def _line(clip: Clip, folder: str) -> bytes:
    row: dict[str, Any] = {"id": clip.id, "audio": _relative(clip.audio, folder)}
    row |= {"offset": clip.offset, "duration": clip.duration}
    row |= {name: value for name in ("text", "speaker") if (value := getattr(clip, name)) is not None}
    faults = [
        *_faults(row),
        *(f"{name}: is the clip's own field, not an extra" for name in clip.extra if name in FIELDS),
    ]
    if faults:
        raise InputError(f"the clip {clip.id!r} cannot be written: {'; '.join(faults)}")
    row |= clip.extra
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the clip {clip.id!r} cannot be written as JSON ({error}); keep extra plain") from error
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8: as JSON escapes it comes back the same
        return f"{json.dumps(row)}\n".encode()


def _relative(audio: Path, folder: str) -> str:
    if url := url_of(audio):
        base = url_of(Path(folder))
        return url.removeprefix(f"{base}/") if base else url
    if url_of(Path(folder)):
        return Path(os.path.abspath(audio)).as_uri()
    # joined and not abspath(), which would take "link/.." for the folder that holds the link
    return Path(_way(os.path.join(os.getcwd(), os.path.dirname(audio)), folder), audio.name).as_posix()


@lru_cache(maxsize=4096)
def _way(parent: str, folder: str) -> str:
    """The path from ``folder`` to ``parent`` through the real folders: ``..`` behind a link leads elsewhere."""
    real = os.path.realpath(parent)
    try:
        return os.path.relpath(real, folder)
    except ValueError:  # another drive
        return real


def held_out(speaker: str | None, share: float) -> bool:
    """Whether this speaker is one of the ``share`` kept for tests: decided by the name alone, so always the same."""
    digest = hashlib.sha256(f"voiceseq:{speaker}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share
