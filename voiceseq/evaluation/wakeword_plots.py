"""A wake-word report as pictures: DET curves, scores, delays and people; a panel a word."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.evaluation.wakeword import Hearing, Verdict, WordHearing

COLUMNS, PANEL = 3, (4.2, 3.2)
LEAST_FA, LEAST_MISS = 0.02, 0.002  # where a logarithmic axis draws "none"
WINDOW_S = 2.0  # of negatives: the highest score of each is one entry of the histogram
MOST_PEOPLE = 30


def plot_wakewords(hearing: Hearing, report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write det.png, scores.png, delay.png and people.png to ``folder``."""
    words = {word: WordHearing.of(hearing, word) for word in report["words"]}
    first = next(iter(hearing.utterances))
    verdicts = {word: one.judge(first, one.decision.threshold) for word, one in words.items()}
    drawn = {
        "scores": lambda axes, word: draw_scores(axes, words[word], first, hearing.frame_s),
        "delay": lambda axes, word: draw_delays(axes, verdicts[word]),
        "people": lambda axes, word: draw_people(axes, report["words"][word]["own_threshold"]["people"]),
    }
    if all("operating_curve" in found for found in report["words"].values()):
        drawn = {"det": lambda axes, word: draw_det(axes, report["words"][word]), **drawn}
    return [panels(list(words), draw, folder / f"{name}.png") for name, draw in drawn.items()]


def panels(words: list[str], draw: Callable[[Any, str], None], path: Path) -> Path:
    """A grid with a panel a word."""
    from matplotlib.figure import Figure  # here, since it takes half a second; Figure alone needs no display

    columns = min(COLUMNS, len(words))
    rows = -(-len(words) // columns)
    figure = Figure(figsize=(PANEL[0] * columns + 0.4, PANEL[1] * rows), dpi=130, layout="constrained")
    for place, word in enumerate(words):
        axes = figure.add_subplot(rows, columns, place + 1)
        draw(axes, word)
        axes.set_title(word, fontsize=10)
    figure.savefig(path)
    return path


def draw_det(axes: Any, found: Mapping[str, Any]) -> None:
    """Misses against false alarms; a ring where the detector's own threshold stands."""
    det, own = found["operating_curve"]["det"], found["own_threshold"]
    rate = np.maximum([point["per_hour"] for point in det], LEAST_FA)
    for number, condition in enumerate(det[0]["miss_rate"]):
        missed = np.maximum([point["miss_rate"][condition] for point in det], LEAST_MISS)
        axes.plot(rate, 100 * missed, color=f"C{number}", lw=1.4, label=condition)
        here = max(own["false_alarms"]["all"]["per_hour"], LEAST_FA)
        there = max(own["conditions"][condition]["miss_rate"], LEAST_MISS)
        axes.plot(here, 100 * there, "o", mfc="white", color=f"C{number}", ms=6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(100 * LEAST_MISS * 0.8, 120)
    axes.set_xticks([LEAST_FA, 0.1, 0.5, 1, 10], ["none", "0.1", "0.5", "1", "10"])
    axes.set_yticks([100 * LEAST_MISS, 1, 2, 5, 10, 50, 100], ["none", "1", "2", "5", "10", "50", "100"])
    axes.minorticks_off()
    axes.set_xlabel("false alarms an hour (ring: own threshold)", fontsize=8)
    axes.set_ylabel("words missed, %", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def draw_scores(axes: Any, one: WordHearing, condition: str, frame_s: float) -> None:
    """Highest scores of the words, and of every two seconds of negatives, by kind."""
    bins = np.linspace(0, 1, 51)
    peaks = []
    for utterance, heard in one.spoken[condition]:
        near = (utterance.times >= utterance.start_s) & (utterance.times <= utterance.end_s + 1)
        peaks.append(float(heard.value[near].max(initial=0.0)))
    axes.hist(peaks, bins, color="C2", alpha=0.8, label=f"the word, {condition} ({len(peaks)})")
    size = max(1, round(WINDOW_S / frame_s))
    for number, kind in enumerate(dict.fromkeys(quiet.stream.kind for quiet, _ in one.quiet)):
        values = [heard.value for quiet, heard in one.quiet if quiet.stream.kind == kind]
        highest = [part.max() for value in values for part in np.array_split(value, max(1, len(value) // size))]
        axes.hist(np.maximum(highest, 0), bins, histtype="step", color=f"C{(0, 1, 3, 4)[number % 4]}", label=kind)
    axes.axvline(one.decision.threshold, color="black", lw=1, ls="--", label="threshold")
    axes.set_yscale("log")
    axes.set_xlabel("highest score", fontsize=8)
    axes.set_ylabel("words; stretches of 2 s", fontsize=8)
    axes.legend(fontsize=6)


def draw_delays(axes: Any, verdicts: list[Verdict]) -> None:
    delays = [one.delay_s for one in verdicts if one.delay_s is not None]
    axes.hist(delays, np.arange(-0.5, 1.01, 0.05), color="C0")
    if delays:
        median, late = np.quantile(delays, [0.5, 0.95])
        axes.axvline(median, color="black", lw=1, label=f"median {median:.2f} s")
        axes.axvline(late, color="black", lw=1, ls=":", label=f"95 % within {late:.2f} s")
        axes.legend(fontsize=7)
    axes.set_xlabel("seconds after the word's end", fontsize=8)
    axes.set_ylabel("words", fontsize=8)


def draw_people(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Found and missed words of each person; those with most misses on top, the rest of many people left out."""
    shown = rows[:MOST_PEOPLE][::-1]
    place = np.arange(len(shown))
    found = [row["utterances"] - row["missed"] for row in shown]
    axes.barh(place, found, color="C0", label="found")
    axes.barh(place, [row["missed"] for row in shown], left=found, color="C3", label="missed")
    axes.set_yticks(place, [row["person"] for row in shown], fontsize=max(3, min(7, 150 // max(1, len(shown)))))
    more = f"; {len(rows) - len(shown)} more people not shown" if len(rows) > len(shown) else ""
    axes.set_xlabel(f"words{more}", fontsize=8)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=7, loc="lower right")  # where those stand of whom nothing was missed
