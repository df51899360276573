"""A speech report as pictures: errors by set and group, by speaker, and the reliability of the confidences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MOST_SPEAKERS = 30
Row = Mapping[str, Any]


def plot_speech(report: Row, folder: Path) -> list[Path]:
    """Write errors.png, speakers.png and (where words were heard) calibration.png to ``folder``."""
    sets = [(name, report[name]) for name in ("all", "seen", "unseen") if name in report]
    sets += [(f"{field}: {row['name']}", row) for field, rows in report["groups"].items() for row in rows]
    speakers = report["speakers"]
    more = f", the worst {MOST_SPEAKERS} of {len(speakers)}" if len(speakers) > MOST_SPEAKERS else ""
    shown = [(row["name"], row) for row in speakers[:MOST_SPEAKERS]]
    drawn = [
        plot_rates(sets, folder / "errors.png", "word error rate"),
        plot_rates(shown, folder / "speakers.png", f"word error rate by speaker{more}"),
    ]
    if report["calibration"] is not None:
        drawn.append(plot_calibration(report["calibration"], folder / "calibration.png"))
    return drawn


def plot_rates(rows: Sequence[tuple[str, Row]], path: Path, title: str) -> Path:
    """A bar a row with its interval; rows in which nothing was said are left out."""
    from matplotlib.figure import Figure  # here, since it takes half a second; Figure alone needs no display

    kept = [(name, row) for name, row in rows if row["wer"]][::-1]
    figure = Figure(figsize=(7, 1.1 + 0.28 * len(kept)), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    place = np.arange(len(kept))
    rate, low, high = (np.array([100 * row["wer"][key] for _, row in kept]) for key in ("rate", "low", "high"))
    # a percentile interval of few speakers may leave the estimate outside
    spread = np.maximum([rate - low, high - rate], 0)
    axes.barh(place, rate, xerr=spread, color="C0", ecolor="0.3", capsize=2)
    axes.set_yticks(place, [f"{name} ({row['words']})" for name, row in kept], fontsize=7)
    axes.set_xlabel("% of the words (in brackets: how many were said)", fontsize=8)
    axes.set_title(title, fontsize=10)
    figure.savefig(path)
    return path


def plot_calibration(found: Row, path: Path) -> Path:
    """How often words are right against how sure the recogniser was, and how many words there are of each kind."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 5), dpi=130, layout="constrained")
    curve, counts = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = [row for row in found["bins"] if row["words"]]
    curve.plot([0, 1], [0, 1], color="0.7", lw=1, ls="--")
    curve.plot([row["confidence"] for row in filled], [row["right"] for row in filled], "o-", ms=4)
    curve.set_ylabel("share of right words", fontsize=8)
    curve.set_title(f"expected calibration error {found['expected_error']:.3f}", fontsize=10)
    middle = [(row["low"] + row["high"]) / 2 for row in found["bins"]]
    counts.bar(middle, [row["words"] for row in found["bins"]], width=0.9 / len(middle))
    counts.set_yscale("symlog")
    counts.set_ylabel("words", fontsize=8)
    counts.set_xlabel("confidence", fontsize=8)
    figure.savefig(path)
    return path
