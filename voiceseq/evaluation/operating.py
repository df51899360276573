"""Events against thresholds: how many false alarms, how many misses, and how sure one can be of either.

Scores are computed once; what a detector would have done at any other threshold follows from them by the rules of
``inference.events`` (the tests prove that the events are the same). Because of the re-arming, a lower threshold may
join two alarms to one: so the number of alarms is counted anew at every threshold, and a threshold serves a false-alarm
rate only where every higher one does, too.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError
from voiceseq.evaluation.metrics import Interval, bootstrap
from voiceseq.inference.events import REARM, WARM_UP_S

Floats = NDArray[np.float64]
DENSE = 500  # the so many highest values are all tried as thresholds; after them come
FINE = 1.005  # steps by this factor in the number of frames above the threshold


class Decided(Protocol):
    """What is read of an ``inference.events.Decision``."""

    @property
    def smoothing(self) -> int: ...
    @property
    def patience(self) -> int: ...
    @property
    def refractory_s(self) -> float: ...


class Trace(NamedTuple):
    """One word's scores on one stream, ready for any threshold: ``(frames,)`` each.

    ``level`` is the smoothed score; ``value`` the lowest level of the last ``patience`` frames, -inf while warming up:
    the word may fire where ``value >= threshold``, and its utterance is over where ``level < threshold / 2``.
    """

    value: Floats
    level: Floats
    refractory: int


def trace(scores: NDArray[np.floating], decision: Decided, frame_s: float) -> Trace:
    """The scores ``(frames,)`` of a word as its decision sees them."""
    level = _smoothed(scores.astype(np.float64), decision.smoothing)
    value = level.copy()
    value[: math.ceil(WARM_UP_S / frame_s - 1e-6)] = -np.inf
    held = np.concatenate((np.full(decision.patience - 1, -np.inf), value))
    for back in range(1, decision.patience):
        np.minimum(value, held[decision.patience - 1 - back :][: len(value)], out=value)
    return Trace(value, level, math.ceil(decision.refractory_s / frame_s - 1e-6))


def _smoothed(scores: Floats, count: int) -> Floats:
    """The mean of the last ``count`` scores, zeros standing before the first; summed in the order of ``Decider``."""
    seen = np.concatenate((np.zeros(count - 1), scores))
    total = scores.copy()
    for back in range(1, count):
        total += seen[count - 1 - back :][: len(scores)]
    return total / count


def firings(heard: Trace, threshold: float) -> list[int]:
    """The frames at which the word fires on a stream."""
    return _firings(heard, threshold, np.flatnonzero(heard.value >= threshold), np.array([len(heard.level)]))


def _firings(heard: Trace, threshold: float, above: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """The same on streams one behind the other, which end at ``ends``; ``above`` are the frames that may fire."""
    events, place = [], 0
    while place < len(above):
        fired = int(above[place])
        end = int(ends[np.searchsorted(ends, fired, side="right")])
        rest = _over(heard.level, fired + heard.refractory, end, REARM * threshold)
        events.append(fired)
        place = int(np.searchsorted(above, rest, side="right"))
    return events


def _over(level: Floats, first: int, end: int, below: float) -> int:
    """The first frame of ``first..end - 1`` whose level is ``below`` that, else the last; it is mostly near."""
    size = 32
    while first < end:
        low = level[first : min(first + size, end)] < below
        if low.any():
            return first + int(low.argmax())
        first, size = first + size, 4 * size
    return end - 1


class Alarms:
    """The alarms that streams without the word give at any threshold; InputError for no streams."""

    def __init__(self, streams: Sequence[Trace]) -> None:
        if not streams:
            raise InputError("no streams came; false alarms are counted on at least one: give --negatives")
        self.lengths = [len(one.level) for one in streams]
        self.ends = np.cumsum(self.lengths)
        self.joined = Trace(
            np.concatenate([one.value for one in streams]),
            np.concatenate([one.level for one in streams]),
            streams[0].refractory,
        )

    def at(self, threshold: float) -> list[tuple[int, int]]:
        """(stream, frame) of every alarm."""
        frames = np.array(self._frames(threshold, np.flatnonzero(self.joined.value >= threshold)), np.int64)
        streams = np.searchsorted(self.ends, frames, side="right")
        return list(zip(streams.tolist(), (frames - (self.ends - self.lengths)[streams]).tolist(), strict=True))

    def count(self, threshold: float) -> int:
        return len(self.at(threshold))

    def _frames(self, threshold: float, above: NDArray[np.int64]) -> list[int]:
        return _firings(self.joined, threshold, above, self.ends)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The frames that may fire at all, the highest first."""
        able = np.flatnonzero(self.joined.value > 0)
        return able[np.argsort(-self.joined.value[able], kind="stable")]

    def curve(self, most: int) -> list[tuple[float, int]]:
        """(threshold, alarms) from a threshold that nothing reaches downwards, until there are more than ``most``.

        The thresholds are values that occur: all of the highest ones, then ever fewer.
        """
        order = self._order
        falling = -self.joined.value[order]
        top = float(np.nextafter(-falling[0], np.inf)) if len(order) else 1.0
        found, reached = [(top, 0)], 0
        while reached < len(order) and found[-1][1] <= most:
            step = reached + 1 if reached < DENSE else int(reached * FINE) + 1
            threshold = -float(falling[min(step, len(order)) - 1])
            reached = int(np.searchsorted(falling, -threshold, side="right"))
            found.append((threshold, len(self._frames(threshold, np.sort(order[:reached])))))
        return found


