"""From what the user typed to a checked configuration: every mistake is named at once, with the nearest valid name."""

import dataclasses
import difflib
import inspect
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import get_class, get_method
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from voiceseq.errors import ConfigError

CONFIG_MODULE = "voiceseq.conf"


def experiments(own: Path | None = None) -> list[str]:
    """The names that ``experiment=`` takes, with those in the user's ``own`` config folder."""
    folders = [resources.files(CONFIG_MODULE) / "experiment"] + ([own / "experiment"] if own else [])
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def compose_config(overrides: Sequence[str], own: Path | None = None) -> DictConfig:
    """Compose ``conf/train.yaml`` with ``overrides`` and check it; ConfigError names all that is wrong.

    ``own`` is a folder of the user's with further configs (``experiment/NAME.yaml`` and so on).
    """
    if own is not None and not own.is_dir():
        raise ConfigError(f"--config-dir {own} is not a folder; give one with experiment/NAME.yaml in it")
    overrides = [_first_of_sweep(override) for override in overrides]
    names = [override.split("=", 1)[0].lstrip("+~") for override in overrides]
    if "experiment" not in names:
        raise ConfigError(f"which experiment? Add experiment=NAME, one of: {', '.join(experiments(own))}")
    try:
        config = _compose(overrides, own)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides, own)) from error
    check_config(config)
    return config


def _compose(overrides: Sequence[str], own: Path | None) -> DictConfig:
    search = [f"hydra.searchpath=[file://{own.resolve()}]"] if own else []
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        return compose("train", [*overrides, *search])


def _first_of_sweep(override: str) -> str:
    """``a=1,2`` (a sweep) is checked by its first value."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException as error:
        raise ConfigError(f"'{override}' is not an override: write key=value (Hydra: {_first_line(error)})") from error
    if not parsed.is_sweep_override():
        return override
    return f"{parsed.get_key_element()}={next(iter(parsed.sweep_string_iterator()))}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _explain(error: Exception, overrides: Sequence[str], own: Path | None) -> str:
    """Hydra's own first line, and the nearest key or experiment for each override that does not exist."""
    valid = list(_valid_keys(own))
    hints = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key == "experiment" and value not in experiments(own):
            hints.append(f"experiment '{value}' is not there{_nearest(value, experiments(own))}")
        elif key not in valid and not any(name.startswith(f"{key}.") for name in valid):
            hints.append(f"'{key}' is not a known key{_nearest(key, valid)}")
    return "; ".join(hints) if hints else _first_line(error)


def _valid_keys(own: Path | None) -> Iterator[str]:
    """Every dotted key of any experiment, and the names of the config groups."""
    yield from ("experiment", "debug", "hydra")
    for name in experiments(own):
        yield from _dotted(OmegaConf.to_container(_compose([f"experiment={name}"], own), resolve=False))


def _dotted(node: Any, prefix: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{prefix}{key}"
        yield from _dotted(value, f"{prefix}{key}.")


def _nearest(name: str, valid: Sequence[str]) -> str:
    found = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f": did you mean '{found[0]}'?" if found else f"; valid are {', '.join(sorted(set(valid))[:12])} ..."


def check_config(config: DictConfig) -> None:
    """Compare each ``_target_`` node with what its target accepts; raise one ConfigError with all findings."""
    missing = sorted(str(key) for key in OmegaConf.missing_keys(config))
    problems = [f"'{key}' has no value: add {key}=..." for key in missing]
    plain = OmegaConf.to_container(config, resolve=not missing)
    problems += [problem for path, node in _targets(plain) for problem in _check_node(path, node)]
    if problems:
        raise ConfigError("; ".join(problems))


def _targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in node.items() if isinstance(node, dict) else ():
        yield from _targets(value, f"{path}.{key}" if path else str(key))
    if isinstance(node, dict) and "_target_" in node:
        yield path, node


def _check_node(path: str, node: dict[str, Any]) -> Iterator[str]:
    try:
        target = (
            get_class(node["_target_"])
            if node["_target_"].rpartition(".")[2][0].isupper()
            else get_method(node["_target_"])
        )
    except (ImportError, ValueError) as error:
        yield f"'{path}._target_' names {node['_target_']}, which cannot be imported ({_first_line(error)})"
        return
    accepted = inspect.signature(target).parameters
    given = {key: value for key, value in node.items() if not key.startswith("_")}
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        for key in given.keys() - accepted.keys():
            yield f"'{path}.{key}' is not a setting of {target.__name__}{_nearest(key, list(accepted))}"
    if dataclasses.is_dataclass(target):
        yield from _check_types(path, target, {key: value for key, value in given.items() if key in accepted})


def _check_types(path: str, target: Any, given: dict[str, Any]) -> Iterator[str]:
    """Let OmegaConf compare each value with the field's type, one at a time, so that all are reported."""
    types = {field.name: field.type for field in dataclasses.fields(target)}
    for key, value in given.items():
        if isinstance(value, dict):
            continue  # a nested node is checked on its own
        one = dataclasses.make_dataclass("One", [(key, types[key])])
        try:
            OmegaConf.merge(OmegaConf.structured(one), {key: value})
        except OmegaConfBaseException:
            wanted = getattr(types[key], "__name__", types[key])
            yield f"'{path}.{key}' is {value!r}; {wanted} was wanted"
