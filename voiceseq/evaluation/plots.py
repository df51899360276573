"""Pictures where people would rather look than read."""

from collections.abc import Sequence
from pathlib import Path

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


def _shown(symbol: str) -> str:
    return "␣" if symbol == " " else symbol
