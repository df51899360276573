"""One training run: from a checked configuration to a run folder with logs, checkpoints and, at its end, a bundle."""

import ctypes
import json
import logging
import sys
import warnings
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning_utilities.core.rank_zero import rank_zero_only
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import EarlyStopping, RichProgressBar
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from voiceseq.bundles import load_bundle
from voiceseq.bundles.stores import MANIFEST
from voiceseq.datasets.batching import step_generator
from voiceseq.errors import ConfigError, VoiceseqError
from voiceseq.tasks.base import SequenceTask
from voiceseq.training.averaging import AveragedWeights
from voiceseq.training.checkpoints import (
    BEST,
    KeepCheckpoints,
    SafeCheckpointIO,
    find_resume_point,
    load_checkpoint,
    write_whole,
)
from voiceseq.training.config import dotted, nearest
from voiceseq.training.export import write_bundle

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
CONFIG, RESULT = "config.yaml", "result.json"

# What may change when a run goes on; anything else would make it another run.
CHANGEABLE = (
    *("trainer.max_epochs", "trainer.max_time", "trainer.log_every_n_steps", "trainer.accelerator"),
    *("trainer.devices", "trainer.num_nodes", "trainer.strategy", "threads", "progress", "early_stopping"),
)

# what Lightning says of itself to everybody, whatever the run
_CHATTER = (
    ".*treespec.*",
    ".*no `val_dataloader`.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
)


@dataclass(frozen=True)
class Run:
    """What a finished run leaves: its folder, the validation metrics of its best weights, and their bundle."""

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


def resume_config(folder: Path, overrides: list[str]) -> DictConfig:
    """The configuration that a run was started with, and what of ``CHANGEABLE`` the user changes now."""
    path = folder / CONFIG
    if not path.exists():
        raise ConfigError(f"resume={folder}: there is no {CONFIG} in it; give the folder of a run, e.g. runs/NAME/TIME")
    config = OmegaConf.load(path)
    for override in overrides:
        key = override.partition("=")[0]
        known = list(dotted(OmegaConf.to_container(config)))
        if key not in known:
            raise ConfigError(f"resume={folder}: '{key}' is not a known key{nearest(key, known)}")
        if key not in CHANGEABLE:
            allowed = ", ".join(CHANGEABLE)
            raise ConfigError(f"'{key}' cannot change when a run goes on ({allowed} can); start a new run for that")
    return OmegaConf.merge(config, OmegaConf.from_dotlist(overrides))  # type: ignore[return-value]


def train(config: DictConfig, folder: Path | None = None) -> Run:
    """Train ``config`` in a new folder, or go on in the ``folder`` of a run that has been stopped.

    Raises VoiceseqError (ConfigError for settings) for what the user can mend, KeyboardInterrupt on Ctrl-C.
    """
    quiet()
    keep_memory()
    pl.seed_everything(config.seed, verbose=False)
    if config.threads:
        torch.set_num_threads(config.threads)
    data = build(config, "data")
    task = build(config, "task", data=data)
    schedule = build(config, "schedule", monitor=task.monitor, mode=task.monitor_mode)
    if config.get("start_from") and folder is None:
        print(start_from(task, Path(config.start_from)), file=sys.stderr)
    folder = folder or new_run_folder(config)
    if first_process():
        print(f"run {folder}, seed {config.seed}", file=sys.stderr)
        write_whole(folder / CONFIG, lambda file: file.write(OmegaConf.to_yaml(config, resolve=True).encode()))
    trainer = build_trainer(config, task, schedule, folder)
    steps = fit(trainer, task, data, config, folder)
    return finish(trainer, task, config, folder, steps)


def start_from(task: SequenceTask, source: Path) -> str:
    """Give ``task`` the weights of a run, checkpoint or bundle wherever name and shape agree; says what was taken."""
    if (source / MANIFEST).exists():
        weights = {f"network.{name}": value for name, value in load_bundle(source).weights.items()}
    elif (path := source / BEST if source.is_dir() else source).exists():
        weights = load_checkpoint(path)["state_dict"]
    else:
        raise ConfigError(f"start_from={source}: no run with a {BEST}, no checkpoint and no bundle is there")
    own, weights = task.state_dict(), {task.own_name(name): value for name, value in weights.items()}
    fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise ConfigError(
            f"start_from={source}: none of its {len(weights)} tensors fits this network by name and shape"
        )
    task.load_state_dict(fitting, strict=False)
    return f"starts from {source} with {len(fitting)} of {len(own)} tensors"


