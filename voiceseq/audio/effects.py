"""What happens to sound on its way to a recogniser, one function each; no torch, no chance in it (``augment`` draws).

Samples are ``(n,)`` float32, full scale being 1, and so is the result; only ``speed`` and ``tempo`` change n. Silence
stays silence. Nothing is delayed: filters work on the spectrum of the whole and leave the phase alone.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.resample import resample

Samples = NDArray[np.float32]

FRAME_S = 0.02  # levels are measured on frames of so long
ACTIVE_DB = 30.0  # and on those that are at most so far below the loudest one
SILENT = 1e-20  # less power than this is none, 200 dB below full scale
FILTER_S = 0.1  # silence after the end, so that a filter's ripples do not come round to the beginning
SPEED_STEPS = 1000  # speeds are multiples of 1/1000: the resampler works with whole numbers
VOCODER_S = 0.032  # window of the phase vocoder: longer ones smear consonants, shorter ones blur low voices
PHONE_RATE = 8000
PHONE_HZ = (300.0, 3400.0)
PHONE_EDGES_HZ = (50.0, 150.0)  # widths of the slopes, which lie inside the band: nothing is left outside
MU_BIAS, MU_MOST = 132, 32635  # of G.711, in units of 16-bit samples
CODEC_FRAME_S = 0.032
CODEC_BANDS = 20


def gain(samples: Samples, db: float) -> Samples:
    """``db`` louder."""
    return samples * np.float32(10 ** (db / 20))


def active_level_db(samples: Samples, sample_rate: int) -> float:
    """The level of the frames in which something sounds, in dB below full scale; -inf for silence."""
    size = min(len(samples), max(1, round(FRAME_S * sample_rate)))
    whole = samples[: len(samples) // size * size].reshape(-1, size)
    power = np.einsum("ij,ij->i", whole, whole, dtype=np.float64) / size
    if power.max() < SILENT:
        return -np.inf
    return float(10 * np.log10(power[power >= power.max() * 10 ** (-ACTIVE_DB / 10)].mean()))


def looped(samples: Samples, start: int, length: int) -> Samples:
    """``length`` samples from ``start`` on, from the beginning again where the end is reached."""
    if start + length <= len(samples):
        return samples[start : start + length]
    return np.take(samples, np.arange(start, start + length), mode="wrap")


def mix(samples: Samples, noise: Samples, snr_db: float, sample_rate: int) -> Samples:
    """``samples`` with as much of ``noise (n,)`` that it is ``snr_db`` below them, both measured where they are active.

    Where one of the two is silent there is no ratio, and nothing is added.
    """
    speech_db, noise_db = active_level_db(samples, sample_rate), active_level_db(noise, sample_rate)
    if not np.isfinite(speech_db - noise_db):
        return samples
    return samples + gain(noise, speech_db - noise_db - snr_db)


def filtered(samples: Samples, sample_rate: int, gains: NDArray[np.float64], hz: NDArray[np.float64]) -> Samples:
    """A filter without delay: factors ``gains`` at the frequencies ``hz`` (rising), straight lines between them."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(len(samples) + round(FILTER_S * sample_rate), real=True)
    curve = np.interp(np.arange(size // 2 + 1) * (sample_rate / size), hz, gains).astype(np.float32)
    return irfft(rfft(samples, size) * curve, size)[: len(samples)].astype(np.float32, copy=False)


def equalise(samples: Samples, sample_rate: int, db: NDArray[np.float64]) -> Samples:
    """``db (m,)`` at m frequencies that stand evenly on a logarithmic scale from 60 Hz up, and smooth between them."""
    hz = np.geomspace(60, sample_rate / 2, 256)
    place = np.linspace(0, len(db) - 1, 256)
    before = np.minimum(place.astype(int), max(0, len(db) - 2))
    after = np.minimum(before + 1, len(db) - 1)
    share = 0.5 - 0.5 * np.cos(np.pi * (place - before))
    return filtered(samples, sample_rate, 10 ** ((db[before] * (1 - share) + db[after] * share) / 20), hz)


def band_pass(samples: Samples, sample_rate: int, low_hz: float, high_hz: float, order: int = 4) -> Samples:
    """3 dB down at both edges and steeper outside, as a Butterworth filter is: 6 dB an octave for each order.

    An edge of 0 or of half the sample rate and more is none.
    """
    hz = np.linspace(0, sample_rate / 2, 4096)
    power = np.ones_like(hz)
    if low_hz > 0:
        power /= 1 + (low_hz / np.maximum(hz, 1e-3)) ** (2 * order)
    if high_hz < sample_rate / 2:
        power /= 1 + (hz / high_hz) ** (2 * order)
    return filtered(samples, sample_rate, np.sqrt(power), hz)


def mu_law_encode(samples: Samples) -> NDArray[np.uint8]:
    """G.711's mu-law codes: sign, three bits of exponent, four of mantissa, all inverted; 0 is 0xFF."""
    value = np.round(np.clip(samples, -1, 1) * 32768).astype(np.int32)
    size = np.minimum(np.abs(value), MU_MOST) + MU_BIAS
    exponent = np.frexp(size.astype(np.float32))[1] - 8  # the highest bit that is set, counted from the eighth
    mantissa = (size >> (exponent + 3)) & 0x0F
    return ~(np.where(value < 0, 0x80, 0) | exponent << 4 | mantissa).astype(np.uint8)


def mu_law_decode(codes: NDArray[np.uint8]) -> Samples:
    """The inverse: the middle of each step."""
    return _mu_law_table()[codes]


@lru_cache
def _mu_law_table() -> Samples:
    code = ~np.arange(256, dtype=np.uint8)
    size = ((((code & 0x0F).astype(np.int32) << 3) + MU_BIAS) << ((code >> 4) & 7)) - MU_BIAS
    return (np.where(code & 0x80, -size, size) / 32768).astype(np.float32)


def telephone(samples: Samples, sample_rate: int, mu_law: bool = True) -> Samples:
    """Through 8 kHz, 300 to 3400 Hz and the 8 bits of G.711 and back: what a call leaves of a voice."""
    narrow = resample(samples, sample_rate, PHONE_RATE)
    (low, high), (rise, fall) = PHONE_HZ, PHONE_EDGES_HZ
    hz = np.linspace(0, PHONE_RATE / 2, 4096)
    slopes = np.clip(np.minimum((hz - low) / rise, (high - hz) / fall), 0, 1)
    narrow = filtered(narrow, PHONE_RATE, np.sin(np.pi / 2 * slopes) ** 2, hz)
    wide = resample(mu_law_decode(mu_law_encode(narrow)) if mu_law else narrow, PHONE_RATE, sample_rate)
    return np.pad(wide[: len(samples)], (0, max(0, len(samples) - len(wide))))


def clip(samples: Samples, share: float) -> Samples:
    """Cut off at the level that ``share`` of the samples reach, as an amplifier does that was turned up too far.

    A recording that is at 0 for longer than the rest of its samples allow stays as it is.
    """
    count = round(share * len(samples))
    if count == 0:
        return samples
    limit = np.partition(np.abs(samples), len(samples) - count)[len(samples) - count]
    return np.clip(samples, -limit, limit) if limit > 0 else samples


def quantise(samples: Samples, bits: int) -> Samples:
    """Rounded to ``2 ** bits - 1`` steps from peak to peak, 0 being one of them."""
    step = np.abs(samples).max() / np.float32(2 ** (bits - 1) - 0.5)
    return np.round(samples / step) * step if step > 0 else samples


def offset(samples: Samples, share: float) -> Samples:
    """A constant of ``share`` times the peak is added: a worn microphone or a cheap converter."""
    return samples + np.float32(share) * np.abs(samples).max()


def codec(samples: Samples, sample_rate: int, floor_db: float, coarseness: float) -> Samples:
    """The losses of a codec with few bits, simply: short spectra, some bands dropped, the others rounded.

    Half-overlapping windows of 32 ms are transformed. In each, 20 bands that widen upwards are compared with the
    loudest: those more than ``floor_db`` below it are dropped, in the others the coefficients are rounded to multiples
    of ``coarseness`` times the band's root mean square. Music-like chirps and holes in the treble are the result.
    """
    from scipy.fft import irfft, rfft

    hop = max(2, round(CODEC_FRAME_S * sample_rate / 2))
    count = -(-len(samples) // hop) + 1
    padded = np.pad(samples, (hop, count * hop - len(samples)))
    window = np.sin(np.pi * (np.arange(2 * hop, dtype=np.float32) + 0.5) / (2 * hop))
    frames = np.lib.stride_tricks.sliding_window_view(padded, 2 * hop)[::hop] * window
    kept = irfft(_coarse(rfft(frames), floor_db, coarseness), 2 * hop) * window
    return (kept[:-1, hop:] + kept[1:, :hop]).reshape(-1)[: len(samples)].astype(np.float32, copy=False)


def _coarse(spectra: NDArray[np.complex64], floor_db: float, coarseness: float) -> NDArray[np.complex64]:
    """``(frames, bins)`` with the bins of each band dropped or rounded together."""
    bins = spectra.shape[1]
    edges = np.unique((bins * np.linspace(0, 1, CODEC_BANDS, endpoint=False) ** 1.7).astype(int))
    width = np.diff(edges, append=bins)
    parts = spectra.view(np.float32).reshape(*spectra.shape, 2)
    power = np.add.reduceat(np.einsum("tfc,tfc->tf", parts, parts), edges, axis=1) / width.astype(np.float32)
    heard = power > power.max(1, keepdims=True) * np.float32(10 ** (-floor_db / 10))
    step = np.where(heard, np.sqrt(power) * np.float32(coarseness), 0)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
    step, inverse = np.repeat(step, width, 1)[..., None], np.repeat(inverse, width, 1)[..., None]
    return (np.round(parts * inverse) * step).view(np.complex64)[..., 0]


def whole_speed(factor: float) -> float:
    """The speed that is really taken: the nearest multiple of 1/1000."""
    return round(factor * SPEED_STEPS) / SPEED_STEPS


def speed(samples: Samples, factor: float) -> Samples:
    """Played faster by ``whole_speed(factor)``: higher and shorter, ``(n / factor,)`` rounded."""
    return resample(samples, round(factor * SPEED_STEPS), SPEED_STEPS)


def tempo(samples: Samples, sample_rate: int, factor: float) -> Samples:
    """Spoken faster by ``factor`` at the same pitch, ``(n / factor,)`` rounded: librosa's phase vocoder."""
    import librosa

    size = max(16, 4 * round(VOCODER_S * sample_rate / 4))
    long_enough = np.pad(samples, (0, max(0, size - len(samples))))
    stretched = librosa.effects.time_stretch(long_enough, rate=factor, n_fft=size)
    return stretched[: max(1, round(len(samples) / factor))].astype(np.float32, copy=False)


def pitch(samples: Samples, sample_rate: int, semitones: float) -> Samples:
    """Higher by ``semitones`` (the voice's resonances, too) in the same time: slower, then played faster."""
    factor = whole_speed(2 ** (semitones / 12))
    shifted = speed(tempo(samples, sample_rate, 1 / factor), factor)[: len(samples)]
    return np.pad(shifted, (0, len(samples) - len(shifted)))
