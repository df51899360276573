"""Checkpoints that survive a kill at any moment: written beside, flushed to the disk, then renamed."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning_utilities.core.rank_zero import rank_zero_warn

from voiceseq.errors import VoiceseqError

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


class SafeCheckpointIO(TorchCheckpointIO):
    """Never a half file under a checkpoint's name, and the one before ``last.ckpt`` is kept as ``previous.ckpt``."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.writing")
        try:
            with open(beside, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            if target.name == LAST and target.exists():
                os.replace(target, target.with_name(PREVIOUS))
            os.replace(beside, target)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            beside.unlink(missing_ok=True)
            free = shutil.disk_usage(target.parent).free / 1e6
            raise VoiceseqError(
                f"{target} could not be written ({error}); {free:.0f} MB are free there: make room or choose another "
                "folder, then go on with resume=; the checkpoint before it is intact"
            ) from error


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read one of our own checkpoints: tensors and plain values only, nothing is executed."""
    return torch.load(path, map_location="cpu", weights_only=True)


def find_resume_point(run_dir: Path) -> Path | None:
    """The newest checkpoint of a run that can be read: ``last.ckpt``, else the one before it; None before the first."""
    found = [run_dir / name for name in (LAST, PREVIOUS) if (run_dir / name).exists()]
    for path in found:
        try:
            load_checkpoint(path)
        except Exception as error:  # torch has no common class for its unreadable files
            rank_zero_warn(f"{path} cannot be read ({type(error).__name__}: {error}); looking at the one before it")
        else:
            return path
    if found:
        raise VoiceseqError(f"no checkpoint in {run_dir} can be read; start the run anew, without resume=")
    return None
