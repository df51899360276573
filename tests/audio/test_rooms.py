"""Rooms: images where geometry puts them, the reverberation time that was asked for, the voice as loud as before."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.files import read_clip
from voiceseq.audio.rooms import (
    SOUND_M_S,
    Impulse,
    Room,
    as_impulse,
    at_rate,
    image_count,
    images,
    random_room,
    reflection,
    reverberate,
    reverberation_time,
    room_response,
)
from voiceseq.errors import InputError

RATE = 16_000
ROOM = Room((4.0, 5.0, 2.7), (1.1, 3.2, 1.8), (2.6, 1.4, 1.2), 0.3)


def schroeder(samples: np.ndarray, rate: int, low_db: float, high_db: float) -> float:
    """Reverberation time by the book, between two crossings of the backward integral."""
    left = np.cumsum(samples[::-1].astype(np.float64) ** 2)[::-1]
    level = 10 * np.log10(left / left[0])
    first, last = np.argmax(level < high_db), np.argmax(level < low_db)
    return (last - first) / rate * 60 / (high_db - low_db)


def mirrored(place, size, orders):
    """The source mirrored wall by wall: each image by reflecting at one wall after the other."""
    found = {}
    for count in itertools.product(range(-orders, orders + 1), repeat=3):
        image = []
        for x, length, steps in zip(place, size, count, strict=True):
            for step in range(abs(steps)):  # outwards in one direction the walls take turns
                wall = (step + 1) * length if steps > 0 else -step * length
                x = 2 * wall - x
            image.append(x)
        found[tuple(image)] = sum(map(abs, count))
    return found


def test_images_are_where_mirrors_put_them():
    distances, bounces = images(ROOM, 0.05)
    got = sorted(zip(distances.round(9), bounces, strict=True))
    wanted = [
        (round(math.dist(image, ROOM.microphone_m), 9), count)
        for image, count in mirrored(ROOM.source_m, ROOM.size_m, 8).items()
        if math.dist(image, ROOM.microphone_m) <= 0.05 * SOUND_M_S
    ]
    assert len(wanted) > 100
    assert got == sorted(wanted)


@pytest.mark.parametrize("rate", [8000, 16_000, 48_000])
def test_the_direct_sound_comes_in_time_and_falls_with_distance(rate):
    """The delay to a twentieth of a sample (by the phase of the spectrum), the level 1 / r."""
    for distance in (0.5, 1.0, 2.0):
        room = Room((8.0, 7.0, 6.0), (3.0, 3.1, 2.9), (3.0 + distance, 3.1, 2.9), 0.4)
        response = room_response(room, rate)
        assert response.delay_samples == pytest.approx(distance / SOUND_M_S * rate)
        first_echo = 2 * math.hypot(2.9, distance / 2) / SOUND_M_S * rate  # from the floor
        direct = response.samples[: round(first_echo - 16)].astype(np.float64)
        spectrum = np.fft.rfft(direct, 4096)[1:1500]
        slope = np.polyfit(np.arange(1, 1500), np.unwrap(np.angle(spectrum)), 1)[0]
        assert -slope * 4096 / (2 * np.pi) == pytest.approx(distance / SOUND_M_S * rate, abs=0.05)
        np.testing.assert_allclose(np.abs(spectrum[100:]), 1 / distance, rtol=0.04)
        assert response.level == pytest.approx(1 / distance)


def test_first_echoes_are_inverted_and_weaker_by_the_wall():
    """A wall 1 m behind the microphone of a long hall: its echo comes 2 m later with -b / r."""
    room = Room((40.0, 38.0, 36.0), (19.0, 19.0, 18.0), (1.0, 19.0, 18.0), 0.6)
    distances, bounces = images(room, 0.6 + 18 / SOUND_M_S)
    b = reflection(distances, bounces, 0.6)
    response = room_response(room, RATE)
    direct, echo = 18 / SOUND_M_S * RATE, 20 / SOUND_M_S * RATE

    def pulse(at):
        near = response.samples[round(at) - 24 : round(at) + 25].astype(np.float64)
        return near @ np.sinc(np.arange(round(at) - 24, round(at) + 25) - at)

    assert pulse(direct) == pytest.approx(1 / 18, rel=0.08)
    assert pulse(echo) == pytest.approx(-b / 20, rel=0.12)


@pytest.mark.parametrize("seed", range(24))
def test_the_reverberation_time_is_the_one_asked_for(seed):
    room = random_room(np.random.default_rng(seed))
    response = room_response(room, RATE)
    after = response.samples[round(response.delay_samples + 0.0015 * RATE) :]
    assert schroeder(after, RATE, -35, -5) == pytest.approx(room.t60_s, rel=0.2)
    assert reverberation_time(response) == pytest.approx(room.t60_s, rel=0.2)


@pytest.mark.parametrize("seed", range(4))
def test_a_loud_direct_sound_has_no_say_in_the_reverberation_time(seed):
    room = random_room(np.random.default_rng(seed), distance_m=(0.05, 0.1), t60_s=(0.3, 0.5))
    assert reverberation_time(room_response(room, RATE)) == pytest.approx(room.t60_s, rel=0.2)


def test_reverberation_time_of_a_known_decay():
    noise = np.random.default_rng(0).standard_normal(RATE)
    decay = (noise * 10 ** (-3 * np.arange(RATE) / (0.4 * RATE))).astype(np.float32)
    assert reverberation_time(Impulse(decay, RATE, 0.0, 1.0)) == pytest.approx(0.4, rel=0.05)
    assert math.isnan(reverberation_time(Impulse(np.ones(100, np.float32), RATE, 0.0, 1.0)))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), floor=st.tuples(st.floats(1, 9), st.floats(0, 5)), far=st.floats(0.05, 9))
def test_random_rooms_keep_to_their_ranges(seed, floor, far):
    floor_m, distance_m = (floor[0], sum(floor)), (0.05, far)
    room = random_room(np.random.default_rng(seed), floor_m, (2.0, 3.0), distance_m, (0.2, 0.5))
    assert all(floor_m[0] <= x <= floor_m[1] for x in room.size_m[:2])
    assert 2 <= room.size_m[2] <= 3
    assert 0 < room.distance_m <= far + 1e-9
    assert 0.2 <= room.t60_s <= 0.5
    for place in (room.source_m, room.microphone_m):
        assert all(0.3 - 1e-9 <= x <= size - 0.3 + 1e-9 for x, size in zip(place, room.size_m, strict=True))


def click(at: int, size: int = 8000) -> np.ndarray:
    samples = np.zeros(size, np.float32)
    samples[at] = 1
    return samples


def test_reverberate_keeps_time_and_level_of_the_direct_sound():
    response = room_response(ROOM, RATE)
    heard, left = reverberate(click(3000), response)
    assert heard.dtype == np.float32
    assert len(heard) == 8000
    assert abs(left) <= 0.5
    assert np.argmax(np.abs(heard)) == 3000
    direct = heard[3000 - 20 : 3000 + 21] @ np.sinc(np.arange(-20, 21) - left)
    assert direct == pytest.approx(1, rel=0.08)
    assert np.abs(heard[3050:]).max() > 0.05


def test_a_response_of_one_pulse_changes_nothing_but_its_delay():
    samples = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    heard, left = reverberate(samples, as_impulse(np.float32(-0.3) * click(40, 100), RATE))
    np.testing.assert_allclose(heard, -samples, atol=1e-5)
    assert left == 0


def test_convolution_is_the_sum_that_it_should_be():
    rng = np.random.default_rng(2)
    samples, response = rng.standard_normal(50).astype(np.float32), rng.standard_normal(9).astype(np.float32)
    heard, _ = reverberate(samples, Impulse(response, RATE, 3.0, 2.0))
    for n in range(50):
        terms = [samples[n + 3 - k] * response[k] / 2 for k in range(9) if 0 <= n + 3 - k < 50]
        assert heard[n] == pytest.approx(sum(terms), abs=1e-5)


def test_a_given_response_is_found_at_its_first_strong_peak():
    response = 0.1 * click(5, 4000) + 0.6 * click(200, 4000) - 0.9 * click(900, 4000)
    given_one = as_impulse(response, RATE)
    assert (given_one.delay_samples, given_one.level) == (200, pytest.approx(0.6))


def test_another_sample_rate_is_the_same_room():
    response = room_response(ROOM, 48_000)
    down = at_rate(response, RATE)
    assert at_rate(down, RATE) is down
    assert down.delay_samples == pytest.approx(response.delay_samples / 3)
    assert reverberation_time(down) == pytest.approx(reverberation_time(response), rel=0.05)
    heard, _ = reverberate(click(3000), down)
    assert np.abs(heard).max() == pytest.approx(1, rel=0.2)


def test_the_shared_responses_can_be_used(shared):
    import json

    folder = shared / "data/speech/wakeword/rir"
    lines = (folder / "manifest.jsonl").read_text().splitlines()[:5]
    for row in map(json.loads, lines):
        response = as_impulse(read_clip(folder.parent / row["audio"], row["offset"], row["duration"]), RATE)
        assert 0.05 < reverberation_time(response) < 1.5
        assert 0.3 < response.level < 2


def test_impossible_rooms_are_refused():
    with pytest.raises(InputError, match="source_m"):
        Room((3, 3, 3), (4, 1, 1), (1, 1, 1), 0.3)
    with pytest.raises(InputError, match="more than 0"):
        Room((3, 3, 3), (1, 1, 1), (1, 1, 1), 0.3)
    with pytest.raises(InputError, match="t60_s 0"):
        Room((3, 3, 3), (1, 2, 1), (1, 1, 1), 0)
    with pytest.raises(InputError, match="sample_rate is 0"):
        room_response(ROOM, 0)
    with pytest.raises(InputError, match="shorten t60_s"):
        images(ROOM, 20)
    with pytest.raises(InputError, match="bigger"):
        random_room(np.random.default_rng(0), (0.5, 0.5))
    assert len(images(ROOM, 0.2)[0]) < image_count(ROOM.size_m, 0.2)


@pytest.mark.parametrize("wrong", [np.zeros(9), np.zeros((2, 5)), np.zeros(0), np.array([1, np.nan])])
def test_impossible_responses_are_refused(wrong):
    with pytest.raises(InputError, match="was wanted"):
        as_impulse(wrong, RATE)
