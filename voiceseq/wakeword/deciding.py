"""When a head speaks up: thresholds for a stated rate of false alarms, on sound that it never learned from."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.datasets.bank import Stream
from voiceseq.evaluation.operating import Alarms, alarm_rate, firings, operating_points, trace
from voiceseq.inference.events import Decision
from voiceseq.models.trigger import Head, PhoneHead
from voiceseq.wakeword.mining import hard_spots, listen
from voiceseq.wakeword.windows import Example

ROUNDING = 1e-5


def decide(
    head: Head | PhoneHead,
    words: Sequence[str],
    streams: Sequence[Stream],
    alarms_per_hour: float,
    decision: Decision,
    frame_s: float,
) -> tuple[dict[str, Decision], dict[str, Any]]:
    """``decide_from`` what the head hears in frames of the bank."""
    heard = listen(head, [stream.frames for stream in streams])
    return decide_from(heard, [stream.kind for stream in streams], head, words, alarms_per_hour, decision, frame_s)


def decide_from(
    heard: Sequence[NDArray[np.float32]],
    kinds: Sequence[str],
    head: Head | PhoneHead,
    words: Sequence[str],
    alarms_per_hour: float,
    decision: Decision,
    frame_s: float,
) -> tuple[dict[str, Decision], dict[str, Any]]:
    """A decision a word, ``decision`` with its threshold, and what is known of its false alarms.

    ``heard`` are the head's logits ``(time, words)`` of streams without the words, each of a kind. The head's output is
    shifted first so that the threshold lies near one half, whatever the head thinks of itself.
    """
    hours = sum(len(scores) for scores in heard) * frame_s / 3600
    allowed = max(1, math.ceil(alarms_per_hour * hours))
    spots = hard_spots(heard, allowed)
    decisions, report = {}, {"hours": round(hours, 2), "kinds": sorted(set(kinds))}
    for number, word in enumerate(words):
        level = min(spot.score for spot in spots if spot.word == number)
        head.lower(number, level)
        traces = [trace(_probability(scores[:, number] - level), decision, frame_s) for scores in heard]
        alarms = Alarms(traces)
        point = operating_points(alarms, hours, [alarms_per_hour])[0]
        # a hair below the last alarm that is allowed: the shifted network rounds otherwise, and a tie would be chance
        threshold = float(point.threshold)
        lower = (1 - ROUNDING) * threshold
        threshold = lower if alarms.count(lower) == alarms.count(threshold) else threshold
        decisions[word] = replace(decision, threshold=min(1.0, max(1e-6, threshold)))
        found = alarms.at(decisions[word].threshold)
        where = [kinds[stream] for stream, _ in found]
        report[word] = {
            "threshold": decisions[word].threshold,
            "false alarms": {kind: where.count(kind) for kind in sorted(set(where))},
            "per hour": alarm_rate(len(found), hours)._asdict(),
        }
    return decisions, report


def misses(
    head: Head | PhoneHead, word: int, examples: Sequence[Example], decision: Decision, frame_s: float
) -> dict[str, Any]:
    """How many of the examples' words are not heard from 0.3 s before to 0.75 s after their end."""
    heard = listen(head, [one.frames for one in examples])
    missed = total = 0
    for scores, one in zip(heard, examples, strict=True):
        fired = firings(trace(_probability(scores[:, word]), decision, frame_s), decision.threshold)
        ends = [end_s for said, end_s in one.ends if said == word]
        total += len(ends)
        missed += sum(
            not any(end_s - 0.3 <= (frame + 1) * frame_s <= end_s + 0.75 for frame in fired) for end_s in ends
        )
    return {"missed": missed, "of": total}


def _probability(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -60, 60)))
