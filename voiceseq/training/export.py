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
        decoding=parts.decoding,
        metrics=metrics,
        training={"data": parts.training_data, "settings": portable_settings(config)},
    )


def portable_settings(config: DictConfig) -> dict[str, Any]:
    """What the run was configured with, less what belongs to this machine: paths become file names."""

    def portable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: portable(part) for key, part in value.items() if key not in ("runs", "resume")}
        return Path(value).name if isinstance(value, str) and os.sep in value else value

    return portable(OmegaConf.to_container(config, resolve=True))
