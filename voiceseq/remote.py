"""Files that are elsewhere: ``s3://``, ``gs://``, ``https://``, ``http://`` and ``memory://`` through fsspec.

A URL may stand wherever a path may, as text or as a ``Path``: pathlib makes ``https:/host/a`` of ``https://host/a``,
which is read as the URL again (so an address with ``//`` inside its path cannot be named). ``file://`` is the local
file. What is read comes to a temporary file first: bounded in size, in time without a byte and in tries, and kept for
a minute, since the clips of a manifest often share one file. What is written appears whole or not at all, as far as
the store keeps that promise (S3 and Google's do; a web server gets one PUT). fsspec is imported at the first URL.
"""

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from voiceseq.errors import InputError, MissingDependencyError

T = TypeVar("T")
PROTOCOLS = ("s3", "gs", "https", "http", "memory")
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "https": "aiohttp", "http": "aiohttp"}
LARGEST = 4 << 30  # bytes of one file
STALL_S = 30.0  # without a byte
LONGEST_S = 3600.0  # for one file in all
TRIES, PAUSE_S = 3, 0.5
KEPT, KEPT_S = 8, 60.0  # files that nobody reads now, and for how long
CHUNK = 1 << 20
MOST_FILES = 1_000_000  # below one folder
URL = re.compile(rf"({'|'.join(PROTOCOLS)}):/{{1,2}}(?!/)(.+)", re.DOTALL)
FILE = re.compile(r"file:(?://(?:localhost)?)?(/.*)", re.DOTALL)
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# What tells one version of a file from the next, as stores and servers call it.
VERSIONS = ("ETag", "etag", "md5Hash", "Content-MD5", "Last-Modified", "LastModified", "mtime", "created")


def url_of(path: str | Path) -> str | None:
    """The URL that a path is, or None for a local one. Raises InputError for a protocol that is not read."""
    text = path if isinstance(path, str) else path.as_posix()
    if found := URL.fullmatch(text):
        return f"{found[1]}://{found[2]}"
    if isinstance(path, str) and "://" in text and not FILE.fullmatch(text):
        raise InputError(f"{text}: {', '.join(PROTOCOLS)} or file was wanted before ://")
    return None


def local_path(path: str | Path) -> Path:
    """Of a path that is no URL, or a ``file://`` one."""
    found = FILE.fullmatch(path if isinstance(path, str) else path.as_posix())
    return Path(unquote(found[1])) if found else Path(path)


# --- reading ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def local_copy(path: str | Path) -> Iterator[Path]:
    """A local path with the contents: the path itself, or the temporary file of a URL.

    Raises InputError where it cannot be had.
    """
    url = url_of(path)
    if url is None:
        yield local_path(path)
        return
    held = hold(url)
    try:
        yield held.path
    finally:
        held.release()


def read_bytes(url: str, most: int = LARGEST) -> bytes | None:
    """All of a small file, or None where there is none. Raises InputError where it cannot be had."""

    def read() -> bytes:
        with _system(url).open(url, "rb", **_streaming(url)) as file:
            data: bytes = file.read(most + 1)
        if len(data) > most:
            raise InputError(f"{url} is larger than {most:,} bytes")
        return data

    return _tried(url, read)


@dataclass
class Held:
    """A temporary file with what a URL had; ``release`` it. Without a ``url`` it is kept for nobody else."""

    url: str
    path: Path
    users: int = 1
    released: float = 0.0

    def release(self) -> None:
        with _lock:
            self.users -= 1
            self.released = time.monotonic()
        _forget()
        if not self.url:
            self.path.unlink(missing_ok=True)


_lock = threading.Lock()
_held: dict[tuple[int, str], Held] = {}  # by process: a forked one must not delete its parent's
_folder: dict[int, tempfile.TemporaryDirectory[str]] = {}


def hold(url: str) -> Held:
    """The file, fetched now or less than a minute ago. Raises InputError where it cannot be had."""
    key = os.getpid(), url
    with _lock:
        if (known := _held.get(key)) is not None:
            known.users += 1
            return known
        if key[0] not in _folder:
            _folder[key[0]] = tempfile.TemporaryDirectory(prefix="voiceseq-fetched-")
        number, target = tempfile.mkstemp(suffix=_suffix(url), dir=_folder[key[0]].name)
        os.close(number)
    try:
        _fetch(url, Path(target))
    except BaseException:
        Path(target).unlink(missing_ok=True)
        raise
    held = Held(url, Path(target))
    with _lock:
        if key in _held:  # somebody else was as quick
            held.url = ""
        else:
            _held[key] = held
    return held


def _forget() -> None:
    """Delete what nobody reads: the oldest beyond ``KEPT``, and all that waited too long."""
    now = time.monotonic()
    with _lock:
        mine = [(key, one) for key, one in _held.items() if key[0] == os.getpid() and not one.users]
        mine.sort(key=lambda pair: pair[1].released)
        for number, (key, one) in enumerate(mine):
            if number < len(mine) - KEPT or now - one.released > KEPT_S:
                del _held[key]
                one.path.unlink(missing_ok=True)


def _fetch(url: str, target: Path) -> None:
    """Raises InputError: no such file, too large, too slow, no network after some tries."""

    def copy() -> bool:
        with target.open("wb") as file:
            _copy(url, file)
        return True

    if not _tried(url, copy):
        raise InputError(f"{url}: there is no such file")


