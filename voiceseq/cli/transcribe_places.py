"""The folder of ``voiceseq transcribe --out``: on a disk, or behind a URL (`voiceseq.remote`).

Both keep texts by their name inside the folder, and a journal of JSON rows that only grows. A store behind a URL cannot
append: the journal is sent whole, now and then and at the end; what is lost with it is only done once more.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from voiceseq.errors import InputError
from voiceseq.remote import local_path, read_bytes, url_of, version, write_bytes

EVERY_S = 5.0  # a journal behind a URL is sent
LARGEST = 1 << 30  # bytes of a journal


class Place(Protocol):
    """``write`` raises InputError where a text cannot be written; a journal that cannot be is no error."""

    def exists(self, name: str) -> bool: ...

    def write(self, name: str, text: str) -> None: ...

    def rows(self) -> list[Any]: ...

    def note(self, row: dict[str, Any]) -> None: ...

    def settle(self, rows: Iterable[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


def open_place(folder: Path, journal: str) -> Place:
    """Raises InputError where nothing can be written."""
    url = url_of(folder)
    return LocalPlace(local_path(folder), journal) if url is None else RemotePlace(url, journal)


class LocalPlace:
    def __init__(self, folder: Path, journal: str) -> None:
        self.folder, self.journal = folder, folder / journal
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"--out {folder} cannot be written to: {error.strerror or error}") from error

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, "utf-8", errors="backslashreplace", newline="\n")
            os.replace(partial, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from error

    def rows(self) -> list[Any]:
        with contextlib.suppress(OSError):
            return parse_rows(self.journal.read_text("utf-8", errors="replace"))
        return []

    def note(self, row: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), self.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def settle(self, rows: Iterable[dict[str, Any]]) -> None:
        """These rows instead of all that was noted."""
        with contextlib.suppress(InputError):
            self.write(self.journal.name, written(rows))

    def close(self) -> None:
        """Nothing waits."""


class RemotePlace:
    def __init__(self, url: str, journal: str) -> None:
        self.url = url.rstrip("/")
        self.journal = f"{self.url}/{journal}"
        self._said = (read_bytes(self.journal, LARGEST) or b"").decode("utf-8", errors="replace")
        if self._said and not self._said.endswith("\n"):
            self._said += "\n"
        self._sent = time.monotonic()
        write_bytes(self.journal, self._said.encode())  # at once: who may not write should know before the work

    def exists(self, name: str) -> bool:
        return version(f"{self.url}/{name}") is not None

    def write(self, name: str, text: str) -> None:
        write_bytes(f"{self.url}/{name}", text.encode("utf-8", errors="backslashreplace"))

    def rows(self) -> list[Any]:
        return parse_rows(self._said)

    def note(self, row: dict[str, Any]) -> None:
        self._said += json.dumps(row) + "\n"
        if time.monotonic() - self._sent > EVERY_S:
            self.close()

    def settle(self, rows: Iterable[dict[str, Any]]) -> None:
        self._said = written(rows)

    def close(self) -> None:
        with contextlib.suppress(InputError):
            write_bytes(self.journal, self._said.encode())
        self._sent = time.monotonic()


def written(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parse_rows(text: str) -> list[Any]:
    """Those that are whole; a line that was cut off is none."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found
