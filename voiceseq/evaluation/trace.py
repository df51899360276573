"""The scores of a detector over a recording as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError

POINTS = 4000  # across the picture; more frames than that are drawn by their highest


def plot_trace(
    times: NDArray[np.floating],
    scores: Mapping[str, NDArray[np.floating]],
    thresholds: Mapping[str, float],
    detections: Sequence[tuple[str, float]],
    path: str | Path,
    title: str = "",
) -> Path:
    """One panel a word: ``scores[word] (frames,)`` at ``times (frames,)``, the threshold, and a mark a detection.

    Args:
        detections: word and time in seconds.
        path: .png, or another kind that matplotlib writes.

    Raises InputError for scores of another length than the times and for a place that cannot be written.
    """
    wrong = [word for word, values in scores.items() if len(values) != len(times)]
    if wrong or not scores:
        raise InputError(f"{len(times)} times; as many scores for each of at least one word were wanted ({wrong})")
    from matplotlib.figure import Figure  # here, since it takes half a second; Figure alone needs no display

    height = 0.9 + 1.5 * len(scores)
    figure = Figure(figsize=(11, height), dpi=130)
    # constrained layout gives up on the marks above the panels, with a warning
    figure.subplots_adjust(left=0.08, right=0.98, top=1 - 0.35 / height, bottom=0.5 / height, hspace=0.25)
    panels = figure.subplots(len(scores), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (word, values) in zip(panels, scores.items(), strict=True):
        axes.fill_between(*_thinned(times, values), color="tab:blue", linewidth=0.5)
        axes.axhline(thresholds[word], color="tab:red", linewidth=1, linestyle="--")
        heard = [at for name, at in detections if name == word]
        axes.plot(heard, [1.04] * len(heard), "v", color="tab:red", clip_on=False)
        axes.set_ylim(0, 1.1)
        axes.set_ylabel(word)
    panels[0].set_title(title, fontsize=10)
    panels[-1].set_xlabel("seconds")
    panels[-1].set_xlim(0, max(float(times[-1]) if len(times) else 1.0, 0.1))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # ValueError: a kind of picture that there is not
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
    return Path(path)


def _thinned(
    times: NDArray[np.floating], values: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    step = max(1, len(times) // POINTS)
    starts = np.arange(0, len(times), step)
    return times[starts], np.maximum.reduceat(values, starts) if len(times) else values
