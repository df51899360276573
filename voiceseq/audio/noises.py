"""Noises that need no recordings (hiss, rumble, hum, crackle, fans, chimes), for machines that have none."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.files import Audio

Samples = NDArray[np.float32]


def made_noises(count: int, seed: int = 0, seconds: float = 8.0, sample_rate: int = 16_000) -> list[Audio]:
    """``count`` noises of all kinds in turn, the same for the same seed; the loudest sample is 0.5."""
    kinds = tuple(KINDS.values())
    made = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        samples = kinds[number % len(kinds)](rng, round(seconds * sample_rate), sample_rate)
        made.append(Audio((0.5 * samples / (np.abs(samples).max() + 1e-9)).astype(np.float32), sample_rate))
    return made


def coloured(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """Noise whose power falls with frequency as f^-slope: white at 0, pink at 1, brown at 2."""
    return shaped(rng, count, lambda hz: np.maximum(hz, 20.0) ** (-float(rng.uniform(0.0, 2.2)) / 2), sample_rate)


def fan(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """A broad band of noise that swells at the speed of the blades."""
    centre, width = rng.uniform(150, 3000), rng.uniform(100, 1500)
    noise = shaped(rng, count, lambda hz: np.exp(-(((hz - centre) / width) ** 2)) + 0.05, sample_rate)
    time = np.arange(count) / sample_rate
    return noise * (1 + rng.uniform(0, 0.6) * np.sin(2 * np.pi * rng.uniform(0.3, 30) * time))


def hum(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """Mains and its harmonics over a little hiss."""
    base = rng.choice([50.0, 60.0]) * rng.uniform(0.995, 1.005)
    time = np.arange(count) / sample_rate
    tones = sum(rng.uniform(0.1, 1) / n * np.sin(2 * np.pi * (base * n * time + rng.random())) for n in range(1, 12))
    return np.asarray(tones) + 0.05 * coloured(rng, count, sample_rate)


def crackle(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """Clicks, knocks and rustling: short bursts at any time."""
    samples = 0.02 * coloured(rng, count, sample_rate)
    for start in rng.integers(0, count, int(rng.uniform(2, 12) * count / sample_rate)):
        size = min(int(sample_rate * 10 ** rng.uniform(-3, -0.9)), count - int(start))
        burst = shaped(rng, max(size, 16), lambda hz: np.maximum(hz, 50.0) ** -float(rng.uniform(0, 1)), sample_rate)[
            :size
        ]
        samples[start : start + size] += 10 ** rng.uniform(-1, 0) * burst * np.exp(-5 * np.arange(size) / max(size, 1))
    return samples


def chimes(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """Notes of a scale, one after another and together, with overtones that fade: the simplest of music."""
    samples, scale = np.zeros(count), np.array([0, 2, 4, 5, 7, 9, 11])
    root, beat = rng.uniform(80, 400), rng.uniform(0.12, 0.6)
    for start in range(0, count, int(beat * sample_rate)):
        for _ in range(rng.integers(0, 4)):
            size = min(int(rng.uniform(1, 4) * beat * sample_rate), count - start)
            time = np.arange(size) / sample_rate
            pitch = root * 2 ** ((rng.choice(scale) + 12 * rng.integers(0, 3)) / 12)
            tone = sum(rng.uniform(0, 1) / n * np.sin(2 * np.pi * pitch * n * time) for n in range(1, 7))
            samples[start : start + size] += tone * np.exp(-rng.uniform(1, 8) * time)
    return samples + 0.002 * coloured(rng, count, sample_rate)


def shaped(
    rng: np.random.Generator, count: int, gain: Callable[[NDArray[np.float64]], NDArray[np.float64]], sample_rate: int
) -> NDArray[np.float64]:
    """White noise with this gain over frequency, at a mean power of 1."""
    spectrum = np.fft.rfft(rng.standard_normal(count))
    samples = np.fft.irfft(spectrum * gain(np.asarray(np.fft.rfftfreq(count, 1 / sample_rate), np.float64)), count)
    return np.asarray(samples / (samples.std() + 1e-12))


KINDS: dict[str, Callable[[np.random.Generator, int, int], NDArray[np.float64]]] = {
    "coloured": coloured,
    "fan": fan,
    "hum": hum,
    "crackle": crackle,
    "chimes": chimes,
}
