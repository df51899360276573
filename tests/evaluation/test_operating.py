"""Counting events at any threshold is the same as running the decisions at it; intervals against known values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from voiceseq.errors import InputError
from voiceseq.evaluation.operating import (
    Alarms,
    alarm_rate,
    firings,
    miss_interval,
    operating_curve,
    operating_points,
    poisson_interval,
    trace,
)
from voiceseq.inference.events import Decider, Decision

FRAME_S = 0.03


def bumpy(seed: int, frames: int) -> np.ndarray:
    """Scores with plateaus, ties, single spikes and zeros, as detectors give them."""
    rng = np.random.default_rng(seed)
    steps = np.repeat(rng.choice([0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0], frames), rng.integers(1, 12, frames))[
        :frames
    ]
    noisy = np.clip(steps + rng.choice([0.0, 0.05], frames) * rng.standard_normal(frames), 0, 1)
    return noisy.astype(np.float32)


def decided(scores: np.ndarray, decision: Decision) -> list[int]:
    return [frame for frame, _, _ in Decider([decision], FRAME_S).feed(scores[:, None])]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    frames=st.integers(1, 300),
    smoothing=st.integers(1, 6),
    patience=st.integers(1, 5),
    refractory_s=st.sampled_from([0.0, 0.03, 0.5, 0.9, 2.0]),
    threshold=st.floats(0.01, 1.0),
)
def test_the_firings_are_those_of_the_decider(seed, frames, smoothing, patience, refractory_s, threshold) -> None:
    scores = bumpy(seed, frames)
    decision = Decision(threshold, smoothing, patience, refractory_s)
    assert firings(trace(scores, decision, FRAME_S), threshold) == decided(scores, decision)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), patience=st.integers(1, 3), most=st.integers(0, 12))
def test_the_curve_counts_what_running_the_decider_counts_and_misses_no_level(seed, patience, most) -> None:
    rng = np.random.default_rng(seed)
    streams = [bumpy(seed + number, int(rng.integers(0, 150))) for number in range(4)]
    decision = Decision(smoothing=3, patience=patience, refractory_s=0.5)
    traces = [trace(scores, decision, FRAME_S) for scores in streams]
    alarms = Alarms(traces)
    curve = alarms.curve(most)
    for threshold, count in curve:
        if threshold <= 1:
            at = Decision(threshold, 3, patience, 0.5)
            assert count == sum(len(decided(scores, at)) for scores in streams)
    levels = sorted({float(v) for one in traces for v in one.value if v > 0}, reverse=True)
    tried = [threshold for threshold, _ in curve[1:]]
    assert tried == levels[: len(tried)]
    assert curve[-1][1] > most or len(tried) == len(levels)
    assert all(count <= most for _, count in curve[:-1])


def test_alarms_are_told_by_stream_and_frame_and_streams_do_not_touch() -> None:
    quiet, loud = np.zeros(100, np.float32), np.zeros(100, np.float32)
    loud[[20, 99]] = 0.9
    first = np.zeros(100, np.float32)
    first[12] = 0.8
    decision = Decision(refractory_s=1.0)
    alarms = Alarms([trace(one, decision, FRAME_S) for one in (quiet, loud, quiet[:0], first)])
    assert alarms.at(0.5) == [(1, 20), (1, 99), (3, 12)]  # 13 frames after the last one, but in another stream
    assert alarms.count(0.85) == 2
    with pytest.raises(InputError, match="no streams"):
        Alarms([])


def test_many_levels_are_thinned_out_but_every_count_is_exact() -> None:
    scores = np.random.default_rng(3).random(6_000).astype(np.float32)
    decision = Decision(refractory_s=0.0)
    alarms = Alarms([trace(scores, decision, FRAME_S)])
    curve = alarms.curve(600)
    assert 500 < len(curve) < 700
    for threshold, count in curve[1::25]:
        assert count == len(decided(scores, Decision(threshold, refractory_s=0.0)))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rate=st.floats(0, 2000))
def test_an_operating_point_keeps_its_rate_as_does_every_higher_threshold_and_no_lower_one(seed, rate) -> None:
    decision = Decision(smoothing=2, refractory_s=0.5)
    alarms = Alarms([trace(bumpy(seed, 400), decision, FRAME_S)])
    hours = 400 * FRAME_S / 3600
    (point,) = operating_points(alarms, hours, [rate])
    allowed = math.floor(rate * hours + 1e-9)
    assert point.alarms == alarms.count(point.threshold) <= allowed
    assert point.per_hour == pytest.approx(point.alarms / hours)
    levels = np.unique(alarms.joined.value[alarms.joined.value > 0])
    assert all(alarms.count(float(level)) <= allowed for level in levels[levels >= point.threshold])
    below = levels[levels < point.threshold]
    assert not len(below) or alarms.count(float(below[-1])) > allowed


def test_a_lower_threshold_that_joins_two_alarms_to_one_does_not_serve() -> None:
    joined, lone = np.zeros(200, np.float32), np.zeros(200, np.float32)
    joined[20:61] = 0.4  # below half of 0.9, not below half of 0.75
    joined[[20, 60]], joined[21:26] = 0.9, [0.75, 0.74, 0.73, 0.72, 0.71]
    lone[[20, 100]] = 0.7, 0.6
    decision = Decision(refractory_s=0.5)
    alarms = Alarms([trace(one, decision, FRAME_S) for one in (joined, lone)])
    assert [alarms.count(level) for level in (0.95, 0.89, 0.735, 0.69, 0.59)] == [0, 2, 1, 2, 3]
    none, two, three = operating_points(alarms, 1.0, [1.0, 2.0, 3.0])
    assert none.alarms == 0
    assert none.threshold > 0.89
    assert (two.alarms, three.alarms) == (2, 3)
    assert two.threshold == pytest.approx(0.7)


def test_a_curve_begins_at_no_alarm_and_rises() -> None:
    scores = np.where(np.arange(3000) % 50 == 20, np.random.default_rng(7).random(3000), 0)
    alarms = Alarms([trace(scores, Decision(), FRAME_S)])
    curve = operating_curve(alarms, 0.025, most_per_hour=2000)
    assert curve[0].alarms == 0
    assert len(curve) > 5
    assert all(one.threshold > other.threshold for one, other in itertools.pairwise(curve))
    with pytest.raises(InputError, match="hours"):
        operating_points(alarms, 0.0, [1.0])


def test_a_detector_that_says_nothing_has_no_alarms() -> None:
    alarms = Alarms([trace(np.zeros(500, np.float32), Decision(), FRAME_S)])
    assert [point.alarms for point in operating_points(alarms, 1.0, [0.1, 1.0])] == [0, 0]


# --- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 17, 100, 1234])
def test_poisson_bounds_are_those_of_the_chi_squared_distribution(count: int, confidence: float) -> None:
    tail = (1 - confidence) / 2
    low = stats.chi2.ppf(tail, 2 * count) / 2 if count else 0.0
    high = stats.chi2.ppf(1 - tail, 2 * count + 2) / 2
    assert poisson_interval(count, confidence) == pytest.approx((low, high), rel=1e-9)


def test_known_values_of_garwood() -> None:
    assert poisson_interval(0) == pytest.approx((0, 3.6889), abs=1e-4)
    assert poisson_interval(1) == pytest.approx((0.0253, 5.5716), abs=1e-4)
    assert poisson_interval(10) == pytest.approx((4.7954, 18.3904), abs=1e-4)
    rate = alarm_rate(0, 8.0)
    assert (rate.per_hour, rate.low, rate.high) == (0, 0, pytest.approx(3.6889 / 8, abs=1e-4))


@pytest.mark.parametrize(("count", "confidence"), [(-1, 0.95), (3, 0.0), (3, 1.0)])
def test_bounds_that_cannot_be(count: int, confidence: float) -> None:
    with pytest.raises(InputError):
        poisson_interval(count, confidence)
    with pytest.raises(InputError, match="hours"):
        alarm_rate(1, 0.0)


def test_people_who_are_missed_as_a_whole_make_the_interval_wide() -> None:
    alone = {f"p{i}": [i < 10] for i in range(100)}
    together = {f"p{i}": [i < 1] * 10 for i in range(10)}
    one, other = miss_interval(alone), miss_interval(together)
    assert one.estimate == other.estimate == 0.1
    assert one.low <= 0.1 <= one.high
    assert other.high - other.low > 1.5 * (one.high - one.low)


def test_nothing_missed_is_not_proof_of_nothing_ever_missed() -> None:
    none = miss_interval({"a": [False] * 30, "b": [False] * 10})
    assert none[:2] == (0, 0)
    assert none.high == pytest.approx(stats.beta.ppf(0.975, 1, 40), rel=1e-9)
    every = miss_interval({"a": [True] * 5})
    assert every == pytest.approx((1, stats.beta.ppf(0.025, 5, 1), 1))
