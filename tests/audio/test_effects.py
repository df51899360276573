"""Each effect does what it says, by measure: levels, bands, codes, shares, lengths."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio import effects

RATE = 16_000


def noise(size: int, seed: int = 0, level: float = 0.1) -> np.ndarray:
    return (level * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def sine(hz: float, seconds: float = 1.0, rate: int = RATE, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def db(power: float) -> float:
    return float(10 * np.log10(power))


def power(samples: np.ndarray) -> float:
    return float(np.mean(samples.astype(np.float64) ** 2))


def peak_hz(samples: np.ndarray, rate: int = RATE) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 1 << 19))
    return float(np.argmax(spectrum)) * rate / (1 << 19)


def level_at(samples: np.ndarray, hz: float, rate: int = RATE) -> float:
    """The amplitude of a sine, from the middle of the samples."""
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(np.float64)
    window = np.hanning(len(middle))
    wave = np.exp(-2j * np.pi * hz * np.arange(len(middle)) / rate)
    return float(2 * abs(middle * window @ wave) / window.sum())


def band_power(samples: np.ndarray, low: float, high: float, rate: int = RATE) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)))) ** 2
    hz = np.arange(len(spectrum)) * rate / len(samples)
    return float(spectrum[(hz >= low) & (hz < high)].sum())


@given(st.floats(-60, 40))
def test_gain_is_exact(wanted):
    samples = noise(500)
    assert db(power(effects.gain(samples, wanted)) / power(samples)) == pytest.approx(wanted, abs=1e-4)


def test_the_level_is_that_of_the_speech_and_not_of_the_pauses():
    pauses = np.concatenate((np.zeros(RATE, np.float32), sine(440), noise(RATE, level=1e-3)))
    assert effects.active_level_db(pauses, RATE) == pytest.approx(db(0.125), abs=1e-3)
    assert effects.active_level_db(np.zeros(100, np.float32), RATE) == -np.inf
    assert effects.active_level_db(np.full(1, 0.1, np.float32), RATE) == pytest.approx(-20, abs=1e-4)


@settings(max_examples=50)
@given(snr_db=st.floats(-20, 60), level=st.floats(1e-4, 1), seed=st.integers(0, 99))
def test_the_ratio_is_the_one_asked_for(snr_db, level, seed):
    """Speech for one second of three; the noise is what was added."""
    speech = np.concatenate((np.zeros(RATE, np.float32), noise(RATE, seed), np.zeros(RATE, np.float32)))
    other = noise(len(speech), seed + 100, level)
    added = effects.mix(speech, other, snr_db, RATE).astype(np.float64) - speech
    assert db(power(speech[RATE:-RATE]) / power(added)) == pytest.approx(snr_db, abs=0.1)
    assert np.corrcoef(added, other)[0, 1] > 0.99


def test_silence_has_no_ratio_to_noise():
    silence, hiss = np.zeros(1000, np.float32), noise(1000)
    np.testing.assert_array_equal(effects.mix(silence, hiss, 10, RATE), silence)
    np.testing.assert_array_equal(effects.mix(hiss, silence, 10, RATE), hiss)
    np.testing.assert_array_equal(effects.mix(hiss, np.full(1000, 1e-44, np.float32), 10, RATE), hiss)


@given(size=st.integers(1, 50), start=st.integers(0, 49), length=st.integers(0, 200))
def test_noise_goes_round(size, start, length):
    samples = np.arange(size, dtype=np.float32)
    wanted = [(start % size + i) % size for i in range(length)]
    assert effects.looped(samples, start % size, length).tolist() == wanted


def test_the_equaliser_has_its_factors_at_its_frequencies():
    curve = np.array([-6.0, 3.0, 0.0, 8.0, -10.0])
    for hz, wanted in zip(np.geomspace(60, RATE / 2, 5), curve, strict=True):
        hz = min(hz, 7800)
        got = level_at(effects.equalise(sine(hz, 2.0), RATE, curve), hz)
        assert 20 * np.log10(got / 0.5) == pytest.approx(wanted, abs=0.4)
    between = level_at(effects.equalise(sine(1500, 2.0), RATE, curve), 1500)
    assert 0 < 20 * np.log10(between / 0.5) < 8
    flat = effects.equalise(noise(5000), RATE, np.zeros(4))
    np.testing.assert_allclose(flat, noise(5000), atol=1e-6)


def test_filters_delay_nothing():
    click = np.zeros(4001, np.float32)
    click[2000] = 1
    for heard in (
        effects.band_pass(click, RATE, 100, 4000),
        effects.equalise(click, RATE, np.array([5.0, -5.0, 2.0])),
        effects.telephone(click, RATE, mu_law=False),
    ):
        assert np.argmax(np.abs(heard)) == 2000
        np.testing.assert_allclose(heard[2000 - 500 : 2001], heard[2000:2501][::-1], atol=2e-3)


def test_the_end_does_not_come_round_to_the_beginning():
    click = np.zeros(4000, np.float32)
    click[-1] = 1
    assert np.abs(effects.band_pass(click, RATE, 100, 4000)[:200]).max() < 1e-4


@pytest.mark.parametrize("order", [2, 4, 8])
def test_the_band_falls_as_butterworth_says(order):
    for hz in (100, 200, 1000, 4000, 6000):
        wanted = -db(1 + (200 / hz) ** (2 * order)) - db(1 + (hz / 4000) ** (2 * order))
        got = level_at(effects.band_pass(sine(hz, 2.0), RATE, 200, 4000, order), hz)
        assert 20 * np.log10(got / 0.5) == pytest.approx(wanted, abs=0.3)
    np.testing.assert_allclose(effects.band_pass(noise(3000), RATE, 0, 8000), noise(3000), atol=1e-6)


# 16-bit samples and their codes as G.711's table of decision values gives them.
KNOWN = {
    0: 0xFF,
    8: 0xFE,
    -8: 0x7E,
    100: 0xF2,
    -100: 0x72,
    1000: 0xCE,
    -1000: 0x4E,
    10_000: 0x9C,
    32767: 0x80,
    -32768: 0,
}


def test_mu_law_codes_of_known_values():
    values = np.array(list(KNOWN), np.float32) / 32768
    assert effects.mu_law_encode(values).tolist() == list(KNOWN.values())
    assert effects.mu_law_decode(np.array([0xFF, 0x80, 0x00, 0xFE], np.uint8)).tolist() == [
        0,
        32124 / 32768,
        -32124 / 32768,
        8 / 32768,
    ]


def libsndfile(data: bytes | np.ndarray) -> np.ndarray | bytes:
    """Another's mu-law: decodes bytes, encodes 16-bit samples."""
    if isinstance(data, bytes):
        return soundfile.read(
            io.BytesIO(data), samplerate=8000, channels=1, format="RAW", subtype="ULAW", dtype="int16"
        )[0]
    file = io.BytesIO()
    soundfile.write(file, data, 8000, format="RAW", subtype="ULAW")
    return file.getvalue()


