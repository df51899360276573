"""Opening a bundle: find it, distrust it, check it, and hand out what it holds."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import importlib.resources
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from voiceseq import __version__, remote
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
    FileEntry,
    Store,
    check_file,
    chunks,
    has,
    is_weights,
    open_store,
    seal,
    unpack,
    unsafe,
)
from voiceseq.errors import BundleError, InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MAX_MANIFEST = 16 << 20  # bytes of bundle.json

Module = TypeVar("Module", bound="nn.Module")
Config = TypeVar("Config")


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. Settings are plain JSON; ``weights``, ``vocabularies`` and ``card`` are read when asked for."""

    path: Path
    kind: str
    name: str | None
    config: dict[str, Any]
    front_end: dict[str, Any] | None
    decoding: dict[str, Any]
    metrics: dict[str, Any]
    training: dict[str, Any]  # "data": the corpora with their licences; the rest is free
    licence: str | None
    extra: dict[str, Any]
    storage: dict[str, Any]  # how the weights are stored: their dtype, and which names share one tensor
    voiceseq_version: str
    format_version: int
    files: dict[str, FileEntry]
    store: Store = dataclasses.field(repr=False, compare=False)

    def read(self, name: str) -> bytes:
        """The bytes of a listed file, checked once more. Raises BundleError."""
        if name not in self.files:
            raise BundleError(f"{self.path} holds no file {name!r}; it holds {', '.join(self.files)}")
        data = b"".join(chunks(self.store, name, self.files[name].size))
        if hashlib.sha256(data).hexdigest() != self.files[name].sha256:
            raise BundleError(f"{self.path}: {name} changed after the bundle was opened: open it again")
        return data

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The tensors by name, in the dtype in which they are stored (those of 8 bits in float32)."""
        return self.read_weights()

    @cached_property
    def vocabularies(self) -> dict[str, Any]:
        """What was given to ``save_bundle`` as ``vocabularies``, by name."""
        names = [name for name in self.files if name.startswith(VOCABULARIES)]
        values = [parse(self.read(name), f"{self.path}: {name}") for name in names]
        return {n.removeprefix(VOCABULARIES).removesuffix(".json"): v for n, v in zip(names, values, strict=True)}

    @cached_property
    def card(self) -> str:
        """README.md, or nothing where there is none."""
        return self.read(CARD).decode("utf-8", errors="replace") if CARD in self.files else ""

    @cached_property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name -> (dtype, shape) of every stored tensor, read from the file's header without torch."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name in filter(is_weights, self.files):
            data = self._weight_file(name)
            header = parse(data[8 : 8 + int.from_bytes(data[:8], "little")], f"{self.path}: {name}")
            try:
                found |= {n: (e["dtype"], tuple(e["shape"])) for n, e in header.items() if n != "__metadata__"}
            except (AttributeError, KeyError, TypeError) as error:
                raise BundleError(f"{self.path}: {name} is not a whole safetensors file ({error!r})") from error
        return found

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every weight, those that share the tensor of another included."""
        scales = {name + SCALE for name in self.storage.get("scaled", [])}
        stored = {name: shape for name, (_, shape) in self.tensors.items() if name not in scales}
        try:
            return stored | {name: stored[twin] for name, twin in self.storage.get("tied", {}).items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise BundleError(f"{self.path}: {WEIGHTS} lacks a tensor that another shares ({error!r})") from error

    def _weight_file(self, name: str) -> bytes:
        data = self.read(name)
        try:
            return unpack(data) if name.endswith(PACKED) else data
        except ValueError as error:
            raise BundleError(f"{self.path}: {name} is damaged, {error}: get the bundle again") from error

    def read_weights(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """A fresh copy of the tensors; ``dtype`` converts the floating point ones (``torch.float32`` after float16)."""
        if not any(map(is_weights, self.files)):
            return {}
        import safetensors
        import safetensors.torch

        try:
            tensors: dict[str, Tensor] = {}
            for file in filter(is_weights, self.files):
                tensors |= safetensors.torch.load(self._weight_file(file))
            for name in self.storage.get("scaled", []):
                scale = tensors.pop(name + SCALE)
                tensors[name] = tensors[name] * scale.view(-1, *[1] * (tensors[name].dim() - 1))
            if dtype is not None:
                tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
            return tensors | {name: tensors[twin] for name, twin in self.storage.get("tied", {}).items()}
        except (safetensors.SafetensorError, ValueError, KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise BundleError(f"{self.path}: {WEIGHTS} is not a whole safetensors file ({error})") from error

    def network(self, build: Callable[[Config], Module], cls: type[Config]) -> Module:
        """``build(config)`` with the weights, in eval mode; ``cls`` is the dataclass of the config.

        A stranger's config may ask for more than there is memory, so it is first built where nothing is allocated.
        Raises BundleError where the config is impossible or the weights are not those of its network.
        """
        import torch

        config = self.config_as(cls)
        try:
            with torch.device("meta"), without_chance():
                self.check_fit(build(config))
            return self.fill(build(config))
        except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            raise BundleError(f"{self.path}: the network of its config cannot be built: {error}") from error

    def fill(self, module: Module) -> Module:
        """Copy the weights into ``module`` and return it in eval mode. Raises BundleError where the two do not fit."""
        self.check_fit(module)
        module.load_state_dict(self.weights)
        return module.eval()

    def check_fit(self, module: nn.Module) -> None:
        """Raise BundleError with the names and shapes in which the weights and ``module`` differ."""
        wanted, found = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}, self.shapes
        wrong = [f"{name} is missing" for name in wanted if name not in found]
        wrong += [f"{name} is not the network's" for name in found if name not in wanted]
        both = [name for name in found if name in wanted]
        wrong += [f"{n} has shape {found[n]}, not {wanted[n]}" for n in both if found[n] != wanted[n]]
        if wrong:
            listed = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
            raise BundleError(f"{self.path}: {WEIGHTS} does not fit the {self.kind} network of its config: {listed}")

    def config_as(self, cls: type[Config]) -> Config:
        """The model config as the dataclass ``cls``. Raises BundleError on unknown, missing or impossible settings."""
        return build(cls, self.config, f"{self.path}: config")

    def decoding_as(self, cls: type[Config]) -> Config:
        """The decoding settings as the dataclass ``cls``. Raises BundleError as ``config_as`` does."""
        return build(cls, self.decoding, f"{self.path}: decoding")


@dataclass(frozen=True)
class BundleReport:
    """What ``verify_bundle`` found: file -> its problem, and the files that the bundle does not list."""

    bundle: Bundle
    problems: dict[str, str]
    unlisted: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def without_chance() -> contextlib.AbstractContextManager[Any]:
    """Where it holds, ``normal_`` leaves tensors as they are: on tensors without memory it would import a compiler."""
    import torch
    from torch.overrides import TorchFunctionMode

    class WithoutChance(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.Tensor.normal_, torch.nn.init.normal_):
                return args[0] if args else kwargs["tensor"]
            return func(*args, **(kwargs or {}))

    return WithoutChance()


def load_bundle(name_or_path: str | Path) -> Bundle:
    """Open a shipped bundle by name, or a folder or ``.zip`` by path, and check all of it.

    A bare word is first looked for among the shipped bundles; write ``./word`` for a folder of the same name.
    Raises BundleError when there is none, when it is damaged or foreign, or when a newer voiceseq made it.
    """
    report = verify_bundle(name_or_path)
    for problem in report.problems.values():
        raise BundleError(f"{report.bundle.path}: {problem}")
    return report.bundle


def verify_bundle(name_or_path: str | Path) -> BundleReport:
    """Check every file and name all that is wrong. Raises BundleError when not even ``bundle.json`` can be trusted."""
    store = open_store(locate(name_or_path))
    bundle = from_manifest(store)
    found = {name: check_file(store, name, entry) for name, entry in bundle.files.items()}
    unlisted = sorted(set(store.names()) - {*bundle.files, MANIFEST, SEAL})
    return BundleReport(bundle, {name: problem for name, problem in found.items() if problem}, tuple(unlisted))


def shipped_bundles() -> dict[str, Path]:
    """Name -> path of the bundles inside the installed package."""
    try:
        folder = Path(str(importlib.resources.files("voiceseq.data"))) / "bundles"
    except ModuleNotFoundError:  # a source tree that is not installed
        return {}
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {p.name.removesuffix(".zip"): p for p in found if p.suffix == ".zip" or (p / MANIFEST).is_file()}


def locate(name_or_path: str | Path) -> Path:
    """The path of a shipped name, of a path that exists, or of what a run of this name left in ``runs/``.

    Raises BundleError with the nearest names.
    """
    shipped = shipped_bundles()
    if isinstance(name_or_path, str) and name_or_path in shipped:
        return shipped[name_or_path]
    name = str(name_or_path)
    try:
        if url := remote.url_of(name_or_path):
            return remote.hold(url).path  # for as long as the process lives: files are read when they are asked for
        path = remote.local_path(name_or_path).expanduser()
        if name and path.exists():
            return path.resolve()
        if trained := newest_run(name):
            return trained
    except InputError as error:
        raise BundleError(str(error)) from error
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have
        raise BundleError(f"no bundle can be called {name[:80]!r} ({error})") from error
    raise BundleError(missing(name, path, list(shipped)))


def newest_run(name: str) -> Path | None:
    """The bundle of the newest finished ``runs/NAME/TIME`` below the working folder, for a name that is no path."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        return None
    found = sorted(Path("runs", name).glob(f"*/bundle/{MANIFEST}"))
    return found[-1].parent.resolve() if found else None


def missing(name: str, path: Path, shipped: list[str]) -> str:
    aside = [p for p in path.parent.glob(".*.previous") if p.name.startswith(f".{path.name}.")]
    if aside:
        return f"no bundle at {name!r}, but an interrupted save kept the one before: rename {aside[-1]} back to it"
    if "/" in name or "\\" in name or name.endswith(".zip"):
        return f"no bundle at {name!r}: there is no such file or folder; check the path"
    near = difflib.get_close_matches(name, shipped, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(shipped) or "none in this installation"
    return f"no bundle {name!r}: neither shipped with voiceseq nor a path{guess} (shipped: {listed})"


def from_manifest(store: Store) -> Bundle:
    """Read ``bundle.json``, check its seal and its version, and lay the settings out."""
    raw = b"".join(chunks(store, MANIFEST, MAX_MANIFEST))
    manifest = parse(raw, f"{store.path}: {MANIFEST}")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError(f"{store.path} is not a bundle: its {MANIFEST} does not say format {FORMAT!r}")
    check_version(manifest, store.path)
    if not has(store, SEAL) or b"".join(chunks(store, SEAL, 1024)) != seal(raw):
        raise BundleError(f"{store.path}: {MANIFEST} does not match {SEAL}; it is damaged or edited: get it again")
    try:
        settings = {f.name: manifest[f.name] for f in dataclasses.fields(Bundle) if f.name in manifest}
        settings["files"] = {n: FileEntry(str(e["sha256"]), int(e["size"])) for n, e in manifest["files"].items()}
        bundle = Bundle(path=store.path, store=store, **settings)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{store.path}: {MANIFEST} lacks or garbles a setting ({error!r})") from error
    check_types(bundle)
    return bundle


def check_version(manifest: Mapping[str, Any], path: Path) -> None:
    version = manifest.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise BundleError(f"{path}: {MANIFEST} says format version {version!r}; 1 to {FORMAT_VERSION} was wanted")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{path} was made by voiceseq {manifest.get('voiceseq_version', '?')} in bundle format {version}; "
            f"this is voiceseq {__version__}, which reads format {FORMAT_VERSION}: update with pip install -U voiceseq"
        )


def check_types(bundle: Bundle) -> None:
    """A stranger's manifest may hold anything: settle names and types here, so that nothing later stumbles."""
    wanted = {"kind": str, "config": dict, "decoding": dict, "metrics": dict, "training": dict}
    wanted |= {"extra": dict, "storage": dict, "voiceseq_version": str}
    for name, kind in wanted.items():
        if not isinstance(getattr(bundle, name), kind):
            raise BundleError(f"{bundle.path}: {MANIFEST} says {name} = {getattr(bundle, name)!r}; {kind} was wanted")
    for name in bundle.files:
        if reason := unsafe(name):
            raise BundleError(f"{bundle.path}: {MANIFEST} lists {name!r}, {reason}; do not trust this bundle")


def parse(raw: bytes, name: str) -> Any:
    """JSON, with a BundleError that names the file."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{name} is not valid JSON ({error}); it is damaged: get the bundle again") from error


def build(cls: type[Config], settings: Any, name: str) -> Config:
    """A dataclass from plain JSON: lists become tuples where the field is one, nested settings their own dataclass."""
    if not isinstance(settings, dict):
        raise BundleError(f"{name} is {settings!r}; settings by name were wanted")
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
    wrong = [f"unknown {key!r}" for key in settings.keys() - {f.name for f in fields}]
    wrong += [f"missing {key!r}" for key in required - settings.keys()]
    if wrong:
        raise BundleError(f"{name} does not describe a {cls.__name__}: {', '.join(sorted(wrong))}; update voiceseq?")
    hints = typing.get_type_hints(cls)
    values = {key: revive(hints[key], value, f"{name}.{key}") for key, value in settings.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{name} does not describe a {cls.__name__}: {error}") from error


def revive(hint: Any, value: Any, name: str) -> Any:
    """A JSON value as the type ``hint`` of a field. Raises BundleError where it is of another type.

    Known: plain types (a whole number may stand for a float, nothing stands for a bool), dataclasses, ``Any``,
    ``Literal``, unions of them, and tuple, list and dict of them.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value, name)
    if origin in (typing.Union, types.UnionType):
        return revive_any(hint, value, name)
    if origin is tuple and isinstance(value, list):
        items = inner[:1] * len(value) if inner[1:] == (...,) else inner
        if len(items) == len(value):
            return tuple(revive(h, v, f"{name}[{i}]") for i, (h, v) in enumerate(zip(items, value, strict=True)))
    if origin is list and isinstance(value, list):
        return [revive(inner[0], item, f"{name}[{i}]") for i, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: revive(inner[1], item, f"{name}.{key}") for key, item in value.items()}
    plain = hint is Any or type(value) is hint or (hint is float and type(value) is int)
    if plain or (origin is typing.Literal and value in inner):
        return value
    raise BundleError(f"{name} is {value!r}; {hint.__name__ if isinstance(hint, type) else hint} was wanted")


def revive_any(hint: Any, value: Any, name: str) -> Any:
    """The value as the first type of a union that it fits; settings by name are for its dataclass, if it has one."""
    for kind in typing.get_args(hint):
        if dataclasses.is_dataclass(kind) and isinstance(value, dict):
            return build(typing.cast("type[Any]", kind), value, name)
        with contextlib.suppress(BundleError):
            return revive(kind, value, name)
    raise BundleError(f"{name} is {value!r}; {hint} was wanted")
