"""Where a bundle's files lie: a folder or a zip, each read with suspicion."""

import hashlib
import re
import stat
import typing
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from voiceseq.errors import BundleError

FORMAT = "voiceseq-bundle"
FORMAT_VERSION = 2  # 2 knows packed weights; a bundle without them says 1
MANIFEST = "bundle.json"
SEAL = "bundle.json.sha256"
WEIGHTS = "weights.safetensors"  # and weights-1.safetensors, ... where one file would be too large
PACKED = ".gz"  # ends the name of a file of weights in 8 bits
WEIGHT_FILES = re.compile(r"weights(-[1-9][0-9]*)?\.safetensors(\.gz)?")
SCALE = ":scale"  # ends the names of the scales of weights that are stored in 8 bits
VOCABULARIES = "vocabularies/"
CARD = "README.md"

MAX_FILES = 1_000  # of a zip
MAX_RATIO = 200  # unpacked size over packed size of a zip: we store weights unpacked, and text packs to about a tenth

PICKLE_ADVICE = (
    "it looks like a pickled checkpoint, which could run any code, so nothing of it was read; "
    "give the bundle/ folder that `voiceseq train` leaves in its run folder"
)


@dataclass(frozen=True)
class FileEntry:
    """A line of the table of contents."""

    sha256: str
    size: int


class Store(Protocol):
    """The files of one bundle by their names in it."""

    path: Path

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int:
        """Bytes of a file; FileNotFoundError where there is no such regular file."""

    def open(self, name: str) -> BinaryIO: ...

    def hint(self) -> str:
        """How to go on when this store turns out to hold no bundle."""


class Folder:
    """A bundle's files in a folder. Links are followed: the sha256 decides what is right, not the place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        return [p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if not p.is_dir()]

    def size(self, name: str) -> int:
        path = self.path / name
        if not path.is_file():  # a pipe or a device would be read for ever
            raise FileNotFoundError(name)
        return path.stat().st_size

    def open(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb")

    def hint(self) -> str:
        inner = self.path / "bundle"
        return f"did you mean {inner}?" if (inner / MANIFEST).is_file() else "give the folder that holds one"


class Archive:
    """A bundle's files in a zip, at its root or in its only folder; read in place, never unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise BundleError(f"{path} is not a complete zip ({error}); get the bundle again") from error
        if reason := dangerous(infos, path.stat().st_size):
            raise BundleError(f"{path}: {reason}; do not trust this archive")
        members = {info.filename: info.file_size for info in infos if not info.is_dir()}
        tops = [name for name in members if name.count("/") == 1 and name.endswith("/" + MANIFEST)]
        self._top = "" if MANIFEST in members or len(tops) != 1 else tops[0].removesuffix(MANIFEST)
        self._sizes = {n.removeprefix(self._top): size for n, size in members.items() if n.startswith(self._top)}

    def names(self) -> list[str]:
        return list(self._sizes)

    def size(self, name: str) -> int:
        if name not in self._sizes:
            raise FileNotFoundError(name)
        return self._sizes[name]

    def open(self, name: str) -> BinaryIO:
        with zipfile.ZipFile(self.path) as archive:  # the member keeps the file open until it is closed itself
            return typing.cast(BinaryIO, archive.open(self._top + name))

    def hint(self) -> str:
        if any(name.endswith("data.pkl") for name in self._sizes):
            return PICKLE_ADVICE
        return f"it holds {', '.join(list(self._sizes)[:3]) or 'nothing'}"


def open_store(path: Path) -> Store:
    """The folder or zip at ``path``, known to hold a ``bundle.json``. Raises BundleError for all else."""
    if not path.is_dir() and (reason := foreign(path)):
        raise BundleError(f"{path} is not a bundle: {reason}")
    store: Store = Folder(path) if path.is_dir() else Archive(path)
    if not has(store, MANIFEST):
        raise BundleError(f"{path} is not a bundle, it has no {MANIFEST}: {store.hint()}")
    return store


