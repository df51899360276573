"""What every reader gives, and what several of them need: finding files and reading their lines."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from voiceseq.errors import InputError

AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff", ".sph", ".webm", ".mp4")

Reason = Literal[
    "no text",
    "text without audio",
    "text cannot be normalised",
    "too short",
    "too long",
    "duplicate id",
    "missing audio",
    "unreadable audio",
    "audio cut short",
    "unreadable text",
    "broken row",
    "refused command",
]


@dataclass(frozen=True)
class Found:
    """A clip as a corpus describes it; a duration of None is the rest of the file."""

    id: str
    audio: Path
    text: str | None = None
    speaker: str | None = None
    offset: float = 0.0
    duration: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """Something that is no clip: ``where`` names the file and line or the id, ``detail`` says more."""

    reason: Reason
    where: str
    detail: str = ""


@dataclass(frozen=True)
class Layout:
    """What a reader may be told: see ``KINDS`` for which of it each one looks at.

    ``parts``: only these folders or tables. ``root``: where relative audio paths begin. ``columns``: field to the name
    of its column, or to its number from 1 on where the table has no header. ``speaker_pattern``: a regular expression
    whose first group in the path below the folder is the speaker.
    """

    parts: tuple[str, ...] = ()
    root: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    speaker_pattern: re.Pattern[str] | None = None


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder from ``root`` down with its file names, in order, links followed once, hidden names left out."""
    seen = set()
    for folder, inner, names in os.walk(root, followlinks=True):
        place = os.stat(folder)
        if (place.st_dev, place.st_ino) in seen:  # a link that leads back
            inner.clear()
            continue
        seen.add((place.st_dev, place.st_ino))
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield Path(folder), sorted(name for name in names if not name.startswith("."))


def need_folder(path: Path, wanted: str) -> None:
    if not path.is_dir():
        raise InputError(f"{path} is {'no folder' if path.exists() else 'not there'}; {wanted} was wanted")


def is_audio(name: str) -> bool:
    return name.lower().endswith(AUDIO_SUFFIXES)


def locate(name: str, folders: Sequence[Path]) -> Path | None:
    """The file ``name`` in the first folder that has it; a name without an audio suffix may lack it in the table."""
    for folder in folders:
        if os.path.isfile(path := folder / name):
            return path
    if not is_audio(name):
        for folder in folders:
            for suffix in AUDIO_SUFFIXES:
                if os.path.isfile(path := folder / f"{name}{suffix}"):
                    return path
    return None


def numbered_lines(path: Path) -> Iterator[tuple[int, str | None]]:
    """The lines of a UTF-8 text with their numbers from 1; None for a line that is not UTF-8, blank ones left out."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    yield number, None
                    continue
                if line:
                    yield number, line
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); check the file and its permissions") from error


def keep_parts(names: Iterable[str], parts: Sequence[str], where: Path) -> list[str]:
    """The names that were asked for, all where none was; ``InputError`` for one that is not there."""
    names = list(names)
    if missing := [part for part in parts if part not in names]:
        raise InputError(f"{where} has no part {missing[0]!r}; choose among {', '.join(sorted(names)) or '(none)'}")
    return [name for name in names if name in parts] if parts else names
