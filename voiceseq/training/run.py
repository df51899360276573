"""One training run: from a checked configuration to a run folder with logs, checkpoints and, at its end, a bundle."""

import json
import logging
import os
import warnings
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint, RichProgressBar
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from voiceseq.datasets.batching import step_generator
from voiceseq.errors import ConfigError
from voiceseq.tasks.base import SequenceTask
from voiceseq.training.checkpoints import BEST, LAST, SafeCheckpointIO, find_resume_point, load_checkpoint
from voiceseq.training.export import export_bundle

CONFIG, RESULT = "config.yaml", "result.json"
_RUN_DIR_VARIABLE = "VOICESEQ_RUN_DIR"

# what Lightning says of itself to everybody, whatever the run
_CHATTER = (
    ".*treespec.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*exists and is not empty.*",
    ".*lr_scheduler.*",
)


@dataclass(frozen=True)
class Run:
    """What a finished run leaves: its folder, the metrics of its last validation, and the bundle."""

    folder: Path
    metrics: dict[str, float]
    bundle: Path


class StepSeed(pl.Callback):
    """Dropout draws its numbers from seed, step and process alone, so a resumed run draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        numbers = (self.seed, trainer.current_epoch, batch_idx, trainer.global_rank)
        torch.manual_seed(step_generator(*numbers).initial_seed())


def new_run_folder(config: DictConfig) -> Path:
    """``runs/<experiment>/<time>``; processes that Lightning starts for the same run get the same folder."""
    if _RUN_DIR_VARIABLE in os.environ:
        return Path(os.environ[_RUN_DIR_VARIABLE])
    parent = Path(config.runs) / config.name
    time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for number in range(1000):
        folder = parent / (time if number == 0 else f"{time}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(
                f"the run folder {folder} cannot be made ({error}); choose another with runs=DIR"
            ) from error
        return folder
    raise ConfigError(f"{parent} has a thousand runs of this second; choose another folder with runs=DIR")


def resume_config(folder: Path, overrides: list[str]) -> DictConfig:
    """The configuration that a run was started with, and what the user changes now."""
    path = folder / CONFIG
    if not path.exists():
        raise ConfigError(f"resume={folder}: there is no {CONFIG} in it; give the folder of a run, e.g. runs/NAME/TIME")
    config = OmegaConf.load(path)
    OmegaConf.set_struct(config, True)
    try:
        return OmegaConf.merge(config, OmegaConf.from_dotlist(overrides))  # type: ignore[return-value]
    except Exception as error:
        raise ConfigError(f"resume={folder}: {str(error).splitlines()[0]}") from error


def train(config: DictConfig, folder: Path) -> Run:
    """Train ``config`` in ``folder``; a folder with a checkpoint in it is gone on with."""
    OmegaConf.save(config, folder / CONFIG, resolve=True)
    previous = os.environ.get(_RUN_DIR_VARIABLE)
    os.environ[_RUN_DIR_VARIABLE] = str(folder)
    try:
        return _train(config, folder)
    finally:
        os.environ.pop(_RUN_DIR_VARIABLE) if previous is None else os.environ.update({_RUN_DIR_VARIABLE: previous})


def _quiet() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    for message in _CHATTER:
        warnings.filterwarnings("ignore", message)


def _train(config: DictConfig, folder: Path) -> Run:
    _quiet()
    pl.seed_everything(config.seed, verbose=False)
    if config.threads:
        torch.set_num_threads(config.threads)
    data = instantiate(config.data, _convert_="all")
    task = instantiate(config.task, data=data, _convert_="all")
    trainer = build_trainer(config, task, folder)
    checkpoint = find_resume_point(folder)
    trainer.fit(task, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    if trainer.interrupted:
        raise KeyboardInterrupt
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    best = folder / BEST
    if best.exists():
        task.load_state_dict(load_checkpoint(best)["state_dict"])
        metrics[task.monitor] = float(best_score(trainer))
    bundle = folder / "bundle"
    if trainer.is_global_zero:
        export_bundle(task, config, metrics, bundle)
        (folder / RESULT).write_text(json.dumps({"metrics": metrics, "steps": trainer.global_step}, indent=1))
    return Run(folder, metrics, bundle)


def best_score(trainer: pl.Trainer) -> torch.Tensor:
    """The monitored metric of ``best.ckpt``."""
    scores = [c.best_model_score for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.monitor]
    assert scores[0] is not None
    return scores[0]


def build_trainer(config: DictConfig, task: SequenceTask, folder: Path) -> pl.Trainer:
    """Lightning's trainer with our callbacks: checkpoints at the end of each epoch, after its validation."""

    # saved last, so that last.ckpt knows what the other callbacks have seen
    def keep(filename: str, **options: Any) -> ModelCheckpoint:
        return ModelCheckpoint(
            dirpath=folder,
            filename=filename.removesuffix(".ckpt"),
            save_on_train_epoch_end=True,
            enable_version_counter=False,
            auto_insert_metric_name=False,
            **options,
        )

    callbacks: list[pl.Callback] = [StepSeed(config.seed), instantiate(config.schedule)]
    if config.ema:
        callbacks.append(EMAWeightAveraging(decay=config.ema))
    if config.early_stopping:
        callbacks.append(
            EarlyStopping(
                task.monitor, mode=task.monitor_mode, patience=config.early_stopping, check_on_train_epoch_end=True
            )
        )
    callbacks += [keep(BEST, monitor=task.monitor, mode=task.monitor_mode), keep(LAST)]
    if config.progress:
        callbacks.append(RichProgressBar())
    return pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        logger=[CSVLogger(folder, name="logs"), TensorBoardLogger(folder, name="tensorboard")],
        plugins=[SafeCheckpointIO()],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=bool(config.progress),
        **OmegaConf.to_container(config.trainer, resolve=True),  # type: ignore[arg-type]
    )
