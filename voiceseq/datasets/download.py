"""Public corpora by name: fetched piece by piece, checked by hash, unpacked without trust.

An archive is fetched to ``NAME.part``, which a second run continues; it gets its own name only once its hash is right.
It is unpacked to a folder aside and moved in place at the end; then a receipt ``.NAME.received.json`` (url, hash,
licence) takes the archive's place, so that the next run has nothing to do.
"""

import contextlib
import errno
import hashlib
import http.client
import json
import lzma
import os
import re
import secrets
import shutil
import ssl
import stat
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from voiceseq.errors import InputError

CHUNK = 1 << 18
TRIES = 5  # in a row without a single new byte
MOST_MEMBERS = 5_000_000
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)
HASHES = {"md5": 32, "sha256": 64}

Progress = Callable[[str, int, int | None], None]  # what, bytes so far, bytes in all where they are known


@dataclass(frozen=True)
class Source:
    """An archive: where it is, its hash as ``sha256:HEX`` or ``md5:HEX`` (None: not published), licence and layout."""

    url: str
    checksum: str | None
    licence: str
    kind: str


def _openslr(number: int, names: dict[str, str | None], kind: str) -> dict[str, Source]:
    base = f"https://www.openslr.org/resources/{number}"
    return {n: Source(f"{base}/{n}.tar.gz", checksum, "CC BY 4.0", kind) for n, checksum in names.items()}


# The sha256 of LibriSpeech's parts are those that torchaudio checks; OpenSLR itself publishes md5 for 12 and 31.
SOURCES: dict[str, Source] = {
    **_openslr(
        12,
        {
            "dev-clean": "sha256:76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
            "dev-other": "sha256:12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
            "test-clean": "sha256:39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
            "test-other": "sha256:d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
            "train-clean-100": "sha256:d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
            "train-clean-360": "sha256:146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
            "train-other-500": "sha256:ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
        },
        "librispeech",
    ),
    **_openslr(
        31,
        {
            "train-clean-5": "md5:5df7d4e78065366204ca6845bb08f490",
            "dev-clean-2": "md5:6d7ab67ac6a1d2c993d050e16d61080d",
        },
        "librispeech",
    ),
    **_openslr(101, {"speechocean762": None}, "kaldi"),
}


def obtain(source: Source, folder: Path, checksum: str | None = None, progress: Progress | None = None) -> bool:
    """Have the archive's contents in ``folder``; False where an earlier run had brought them.

    ``checksum`` goes before the one of the table. Raises ``InputError`` where there is none, where the network, the
    disk or the archive fails, and where the hash is wrong.
    """
    wanted = checksum or source.checksum
    name = archive_name(source.url)
    if wanted is None:
        raise InputError(
            f"no checksum of {name} is published; give the one that you trust with --sha256 or --checksums"
        )
    receipt = folder / f".{name}.received.json"
    if _received(receipt) == parse_checksum(wanted):
        return False
    show = progress or (lambda what, done, total: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        archive = fetch(source.url, folder / name, wanted, show)
        unpack(archive, folder, show)
        note = {"url": source.url, "checksum": ":".join(parse_checksum(wanted)), "licence": source.licence}
        receipt.write_text(json.dumps(note) + "\n", encoding="utf-8")
        archive.unlink()
    except OSError as error:
        raise InputError(_disk_fault(error, folder)) from error
    return True


def archive_name(url: str) -> str:
    """The file name at the end of an http(s) address."""
    parts = urllib.parse.urlsplit(url)
    name = PurePosixPath(urllib.parse.unquote(parts.path)).name
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[\w][\w.+-]*", name):
        raise InputError(f"{url!r} cannot be downloaded; an http or https address of an archive was wanted")
    return name


def parse_checksum(text: str) -> tuple[str, str]:
    """``sha256:HEX``, ``md5:HEX`` or the bare hex digits -> (kind, hex)."""
    kind, _, digits = text.strip().lower().rpartition(":")
    kind = kind or next((name for name, length in HASHES.items() if length == len(digits)), "")
    if len(digits) != HASHES.get(kind) or not re.fullmatch(r"[0-9a-f]+", digits):
        raise InputError(f"{text!r} is no checksum; 64 hex digits (sha256) or 32 (md5) were wanted")
    return kind, digits


def listed_checksum(table: Path, name: str) -> str:
    """The checksum of ``name`` in a file as md5sum and sha256sum write it: a line ``HEX  NAME`` each."""
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the checksums {table} cannot be read ({error}); give a file as sha256sum writes it"
        ) from error
    for line in lines:
        digits, _, file = line.strip().partition(" ")
        if PurePosixPath(file.strip().lstrip("*")).name == name:
            return ":".join(parse_checksum(digits))
    raise InputError(f"the checksums {table} have no line for {name}")


# --- fetching --------------------------------------------------------------------------------------------------------


def fetch(url: str, target: Path, checksum: str, progress: Progress) -> Path:
    """The file at ``url`` as ``target``, its hash checked; what is there of an earlier try is continued."""
    kind, digits = parse_checksum(checksum)
    part = target.with_name(f"{target.name}.part")
    if not (target.exists() and file_hash(target, kind) == digits):
        _fetch_all(url, part, progress)
        found = file_hash(part, kind)
        if found != digits:
            part.unlink()
            raise InputError(
                f"{url} is not what was wanted: its {kind} is {found}, not {digits}. Nothing was kept; run again, and "
                "if it stays so, the file at that address has changed"
            )
        os.replace(part, target)
    return target


