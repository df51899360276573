"""The spectrogram of a recording with the words that are said in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.audio.features import FeatureConfig, Features, hz_to_mel
from voiceseq.audio.resample import finite, resample
from voiceseq.errors import InputError
from voiceseq.inference.speech import Word

ROW_S, ROWS = 8.0, 10  # seconds side by side, and how many such rows
LONGEST_S = ROW_S * ROWS  # what comes later is not drawn
CONFIG = FeatureConfig(mels=80, fft=1024, window=512)
RANGE = 11.0  # of the natural logarithm of power: some 48 dB
LETTER_S, LINE = 0.047, 0.09  # the width of a letter in seconds, the height of a line in rows
KILOHERTZ = (0.5, 1, 2, 4, 8)


def plot_words(
    samples: NDArray[np.float32], sample_rate: int, words: Sequence[Word], path: str | Path, title: str = ""
) -> Path:
    """Rows of 8 seconds, at most ten of them: mel spectrogram, the words above it, lines where they begin and end.

    Args:
        samples: ``(n,)``.
        path: .png, or another kind that matplotlib writes.

    Raises InputError for samples of another shape, too few for a window, or a place that cannot be written.
    """
    if samples.ndim != 1 or len(samples) < sample_rate * CONFIG.window / CONFIG.sample_rate:
        raise InputError(f"samples of shape {samples.shape} came; one channel of at least a window was wanted")
    from matplotlib.figure import Figure  # here, since it takes half a second; Figure alone needs no display

    duration = len(samples) / sample_rate
    frames = _spectrogram(samples[: round(LONGEST_S * sample_rate)], sample_rate)
    hop_s = CONFIG.hop / CONFIG.sample_rate
    rows = max(1, min(ROWS, int(np.ceil(duration / ROW_S))))
    width_s = min(ROW_S, duration)
    figure = Figure(figsize=(3 + 1.1 * width_s, 0.4 + 2.1 * rows), dpi=130, layout="constrained")
    for number, axes in enumerate(figure.subplots(rows, 1, squeeze=False)[:, 0]):
        start = number * ROW_S
        part = frames[round(start / hop_s) : round((start + ROW_S) / hop_s)]
        axes.imshow(
            part.T,
            origin="lower",
            aspect="auto",
            cmap="magma",
            vmin=frames.max() - RANGE,
            extent=(start, start + len(part) * hop_s, 0, CONFIG.mels),
        )
        axes.set_xlim(start, start + width_s)
        axes.set_yticks([_band(khz) for khz in KILOHERTZ], [f"{khz:g}" for khz in KILOHERTZ], fontsize=7)
        axes.set_ylabel("kHz", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        _write_words(axes, [word for word in words if start <= (word.start + word.end) / 2 < start + width_s])
    figure.axes[-1].set_xlabel("seconds", fontsize=8)
    shown = f" (the first {LONGEST_S:g} of {duration:.0f} s)" if duration > LONGEST_S else ""
    figure.suptitle(f"{title}{shown}", fontsize=10)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # ValueError: a kind of picture that there is not
        raise InputError(f"{path} cannot be written ({error}); give a .png in a folder that exists") from error
    return Path(path)


@torch.no_grad()
def _spectrogram(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """``(frames, mels)``, logarithmic."""
    wave = resample(finite(samples)[0], sample_rate, CONFIG.sample_rate)
    frames, _ = Features(CONFIG)(torch.from_numpy(wave)[None])
    return np.asarray(frames[0].numpy())


def _band(khz: float) -> float:
    """The place of a frequency on the axis of mel bands."""
    low, high, here = hz_to_mel(torch.tensor([CONFIG.low_hz, CONFIG.highest_hz, 1000 * khz]), CONFIG.mel_scale).tolist()
    return float(CONFIG.mels * (here - low) / (high - low))


def _write_words(axes: Any, words: Sequence[Word]) -> None:
    """Each above its place; one that would touch its neighbour stands a line higher."""
    ends = [-1.0, -1.0]  # of the texts of both lines, in seconds
    for word in words:
        for edge in (word.start, word.end):
            axes.axvline(edge, color="white", linewidth=0.6, alpha=0.8)
        middle, half = (word.start + word.end) / 2, LETTER_S * (len(word.word) + 1) / 2
        line = 0 if ends[0] <= middle - half or ends[1] > ends[0] else 1
        ends[line] = middle + half
        place = (middle, 1.02 + LINE * line)
        axes.annotate(word.word, place, xycoords=("data", "axes fraction"), ha="center", fontsize=8)
