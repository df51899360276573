"""The last act of a run: what was learned becomes a bundle that needs neither Lightning nor Hydra."""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from voiceseq.bundles import save_bundle
from voiceseq.tasks.base import SequenceTask


def write_bundle(task: SequenceTask, config: DictConfig, metrics: dict[str, float], path: Path) -> Path:
    """Write the task's network to ``path`` (replacing an earlier one) with its card."""
    parts = task.parts()
    return save_bundle(
        path,
        kind=parts.kind,
        name=config.name,
        config=parts.config,
        weights=task.network.state_dict(),
        vocabularies=parts.vocabularies,
        files=parts.files,
        decoding=parts.decoding,
        metrics=metrics,
        training={"data": parts.training_data, "settings": portable_settings(config)},
    )


def portable_settings(config: DictConfig) -> dict[str, Any]:
    """What the run was configured with, each setting once, less what belongs to this machine: paths become names."""

    def portable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: portable(part) for key, part in value.items()}
        if isinstance(value, list):
            return [portable(part) for part in value]
        return Path(value).name if isinstance(value, str) and _is_path(value) else value

    settings = portable(OmegaConf.to_container(config, resolve=True))
    task = {key: value for key, value in settings.get("task", {}).items() if key not in ("model", "optimiser")}
    return {key: value for key, value in settings.items() if key not in ("runs", "resume")} | {"task": task}


def _is_path(value: str) -> bool:
    return os.sep in value and (value.startswith((os.sep, ".", "~")) or Path(value).exists())
