"""Resampling: a stream in any pieces is the whole, of the exact length, and the sound is still the same sound."""

import subprocess
import sys

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.resample import StreamResampler, finite, resample, resampled_length
from voiceseq.errors import InputError

RATES = (8000, 11025, 16000, 22050, 44100, 48000, 96000)


def noise(frames: int, seed: int = 0, channels: int | None = None) -> np.ndarray:
    shape = frames if channels is None else (channels, frames)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_chunks(stream: StreamResampler, samples: np.ndarray, sizes: list[int]) -> np.ndarray:
    pieces, at, turn = [], 0, 0
    while at < samples.shape[-1]:
        size = sizes[turn % len(sizes)]
        pieces.append(stream.feed(samples[..., at : at + size]))
        at, turn = at + size, turn + 1
    return np.concatenate([*pieces, stream.finish()], axis=-1)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("sizes", [[1], [7], [160], [16000], [1, 0, 997, 3]])
def test_any_chunks_give_the_whole(rate, sizes):
    samples = noise(1500 if sizes == [1] else 20_000)
    whole = resample(samples, rate, 16000)
    assert len(whole) == resampled_length(len(samples), rate, 16000)
    np.testing.assert_array_equal(in_chunks(StreamResampler(rate, 16000), samples, sizes), whole)
    reference = soxr.resample(samples, rate, 16000)
    np.testing.assert_allclose(whole[: len(reference)], reference, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    frames=st.integers(0, 3000),
    rates=st.tuples(st.sampled_from(RATES), st.sampled_from((8000, 16000, 17_777, 44100))),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=6).filter(any),
)
def test_length_and_chunks_hold_for_every_size(frames, rates, sizes):
    samples = noise(frames)
    whole = resample(samples, *rates)
    assert whole.dtype == np.float32
    assert len(whole) == int(np.floor(frames * rates[1] / rates[0] + 0.5))
    np.testing.assert_array_equal(in_chunks(StreamResampler(*rates), samples, sizes), whole)


@pytest.mark.parametrize("rate", RATES)
def test_a_tone_stays_a_tone(rate):
    """1 kHz at any rate is 1 kHz at 16 kHz, of the same size and at the same time."""
    tone = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)
    got = resample(tone, rate, 16000)
    wanted = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    np.testing.assert_allclose(got[1000:-1000], wanted[1000:-1000], atol=2e-4)


def test_what_does_not_fit_is_filtered_out():
    tone = np.sin(2 * np.pi * 15_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(resample(tone, 48_000, 16_000)[1000:-1000]).max() < 1e-4


@pytest.mark.parametrize("rate", RATES)
def test_reset_is_exactly_a_new_stream(rate):
    used, samples = StreamResampler(rate, 16000), noise(5000, seed=1)
    used.feed(noise(3333))
    used.feed(np.full(10, np.nan, np.float32))
    used.reset()
    assert used.replaced == 0
    np.testing.assert_array_equal(in_chunks(used, samples, [100]), resample(samples, rate, 16000))


def test_channels_are_resampled_each_for_itself():
    samples = noise(9000, channels=3)
    both = in_chunks(StreamResampler(44100, 16000, 3), samples, [512])
    for channel in range(3):
        np.testing.assert_allclose(both[channel], resample(samples[channel], 44100, 16000), atol=1e-6)
    np.testing.assert_array_equal(resample(samples, 44100, 16000), both)
    np.testing.assert_array_equal(resample(samples[:1], 44100, 16000)[0], resample(samples[0], 44100, 16000))


def test_equal_rates_change_nothing():
    samples = noise(100)
    np.testing.assert_array_equal(in_chunks(StreamResampler(16000, 16000), samples, [7]), samples)


def test_a_nan_block_is_silence_and_is_counted():
    samples = noise(20_000)
    samples[5000:5100] = np.nan
    samples[7000] = np.inf
    silent = np.where(np.isfinite(samples), samples, 0)
    stream = StreamResampler(48000, 16000)
    np.testing.assert_array_equal(in_chunks(stream, samples, [480]), resample(silent, 48000, 16000))
    assert stream.replaced == 101


def test_finite_leaves_good_samples_alone():
    samples = noise(10)
    assert finite(samples)[0] is samples
    huge = np.full(4, 3e38, np.float32)
    np.testing.assert_array_equal(finite(huge)[0], huge)
    assert finite(huge)[1] == 0
    cancelled, count = finite(np.array([np.inf, -np.inf, 1], np.float32))
    assert (cancelled.tolist(), count) == ([0, 0, 1], 2)


@pytest.mark.parametrize(("rates", "channels"), [((0, 16000), 1), ((16000, -1), 1), ((8000.5, 16000), 1), ((1, 2), 0)])
def test_wrong_rates_are_refused(rates, channels):
    with pytest.raises(InputError, match="at least 1"):
        StreamResampler(*rates, channels)


def test_wrong_samples_are_refused():
    stream = StreamResampler(8000, 16000, 2)
    with pytest.raises(InputError, match=r"\(2, frames\) was wanted"):
        stream.feed(noise(10))
    with pytest.raises(InputError, match="/ 32768"):
        stream.feed(np.zeros((2, 10), np.int16))
    stream.finish()
    with pytest.raises(InputError, match="reset"):
        stream.feed(noise(10, channels=2))


def test_without_soxr_equal_rates_work_and_others_say_what_to_install():
    code = """
import sys; sys.modules["soxr"] = sys.modules["torch"] = None
import numpy as np
from voiceseq.audio.resample import resample
from voiceseq.errors import MissingDependencyError
assert len(resample(np.zeros(5, np.float32), 16000, 16000)) == 5
try: resample(np.zeros(5, np.float32), 8000, 16000)
except MissingDependencyError as error: print(error)
"""
    assert "pip install soxr" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
