"""What all trained things have in common: optimiser, logging, and the mean of a loss over uneven batches.

A task names its network, its loss and what its bundle holds; everything else is here or in ``voiceseq.training``.
"""

from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from voiceseq.errors import ConfigError


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW or plain SGD; weight decay falls on matrices, not on vectors (biases, norms) or ``nn.Embedding`` tables."""

    name: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    momentum: float = 0.9

    def build(self, network: nn.Module) -> torch.optim.Optimizer:
        plain = {
            id(p)
            for module in network.modules()
            for p in module.parameters(recurse=False)
            if p.dim() < 2 or isinstance(module, nn.Embedding)
        }
        parameters = [p for p in network.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if id(p) not in plain], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if id(p) in plain], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        if self.name == "adamw":
            # one pass over the weights instead of a dozen: 5 ms instead of 95 for a table of 33,000 words
            fused = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(self.betas[0], self.betas[1]), fused=True)
            fused._step_supports_amp_scaling = False  # whoever clips gradients wants to unscale them first
            return fused
        if self.name == "sgd":
            return torch.optim.SGD(groups, lr=self.learning_rate, momentum=self.momentum)
        raise ConfigError(f"optimiser '{self.name}' is not known; choose adamw or sgd")


@dataclass(frozen=True)
class BundleParts:
    """What a trained task hands to ``bundles.save_bundle``."""

    kind: str
    config: dict[str, Any]
    vocabularies: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    training_data: list[dict[str, str]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


class SequenceTask(pl.LightningModule):
    """Subclasses set ``self.network`` and say ``loss(batch)`` and ``parts()``; ``monitor`` is what "best" means."""

    network: Any  # an nn.Module with a config dataclass
    monitor = "val/loss"
    monitor_mode = "min"

    def __init__(self, optimiser: OptimiserConfig) -> None:
        super().__init__()
        self.optimiser = optimiser

    def loss(self, batch: Any) -> tuple[Tensor, int, dict[str, float]]:
        """The mean loss of a batch, how many items (tokens, frames) it is the mean of, and more to log."""
        raise NotImplementedError

    def parts(self) -> BundleParts:
        raise NotImplementedError

    def own_name(self, name: str) -> str:
        """What this task calls a tensor of the run or bundle that it starts from."""
        return name

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, count, _ = self.loss(batch)
        loss = loss * self._share(count)
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=count, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss, count, metrics = self.loss(batch)
        values = {"val/loss": loss} | {f"val/{name}": value for name, value in metrics.items()}
        self.log_dict(values, prog_bar=True, on_epoch=True, batch_size=count, sync_dist=True)

    def _share(self, count: int) -> float | Tensor:
        """DDP averages over processes; weighting by share makes that the mean over all items of the global batch."""
        if self.trainer.world_size == 1:
            return 1.0
        counts = torch.tensor(float(count), device=self.device)
        return count / self.trainer.strategy.reduce(counts, reduce_op="mean")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The validation that belongs to these weights goes with them."""
        metrics = self.trainer.callback_metrics.items()
        checkpoint["metrics"] = {name: float(value) for name, value in metrics if name.startswith("val/")}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimiser.build(self.network)
