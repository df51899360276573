"""What a run can be told, with types and ranges: the top of ``conf/train.yaml`` and its ``trainer`` node."""

from dataclasses import dataclass
from typing import Any

from voiceseq.errors import ConfigError

PRECISIONS = ("32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true")


@dataclass(frozen=True)
class RunSettings:
    """The scalars of ``conf/train.yaml``."""

    name: str
    runs: str = "runs"
    seed: int = 1
    threads: int | None = None
    ema: float | None = None
    early_stopping: int | None = None
    progress: bool = True
    resume: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.threads is not None and self.threads < 1:
            problems.append(f"'threads' is {self.threads}; 1 or more was wanted, or null for torch's own choice")
        if self.ema is not None and not 0 < self.ema < 1:
            problems.append(f"'ema' is {self.ema}; a decay between 0 and 1 was wanted, e.g. 0.999, or null")
        if self.early_stopping is not None and self.early_stopping < 1:
            problems.append(f"'early_stopping' is {self.early_stopping}; 1 epoch or more was wanted, or null")
        if not 0 <= self.seed < 2**32:
            problems.append(f"'seed' is {self.seed}; 0 to {2**32 - 1} was wanted")
        if problems:
            raise ConfigError("; ".join(problems))


@dataclass(frozen=True)
class TrainerSettings:
    """What Lightning's Trainer is told; the rest of its arguments are the run's own business."""

    accelerator: str = "auto"
    devices: Any = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    max_epochs: int = 10
    max_time: str | None = None
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = 1.0
    log_every_n_steps: int = 20
    check_val_every_n_epoch: int = 1
    limit_val_batches: Any = 1.0
    profiler: str | None = None
    detect_anomaly: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"'trainer.{name}' is {getattr(self, name)}; 1 or more was wanted"
            for name in ("num_nodes", "max_epochs", "accumulate_grad_batches", "log_every_n_steps")
            if getattr(self, name) < 1
        ]
        if self.precision not in PRECISIONS:
            problems.append(f"'trainer.precision' is '{self.precision}'; choose one of {', '.join(PRECISIONS)}")
        if problems:
            raise ConfigError("; ".join(problems))
