"""Learning-rate schedules as a callback: warm-up, then constant, cosine, or down when the metric stands still."""

import math
from typing import Any

import pytorch_lightning as pl

from voiceseq.errors import ConfigError

KINDS = ("constant", "cosine", "plateau")


class Schedule(pl.Callback):
    """Sets ``lr = base * factor`` before each optimiser step.

    ``constant`` and ``cosine`` are functions of the step alone. ``plateau`` multiplies by ``decay`` after ``patience``
    validations without a new best; what it has seen is saved with the checkpoint, before the epoch's checkpoint is
    written (Lightning steps its own plateau scheduler after that, and forgets the last validation on resuming).
    """

    def __init__(
        self,
        kind: str = "cosine",
        warmup: int = 0,
        floor: float = 0.1,
        patience: int = 2,
        decay: float = 0.5,
        monitor: str = "val/loss",
        mode: str = "min",
    ) -> None:
        if kind not in KINDS:
            raise ConfigError(f"schedule.kind is '{kind}'; choose one of {', '.join(KINDS)}")
        wrong = [f"schedule.{name} is {value}" for name, value in (("warmup", warmup), ("floor", floor)) if value < 0]
        wrong += [f"schedule.patience is {patience}; 1 or more was wanted"] if patience < 1 else []
        wrong += [f"schedule.decay is {decay}; between 0 and 1 was wanted"] if not 0 < decay < 1 else []
        wrong += [f"schedule.mode is '{mode}'; min or max was wanted"] if mode not in ("min", "max") else []
        if wrong:
            raise ConfigError("; ".join(wrong))
        self.kind, self.warmup, self.floor = kind, warmup, floor
        self.patience, self.decay = patience, decay
        self.monitor, self.sign = monitor, 1.0 if mode == "min" else -1.0
        self.best, self.waited, self.reduction = math.inf, 0, 1.0

    def factor(self, step: int, total: int) -> float:
        """The share of the base learning rate at optimiser step ``step`` of ``total``."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "cosine":
            done = min(1.0, (step - self.warmup) / max(1, total - self.warmup))
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done))
        return self.reduction

    def observe(self, metric: float) -> None:
        """Count a validation; ``plateau`` goes down after ``patience`` of them without a new best."""
        if self.sign * metric < self.best:
            self.best, self.waited = self.sign * metric, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.reduction, self.waited = max(self.floor, self.reduction * self.decay), 0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        factor = self.factor(trainer.global_step, int(trainer.estimated_stepping_batches))
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
                group["lr"] = group["initial_lr"] * factor
        pl_module.log("train/lr", trainer.optimizers[0].param_groups[0]["lr"], batch_size=1)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.kind == "plateau" and not trainer.sanity_checking and self.monitor in trainer.callback_metrics:
            self.observe(float(trainer.callback_metrics[self.monitor]))

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "reduction": self.reduction}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]
        self.reduction = state_dict["reduction"]
