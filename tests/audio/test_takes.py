"""A take is judged as a person would: where somebody speaks, and every fault by itself."""

import numpy as np
import pytest

from voiceseq.audio.takes import check_take


def take(
    rate: int = 16_000, level: float = 0.2, start: float = 1.0, end: float = 1.8, room: float = 0.001
) -> np.ndarray:
    """Three seconds of a room in which somebody says something."""
    rng = np.random.default_rng(1)
    samples = rng.normal(0, room, 3 * rate)
    first, last = round(start * rate), round(end * rate)
    samples[first:last] += level * np.sin(2 * np.pi * 300 * np.arange(last - first) / rate)
    return samples.astype(np.float32)


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
def test_a_good_take_has_no_fault_and_its_word_in_place(rate):
    found = check_take(take(rate), rate)
    assert found.faults == ()
    assert found.speech == pytest.approx((1.0, 1.8), abs=0.03)
    assert found.loudest_db == pytest.approx(20 * np.log10(0.2 / np.sqrt(2)), abs=1)


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (np.zeros(48_000, "f"), "muted"),
        (np.zeros(0, "f"), "muted"),
        (np.full(48_000, np.nan, "f"), "muted"),
        (np.full(48_000, 0.3, "f"), "muted"),  # an offset is no sound
        (take(level=0.0), "nothing was said"),
        (take(level=0.1, room=0.1), "nothing was said"),
        (take(level=0.005, room=0.0002), "too quiet"),
        (take(start=0.0, end=0.9), "cut at the beginning"),
        (take(start=2.4, end=3.0), "cut at the end"),
        (np.clip(take(level=3.0), -1, 1), "clipped"),
    ],
)
def test_every_fault_is_told_alone(samples, said):
    (fault,) = check_take(samples, 16_000).faults
    assert said in fault


def test_faults_come_together():
    found = check_take(np.clip(take(level=3.0, start=0.0, end=3.0), -1, 1), 16_000)
    assert len(found.faults) >= 1
    assert "clipped" in found.faults[-1]


def test_a_click_is_no_speech():
    samples = take(level=0.0)
    samples[20_000:20_160] += 0.5
    assert "nothing was said" in check_take(samples, 16_000).faults[0]
    with_word = take()
    with_word[2000:2160] += 0.5
    assert check_take(with_word, 16_000).speech == pytest.approx((1.0, 1.8), abs=0.03)


def test_a_pause_inside_the_phrase_stays_inside():
    samples = take(end=1.3)
    samples[24_000:28_000] = take(start=1.5, end=1.75)[24_000:28_000]
    assert check_take(samples, 16_000).speech == pytest.approx((1.0, 1.75), abs=0.03)