def file_hash(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch_all(url: str, part: Path, progress: Progress) -> None:
    """Ask for the rest until it is all there; a connection that breaks is tried again as long as bytes come."""
    failures, best = 0, 0
    while True:
        have = part.stat().st_size if part.exists() else 0
        best = max(best, have)
        try:
            if _fetch_some(url, part, have, progress):
                return
            reason = "the connection ended early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (408, 429, 500, 502, 503, 504):
                raise InputError(f"{url} cannot be downloaded: the server says {error.code} {error.reason}") from error
            reason = f"the server says {error.code}"
        except NETWORK_ERRORS as error:
            reason = str(getattr(error, "reason", error) or type(error).__name__)
        grown = part.exists() and part.stat().st_size > best
        failures = 0 if grown else failures + 1
        if failures >= TRIES:
            raise InputError(
                f"{url} cannot be downloaded ({reason}); look at the network and run again: what came is kept"
            )
        time.sleep(pause(failures))


def pause(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(2**failures, 30)) / 4


def _fetch_some(url: str, part: Path, have: int, progress: Progress) -> bool:
    """Append what the server sends from byte ``have`` on; True when the file is complete."""
    headers = {"User-Agent": "voiceseq", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        error.close()
        if error.headers.get("Content-Range", "").strip() == f"bytes */{have}":
            return True  # all of it was there already
        part.unlink()  # longer than the file at the address: of another one
        return False
    with response:
        return _receive(response, part, have, progress)


def _receive(response: http.client.HTTPResponse, part: Path, have: int, progress: Progress) -> bool:
    start, total = _extent(response)
    if start != have:  # the server does not continue: from the beginning
        have = 0
    if total is not None and total - have > shutil.disk_usage(part.parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with part.open("r+b" if have else "wb") as out:
        out.seek(have)
        while chunk := response.read(CHUNK):
            out.write(chunk)
            have += len(chunk)
            progress(part.name.removesuffix(".part"), have, total)
    return total is None or have == total


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """The first byte that comes, and the size of the whole where the server tells it."""
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
        if found:
            return int(found[1]), None if found[2] == "*" else int(found[2])
        raise http.client.HTTPException("a part came without saying which")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _received(receipt: Path) -> tuple[str, str] | None:
    try:
        return parse_checksum(json.loads(receipt.read_text(encoding="utf-8"))["checksum"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _disk_fault(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"no space is left for the download in {folder}; make room and run again: what came is kept"
    return f"the download cannot be stored in {folder} ({error}); check the folder and run again"


# --- unpacking -------------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path, progress: Progress | None = None, most_bytes: int | None = None) -> None:
    """The files of a tar or zip into ``folder``, all or none of a bad archive.

    Refused with ``InputError``: absolute names and "..", links and devices, encrypted members, more than
    ``most_bytes`` (20 times the archive and a gigabyte) or more members than any corpus has.
    """
    limit = 20 * archive.stat().st_size + (1 << 30) if most_bytes is None else most_bytes
    staged = folder / f".{archive.name}.{secrets.token_hex(4)}.unpacking"
    staged.mkdir()
    try:
        done = 0
        with _members(archive, staged) as members:
            for number, (name, size, extract) in enumerate(members, 1):
                done += size
                if done > limit or number > MOST_MEMBERS:
                    raise InputError(
                        f"{archive.name} holds more than {limit} bytes or {MOST_MEMBERS} files: not unpacked"
                    )
                if size > shutil.disk_usage(staged).free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                extract()
                if progress is not None:
                    progress(f"unpacking {archive.name}: {PurePosixPath(name).name}", done, None)
        _move_in(staged, folder)
    except UNPACKING_ERRORS as error:
        raise InputError(f"{archive} cannot be unpacked ({error}); give a tar or zip archive that is whole") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


UNPACKING_ERRORS = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError
)  # fmt: skip
Member = tuple[str, int, Callable[[], None]]


@contextlib.contextmanager
def _members(archive: Path, folder: Path) -> Iterator[Iterator[Member]]:
    with archive.open("rb") as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                yield _zip_members(zipped, folder)
        else:
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r|*") as tar:
                yield _tar_members(tar, folder)


def _tar_members(tar: tarfile.TarFile, folder: Path) -> Iterator[Member]:
    for member in tar:
        _check_name(member.name)
        if not (member.isfile() or member.isdir()):
            raise InputError(f"the archive holds {member.name!r}, a link or device: not unpacked")
        yield member.name, member.size, lambda member=member: tar.extract(member, folder, filter="data")  # type: ignore[misc]


def _zip_members(zipped: zipfile.ZipFile, folder: Path) -> Iterator[Member]:
    for info in zipped.infolist():
        _check_name(info.filename)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"the archive holds {info.filename!r}, a link or device: not unpacked")
        if info.flag_bits & 1:
            raise InputError(f"the archive's {info.filename!r} is encrypted: not unpacked")
        yield info.filename, info.file_size, lambda info=info: _extract_zipped(zipped, info, folder)  # type: ignore[misc]


def _extract_zipped(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / info.filename
    if info.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipped.open(info) as source, target.open("wb") as out:
        _copy(source, out)


def _copy(source: IO[bytes], out: BinaryIO) -> None:
    shutil.copyfileobj(source, out, CHUNK)


def _check_name(name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or re.match(r"[A-Za-z]:", name):
        raise InputError(f"the archive holds {name!r}, which leads out of its folder: not unpacked")


def _move_in(staged: Path, folder: Path) -> None:
    """Put everything of ``staged`` into ``folder``; folders that are there already are joined."""
    for entry in sorted(staged.iterdir()):
        target = folder / entry.name
        if entry.is_dir() and target.is_dir():
            _move_in(entry, target)
        else:
            os.replace(entry, target)
