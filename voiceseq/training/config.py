"""From what the user typed to a checked configuration: every mistake is named at once, with the nearest valid name."""

import dataclasses
import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from voiceseq.errors import ConfigError
from voiceseq.training.settings import RunSettings

CONFIG_MODULE = "voiceseq.conf"


def experiments(own: Path | None = None) -> list[str]:
    """The names that ``experiment=`` takes, with those in the user's ``own`` config folder."""
    folders = [resources.files(CONFIG_MODULE) / "experiment"] + ([own / "experiment"] if own else [])
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def compose_config(overrides: Sequence[str], own: Path | None = None) -> DictConfig:
    """Compose ``conf/train.yaml`` with ``overrides`` and check it; ConfigError names all that is wrong.

    ``own`` is a folder of the user's with further configs (``experiment/NAME.yaml`` and so on). Of a sweep
    (``key=a,b``) every value is checked; the config returned has the first.
    """
    if own is not None and not own.is_dir():
        raise ConfigError(f"--config-dir {own} is not a folder; give one with experiment/NAME.yaml in it")
    choices = [_values(override) for override in overrides]
    first = [values[0] for values in choices]
    if "experiment" not in [override.split("=", 1)[0].lstrip("+~") for override in first]:
        raise ConfigError(f"which experiment? Add experiment=NAME, one of: {', '.join(experiments(own))}")
    config = _checked(first, own)
    for place, values in enumerate(choices):
        for other in values[1:]:
            _checked([*first[:place], other, *first[place + 1 :]], own)
    return config


def _values(override: str) -> list[str]:
    """``a=1,2`` (a sweep) as ``a=1`` and ``a=2``; anything else as it is."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException as error:
        raise ConfigError(f"'{override}' is not an override: write key=value (Hydra: {_first_line(error)})") from error
    if not parsed.is_sweep_override():
        return [override]
    return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]


def _checked(overrides: Sequence[str], own: Path | None) -> DictConfig:
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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _explain(error: Exception, overrides: Sequence[str], own: Path | None) -> str:
    """Hydra's own first line, or the nearest key or experiment for each override that does not exist."""
    valid = list(_valid_keys(own))
    hints = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key == "experiment" and value not in experiments(own):
            hints.append(f"experiment '{value}' is not there{nearest(value, experiments(own))}")
        elif key not in valid:
            hints.append(f"'{key}' is not a known key{nearest(key, valid)}")
    return "; ".join(hints) if hints else _first_line(error)


def _valid_keys(own: Path | None) -> Iterator[str]:
    """Every dotted key of any experiment, and the names of the config groups."""
    yield from ("experiment", "debug", "hydra")
    for name in experiments(own):
        yield from dotted(OmegaConf.to_container(_compose([f"experiment={name}"], own), resolve=False))


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """The keys of a nested dictionary: ``a``, ``a.b``, ..."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield f"{prefix}{key}"
        yield from dotted(value, f"{prefix}{key}.")


def nearest(name: str, valid: Sequence[str]) -> str:
    """``: did you mean ...?`` for the end of a message."""
    found = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f": did you mean '{found[0]}'?" if found else f"; valid are {', '.join(sorted(set(valid))[:12])} ..."


def check_config(config: DictConfig) -> None:
    """Compare the top and each ``_target_`` node with what takes them; one ConfigError with all findings."""
    problems = [f"'{key}' has no value: add {key}=..." for key in sorted(map(str, OmegaConf.missing_keys(config)))]
    if not problems:
        problems = list(_check_top(config))
        problems += [problem for path, node in _targets(config) for problem in _check_node(path, node)]
    if problems:
        raise ConfigError("; ".join(problems))


def _check_top(config: DictConfig) -> Iterator[str]:
    names = {field.name: field.type for field in dataclasses.fields(RunSettings)}
    given = {str(key): config[key] for key in config if key in names}
    wrong = list(_check_types("", names, given))
    if wrong or "name" not in given:
        yield from wrong or ["'name' is not there: is this a whole configuration of a run?"]
        return
    try:
        RunSettings(**given)
    except ConfigError as error:
        yield str(error)


def _targets(config: DictConfig, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each node with a ``_target_``, once: what is only a reference to another node is checked there."""
    for key in map(str, config):
        name = f"{path}.{key}" if path else key
        if not OmegaConf.is_interpolation(config, key) and isinstance(config[key], DictConfig):
            yield from _targets(config[key], name)
    if "_target_" in config:
        yield path, {str(key): config[key] for key in config}


def _check_node(path: str, node: dict[str, Any]) -> Iterator[str]:
    try:
        target: Any = get_object(node["_target_"])
    except Exception as error:  # Hydra wraps whatever the import raised
        yield f"'{path}._target_' names {node['_target_']}, which cannot be imported ({_first_line(error)})"
        return
    accepted = inspect.signature(target).parameters
    given = {key: value for key, value in node.items() if not key.startswith("_")}
    for key in given.keys() - accepted.keys():
        yield f"'{path}.{key}' is not a setting of {target.__name__}{nearest(key, list(accepted))}"
    types = {name: parameter.annotation for name, parameter in accepted.items()}
    wrong = list(_check_types(f"{path}.", types, {key: value for key, value in given.items() if key in accepted}))
    yield from wrong
    if isinstance(target, type) and dataclasses.is_dataclass(target) and not wrong and given.keys() <= accepted.keys():
        try:
            target(**{key: value for key, value in given.items() if not isinstance(value, DictConfig)})
        except (ConfigError, ValueError) as error:  # ranges are the dataclass's own business
            yield f"{path}: {error}"


def _check_types(prefix: str, types: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Let OmegaConf compare each plain value with the type it is meant for, one by one, so that all are reported."""
    for key, value in given.items():
        if isinstance(value, DictConfig) or types[key] is inspect.Parameter.empty:
            continue  # a nested node is checked on its own
        try:
            one = OmegaConf.structured(dataclasses.make_dataclass("One", [(key, types[key])]))
        except OmegaConfBaseException:
            continue  # a type that OmegaConf does not know, such as Literal
        try:
            OmegaConf.merge(one, {key: value})
        except OmegaConfBaseException:
            yield f"'{prefix}{key}' is {value!r}; {getattr(types[key], '__name__', types[key])} was wanted"
