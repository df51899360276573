"""How a test makes recorded words harder: noise at an exact ratio, rooms, the telephone, inside running speech.

What happens to a clip depends on its id, the condition and the seed, not on the other clips: a subset of a test gets
the same sounds as the whole.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio import effects
from voiceseq.audio.files import read_clip
from voiceseq.audio.rooms import Impulse, as_impulse, random_room, reverberate, room_response
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import active_span
from voiceseq.errors import ConfigError, InputError

Samples = NDArray[np.float32]

RATE = 16_000
BEFORE_S, AFTER_S = 1.5, 1.0  # silence around a clip: a detector needs time to wake, and its answer comes late
FADE_S, MARGIN_S = 0.02, 0.04  # of a word set into running speech
CARRIER_S = (3.0, 2.0)  # of speech before and after it, at most
SHORTEST_CARRIER_S = 3.0
ROOMS = 24  # simulated where no impulse responses are given
QUIET_DB = 10.0  # a stretch of noise so far below the noise's own level is a gap: another one is taken
DRAWS = 20
CONDITIONS = ("clean", "10db", "0db", "room", "telephone", "running")


@dataclass(frozen=True)
class Sound:
    """``samples (n,)`` at ``RATE`` with a word in them, from sample ``start`` to sample ``end``."""

    samples: Samples
    start: int
    end: int

    @property
    def end_s(self) -> float:
        return self.end / RATE


def read_word(clip: Clip) -> Sound:
    """The clip with silence around it; the word is where the row says, else where the clip is not silent.

    Raises InputError for times that lie outside the clip.
    """
    samples = read_clip(clip.audio, clip.offset, clip.duration, RATE)
    start, end = _span(clip, samples)
    before, after = round(BEFORE_S * RATE), round(AFTER_S * RATE)
    return Sound(np.pad(samples, (before, after)), start + before, end + before)


def _span(clip: Clip, samples: Samples) -> tuple[int, int]:
    times = clip.extra.get("word_start"), clip.extra.get("word_end")
    if not all(isinstance(time, int | float) for time in times):
        start_s, end_s = active_span(samples)
        return round(start_s * RATE), min(len(samples), round(end_s * RATE))
    start, end = (round(float(time) * RATE) for time in times if time is not None)
    if not 0 <= start < end <= len(samples) + RATE // 100:
        raise InputError(f"the word is said from {times[0]} to {times[1]} s of a clip of {clip.duration} s")
    return start, min(end, len(samples))


def with_noise(sound: Sound, noise: Samples, snr_db: float) -> Sound:
    """Noise ``(n,)`` under all of it, so loud that over the word the ratio of powers is exactly ``snr_db``.

    A word or noise that is silent there has no ratio: InputError.
    """
    part = slice(sound.start, sound.end)
    word, under = (float(np.sum(x[part].astype(np.float64) ** 2)) for x in (sound.samples, noise))
    if not (word > 0 and under > 0):
        raise InputError("the word or the noise under it is silent, so there is no ratio of the two")
    factor = np.sqrt(word / under / 10 ** (snr_db / 10))
    return Sound((sound.samples + factor * noise).astype(np.float32), sound.start, sound.end)


def spliced(sound: Sound, carrier: Samples) -> Sound:
    """The word between two stretches of running speech, as loud as that speech, joined by short cross-fades.

    The speech is opened where it is quietest in its middle third. InputError for speech that is too short or silent.
    """
    if len(carrier) < SHORTEST_CARRIER_S * RATE or not carrier.any():
        raise InputError(f"speech of {len(carrier) / RATE:.1f} s came; at least {SHORTEST_CARRIER_S} s were wanted")
    margin, fade = round(MARGIN_S * RATE), round(FADE_S * RATE)
    first, last = max(0, sound.start - margin), min(len(sound.samples), sound.end + margin)
    word = sound.samples[first:last]
    if word.any():
        word = effects.gain(word, effects.active_level_db(carrier, RATE) - effects.active_level_db(word, RATE))
    cut = quietest(carrier, len(carrier) // 3, 2 * len(carrier) // 3)
    before = carrier[max(0, cut - round(CARRIER_S[0] * RATE)) : cut]
    after = carrier[cut : cut + round(CARRIER_S[1] * RATE)]
    samples = crossfaded(crossfaded(before, word, fade), after, fade)
    begin = len(before) - fade + sound.start - first
    padded = np.pad(samples, (0, round(AFTER_S * RATE)))
    return Sound(padded, begin, begin + sound.end - sound.start)


def quietest(samples: Samples, first: int, last: int) -> int:
    """The middle of the quietest 50 ms between two samples."""
    size = round(0.05 * RATE)
    power = np.concatenate(([0.0], np.cumsum(samples[first:last].astype(np.float64) ** 2)))
    return first + int(np.argmin(power[size:] - power[:-size])) + size // 2


def crossfaded(one: Samples, other: Samples, overlap: int) -> Samples:
    """``one`` then ``other``, the last ``overlap`` samples of one fading into the first of the other."""
    rise = (0.5 - 0.5 * np.cos(np.pi * (np.arange(overlap) + 0.5) / overlap)).astype(np.float32)
    joint = one[-overlap:] * (1 - rise) + other[:overlap] * rise
    return np.concatenate((one[:-overlap], joint, other[overlap:]))


@dataclass(frozen=True)
class Hardener:
    """``hardener(condition, clip)``: the clip's word as that condition leaves it.

    Args:
        noises: clips of noise; without any, pink noise is made.
        rooms: clips of impulse responses; without any, rooms are simulated.
        speech: clips that words are set into, for ``running``.
    """

    noises: Sequence[Clip] = ()
    rooms: Sequence[Clip] = ()
    speech: Sequence[Clip] = ()
    seed: int = 0
    _made: dict[int, Impulse] = field(default_factory=dict, repr=False)

    def __call__(self, condition: str, clip: Clip) -> Sound:
        harder = self._find(condition)
        rng = np.random.default_rng((self.seed, zlib.crc32(clip.id.encode()), zlib.crc32(condition.encode())))
        try:
            return harder(read_word(clip), rng)
        except InputError as error:
            raise InputError(f"{clip.id}, {condition}: {error}") from error

    def check(self, conditions: Sequence[str]) -> None:
        """Raise ConfigError for a condition that is not known or lacks what it needs."""
        for condition in conditions:
            self._find(condition)
        if "running" in conditions and not self._carriers:
            raise ConfigError(f"running needs speech clips of {SHORTEST_CARRIER_S} s and more: give --negatives")

    def _find(self, condition: str) -> Callable[[Sound, np.random.Generator], Sound]:
        if decibels := re.fullmatch(r"(-?\d+)db", condition):
            return lambda sound, rng: with_noise(sound, self._noise(sound, rng), float(decibels[1]))
        known: dict[str, Any] = {
            "clean": lambda sound, rng: sound,
            "room": self._room,
            "telephone": lambda sound, rng: self._changed(sound, effects.telephone(sound.samples, RATE)),
            "running": self._running,
        }
        if condition not in known:
            raise ConfigError(f"there is no condition {condition!r}; choose from {', '.join(known)}, 10db, 0db ...")
        return known[condition]

    @staticmethod
    def _changed(sound: Sound, samples: Samples) -> Sound:
        return Sound(samples, sound.start, sound.end)

    def _noise(self, sound: Sound, rng: np.random.Generator) -> Samples:
        """As many samples of noise as the sound has, not just at a gap of the noise where the word is."""
        size = len(sound.samples)
        for _ in range(DRAWS):
            whole = self._noise_clip(size, rng)
            noise = effects.looped(whole, int(rng.integers(len(whole))), size)
            power = np.mean(noise[sound.start : sound.end].astype(np.float64) ** 2)
            if power > 10 ** ((effects.active_level_db(whole, RATE) - QUIET_DB) / 10):
                return noise
        return pink_noise(size, rng)

    def _noise_clip(self, size: int, rng: np.random.Generator) -> Samples:
        if not self.noises:
            return pink_noise(size, rng)
        clip = self.noises[int(rng.integers(len(self.noises)))]
        return read_clip(clip.audio, clip.offset, clip.duration, RATE)

    def _room(self, sound: Sound, rng: np.random.Generator) -> Sound:
        number = int(rng.integers(len(self.rooms) or ROOMS))
        if number not in self._made:
            self._made[number] = self._impulse(number)
        return self._changed(sound, reverberate(sound.samples, self._made[number])[0])

    def _impulse(self, number: int) -> Impulse:
        if not self.rooms:
            return room_response(random_room(np.random.default_rng((self.seed, number))), RATE)
        clip = self.rooms[number]
        return as_impulse(read_clip(clip.audio, clip.offset, clip.duration, RATE), RATE)

    def _running(self, sound: Sound, rng: np.random.Generator) -> Sound:
        clip = self._carriers[int(rng.integers(len(self._carriers)))]
        return spliced(sound, read_clip(clip.audio, clip.offset, clip.duration, RATE))

    @cached_property
    def _carriers(self) -> list[Clip]:
        return [clip for clip in self.speech if clip.duration >= SHORTEST_CARRIER_S + 0.01]


def pink_noise(size: int, rng: np.random.Generator) -> Samples:
    """Noise whose power falls by 3 dB an octave, level with full scale."""
    spectrum = np.fft.rfft(rng.standard_normal(size))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    noise = np.fft.irfft(spectrum, size)
    return (noise / np.sqrt(np.mean(noise**2) + 1e-30)).astype(np.float32)
