"""Another sample rate, for whole recordings and for streams: numpy and soxr, no torch.

A stream gives the same samples as the whole, bit for bit, however it is cut into chunks: ``resample`` is a stream fed
once. n samples become ``n * to_rate / from_rate``, rounded, half a sample upwards. The filter looks ahead, so a live
stream lags: about 40 ms from 22.05, 44.1 and 48 kHz to 16 kHz, 80 ms from 11.025 and 96 kHz, 120 ms from 8 kHz;
``finish`` gives what is still inside.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError, MissingDependencyError

Samples = NDArray[np.float32]
QUALITY = "HQ"  # 20 bits; better than 16-bit recordings can show


def resampled_length(frames: int, from_rate: int, to_rate: int) -> int:
    """How many samples ``frames`` samples become."""
    return (2 * frames * to_rate + from_rate) // (2 * from_rate)


def resample(samples: Samples, from_rate: int, to_rate: int) -> Samples:
    """``(frames,)`` or ``(channels, frames)`` at ``from_rate`` -> the same at ``to_rate``.

    Raises:
        InputError: rates below 1, another shape, samples that are not floating point.
    """
    stream = StreamResampler(from_rate, to_rate, 1 if samples.ndim == 1 else samples.shape[0])
    if samples.ndim == 2 and samples.shape[0] == 1:
        return resample(samples[0], from_rate, to_rate)[None]
    return np.concatenate((stream.feed(samples), stream.finish()), axis=-1)


def finite(samples: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The samples with 0 for every NaN and infinity, and how many there were; without any, the very same array."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(samples.sum(dtype=np.float64)):  # one pass; a sum with NaN or infinity in it is not finite
            return samples, 0
    good = np.isfinite(samples)
    return np.where(good, samples, samples.dtype.type(0)), int(good.size - good.sum())


class StreamResampler:
    """``feed`` chunks of any size, ``finish`` for the rest, ``reset`` to begin again exactly like new.

    One channel travels as ``(frames,)``, several as ``(channels, frames)``. NaN and infinity become 0 and are counted
    in ``replaced``. A resampler belongs to one stream.

    Raises:
        InputError: rates or channels below 1.
    """

    def __init__(self, from_rate: int, to_rate: int, channels: int = 1) -> None:
        for name, value in (("from_rate", from_rate), ("to_rate", to_rate), ("channels", channels)):
            if value != int(value) or value < 1:
                raise InputError(f"{name} is {value}; a whole number of at least 1 was wanted")
        self.from_rate, self.to_rate, self.channels = int(from_rate), int(to_rate), int(channels)
        self.reset()

    def reset(self) -> None:
        """Forget everything: exactly a new resampler."""
        self.replaced = 0
        self._fed = self._given = 0
        self._finished = False
        self._filter = None if self.from_rate == self.to_rate else self._new_filter()

    def feed(self, samples: Samples) -> Samples:
        """The next samples in; out come those that are ready, perhaps none.

        Raises:
            InputError: another shape or dtype than wanted, or a stream that is finished.
        """
        self._check(samples)
        samples, replaced = finite(samples.astype(np.float32, copy=False))
        self.replaced += replaced
        self._fed += samples.shape[-1]
        ready = samples if self._filter is None else self._filter.resample_chunk(samples.T).T
        self._given += ready.shape[-1]
        return ready

    def finish(self) -> Samples:
        """The rest of the stream; after it only ``reset`` makes sense."""
        self._finished = True
        nothing = np.zeros((0,) if self.channels == 1 else (0, self.channels), np.float32)
        rest = nothing.T if self._filter is None else self._filter.resample_chunk(nothing, last=True).T
        wanted = resampled_length(self._fed, self.from_rate, self.to_rate) - self._given
        short = max(0, wanted - rest.shape[-1])
        self._given += wanted
        return np.pad(rest[..., :wanted], [(0, 0)] * (rest.ndim - 1) + [(0, short)])

    def _new_filter(self) -> Any:
        try:
            import soxr
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"resampling from {self.from_rate} to {self.to_rate} Hz needs soxr ({error}): pip install soxr"
            ) from error
        return soxr.ResampleStream(self.from_rate, self.to_rate, self.channels, dtype="float32", quality=QUALITY)

    def _check(self, samples: Samples) -> None:
        wanted = "(frames,)" if self.channels == 1 else f"({self.channels}, frames)"
        shape = samples.shape[:-1]
        if shape != (() if self.channels == 1 else (self.channels,)) or samples.ndim == 0:
            raise InputError(f"samples has shape {samples.shape}; {wanted} was wanted")
        if not np.issubdtype(samples.dtype, np.floating):
            raise InputError(f"samples has dtype {samples.dtype}; give floating point, e.g. int16 samples / 32768")
        if self._finished:
            raise InputError("this stream is finished; call reset() before another one is fed")
