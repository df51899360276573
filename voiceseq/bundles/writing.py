"""Making a bundle: gather the parts, write them under a temporary name, check them, and swap them in at the end."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from voiceseq import __version__
from voiceseq.bundles.reading import load_bundle, verify_bundle
from voiceseq.bundles.stores import (
    CARD,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PACKED,
    SCALE,
    SEAL,
    VOCABULARIES,
    WEIGHTS,
    is_weights,
    pack,
    seal,
    unsafe,
)
from voiceseq.errors import BundleError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Opener = Callable[[], BinaryIO]

LEVELS = 90  # on each side of zero: packed, half a bit a weight less than all of a byte
LARGEST_FILE = 19_500_000  # bytes of tensors in one file; hosts of repositories dislike larger ones
STALE_S = 3600.0  # a temporary name older than this was left behind by a process that was killed


def save_bundle(
    path: str | Path,
    *,
    kind: str,
    name: str | None = None,
    config: Any,
    weights: Mapping[str, Tensor] | None = None,
    vocabularies: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes | Path] | None = None,
    card: str | None = None,
    front_end: Any = None,
    decoding: Any = None,
    metrics: Mapping[str, Any] | None = None,
    training: Any = None,
    licence: str | None = None,
    extra: Any = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a bundle to the folder ``path``, or to one file where it ends in ``.zip``; return the path.

    Settings are plain JSON or dataclasses of it. ``weights`` is a ``state_dict()``; names that share a tensor are
    stored once; ``dtype`` (say ``torch.float16``) is how floating point tensors are stored; ``torch.int8`` stores
    matrices in a byte a number, with one scale a row, and vectors in float16, all of it packed. ``files`` are further
    files by their name in the bundle. ``metrics`` that are not finite become null. ``training`` says how the model
    came to be: ``data`` is a list of ``{"name", "licence", "source"}``, the rest is free. A bundle that is already
    there is replaced at the very end, in one step where the system can.
    Raises BundleError when a setting is not JSON, when ``path`` holds anything but a bundle, or cannot be written.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind):
        raise BundleError(
            f"a bundle cannot be of kind {kind!r}; small letters and hyphens were wanted, 'language-model'"
        )
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in (metrics or {}).items()}
    settings = {"kind": kind, "name": name, "config": config, "front_end": front_end, "decoding": decoding or {}}
    settings |= {"metrics": finite, "training": training or {}, "licence": licence, "extra": extra or {}}
    manifest = {key: plain(value, key) for key, value in settings.items()}
    parts: dict[str, Opener] = {}
    manifest["storage"] = {}
    if weights is not None:
        packed, manifest["storage"] = pack_weights(weights, dtype)
        parts |= {file: partial(io.BytesIO, data) for file, data in packed.items()}
    for key, value in (vocabularies or {}).items():
        parts[f"{VOCABULARIES}{key}.json"] = partial(io.BytesIO, dump(plain(value, f"vocabularies.{key}")))
    for key, source in (files or {}).items():
        if key in (CARD, MANIFEST, SEAL) or is_weights(key) or key.startswith(VOCABULARIES):
            raise BundleError(f"a further file cannot be called {key!r}, which the format keeps: choose another name")
        parts[key] = partial(io.BytesIO, source) if isinstance(source, bytes) else partial(io.FileIO, source)
    parts[CARD] = partial(io.BytesIO, (card if card is not None else write_card(manifest)).encode("utf-8", "replace"))
    return replace(Path(path), parts | contents(manifest, parts))


def export_bundle(name_or_path: str | Path, target: str | Path) -> Path:
    """Copy a bundle, checked, to another folder or ``.zip``, byte for byte. Raises BundleError."""
    bundle = load_bundle(name_or_path)
    return replace(Path(target), {n: partial(bundle.store.open, n) for n in (*bundle.files, MANIFEST, SEAL)})


def change_decoding(name_or_path: str | Path, decoding: Any) -> Path:
    """Give a bundle other settings of its ``decoding``; all its files stay as they are. Raises BundleError."""
    bundle = load_bundle(name_or_path)
    settings = ("kind", "name", "config", "front_end", "decoding", "metrics", "training", "licence", "extra", "storage")
    manifest = {key: getattr(bundle, key) for key in settings} | {"decoding": plain(decoding, "decoding")}
    parts: dict[str, Opener] = {name: partial(bundle.store.open, name) for name in bundle.files}
    return replace(bundle.path, parts | contents(manifest, parts))


# --- the parts -------------------------------------------------------------------------------------------------------


def plain(value: Any, name: str) -> Any:
    """``value`` as JSON holds it: dataclasses become dicts, tuples lists. Raises BundleError where JSON would lie."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise BundleError(f"{name} has the key {wrong[0]!r}; a bundle keeps text as keys: write {str(wrong[0])!r}")
        return {key: plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise BundleError(f"{name} is {value}, which JSON cannot hold; leave it out or give None")
    if type(value) in (str, int, float, bool, type(None)):
        return value
    raise BundleError(f"{name} is {value!r} of {type(value)}; a bundle keeps text, numbers, lists and dicts")


def dump(value: Any) -> bytes:
    try:
        return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's settings cannot be written as JSON ({error})") from error


def pack_weights(weights: Mapping[str, Tensor], dtype: torch.dtype | None) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The safetensors files by name, and the note of how they were stored."""
    import safetensors
    import safetensors.torch
    import torch

    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    scaled: list[str] = []
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in weights.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_meta:
            raise BundleError(f"the weight {name} cannot be stored: {type(tensor)} came, a dense tensor was wanted")
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and place in seen:
            tied[name] = seen[place]
            continue
        seen[place] = name
        if dtype == torch.int8 and tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel():
            tensors[name], tensors[name + SCALE] = whole_numbers(tensor.detach().cpu(), name)
            scaled.append(name)
        else:
            tensors[name] = convert(tensor.detach().cpu(), torch.float16 if dtype == torch.int8 else dtype, name)
    try:
        data = [safetensors.torch.save(group) for group in groups(tensors)]
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise BundleError(f"the weights cannot be stored as safetensors ({error})") from error
    storage: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch.") if dtype else None, "tied": tied}
    files = {WEIGHTS if not place else f"weights-{place}.safetensors": part for place, part in enumerate(data)}
    if scaled:
        files, storage["scaled"] = {name + PACKED: pack(part) for name, part in files.items()}, scaled
    return files, storage


def groups(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The tensors in their order, a new group where ``LARGEST_FILE`` is full; at least one group."""
    found: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if found[-1] and size + tensor.nbytes > LARGEST_FILE:
            found.append({})
            size = 0
        found[-1][name] = tensor
        size += tensor.nbytes
    return found


def whole_numbers(tensor: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Whole numbers from -LEVELS to LEVELS and the scale of each row (of the first axis)."""
    import torch

    rows = tensor.float().flatten(1)
    if not bool(rows.isfinite().all()):
        raise BundleError(
            f"the weight {name} holds NaN or infinity, which whole numbers cannot: did its training diverge?"
        )
    scale = rows.abs().amax(1).clamp(min=1e-30) / LEVELS
    return (rows / scale[:, None]).round().to(torch.int8).view(tensor.shape), scale


def convert(tensor: Tensor, dtype: torch.dtype | None, name: str) -> Tensor:
    if dtype is None or not tensor.is_floating_point():
        return tensor.contiguous().clone()
    stored = tensor.to(dtype)
    if bool((stored.isinf() & tensor.isfinite()).any()):
        raise BundleError(
            f"the weight {name} reaches {float(tensor.abs().max()):.3g}, too large for {dtype}: keep float32"
        )
    return stored.contiguous().clone()


def write_card(manifest: Mapping[str, Any]) -> str:
    """A card of what the manifest knows, where none was given."""
    rows = [r if isinstance(r, dict) else {"name": r} for r in manifest["training"].get("data", [])]
    data = [f"- {', '.join(f'{key}: {value}' for key, value in row.items())}" for row in rows]
    scores = [f"| {name} | {value} |" for name, value in manifest["metrics"].items()]
    lines = [f"# {manifest['name'] or manifest['kind']}", "", f"A {manifest['kind']} for voiceseq.", ""]
    lines += ["Open it with `voiceseq.load(PATH)`; see what it holds with `voiceseq bundle show PATH`.", ""]
    lines += ["## Metrics", "", "| metric | value |", "|---|---|", *scores, ""] if scores else []
    lines += ["## Training data", "", *data, ""] if data else []
    lines += [f"Licence: {manifest['licence'] or 'not stated'}. Made by voiceseq {__version__}.", ""]
    return "\n".join(lines)


def contents(manifest: Mapping[str, Any], parts: Mapping[str, Opener]) -> dict[str, Opener]:
    """``bundle.json`` with the table of contents, and its seal."""
    entries = {}
    for name, source in parts.items():
        if fault := unsafe(name):
            raise BundleError(f"a bundle cannot hold {name!r}, {fault}: choose another name")
        try:
            with source() as file:
                entries[name] = measure(file)
        except OSError as error:
            raise BundleError(f"the file for {name} cannot be read ({error}); check the path") from error
    version = FORMAT_VERSION if any(name.endswith(PACKED) and is_weights(name) for name in parts) else 1
    head = {"format": FORMAT, "format_version": version, "voiceseq_version": __version__}
    raw = dump({**head, **manifest, "files": entries})
    return {MANIFEST: partial(io.BytesIO, raw), SEAL: partial(io.BytesIO, seal(raw))}


def measure(file: BinaryIO) -> dict[str, str | int]:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(1 << 20):
        digest.update(chunk)
        size += len(chunk)
    return {"sha256": digest.hexdigest(), "size": size}


# --- the writing -----------------------------------------------------------------------------------------------------


def replace(path: Path, parts: Mapping[str, Opener]) -> Path:
    """Write beside ``path``, check what was written, and put it in its place; on any failure ``path`` is as before."""
    path = path.expanduser().resolve()
    check_replaceable(path)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        (write_zip if path.suffix == ".zip" else write_folder)(staged, parts)
        load_bundle(staged)
        swap(staged, path)
        sync_folder(path.parent)
    except OSError as error:
        raise BundleError(
            f"the bundle {path} cannot be written: {reason(error)}; {free_space(path)}, "
            "and nothing was changed: make room or choose another folder"
        ) from error
    finally:
        remove(staged)
    return path


def check_replaceable(path: Path) -> None:
    """Refuse to write over anything but nothing, an empty folder, or a bundle and only that."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    try:
        report = verify_bundle(path)
    except BundleError as error:
        raise BundleError(
            f"{path} exists and will not be written over: {error}. Delete it or choose another"
        ) from error
    if report.unlisted:
        raise BundleError(
            f"{path} holds more than its bundle ({', '.join(report.unlisted[:3])}), which a new one would delete: "
            "move it away or choose another path"
        )


def write_folder(folder: Path, parts: Mapping[str, Opener]) -> None:
    folder.mkdir()
    for name, source in parts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with synced(target) as out, source() as file:
            shutil.copyfileobj(file, out)
    for inner in (*folder.rglob("*/"), folder):
        sync_folder(inner)


def write_zip(target: Path, parts: Mapping[str, Opener]) -> None:
    """The same bytes for the same parts: fixed dates, given order. Weights do not pack, so they are stored."""
    with synced(target) as out, zipfile.ZipFile(out, "w") as archive:
        for name, source in parts.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if is_weights(name) else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as member, source() as file:
                shutil.copyfileobj(file, member)


@contextlib.contextmanager
def synced(path: Path) -> Iterator[BinaryIO]:
    with path.open("xb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())


def sync_folder(folder: Path) -> None:
    """Make names in ``folder`` durable, where the system can open a folder at all."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def swap(staged: Path, path: Path) -> None:
    """Put ``staged`` at ``path``; what was there is at ``staged`` afterwards, or gone where it was a file."""
    if staged.is_file():
        os.replace(staged, path)
        return
    try:
        os.rename(staged, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not exchange(staged, path):
            exchange_in_steps(staged, path)


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, so that a kill at any moment leaves a whole bundle: Linux' renameat2."""
    at_cwd, rename_exchange = -100, 2
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(call(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), rename_exchange) == 0)


def exchange_in_steps(staged: Path, path: Path) -> None:
    """The same where the system has no such call; a kill in between leaves the old bundle as ``.NAME.*.previous``."""
    aside = staged.with_suffix(".previous")
    os.rename(path, aside)
    try:
        os.rename(staged, path)
    except OSError:
        os.rename(aside, path)
        raise
    os.rename(aside, staged)


def sweep(path: Path) -> None:
    """Remove what killed saves of the same bundle left behind."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.partial")
    for left in path.parent.iterdir():
        if pattern.fullmatch(left.name) and time.time() - left.stat().st_mtime > STALE_S:
            remove(left)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def reason(error: OSError) -> str:
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


def free_space(path: Path) -> str:
    folder = next((p for p in path.parents if p.exists()), Path("/"))
    try:
        return f"{shutil.disk_usage(folder).free / 1e6:.0f} MB are free in {folder}"
    except OSError:
        return f"{folder} does not answer"
