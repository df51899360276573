"""Pictures where people would rather look than read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from voiceseq.errors import InputError


def plot_attention(weights: Tensor, source: Sequence[str], target: Sequence[str], path: str | Path) -> Path:
    """``weights (target, source)`` as a map: what was read along the top, what was written down the side; a PNG."""
    if tuple(weights.shape) != (len(target), len(source)):
        raise InputError(f"the weights have shape {tuple(weights.shape)}; ({len(target)}, {len(source)}) was wanted")
    from matplotlib.figure import Figure  # here, since it takes half a second; Figure alone needs no display

    figure = Figure(figsize=(1.2 + 0.32 * len(source), 1.3 + 0.32 * len(target)), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy(), cmap="magma", vmin=0.0, vmax=1.0, aspect="equal")
    axes.set_xticks(range(len(source)), [_shown(symbol) for symbol in source])
    axes.set_yticks(range(len(target)), [_shown(symbol) for symbol in target])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xlabel("read")
    axes.set_ylabel("written")
    figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, label="weight")
    figure.savefig(path, bbox_inches="tight")
    return Path(path)


def plot_points(points: np.ndarray, names: Sequence[str], path: str | Path) -> Path:
    """``points (names, 2)`` with a name at each; a PNG."""
    if points.shape != (len(names), 2):
        raise InputError(f"the points have shape {points.shape}; ({len(names)}, 2) was wanted")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(points[:, 0], points[:, 1], s=9, color="#b5367a")
    for (x, y), name in zip(points, names, strict=True):
        axes.annotate(name.replace("$", r"\$"), (x, y), (3, 2), textcoords="offset points", fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])
    figure.savefig(path)
    return Path(path)


def plot_curves(
    lines: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str, path: str | Path, log: bool = False
) -> Path:
    """Named lines of points ``(x, y)``; a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if log:
        axes.set_xscale("log")
    axes.legend()
    figure.savefig(path)
    return Path(path)


def _shown(symbol: str) -> str:
    return "␣" if symbol == " " else symbol