class Point(NamedTuple):
    """A point of an operating curve: at ``threshold`` there are ``alarms`` in so many hours."""

    threshold: float
    alarms: int
    per_hour: float


def operating_points(alarms: Alarms, hours: float, rates: Sequence[float]) -> list[Point]:
    """For each rate an hour the lowest threshold that keeps to it, as does every higher one; InputError for no hours.

    At the same rate a lower threshold misses less: this is the most that a detector can reach on *these* negatives.
    """
    if not hours > 0:
        raise InputError(f"{hours} hours of negatives came; false alarms an hour want some: give --negatives")
    allowed = [int(rate * hours + 1e-9) for rate in rates]
    curve = alarms.curve(max(allowed, default=0))
    highest = np.maximum.accumulate([count for _, count in curve])
    found = [curve[int(np.searchsorted(highest, most, side="right")) - 1] for most in allowed]
    return [Point(threshold, count, count / hours) for threshold, count in found]


def operating_curve(alarms: Alarms, hours: float, most_per_hour: float = 20.0, points: int = 40) -> list[Point]:
    """Points from no alarm at all to ``most_per_hour``, evenly on a logarithmic scale where counts allow it."""
    most = max(1, int(most_per_hour * hours))
    wanted = np.unique(np.round(np.geomspace(1, most, points)).astype(int))
    curve = operating_points(alarms, hours, [0.0, *(wanted / hours)])
    return list(dict.fromkeys(curve))


def poisson_interval(count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Garwood's exact bounds of the expected number, where ``count`` events were seen: 0 seen is (0, 3.69).

    Raises InputError for a negative count or a confidence outside 0..1.
    """
    if count < 0 or not 0 < confidence < 1:
        raise InputError(f"count {count}, confidence {confidence}: at least 0, and between 0 and 1, were wanted")
    tail = (1 - confidence) / 2
    low = _poisson_mean(count - 1, 1 - tail) if count else 0.0
    return low, _poisson_mean(count, tail)


def _poisson_mean(count: int, probability: float) -> float:
    """The mean of the Poisson distribution that gives at most ``count`` with this probability, by halving."""
    low, high = 0.0, count + 10 * math.sqrt(count + 1) + 50
    for _ in range(100):
        middle = (low + high) / 2
        if _poisson_at_most(count, middle) > probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _poisson_at_most(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    number = np.arange(count + 1)
    logs = number * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in number])
    return float(np.exp(logs).sum())


class Rate(NamedTuple):
    """False alarms of some hours, with the bounds of the rate an hour."""

    alarms: int
    hours: float
    per_hour: float
    low: float
    high: float


def alarm_rate(alarms: int, hours: float, confidence: float = 0.95) -> Rate:
    """Alarms an hour with Garwood's bounds; none in H hours leaves 3.69/H possible."""
    if not hours > 0:
        raise InputError(f"{hours} hours came; more than 0 were wanted")
    low, high = poisson_interval(alarms, confidence)
    return Rate(alarms, hours, alarms / hours, low / hours, high / hours)


def miss_interval(missed_by_person: Mapping[str, Sequence[bool]], confidence: float = 0.95, seed: int = 0) -> Interval:
    """The share of words missed, with an interval that draws whole people.

    Where nobody (or everybody) is missed there is nothing to draw, and the other bound is the exact binomial one of
    Clopper and Pearson over the words, which is the least that one must allow for.
    """
    found = bootstrap(missed_by_person, lambda missed: float(np.mean(missed)), confidence=confidence, seed=seed)
    count = sum(map(len, missed_by_person.values()))
    bound = ((1 - confidence) / 2) ** (1 / count)
    if found.estimate == 0:
        return Interval(0.0, 0.0, 1 - bound)
    return Interval(1.0, bound, 1.0) if found.estimate == 1 else found