def test_mu_law_is_libsndfiles():
    codes = np.arange(256, dtype=np.uint8)
    ours = (effects.mu_law_decode(codes) * 32768).astype(np.int16)
    np.testing.assert_array_equal(ours, libsndfile(codes.tobytes()))
    assert ((effects.mu_law_encode(ours.astype(np.float32) / 32768) == codes) | (codes == 0x7F)).all()  # -0 is 0
    every = np.arange(-32768, 32768).astype(np.int16)
    theirs = np.frombuffer(libsndfile(every), np.uint8)
    ours = effects.mu_law_encode(every.astype(np.float32) / 32768)
    assert (ours[every >= 0] == theirs[every >= 0]).mean() > 0.999
    far = np.abs(effects.mu_law_decode(ours) - effects.mu_law_decode(theirs)) * 32768
    assert (far <= np.maximum(16, np.abs(every.astype(float)) / 15)).all()  # at a step's edge the next one


def test_mu_law_round_trip_is_within_half_a_step():
    samples = np.linspace(-0.99, 0.99, 100_001).astype(np.float32)
    back = effects.mu_law_decode(effects.mu_law_encode(samples))
    # Steps are 8 / 32768 near 0 and a 16th of the power of two below the biased size elsewhere.
    size = np.round(np.abs(samples) * 32768) + 132
    half_step = 2.0 ** (np.floor(np.log2(size)) - 5)
    assert (np.abs(back - samples) * 32768 <= half_step + 0.51).all()  # and the rounding to 16 bits
    assert (np.diff(back) >= 0).all()
    loud = np.array([5.0, -5.0], np.float32)
    assert effects.mu_law_encode(loud).tolist() == [0x80, 0x00]


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
@pytest.mark.parametrize("mu_law", [True, False])
def test_the_telephone_leaves_its_band_alone(rate, mu_law):
    """White noise: outside of 300 to 3400 Hz there are 30 dB less, inside it is as it was."""
    samples = noise(2 * rate)
    heard = effects.telephone(samples, rate, mu_law)
    assert len(heard) == len(samples)
    inside = band_power(heard, 300, 3400, rate)
    outside = band_power(heard, 0, 300, rate) + band_power(heard, 3400, rate, rate)
    assert db(outside / inside) < (-30 if mu_law else -60)
    assert db(band_power(heard, 400, 3200, rate) / band_power(samples, 400, 3200, rate)) == pytest.approx(0, abs=0.1)


def test_mu_law_is_heard_in_the_telephone():
    samples = sine(1013, level=0.3)
    difference = effects.telephone(samples, RATE) - effects.telephone(samples, RATE, mu_law=False)
    assert 28 < db(power(samples) / power(difference)) < 42  # G.711 has about 37 dB


@given(share=st.floats(0, 0.9), seed=st.integers(0, 9))
def test_the_share_asked_for_is_clipped(share, seed):
    samples = noise(2000, seed)
    clipped = effects.clip(samples, share)
    limit = np.abs(clipped).max()
    count = round(share * 2000)
    assert (np.abs(clipped) >= limit).sum() == max(1, count)
    np.testing.assert_array_equal(clipped, np.clip(samples, -limit, limit))


