"""Noises that need no recordings (hiss, fans, hum, crackle, chimes, blips, a band), for machines that have none."""

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
    """Noise whose power falls with frequency as f^-slope: white at 0 (a fifth of all), pink at 1, brown at 2."""
    slope = max(0.0, float(rng.uniform(-0.5, 2.0)))
    return shaped(rng, count, lambda hz: np.maximum(hz, 20.0) ** (-slope / 2), sample_rate)


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


def blips(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """What machines and games say: tones that slide, wobble, buzz and echo."""
    samples = 0.005 * coloured(rng, count, sample_rate)
    for start in rng.integers(0, count, int(rng.uniform(1, 6) * count / sample_rate) + 1):
        size = min(int(sample_rate * 10 ** rng.uniform(-1.5, 0.0)), count - int(start))
        time = np.arange(size) / sample_rate
        low, high = 10 ** rng.uniform(2.0, 3.5, 2)
        pitch = low * (high / low) ** (time / (size / sample_rate) * rng.choice([0.0, 0.3, 1.0]))
        wobble = rng.uniform(0, 4) * np.sin(2 * np.pi * pitch * rng.choice([0.5, 1.0, 1.41, 2.0, 3.0]) * time)
        tone = np.tanh(10 ** rng.uniform(-0.5, 1.0) * np.sin(2 * np.pi * np.cumsum(pitch) / sample_rate + wobble))
        tone *= np.minimum(1, time * 200) * np.exp(-rng.uniform(0, 12) * time) * 10 ** rng.uniform(-1, 0)
        for echo in range(int(rng.integers(1, 4))):
            at = int(start) + echo * int(rng.uniform(0.08, 0.4) * sample_rate)
            room = max(0, min(size, count - at))
            samples[at : at + room] += 0.5**echo * tone[:room]
    return samples


def band(rng: np.random.Generator, count: int, sample_rate: int) -> NDArray[np.float64]:
    """Drums, a bass, chords and a tune, some of them silent, over and over with changes."""
    beat = int(sample_rate * 60 / rng.uniform(70, 170) / 2)  # an eighth
    steps, scale = count // beat + 1, rng.choice([0, 2, 3, 5, 7, 8, 10]) + np.array([0, 2, 4, 5, 7, 9, 11])
    plays = rng.random(4) < (0.6, 0.6, 0.6, 0.5)
    samples, root = np.zeros(count + 8 * beat), rng.uniform(50, 110)
    chords, riff = rng.integers(0, 7, 4), rng.integers(0, 14, 16)
    kicks, snares, hats = (rng.random(16) < share for share in (0.35, 0.25, 0.6))
    edge, bright = rng.uniform(0.5, 8, 3), rng.uniform(1, 9, 3)

    def tone(degree: int, octave: int, length: float, part: int, shake: float = 0.0) -> NDArray[np.float64]:
        time = np.arange(int(length * beat)) / sample_rate
        pitch = root * 2 ** (octave + degree // 7 + scale[degree % 7] / 12)
        phase = 2 * np.pi * pitch * time + shake * np.sin(2 * np.pi * 5.5 * time)
        found = np.tanh(edge[part] * np.sin(phase)) + 0.5 * np.sin(2.003 * phase)
        return np.asarray(found * np.minimum(1, time * 80) * np.exp(-bright[part] * time))

    for step in range(steps):
        chord, at = int(chords[step // 8 % 4]), step * beat
        parts: list[tuple[float, NDArray[np.float64]]] = []
        time = np.arange(beat) / sample_rate
        if plays[0]:
            parts += [(1.0, np.sin(2 * np.pi * (50 * time + 8 * (1 - np.exp(-30 * time)))) * np.exp(-12 * time))] * int(
                kicks[step % 16]
            )
            parts += [(0.5, rng.standard_normal(beat) * np.exp(-20 * time))] * int(snares[step % 16])
            parts += [(0.3, np.diff(rng.standard_normal(beat + 1)) * np.exp(-60 * time))] * int(hats[step % 16])
        if plays[1] and step % 2 == 0:
            parts.append((0.6, tone(chord, 0, 2, 0)))
        if plays[2] and step % 4 == 0:
            parts += [(0.25, tone(chord + third, 2, 4, 1)) for third in (0, 2, 4)]
        if plays[3] and rng.random() < 0.7:
            parts.append((0.4, tone(int(riff[step % 16]), 3, float(rng.choice([1, 1, 2, 3])), 2, rng.uniform(0, 1))))
        for level, sound in parts:
            samples[at : at + len(sound)] += level * sound[: len(samples) - at]
    return samples[:count] + 0.002 * coloured(rng, count, sample_rate)


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
    "blips": blips,
    "band": band,
}
