"""Noises that are made: the same for the same seed, finite, bounded, and of the kinds that they are called."""

import numpy as np
import pytest

from voiceseq.audio.noises import KINDS, made_noises


def test_the_same_seed_makes_the_same_noises_and_another_makes_others():
    one, same, other = made_noises(10, 3, 0.5), made_noises(10, 3, 0.5), made_noises(10, 4, 0.5)
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(one, same, strict=True))
    assert not any(np.array_equal(a.samples, b.samples) for a, b in zip(one, other, strict=True))
    more = made_noises(11, 3, 0.5)
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(one, more[:10], strict=True))


@pytest.mark.parametrize("sample_rate", [8000, 16_000])
@pytest.mark.parametrize("seconds", [0.05, 2.0])
def test_finite_bounded_and_of_the_length_asked_for(seconds, sample_rate):
    for noise in made_noises(3 * len(KINDS), 1, seconds, sample_rate):
        assert noise.samples.shape == (round(seconds * sample_rate),)
        assert noise.samples.dtype == np.float32
        assert np.isfinite(noise.samples).all()
        assert np.abs(noise.samples).max() == pytest.approx(0.5, abs=1e-3)
        assert noise.sample_rate == sample_rate


def share_below(samples: np.ndarray, hz: float, sample_rate: int = 16_000) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float(power[np.fft.rfftfreq(len(samples), 1 / sample_rate) < hz].sum() / power.sum())


def test_each_kind_sounds_like_its_name():
    rng = np.random.default_rng(5)
    made = {name: kind(rng, 32_000, 16_000) for name, kind in KINDS.items()}
    assert share_below(made["hum"], 700) > 0.9
    crackle = np.abs(made["crackle"])
    assert crackle.max() > 8 * np.median(crackle)  # bursts
    chimes = np.sort(np.abs(np.fft.rfft(made["chimes"])) ** 2)[::-1]
    assert chimes[:800].sum() > 9 * chimes[800:].sum()  # lines, not a carpet
    band = np.sort(np.abs(np.fft.rfft(KINDS["band"](np.random.default_rng(3), 160_000, 16_000))) ** 2)[::-1]
    assert band[:8000].sum() > 4 * band[8000:].sum()
    blips = np.abs(made["blips"])
    assert blips.max() > 8 * np.median(blips)
    assert made["fan"].std() == pytest.approx(1.0, abs=0.5)
