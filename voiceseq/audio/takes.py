"""Is a recording of a word any good? Where in it somebody speaks, and what is wrong with it. numpy, no torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.files import level_report
from voiceseq.audio.resample import finite

Samples = NDArray[np.float32]
FRAME_S = 0.02
FLOOR_DB = -90.0  # no microphone is quieter; digital silence counts as this
RANGE_DB = 30.0  # what is so far below the loudest is no speech any more
ABOVE_DB = 9.0  # speech is at least so far above the room
CLEAR_DB = 15.0  # and its loudest this far, else nobody spoke
QUIET_DB = -42.0  # the loudest 20 ms of speech should not be below
SHORTEST = 4  # frames in a row; anything shorter is a click
EDGE_S = 0.08  # silence wanted before and after


@dataclass(frozen=True)
class TakeReport:
    """``speech``: seconds from the first to the last that was said, None for nothing; ``loudest_db``: of any 20 ms.

    ``faults``: what is wrong, a line each with what to do about it.
    """

    speech: tuple[float, float] | None
    loudest_db: float
    faults: tuple[str, ...] = ()


def check_take(samples: Samples, sample_rate: int) -> TakeReport:
    """Judge ``samples (frames,)`` in which a word should be said. NaN and infinity count as 0."""
    samples, _ = finite(np.asarray(samples, np.float32))
    levels = _levels(samples, sample_rate)
    loudest, speech = float(levels.max()), _speech(levels)
    duration_s = len(samples) / sample_rate
    faults = []
    if loudest <= FLOOR_DB:
        faults.append("digital silence: is the microphone muted?")
    elif speech is None:
        faults.append("nothing was said, or the room is as loud as the voice: come nearer")
    else:
        if loudest < QUIET_DB:
            faults.append(f"too quiet ({loudest:.0f} dB at the loudest): raise the input level or come nearer")
        if speech[0] < EDGE_S:
            faults.append("cut at the beginning: wait for the sign before you speak")
        if speech[1] > duration_s - EDGE_S:
            faults.append("cut at the end: speak right after the sign, or give more --seconds")
    clipped = level_report(samples).clipped
    if clipped > 0.0005:
        faults.append(f"clipped ({clipped:.1%} of the samples): lower the input level or step back")
    return TakeReport(speech, loudest, tuple(faults))


def _levels(samples: Samples, sample_rate: int) -> NDArray[np.float64]:
    """dB of each 20 ms, a constant offset removed; at least one."""
    size = max(1, round(FRAME_S * sample_rate))
    whole = np.zeros(max(1, -(-len(samples) // size)) * size)
    whole[: len(samples)] = samples - (samples.mean(dtype=np.float64) if len(samples) else 0.0)
    power = np.square(whole).reshape(-1, size).mean(1)
    return np.maximum(10 * np.log10(np.maximum(power, 1e-12)), FLOOR_DB)


def _speech(levels: NDArray[np.float64]) -> tuple[float, float] | None:
    """From the first to the last stretch that is well above the room (its quietest tenth) and near the loudest."""
    room, loudest = float(np.quantile(levels, 0.1)), float(levels.max())
    loud = levels > max(room + ABOVE_DB, loudest - RANGE_DB)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], loud, [False])).astype(np.int8)))
    runs = [(start, end) for start, end in edges.reshape(-1, 2).tolist() if end - start >= SHORTEST]
    if not runs or max(levels[start:end].max() for start, end in runs) < room + CLEAR_DB:
        return None
    return runs[0][0] * FRAME_S, runs[-1][1] * FRAME_S
