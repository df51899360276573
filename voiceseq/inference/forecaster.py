"""Forecasts at work: the values of a series in, the next ones out, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from voiceseq.bundles import Bundle
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.frames import FrameConfig, FrameNetwork
from voiceseq.models.series import LEVELS, Forecast, Scaling, futures, interval

MOST = 10_000  # values that are read: the last ones


@dataclass(frozen=True)
class Settings:
    """How a series was scaled and how much wider its intervals must be: ``widths[level][step]``.

    Raises ConfigError for a season, horizon or spread below what makes sense, and widths of another length.
    """

    season: int
    difference: bool
    mean: float
    spread: float
    horizon: int
    widths: dict[str, list[float]] = field(default_factory=dict)
    root: bool = False

    def __post_init__(self) -> None:
        if self.season < 1 or self.horizon < 1 or not self.spread > 0:
            raise ConfigError(f"season {self.season}, horizon {self.horizon}, spread {self.spread}: above 0 was wanted")
        if any(len(steps) != self.horizon for steps in self.widths.values()):
            raise ConfigError(f"the widths want {self.horizon} numbers each, one a step")


class Forecaster:
    """``voiceseq.load("sunspots")``: ``forecast(values, steps=11, level=0.8)``."""

    def __init__(self, network: FrameNetwork, settings: Settings) -> None:
        self.network, self.settings = network.eval(), settings
        self.scaling = Scaling(settings.season, settings.difference, settings.mean, settings.spread, settings.root)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings or weights that do not make a forecaster."""
        return cls(bundle.network(FrameNetwork, FrameConfig), bundle.decoding_as(Settings))

    def forecast(
        self, values: Sequence[float] | np.ndarray, steps: int | None = None, level: float = 0.8, seed: int = 1
    ) -> Forecast:
        """The next ``steps`` values with intervals that hold the truth ``level`` of the time.

        Beyond the horizon that was calibrated (the default), the last width stays. Raises InputError for too few values
        or NaN, steps out of range, and another level than those that were calibrated.
        """
        known = np.asarray(values, float)[-MOST:]
        steps = self.settings.horizon if steps is None else steps
        if known.ndim != 1 or not np.isfinite(known).all():
            raise InputError("the series holds NaN or is no list; finite numbers were wanted")
        if not 1 <= steps <= 1000:
            raise InputError(f"{steps} steps were asked for; 1 to 1000 were wanted")
        if level not in LEVELS:
            raise InputError(f"the level {level} came; one of {', '.join(map(str, LEVELS))} was wanted")
        widths = np.array(self.settings.widths.get(str(level), [1.0]))
        widths = np.pad(widths[:steps], (0, max(0, steps - len(widths))), mode="edge")
        return interval(futures(self.network, self.scaling, known, steps, seed), level, widths)
