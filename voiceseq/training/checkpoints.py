"""What a run keeps, so that a kill at any moment costs no more than the epoch it was in.

Files are written beside, flushed to the disk and renamed: there is never a half one under its name.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning_utilities.core.rank_zero import rank_zero_warn
from pytorch_lightning.callbacks import Checkpoint

from voiceseq.errors import VoiceseqError

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"


def write_whole(target: Path, write: Callable[[BinaryIO], object]) -> None:
    """``write`` a file under its name wholly or not at all; VoiceseqError, and the old one intact, when it cannot be.

    The file that was ``last.ckpt`` stays as ``previous.ckpt``.
    """
    beside = target.with_name(f".{target.name}.writing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if target.name == LAST and target.exists():
            os.replace(target, target.with_name(PREVIOUS))
        os.replace(beside, target)
        _sync_folder(target.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        beside.unlink(missing_ok=True)
        if isinstance(error.__context__, KeyboardInterrupt):  # Ctrl-C while torch wrote: it then complains of the rest
            raise error.__context__ from None
        free = shutil.disk_usage(target.parent).free / 1e6 if target.parent.exists() else 0.0
        raise VoiceseqError(
            f"{target} could not be written ({error}); {free:.0f} MB are free there: make room or choose another "
            "folder, then go on with resume=; what was saved before is intact"
        ) from error


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SafeCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoints, written whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_whole(Path(path), lambda file: torch.save(checkpoint, file))


class KeepCheckpoints(Checkpoint):
    """At the end of each epoch ``best.ckpt``, when the validation was the best so far, then ``last.ckpt``.

    Lightning calls ``Checkpoint`` callbacks last, so what is saved knows what schedule and early stopping have seen.
    """

    def __init__(self, folder: Path, monitor: str, mode: str) -> None:
        self.folder, self.monitor, self.sign = folder, monitor, 1.0 if mode == "min" else -1.0
        self.best = float("inf")
        self.validated = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.validated and self.sign * float(trainer.callback_metrics[self.monitor]) < self.best:
            self.best = self.sign * float(trainer.callback_metrics[self.monitor])
            trainer.save_checkpoint(self.folder / BEST)
        self.validated = False
        trainer.save_checkpoint(self.folder / LAST)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = state_dict["best"]


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
