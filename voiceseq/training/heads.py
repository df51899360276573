"""Training a head on frames that are already made: minutes of it, in memory, with nothing on disk."""

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl

from voiceseq.datasets.batching import training_loader
from voiceseq.tasks.trigger import TriggerTask
from voiceseq.training.run import quiet
from voiceseq.training.schedules import Schedule


def fit_head(task: TriggerTask, batches: Callable[[int], Any], steps: int, seed: int = 1) -> None:
    """``steps`` steps of ``task`` on ``batches(step)``, with warm-up and a cosine to near nothing."""
    quiet()
    pl.seed_everything(seed, verbose=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        callbacks=[Schedule("cosine", warmup=min(50, steps // 4), floor=0.02)],
    )
    trainer.fit(task, train_dataloaders=training_loader(batches, steps))