def has(store: Store, name: str) -> bool:
    """Whether there is such a file, without listing a folder that may turn out to be somebody's home."""
    try:
        return store.size(name) >= 0
    except FileNotFoundError:
        return False


def foreign(path: Path) -> str | None:
    """Why a file is certainly no bundle; nothing of it is parsed."""
    if not path.is_file():
        return "a folder or a .zip was wanted"
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError as error:
        return f"it cannot be read ({error.strerror}); check its permissions"
    if head == b"PK":
        return None
    if head[:1] == b"\x80" or path.suffix in {".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin"}:
        return PICKLE_ADVICE
    if path.name in (MANIFEST, SEAL) or is_weights(path.name):
        return f"it is one file of a bundle; give the folder {path.parent}"
    return "a folder or a .zip was wanted"


def dangerous(infos: Sequence[zipfile.ZipInfo], packed: int) -> str | None:
    """Why an archive must not be read: names that leave it, links, too many files, a bomb."""
    if len(infos) > MAX_FILES:
        return f"it holds {len(infos)} files; at most {MAX_FILES} were wanted"
    unpacked = sum(info.file_size for info in infos)
    if unpacked > MAX_RATIO * packed:
        return f"its {packed} bytes unpack to {unpacked}, more than {MAX_RATIO} times as many"
    if len({info.filename for info in infos}) < len(infos):
        return "it holds two files of the same name"
    for info in infos:
        if reason := unsafe(info.orig_filename.removesuffix("/")):
            return f"it holds {info.orig_filename!r}, {reason}"
        if stat.S_ISLNK(info.external_attr >> 16):
            return f"it holds {info.filename!r}, a link"
        if info.flag_bits & 1:
            return f"it holds {info.filename!r}, which is encrypted"
    return None


def is_weights(name: str) -> bool:
    """Whether a file of this name holds tensors."""
    return WEIGHT_FILES.fullmatch(name) is not None


def unsafe(name: str) -> str | None:
    """Why a name may not stand for a file of a bundle, or None."""
    if not name or re.search(r"[\x00-\x1f\x7f\\:]", name):
        return "a name with a character that no bundle uses"
    if name.startswith("/"):
        return "an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "a path that leaves the bundle"
    return None


def chunks(store: Store, name: str, limit: int) -> Iterator[bytes]:
    """The file in pieces, at most ``limit`` bytes and one more by which a longer file shows itself."""
    left = limit + 1
    try:
        with store.open(name) as file:
            while left and (chunk := file.read(min(left, 1 << 20))):
                left -= len(chunk)
                yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise BundleError(f"{store.path}: {name} cannot be read ({error}); get the bundle again") from error


def pack(data: bytes) -> bytes:
    """As gzip does it, by the frequency of each byte alone: nothing repeats in weights."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16, 9, zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


def unpack(data: bytes) -> bytes:
    """What ``pack`` packed, which makes a byte of a bit at best. Raises ValueError for anything else."""
    packer = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = packer.decompress(data, 8 * len(data))
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not packer.eof or packer.unused_data:
        raise ValueError("it is not one whole packed file")
    return found


def check_file(store: Store, name: str, entry: FileEntry) -> str | None:
    """What is wrong with a listed file: missing, of another size, of another content; or None."""
    try:
        size = store.size(name)
        if size != entry.size:
            return f"{name} has {size} bytes, {entry.size} were wanted; it was cut or changed: get the bundle again"
        digest = hashlib.sha256()
        for chunk in chunks(store, name, entry.size):
            digest.update(chunk)
    except FileNotFoundError:
        return f"{name} is missing; get the bundle again"
    except BundleError as error:
        return str(error).removeprefix(f"{store.path}: ")
    if digest.hexdigest() != entry.sha256:
        return f"{name} does not match its sha256; it is damaged: get the bundle again"
    return None


def seal(manifest: bytes) -> bytes:
    """The contents of ``bundle.json.sha256``."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()
