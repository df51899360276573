"""Time series: the next value as a Gaussian, given all before it; intervals are stretched until they cover."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.corpora.series import read_series
from voiceseq.errors import InputError
from voiceseq.models.frames import FrameConfig, FrameNetwork
from voiceseq.models.series import Scaling, gaussian_loss, parameters
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.rows import Frames, RowData


class SeriesData(RowData):
    """One series: a file with a value a line, or ``sunspots`` or ``co2`` as the package statsmodels carries them.

    The first ``train_share`` is learned, the next ``calibrate_share`` says how wide intervals must be, the rest is
    left for tests. A row is the place where a window of ``window`` values begins.
    """

    def __init__(
        self,
        series: str,
        season: int,
        difference: bool = False,
        root: bool = False,
        window: int = 48,
        train_share: float = 0.6,
        calibrate_share: float = 0.2,
        batch: int = 32,
        steps_per_epoch: int = 50,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__(batch, steps_per_epoch, seed, overfit)
        self.values = read_series(series)
        first, last = (int(share * len(self.values)) for share in (train_share, train_share + calibrate_share))
        if first < season + 2 * window or last - first < window:
            raise InputError(f"{series}: {len(self.values)} values are too few for windows of {window}; give more")
        self.scaling = Scaling.of(self.values[:first], season, difference, root)
        self.first, self.last, self.window = first, last, window
        scaled = torch.tensor(self.scaling.scale(self.values), dtype=torch.float32)
        self.scaled, before = scaled, self.scaling.lost
        self.rows = range(first - before - window)
        self.held_out = [first - before - window // 2]  # the calibration part, read from a little before it
        self.sources = [{"name": Path(series).name, "licence": licence}]

    def collate(self, rows: Sequence[int], step: int | None = None) -> Frames:
        """Values and the value after each, with a little noise on what is read in training."""
        size = self.window if step is not None else self.last - self.scaling.lost - rows[0] - 1
        part = torch.stack([self.scaled[row : row + size + 1] for row in rows])[..., None]
        frames = part[:, :-1]
        if step is not None:
            frames = frames + 0.1 * torch.randn(frames.shape, generator=step_generator(self.seed, step, 3))
        return Frames(frames, torch.full((len(rows),), size), part[:, 1:, 0])


class SeriesTask(SequenceTask):
    """The mean of log sigma + (y - mu)^2 / (2 sigma^2); the bundle holds how much wider sigma must be a step ahead."""

    def __init__(
        self, model: FrameConfig, optimiser: OptimiserConfig, data: SeriesData, horizon: int = 12, seed: int = 1
    ) -> None:
        super().__init__(optimiser)
        self.network = FrameNetwork(dataclasses.replace(model, features=1, outputs=2))
        self.data, self.horizon, self.seed = data, horizon, seed

    def loss(self, batch: Frames) -> tuple[Tensor, int, dict[str, float]]:
        outputs, _ = self.network(batch.frames, None, batch.lengths)
        return gaussian_loss(*parameters(outputs), batch.targets), batch.targets.numel(), {}

    def parts(self) -> BundleParts:
        from voiceseq.models.series import calibrate

        data = self.data
        ends = np.arange(data.first, data.last - self.horizon + 1)
        widths = calibrate(self.network.eval(), data.scaling, data.values, ends, self.horizon, self.seed)
        decoding = dataclasses.asdict(data.scaling) | {"horizon": self.horizon, "widths": widths}
        return BundleParts("forecaster", dataclasses.asdict(self.network.config), {}, decoding, data.sources)