def test_clipping_does_not_wipe_out_a_short_word_in_silence():
    samples = np.concatenate((np.zeros(10_000, np.float32), noise(100)))
    np.testing.assert_array_equal(effects.clip(samples, 0.5), samples)


@given(bits=st.integers(2, 16), level=st.floats(1e-3, 10))
def test_rounding_has_its_steps(bits, level):
    samples = noise(3000, level=level)
    rounded = effects.quantise(samples, bits)
    step = np.abs(samples).max() / (2 ** (bits - 1) - 0.5)
    exact = 1e-6 * np.abs(samples).max()  # float32 has no more digits
    assert np.abs(rounded - samples).max() <= step * 0.501 + exact
    np.testing.assert_allclose(rounded / step, np.round(rounded / step), atol=1e-2)
    assert len(np.unique(np.round(rounded / step))) <= 2**bits


def test_the_offset_is_a_share_of_the_peak():
    samples = sine(100, level=0.4)
    assert (effects.offset(samples, -0.25) - samples).mean() == pytest.approx(-0.1, abs=1e-4)


def test_the_codec_drops_weak_bands_and_rounds_the_others():
    both = sine(500, level=0.5) + sine(6000, level=0.005)  # 40 dB apart
    kept, dropped = effects.codec(both, RATE, 60, 0.01), effects.codec(both, RATE, 20, 0.01)
    assert level_at(kept, 6000) == pytest.approx(0.005, rel=0.05)
    assert level_at(dropped, 6000) < 1e-4
    assert level_at(dropped, 500) == pytest.approx(0.5, rel=0.02)
    hiss = noise(RATE)
    loss = [db(power(effects.codec(hiss, RATE, 60, c) - hiss) / power(hiss)) for c in (0.01, 0.3, 1)]
    # A rounding error has a twelfth of the squared step: two parts have it, and the second window takes half away.
    assert loss[0] == pytest.approx(db(0.01**2 / 12), abs=0.5)
    assert loss[0] < loss[1] < loss[2] < 0


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 511, 512, 513, 5000])
def test_a_fine_codec_gives_back_what_came(size):
    np.testing.assert_allclose(effects.codec(noise(size), RATE, 120, 1e-4), noise(size), atol=1e-3)


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.037, 1.25])
def test_speed_moves_pitch_and_length(factor):
    fast = effects.speed(sine(1000, 2.0), factor)
    assert len(fast) == round(2 * RATE / factor)
    assert peak_hz(fast) == pytest.approx(1000 * factor, rel=1e-3)
    assert effects.whole_speed(1.03749) == 1.037


@pytest.mark.parametrize("factor", [0.8, 1.037, 1.25])
def test_tempo_moves_the_length_alone(factor):
    fast = effects.tempo(sine(1000, 2.0), RATE, factor)
    assert len(fast) == round(2 * RATE / factor)
    assert peak_hz(fast) == pytest.approx(1000, rel=2e-3)
    assert db(power(fast) / 0.125) == pytest.approx(0, abs=1)


@pytest.mark.parametrize("semitones", [-4, -1, 2.5, 7])
def test_pitch_moves_the_pitch_alone(semitones):
    high = effects.pitch(sine(800, 2.0), RATE, semitones)
    assert len(high) == 2 * RATE
    assert peak_hz(high) == pytest.approx(800 * 2 ** (semitones / 12), rel=3e-3)


@pytest.mark.parametrize("change", [lambda x: effects.tempo(x, RATE, 1.25), lambda x: effects.speed(x, 1.25)])
def test_bursts_stay_in_their_places_when_time_is_scaled(change):
    samples = np.zeros(2 * RATE, np.float32)
    samples[10_000:12_000] = sine(700, 0.125)
    loud = np.flatnonzero(np.abs(change(samples)) > 0.1)
    assert loud[0] == pytest.approx(8000, abs=160)
    assert loud[-1] == pytest.approx(9600, abs=160)


ALL = {
    "gain": lambda x: effects.gain(x, 6),
    "equalise": lambda x: effects.equalise(x, RATE, np.array([3.0, -3.0])),
    "band_pass": lambda x: effects.band_pass(x, RATE, 100, 5000),
    "telephone": lambda x: effects.telephone(x, RATE),
    "clip": lambda x: effects.clip(x, 0.1),
    "quantise": lambda x: effects.quantise(x, 8),
    "offset": lambda x: effects.offset(x, 0.1),
    "codec": lambda x: effects.codec(x, RATE, 30, 0.5),
    "pitch": lambda x: effects.pitch(x, RATE, 3),
    "tempo": lambda x: effects.tempo(x, RATE, 0.9),
    "speed": lambda x: effects.speed(x, 1.1),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [1, 7, 400, 3001])
def test_lengths_types_and_silence_are_kept(name, size):
    silence = np.zeros(size, np.float32)
    got = ALL[name](silence)
    assert not got.any()
    samples = noise(size)
    before = samples.copy()
    got = ALL[name](samples)
    np.testing.assert_array_equal(samples, before)
    assert got.dtype == np.float32
    assert np.isfinite(got).all()
    assert len(got) == {"tempo": max(1, round(size / 0.9)), "speed": max(1, round(size / 1.1))}.get(name, size)