def build(config: DictConfig, key: str, **more: Any) -> Any:
    """Instantiate a node. Bad data raises as it is, without Hydra's wrapping; bad settings a ConfigError."""
    try:
        return instantiate(config[key], **more, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ConfigError) or (key == "data" and isinstance(cause, VoiceseqError)):
            raise cause from None
        raise ConfigError(f"'{key}' cannot be built from its settings: {cause or error}") from error


def first_process() -> bool:
    """Of several processes, on one machine or many, the one that writes and speaks."""
    return getattr(rank_zero_only, "rank", 0) == 0


def new_run_folder(config: DictConfig) -> Path:
    """``runs/<name>/<time>``. Of several processes the first makes it; the others have nothing to write."""
    parent = Path(config.runs) / config.name
    time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    if not first_process():
        return parent / time
    for number in range(1000):
        folder = parent / (time if number == 0 else f"{time}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"the folder {folder} cannot be made ({error}); choose another with runs=DIR") from error
        return folder
    raise ConfigError(f"{parent} has a thousand runs of this second; choose another folder with runs=DIR")


def fit(trainer: pl.Trainer, task: SequenceTask, data: Any, config: DictConfig, folder: Path) -> int:
    """Train to the end, from the last checkpoint where there is one; the number of optimiser steps."""
    checkpoint = find_resume_point(folder)
    if checkpoint is not None and _stopped_early(loaded := load_checkpoint(checkpoint), config.early_stopping):
        return int(loaded["global_step"])
    try:
        trainer.fit(task, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except SystemExit:  # Lightning's answer to Ctrl-C
        if trainer.interrupted:
            print(f"stopped; go on with: voiceseq train resume={folder}", file=sys.stderr)
            raise KeyboardInterrupt from None
        raise
    return trainer.global_step


def _stopped_early(checkpoint: dict[str, Any], patience: int | None) -> bool:
    """Whether the run had ended by early stopping; Lightning would go on."""
    states = [state for name, state in checkpoint["callbacks"].items() if name.startswith("EarlyStopping")]
    return patience is not None and any(state["wait_count"] >= patience for state in states)


def finish(trainer: pl.Trainer, task: SequenceTask, config: DictConfig, folder: Path, steps: int) -> Run:
    """Export the best weights (the last ones where nothing was validated) with the metrics of their own epoch."""
    bundle, metrics = folder / "bundle", {}
    if trainer.is_global_zero:
        if (folder / BEST).exists():
            best = load_checkpoint(folder / BEST)
            task.load_state_dict(best["state_dict"])
            metrics = best["metrics"]
        else:
            print("nothing was validated: the bundle holds the last weights, without metrics", file=sys.stderr)
        write_bundle(task, config, metrics, bundle)
        result = json.dumps({"metrics": metrics, "steps": steps}, indent=1)
        write_whole(folder / RESULT, lambda file: file.write(result.encode()))
    return Run(folder, metrics, bundle)


def build_trainer(config: DictConfig, task: SequenceTask, schedule: pl.Callback, folder: Path) -> pl.Trainer:
    """Lightning's trainer with our callbacks; the settings have been checked."""
    callbacks: list[pl.Callback] = [StepSeed(config.seed), schedule]
    if config.ema:
        callbacks.append(AveragedWeights(config.ema))
    if config.early_stopping:
        stop = {"mode": task.monitor_mode, "patience": config.early_stopping, "check_on_train_epoch_end": False}
        callbacks.append(EarlyStopping(task.monitor, **stop))
    callbacks.append(KeepCheckpoints(folder, task.monitor, task.monitor_mode))
    if config.progress:
        callbacks.append(RichProgressBar(console_kwargs={"stderr": True}))
    settings = {key: value for key, value in config.trainer.items() if key != "_target_"}
    return pl.Trainer(
        default_root_dir=folder,
        callbacks=callbacks,
        logger=[CSVLogger(folder, name="logs"), TensorBoardLogger(folder, name="tensorboard")],
        plugins=[SafeCheckpointIO()],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=bool(config.progress),
        **settings,
    )


def keep_memory() -> None:
    """Have glibc keep what is freed: a step's large tensors would else be fetched from the system anew, zeroed page by
    page, which is up to a third of the time of a step on a processor. Other systems have ways of their own."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def quiet() -> None:
    """Lightning talks of itself to everybody; whoever trains wants to hear of the training."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    for message in _CHATTER:
        warnings.filterwarnings("ignore", message)
