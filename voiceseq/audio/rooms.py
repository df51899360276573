"""Simulated rooms: impulse responses of shoebox rooms by image sources (Allen and Berkley 1979), and their use.

Behind every wall stands the mirror image of the source, and behind that wall's mirror image the next one. Along an
axis of length L the images of a source at s stand at ``2 m L + s`` (|2 m| reflections) and ``2 m L - s`` (|2 m - 1|).
An image at the distance r, n reflections away, arrives after ``r / 343 m/s`` with the level ``(-b) ** n / r``. All
walls reflect alike, by the b that gives the reverberation time that was asked for. The sign turns at every wall: images
that all had the same one would pile up to a rumble that no room has.

numpy and scipy, no torch. A room takes 10 to 150 ms to make: make some once and use them often.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.resample import resample
from voiceseq.errors import InputError

Samples = NDArray[np.float32]
Doubles = NDArray[np.float64]
Metres = tuple[float, float, float]

SOUND_M_S = 343.0
FINER = 8  # images are placed on a grid so many times finer than the samples, then the band is cut: no rounded delays
IMAGES = 20_000_000  # a small room that rings for long has more than a memory holds
STRAIGHT_DB = (-5.0, -35.0)  # the part of the decay that the reverberation time is read from
DIRECT_S = 0.0015  # what arrives so soon after the first peak counts as the direct sound


@dataclass(frozen=True)
class Room:
    """A box with a source and a microphone in it, in metres from one corner.

    Raises:
        InputError: places outside the room or on top of each other, a reverberation time that is not above 0.
    """

    size_m: Metres
    source_m: Metres
    microphone_m: Metres
    t60_s: float

    def __post_init__(self) -> None:
        for name, place in (("source_m", self.source_m), ("microphone_m", self.microphone_m)):
            if not all(0 < x < length for x, length in zip(place, self.size_m, strict=True)):
                raise InputError(f"{name} is {place}; a place inside the room of {self.size_m} m was wanted")
        if not (self.distance_m > 0 and self.t60_s > 0):
            raise InputError(f"distance {self.distance_m} m, t60_s {self.t60_s}: more than 0 was wanted for both")

    @property
    def distance_m(self) -> float:
        return math.dist(self.source_m, self.microphone_m)


@dataclass(frozen=True)
class Impulse:
    """An impulse response ``samples (n,)``: when its direct sound comes (not rounded) and how loud that is."""

    samples: Samples
    sample_rate: int
    delay_samples: float
    level: float


def random_room(
    rng: np.random.Generator,
    floor_m: tuple[float, float] = (2.5, 8.0),
    height_m: tuple[float, float] = (2.3, 3.5),
    distance_m: tuple[float, float] = (0.4, 4.0),
    t60_s: tuple[float, float] = (0.15, 0.6),
    wall_m: float = 0.3,
) -> Room:
    """A room within these ranges; source and microphone keep ``wall_m`` from the walls.

    A distance that a small room has no place for is shortened to fit.

    Raises:
        InputError: rooms so small that nothing is ``wall_m`` from all walls.
    """
    size = np.array([rng.uniform(*floor_m), rng.uniform(*floor_m), rng.uniform(*height_m)])
    t60, wanted = rng.uniform(*t60_s), rng.uniform(*distance_m)
    if size.min() <= 2 * wall_m:
        raise InputError(f"a room of {size.round(2)} m has no place {wall_m} m from every wall: take bigger ones")
    microphone = rng.uniform(wall_m, size - wall_m)
    direction = rng.standard_normal(3) * (1, 1, 0.3)  # mouths and microphones are at about the same height
    direction /= np.linalg.norm(direction)
    direction = np.where(size - 2 * microphone >= 0, np.abs(direction), -np.abs(direction))  # to where there is space
    space = np.where(direction > 0, size - wall_m - microphone, microphone - wall_m)
    distance = min(wanted, float(np.min(space / np.maximum(np.abs(direction), 1e-9))))
    places = [tuple(float(x) for x in place) for place in (size, microphone + distance * direction, microphone)]
    return Room(places[0], places[1], places[2], t60)  # type: ignore[arg-type]


def image_count(size_m: Metres, longest_s: float) -> float:
    """About how many images stand in the cube around all that is heard within ``longest_s``."""
    return 8 * (longest_s * SOUND_M_S) ** 3 / math.prod(size_m)


def images(room: Room, longest_s: float) -> tuple[Doubles, NDArray[np.int64]]:
    """Distances (metres) from the microphone and numbers of reflections of all images heard within ``longest_s``.

    Raises:
        InputError: too many of them.
    """
    reach = longest_s * SOUND_M_S
    if (about := image_count(room.size_m, longest_s)) > 2 * IMAGES:
        raise InputError(f"{longest_s:.2f} s in a room of {room.size_m} m takes {about:.0e} images: shorten t60_s")
    squares, bounces = [], []
    for length, source, microphone in zip(room.size_m, room.source_m, room.microphone_m, strict=True):
        m = np.arange(-math.ceil(reach / (2 * length)) - 1, math.ceil(reach / (2 * length)) + 2)
        place = np.concatenate((2 * m * length + source, 2 * m * length - source))
        squares.append((place - microphone) ** 2)
        bounces.append(np.concatenate((np.abs(2 * m), np.abs(2 * m - 1))))
    square = squares[0][:, None, None] + squares[1][:, None] + squares[2]
    count = bounces[0][:, None, None] + bounces[1][:, None] + bounces[2]
    heard = square <= reach**2
    return np.sqrt(square[heard]), count[heard]


def reflection(distances: Doubles, bounces: NDArray[np.int64], t60_s: float) -> float:
    """The b of all walls with which the images decay by 60 dB in ``t60_s``, found by halving; the direct sound apart.

    The energy of an image is ``b ** 2n / r ** 2``; a table of it by millisecond and n makes each trial cheap.
    """
    most = int(bounces.max()) + 1
    place = (distances / SOUND_M_S * 1000).astype(np.int64) * most + bounces
    rows = int(distances.max() / SOUND_M_S * 1000) + 1
    table = np.bincount(place, distances**-2.0, rows * most).reshape(rows, most)
    table[:, 0] = 0
    low, high = 0.02, 0.999
    for _ in range(20):
        middle = (low + high) / 2
        if _decay_time(table @ middle ** (2.0 * np.arange(most)), 0.001) < t60_s:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def room_response(room: Room, sample_rate: int) -> Impulse:
    """The impulse response of a room, from the source's cry on: the direct sound is ``1 / distance`` loud.

    Raises:
        InputError: a sample rate below 1, a room that takes too many images.
    """
    if sample_rate < 1:
        raise InputError(f"sample_rate is {sample_rate}; at least 1 was wanted")
    distances, bounces = images(room, room.t60_s + room.distance_m / SOUND_M_S)
    b = reflection(distances, bounces, room.t60_s)
    levels = (-b) ** bounces.astype(np.float64) / distances
    samples = _placed(distances / SOUND_M_S * sample_rate, levels)
    return Impulse(samples, sample_rate, room.distance_m / SOUND_M_S * sample_rate, 1 / room.distance_m)


def _placed(times: Doubles, levels: Doubles) -> Samples:
    """Pulses at ``times`` (in samples, any fraction), with no frequency above half the sample rate."""
    size = 2 * math.ceil(times.max() / 2) + 64  # room for the ripples of the last ones
    fine = times * FINER
    before = fine.astype(np.int64)
    after_share = fine - before
    pulses = np.bincount(before, levels * (1 - after_share), size * FINER)
    pulses += np.bincount(before + 1, levels * after_share, size * FINER)
    band = np.linspace(0, 1, size // 2 + 1)
    soft = np.where(band < 0.9, 1.0, 0.5 + 0.5 * np.cos(np.pi * (band - 0.9) / 0.1))  # a hard edge rings for long
    return np.fft.irfft(np.fft.rfft(pulses)[: size // 2 + 1] * soft, size)[: size - 32].astype(np.float32)


def as_impulse(samples: Samples, sample_rate: int) -> Impulse:
    """A measured or given impulse response: its direct sound is the first peak at least half as high as the highest.

    Raises:
        InputError: another shape than ``(n,)``, nothing in it, NaN.
    """
    samples = np.asarray(samples, np.float32)
    size = np.abs(samples)
    if samples.ndim != 1 or not samples.size or not 0 < size.max() < np.inf:
        raise InputError(f"an impulse response of shape {samples.shape}; (n,), finite and not all zero, was wanted")
    near = max(1, round(DIRECT_S * sample_rate))
    first = int(np.argmax(size >= 0.5 * size.max()))
    peak = first + int(np.argmax(size[first : first + near]))
    # A pulse between two samples has a lower peak and the same energy.
    direct = samples[max(0, peak - near) : peak + near // 2 + 1]
    return Impulse(samples, sample_rate, float(peak), float(np.sqrt(np.sum(direct.astype(np.float64) ** 2))))


def at_rate(impulse: Impulse, sample_rate: int) -> Impulse:
    """The same room at another sample rate."""
    if impulse.sample_rate == sample_rate:
        return impulse
    ratio = sample_rate / impulse.sample_rate
    samples = resample(impulse.samples, impulse.sample_rate, sample_rate) / np.float32(ratio)
    return Impulse(samples, sample_rate, impulse.delay_samples * ratio, impulse.level)


def reverberate(samples: Samples, impulse: Impulse) -> tuple[Samples, float]:
    """``(n,)`` heard in the room, ``(n,)``: the direct sound as loud as before, its delay taken away in whole samples.

    Returns:
        The samples, and the delay that is left: at most half a sample.
    """
    from scipy.signal import oaconvolve

    whole = round(impulse.delay_samples)
    heard = oaconvolve(samples, impulse.samples / np.float32(impulse.level))[whole : whole + len(samples)]
    heard = np.pad(heard, (0, len(samples) - len(heard)))
    return heard.astype(np.float32, copy=False), impulse.delay_samples - whole


def reverberation_time(impulse: Impulse) -> float:
    """Seconds to fall by 60 dB, from the slope of Schroeder's backward integral; the direct sound is left out.

    It is NaN where the response is too short to fall by 35 dB.
    """
    start = round(impulse.delay_samples + DIRECT_S * impulse.sample_rate)
    return _decay_time(impulse.samples[start:].astype(np.float64) ** 2, 1 / impulse.sample_rate)


def _decay_time(energies: Doubles, step_s: float) -> float:
    left = np.cumsum(energies[::-1])[::-1]
    left = left[left > 0]
    if not left.size:
        return math.nan
    level = 10 * np.log10(left / left[0])
    straight = np.flatnonzero((level <= STRAIGHT_DB[0]) & (level >= STRAIGHT_DB[1]))
    if level[-1] > STRAIGHT_DB[1]:
        return math.nan
    if straight.size < 2:
        return 0.0
    return float(-60 / np.polyfit(straight * step_s, level[straight], 1)[0])