def _copy(url: str, target: Any) -> None:
    began, copied = time.monotonic(), 0
    system = _system(url)
    size = system.info(url).get("size")
    if size is not None and size > LARGEST:
        raise InputError(f"{url} has {size:,} bytes; at most {LARGEST:,} were wanted")
    known = {"size": size} if size and url.startswith("http") else {}
    with system.open(url, "rb", **_streaming(url), **known) as file:
        while chunk := file.read(CHUNK):
            target.write(chunk)
            copied += len(chunk)
            if copied > LARGEST:
                raise InputError(f"{url} is larger than {LARGEST:,} bytes")
            if time.monotonic() - began > LONGEST_S:
                raise InputError(f"{url} is still not here after {LONGEST_S:g} s")
    if size is not None and copied != size:
        raise _Again(f"{url} broke off: {copied:,} of {size:,} bytes came")


# --- looking ---------------------------------------------------------------------------------------------------------


def version(url: str) -> tuple[int, str] | None:
    """Size in bytes (-1 where it is not said) and a mark that changes with the contents; None where no such file is.

    Raises InputError where nobody answers.
    """
    facts = _tried(url, lambda: _system(url).info(url))
    if facts is None or facts.get("type") == "directory":
        return None
    mark = next((str(facts[key]) for key in VERSIONS if facts.get(key)), "")
    size = facts.get("size")
    return -1 if size is None else int(size), mark


def files_below(url: str) -> list[str]:
    """The URLs of all files in a folder and below, sorted; none where it is no folder. Raises InputError."""
    if url.startswith("http") and not url.endswith("/"):
        return []  # a server's folder ends in a stroke; without one this is a file

    def find() -> list[str]:
        system = _system(url)
        return list(system.find(url)) if system.isdir(url) else []

    found = _tried(url, find) or []
    if len(found) > MOST_FILES:
        raise InputError(f"{url} holds more than {MOST_FILES:,} files: name a folder below it, or a manifest")
    whole = {str(_system(url).unstrip_protocol(one)) for one in found if "?" not in one}
    return sorted(re.sub(r"^(\w+):/+", r"\1://", one) for one in whole)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_bytes(url: str, data: bytes) -> None:
    """Raises InputError where that cannot be done."""

    def write() -> bool:
        _system(url).pipe_file(url, data)
        return True

    if not _tried(url, write):
        raise InputError(f"{url} cannot be written: there is no such place")


@contextlib.contextmanager
def output(path: Path) -> Iterator[Path]:
    """A local path to write to, a file or a folder; for a URL, what is there at the end is sent. Raises InputError."""
    url = url_of(path)
    if url is None:
        yield local_path(path)
        return
    with tempfile.TemporaryDirectory(prefix="voiceseq-output-") as folder:
        target = Path(folder) / (Path(path).name or "output")
        yield target
        for file in sorted(target.rglob("*")) if target.is_dir() else [target]:
            if file.is_file():
                inside = file.relative_to(target).as_posix()
                write_bytes(url.rstrip("/") if inside == "." else f"{url.rstrip('/')}/{inside}", file.read_bytes())


# --- fsspec ----------------------------------------------------------------------------------------------------------


class _Again(Exception):
    """May work the next time."""


def _system(url: str) -> Any:
    protocol = url.partition("://")[0]
    try:
        import fsspec

        options: dict[str, Any] = {}
        if protocol in ("http", "https"):
            import aiohttp

            timeout = aiohttp.ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
            options = {"client_kwargs": {"timeout": timeout}}
        elif protocol == "s3":
            options = {"config_kwargs": {"connect_timeout": STALL_S, "read_timeout": STALL_S}}
        return fsspec.filesystem(protocol, use_listings_cache=False, **options)
    except ImportError as error:
        package = PACKAGES.get(protocol, "fsspec")
        raise MissingDependencyError(f"{protocol}:// needs {package} ({error}): pip install {package}") from error


def _tried(url: str, action: Callable[[], T]) -> T | None:
    """What the action gives, after a few tries where the net fails; None where there is no such file."""
    for tried in range(TRIES):
        try:
            with _told(url):
                return action()
        except FileNotFoundError:
            return None
        except _Again as error:
            if tried + 1 == TRIES:
                raise InputError(str(error)) from error
            time.sleep(PAUSE_S * 2**tried)
    return None


def _streaming(url: str) -> dict[str, Any]:
    """A web server is read from the beginning to the end: many do not know ranges."""
    return {"block_size": 0} if url.startswith("http") else {}


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Errors of any store: what is missing as FileNotFoundError, what may work later as _Again, else InputError."""
    try:
        yield
    except (InputError, _Again, MissingDependencyError):
        raise
    except OSError as error:
        cause = error.__cause__
        if isinstance(error, MISSING) and (cause is None or getattr(cause, "status", 0) in (404, 410)):
            raise FileNotFoundError(url) from error
        if isinstance(error, PermissionError):
            raise InputError(f"{url}: not allowed ({_short(error)}); are the store's credentials set?") from error
        if error.filename is not None:  # the disk here, not the net
            raise InputError(f"{url} cannot be kept here: {error.strerror or error}") from error
        raise _trouble(url, cause or error) from error
    except Exception as error:  # every store has its own
        if getattr(error, "status", 0) in (404, 410):
            raise FileNotFoundError(url) from error
        raise _trouble(url, error) from error


def _trouble(url: str, error: BaseException) -> Exception:
    status = getattr(error, "status", None)
    if status == 501 or (isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)):
        return InputError(f"{url}: refused ({status} {getattr(error, 'message', '')})")
    return _Again(f"{url} cannot be reached ({_short(error)})")


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def _suffix(url: str) -> str:
    name = url.rpartition("/")[2].partition("?")[0]
    return suffix if re.fullmatch(r"\.\w{1,8}", suffix := Path(name).suffix) else ""


def forget_all() -> None:
    """Delete this process's copies."""
    with _lock:
        for key in [key for key in _held if key[0] == os.getpid()]:
            del _held[key]
        if (folder := _folder.pop(os.getpid(), None)) is not None:
            shutil.rmtree(folder.name, ignore_errors=True)
