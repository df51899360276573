"""Recordings made harder by chance: every effect has a probability and ranges, all of it set in ``conf/augment``.

    augmenter = Augmenter(config, noises=[read_audio("street.wav")])
    hard = augmenter(samples, 16_000, generator)
    end_of_word = hard.moved(end_of_word)

The chain goes the way of the sound: the voice (speed, tempo, pitch), a pause before it, the room, noise, the microphone
(equaliser, band, gain, offset, clipping), the line (quantisation, codec, telephone). The same generator state gives the
same samples, and each effect has a stream of chance of its own, so turning one off leaves the others as they were.
Nothing holds the result within full scale. ``masks`` are for features: see ``specaugment``.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.audio import effects
from voiceseq.audio.files import Audio
from voiceseq.audio.resample import resample, resampled_length
from voiceseq.audio.rooms import (
    IMAGES,
    Impulse,
    Room,
    at_rate,
    image_count,
    random_room,
    reverberate,
    room_response,
)
from voiceseq.errors import ConfigError, InputError

Samples = NDArray[np.float32]
Range = tuple[float, float]
LOUDEST = 1000.0  # full scale is 1: more than this was never divided by 32768


@dataclass(frozen=True)
class Augmented:
    """The new samples, and where things are now: sample t of the old ones is at ``t * time_scale + delay_samples``.

    ``applied`` names the effects that chance chose, in their order.
    """

    samples: Samples
    time_scale: float = 1.0
    delay_samples: float = 0.0
    applied: tuple[str, ...] = ()

    def moved(self, sample: float) -> float:
        """Where a label of the old samples belongs in the new ones."""
        return sample * self.time_scale + self.delay_samples

    def then(self, name: str, after: "Augmented") -> "Augmented":
        """This and another effect after it, as one."""
        delay = self.delay_samples * after.time_scale + after.delay_samples
        return Augmented(after.samples, self.time_scale * after.time_scale, delay, (*self.applied, name))


class Supply:
    """The noises and rooms to choose from; a room or noise is brought to the sample rate that is needed."""

    def __init__(self, noises: Sequence[Audio], rooms: Sequence[Impulse] | None) -> None:
        self.noises, self.rooms = noises, rooms
        self._made: dict[tuple[int, int], Impulse] = {}

    def noise(self, rng: np.random.Generator, length: int, sample_rate: int) -> Samples:
        """``length`` samples of one of the noises, from anywhere in it."""
        audio = self.noises[int(rng.integers(len(self.noises)))]
        mono = audio.samples if audio.samples.ndim == 1 else audio.samples.mean(0)
        if not mono.size:
            raise InputError("one of the noises has no samples: leave it out")
        taken = resampled_length(length, sample_rate, audio.sample_rate) + 1
        cut = effects.looped(mono, int(rng.integers(len(mono))), taken)
        return resample(cut, audio.sample_rate, sample_rate)[:length]

    def room(self, rng: np.random.Generator, settings: "RoomEffect", sample_rate: int) -> Impulse:
        """One of the rooms given, or else one of ``settings.count`` simulated ones, made when it is first chosen."""
        number = int(rng.integers(settings.count if self.rooms is None else len(self.rooms)))
        if (number, sample_rate) not in self._made:
            if self.rooms is not None:
                self._made[number, sample_rate] = at_rate(self.rooms[number], sample_rate)
            else:
                self._made[number, sample_rate] = room_response(settings.simulated(number), sample_rate)
        return self._made[number, sample_rate]


@dataclass(frozen=True)
class Effect:
    """Something that happens with a ``probability``, within ranges.

    Raises:
        ConfigError: all the settings that cannot be, in one message.
    """

    LIMITS: ClassVar[dict[str, Range]] = {"probability": (0, 1)}
    probability: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list):
                object.__setattr__(self, one.name, tuple(value))
        if wrong := self.mistakes():
            raise ConfigError("; ".join(wrong))

    def mistakes(self) -> list[str]:
        """What is wrong with the settings, in words."""
        checked = [(one, getattr(self, one.name)) for one in fields(self)]
        limits = Effect.LIMITS | self.LIMITS
        return [message for one, value in checked for message in _mistake(one.name, value, one.default, limits)]

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        """The effect with settings drawn from its ranges."""
        raise NotImplementedError


def _number(value: object, like: object) -> bool:
    whole = isinstance(like, int) and not isinstance(value, int)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not whole


def _mistake(name: str, value: object, default: object, limits: Mapping[str, Range]) -> list[str]:
    if isinstance(default, (bool, str)):
        fits = type(value) is type(default)
        return [] if fits else [f"{name} is {value!r}; {type(default).__name__} was wanted"]
    least, most = limits[name]
    if isinstance(default, tuple):
        low, high = value if isinstance(value, tuple) and len(value) == 2 else (None, None)
        numbers = _number(low, default[0]) and _number(high, default[1])
        if numbers and least <= low <= high <= most:  # type: ignore[operator]
            return []
        return [f"{name} is {value}; a range [low, high] within {least:g}..{most:g} was wanted"]
    if _number(value, default) and least <= value <= most:  # type: ignore[operator]
        return []
    whole = "a whole number" if isinstance(default, int) else "a number"
    return [f"{name} is {value}; {whole} from {least:g} to {most:g} was wanted"]


@dataclass(frozen=True)
class Speed(Effect):
    """Played faster or slower: pitch and length change together."""

    LIMITS: ClassVar[dict[str, Range]] = {"factor": (0.5, 2)}
    factor: Range = (0.9, 1.1)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        factor = rng.uniform(*self.factor)
        return Augmented(effects.speed(samples, factor), 1 / effects.whole_speed(factor))


@dataclass(frozen=True)
class Tempo(Effect):
    """Spoken faster or slower at the same pitch."""

    LIMITS: ClassVar[dict[str, Range]] = {"factor": (0.5, 2)}
    factor: Range = (0.85, 1.2)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        factor = rng.uniform(*self.factor)
        return Augmented(effects.tempo(samples, sample_rate, factor), 1 / factor)


@dataclass(frozen=True)
class Pitch(Effect):
    """A higher or lower voice at the same tempo."""

    LIMITS: ClassVar[dict[str, Range]] = {"semitones": (-12, 12)}
    semitones: Range = (-3.0, 3.0)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.pitch(samples, sample_rate, rng.uniform(*self.semitones)))


@dataclass(frozen=True)
class Pause(Effect):
    """Quiet before the first sound, with a hiss of ``db`` below full scale: words are often said into silence."""

    LIMITS: ClassVar[dict[str, Range]] = {"seconds": (0, 60), "db": (-200, -20)}
    seconds: Range = (0.1, 1.5)
    db: Range = (-110.0, -60.0)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        size, level = round(rng.uniform(*self.seconds) * sample_rate), 10 ** (rng.uniform(*self.db) / 20)
        quiet = (level * rng.standard_normal(size, np.float32)).astype(samples.dtype)
        return Augmented(np.concatenate((quiet, samples)), delay_samples=size)


@dataclass(frozen=True)
class RoomEffect(Effect):
    """One of the rooms given to the augmenter, or of ``count`` simulated ones of these sizes."""

    LIMITS: ClassVar[dict[str, Range]] = {
        "count": (1, 100_000),
        "seed": (0, 2**31),
        "floor_m": (1, 30),
        "height_m": (1, 10),
        "distance_m": (0.05, 20),
        "t60_s": (0.05, 2),
    }
    count: int = 64
    seed: int = 1
    floor_m: Range = (2.5, 8.0)
    height_m: Range = (2.3, 3.5)
    distance_m: Range = (0.4, 4.0)
    t60_s: Range = (0.15, 0.6)

    def mistakes(self) -> list[str]:
        wrong = super().mistakes()
        if not wrong and image_count((self.floor_m[0], self.floor_m[0], self.height_m[0]), self.t60_s[1]) > IMAGES:
            return [f"t60_s is {self.t60_s}; rooms as small as {self.floor_m[0]} m take too long for that: shorten it"]
        return wrong

    def simulated(self, number: int) -> Room:
        """The room of this number: always the same."""
        rng = np.random.default_rng((self.seed, number))
        return random_room(rng, self.floor_m, self.height_m, self.distance_m, self.t60_s)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        heard, delay = reverberate(samples, supply.room(rng, self, sample_rate))
        return Augmented(heard, delay_samples=delay)


@dataclass(frozen=True)
class Noise(Effect):
    """Mixed with one of the noises given to the augmenter."""

    LIMITS: ClassVar[dict[str, Range]] = {"snr_db": (-30, 80)}
    snr_db: Range = (0.0, 25.0)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        snr_db = rng.uniform(*self.snr_db)
        return Augmented(effects.mix(samples, supply.noise(rng, len(samples), sample_rate), snr_db, sample_rate))


@dataclass(frozen=True)
class Equaliser(Effect):
    """A smooth random curve through ``points`` factors, as microphones and loudspeakers have."""

    LIMITS: ClassVar[dict[str, Range]] = {"db": (-40, 40), "points": (2, 64)}
    db: Range = (-8.0, 8.0)
    points: int = 6

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.equalise(samples, sample_rate, rng.uniform(*self.db, self.points)))


@dataclass(frozen=True)
class Band(Effect):
    """Lows and highs cut off; an edge of 0 or above half the sample rate cuts nothing."""

    LIMITS: ClassVar[dict[str, Range]] = {"low_hz": (0, 4000), "high_hz": (500, 96_000), "order": (1, 16)}
    low_hz: Range = (0.0, 250.0)
    high_hz: Range = (3000.0, 8000.0)
    order: int = 4

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        low, high = rng.uniform(*self.low_hz), rng.uniform(*self.high_hz)
        return Augmented(effects.band_pass(samples, sample_rate, low, high, self.order))


@dataclass(frozen=True)
class Gain(Effect):
    """Louder or softer."""

    LIMITS: ClassVar[dict[str, Range]] = {"db": (-80, 60)}
    db: Range = (-20.0, 6.0)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.gain(samples, rng.uniform(*self.db)))


@dataclass(frozen=True)
class Offset(Effect):
    """A constant is added, as a share of the peak."""

    LIMITS: ClassVar[dict[str, Range]] = {"share": (-1, 1)}
    share: Range = (-0.1, 0.1)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.offset(samples, rng.uniform(*self.share)))


@dataclass(frozen=True)
class Clip(Effect):
    """The share of the samples that is clipped."""

    LIMITS: ClassVar[dict[str, Range]] = {"share": (0, 0.9)}
    share: Range = (0.001, 0.05)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.clip(samples, rng.uniform(*self.share)))


@dataclass(frozen=True)
class Quantise(Effect):
    """Rounded to few bits below the peak; the bits are whole numbers."""

    LIMITS: ClassVar[dict[str, Range]] = {"bits": (2, 24)}
    bits: tuple[int, int] = (8, 12)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        bits = int(rng.integers(self.bits[0], self.bits[1], endpoint=True))
        return Augmented(effects.quantise(samples, bits))


@dataclass(frozen=True)
class Codec(Effect):
    """Bands that are dropped, coefficients that are rounded: see ``effects.codec``."""

    LIMITS: ClassVar[dict[str, Range]] = {"floor_db": (0, 120), "coarseness": (0.001, 2)}
    floor_db: Range = (20.0, 45.0)
    coarseness: Range = (0.3, 1.2)

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        floor_db, coarseness = rng.uniform(*self.floor_db), rng.uniform(*self.coarseness)
        return Augmented(effects.codec(samples, sample_rate, floor_db, coarseness))


@dataclass(frozen=True)
class Telephone(Effect):
    """300 to 3400 Hz through 8 kHz, with or without the 8 bits of G.711."""

    mu_law: bool = True

    def apply(self, samples: Samples, sample_rate: int, rng: np.random.Generator, supply: Supply) -> Augmented:
        return Augmented(effects.telephone(samples, sample_rate, self.mu_law))


@dataclass(frozen=True)
class Masks(Effect):
    """SpecAugment: ``probability`` is each row's; widths are in frames and bands.

    Args:
        time_share: no mask is longer than this share of its row.
        fill: ``mean`` (of each row's valid values) or ``zero``.
    """

    LIMITS: ClassVar[dict[str, Range]] = {
        "time_masks": (0, 100),
        "time_frames": (0, 10_000),
        "time_share": (0.0, 1.0),
        "frequency_masks": (0, 100),
        "frequency_bands": (0, 10_000),
    }
    time_masks: int = 2
    time_frames: tuple[int, int] = (0, 40)
    time_share: float = 0.2
    frequency_masks: int = 2
    frequency_bands: tuple[int, int] = (0, 12)
    fill: str = "mean"

    FILLS: ClassVar = ("mean", "zero")

    def mistakes(self) -> list[str]:
        known = self.fill in self.FILLS
        return super().mistakes() + ([] if known else [f"fill is {self.fill!r}; one of {', '.join(self.FILLS)}"])


@dataclass(frozen=True)
class AugmentConfig:
    """Every effect, in the order of the chain; as they stand here, all are off. ``masks`` are for ``SpecAugment``.

    An effect may come as a mapping of its settings, as YAML gives it; what is left out has its default.

    Raises:
        ConfigError: all the settings that are unknown or cannot be, in one message.
    """

    speed: Speed = Speed()
    tempo: Tempo = Tempo()
    pitch: Pitch = Pitch()
    pause: Pause = Pause()
    room: RoomEffect = RoomEffect()
    noise: Noise = Noise()
    equaliser: Equaliser = Equaliser()
    band: Band = Band()
    gain: Gain = Gain()
    offset: Offset = Offset()
    clip: Clip = Clip()
    quantise: Quantise = Quantise()
    codec: Codec = Codec()
    telephone: Telephone = Telephone()
    masks: Masks = Masks()

    def __post_init__(self) -> None:
        wrong: list[str] = []
        for one in fields(self):
            effect, mistakes = _effect(type(one.default), getattr(self, one.name))  # type: ignore[arg-type]
            object.__setattr__(self, one.name, effect)
            wrong += [f"{one.name}: {mistake}" for mistake in mistakes]
        if wrong:
            raise ConfigError("augment: " + "; ".join(wrong))

    @property
    def chain(self) -> list[tuple[str, Effect]]:
        """The effects on samples, by name and in order."""
        return [(one.name, getattr(self, one.name)) for one in fields(self) if one.name != "masks"]


def _effect(kind: type[Effect], settings: object) -> tuple[Effect, list[str]]:
    """The effect that a mapping (or the effect itself) says, and what is wrong with it."""
    if isinstance(settings, kind):
        return settings, []
    if not isinstance(settings, Mapping):
        return kind(), [f"{settings!r} came; {kind.__name__} or a mapping of its settings was wanted"]
    names = [one.name for one in fields(kind)]
    wrong = [f"{name!r} is not known; {_advice(str(name), names)}" for name in settings if name not in names]
    try:
        return kind(**{name: value for name, value in settings.items() if name in names}), wrong
    except ConfigError as error:
        return kind(), [*wrong, str(error)]


def _advice(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"is it {near[0]!r}?" if near else f"choose from {', '.join(names)}"


class Augmenter:
    """``augmenter(samples, sample_rate, generator) -> Augmented``.

    Args:
        noises: recordings to mix in; any sequence, e.g. one that reads a file when it is asked for an item.
        rooms: impulse responses (``rooms.as_impulse``); None simulates ``config.room.count`` of them.

    Raises:
        ConfigError: noise is on and there is none, or an empty list of rooms.
    """

    def __init__(
        self, config: AugmentConfig, noises: Sequence[Audio] = (), rooms: Sequence[Impulse] | None = None
    ) -> None:
        wrong = []
        if config.noise.probability > 0 and not len(noises):
            wrong.append("noise.probability is above 0 but no noises were given: give some or set it to 0")
        if config.room.probability > 0 and rooms is not None and not len(rooms):
            wrong.append("room.probability is above 0 but the list of rooms is empty: give None to simulate them")
        if wrong:
            raise ConfigError("augment: " + "; ".join(wrong))
        self.config, self.supply = config, Supply(noises, rooms)

    def __call__(self, samples: Samples, sample_rate: int, generator: torch.Generator) -> Augmented:
        """``(n,)`` -> another ``(n,)`` (speed and tempo change n); the input is not written to.

        One number is drawn from the generator, whatever the config.

        Raises:
            InputError: another shape, no samples, integers, NaN or infinity, samples far over full scale.
        """
        result = Augmented(_checked(samples, sample_rate))
        seed = int(torch.randint(2**62, (), generator=generator))
        for number, (name, effect) in enumerate(self.config.chain):
            if not effect.probability:
                continue
            rng = np.random.default_rng((seed, number))
            if rng.random() < effect.probability:
                result = result.then(name, effect.apply(result.samples, sample_rate, rng, self.supply))
        return result if result.applied else replace(result, samples=samples)


def _checked(samples: Samples, sample_rate: int) -> Samples:
    if samples.ndim != 1 or not samples.size:
        raise InputError(f"samples has shape {samples.shape}; (n,) with at least one sample was wanted")
    if not np.issubdtype(samples.dtype, np.floating):
        raise InputError(f"samples has dtype {samples.dtype}; give floating point, e.g. int16 samples / 32768")
    if sample_rate < 1000:
        raise InputError(f"sample_rate is {sample_rate}; at least 1000 Hz was wanted")
    peak = float(np.abs(samples).max())
    if not math.isfinite(peak):
        bad = int((~np.isfinite(samples)).sum())
        raise InputError(f"samples holds {bad} NaN or infinite values; replace them first (audio.resample.finite)")
    if peak > LOUDEST:
        raise InputError(f"samples reaches {peak:.3g}, full scale is 1: divide 16-bit samples by 32768")
    return samples.astype(np.float32, copy=False)
