"""Spectral features of sound: power in Mel bands, its logarithm, or its energy normalised per channel (PCEN).

Frame t is made of the samples ``t * hop .. t * hop + window - 1`` and of nothing else: it is there as soon as its last
sample is. There is no padding at the edges, so n samples give ``max(0, (n - window) // hop + 1)`` frames (fewer samples
than a window give none), and the same frames come out whether the samples come whole or in chunks of any size. A frame
is Hann-weighted, filled with zeros to ``fft`` samples and transformed; its power spectrum goes through triangles that
stand evenly on the Mel scale.

Everything is computed in 32 bits (64 after ``.double()``), under autocast, too: a power spectrum spans more than bf16's
three digits. There is nothing to learn here, and nothing of it in a state dict: the config says it all.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.masks import check_finite, check_lengths, lengths_mask, tracing
from voiceseq.errors import ConfigError, InputError

Count = TypeVar("Count", int, Tensor)
State = tuple[Tensor, ...]
"""``(samples (batch, n),)``: what a coming frame will need; PCEN adds ``smoother (batch, mels)``, below 0 at first."""

KINDS = ("mel", "log_mel", "pcen")
MEL_SCALES = ("htk", "slaney")
# Frames worked on at a time, so that they stay in the processor's cache: 2.5 times faster than all at once.
BLOCK = 256
# PCEN's smoother works on so many frames at a time, as one small matrix product.
SMOOTHED = 64


@dataclass(frozen=True)
class FeatureConfig:
    """What the features are; it belongs to the weights that were trained on them.

    Args:
        window, hop, fft: in samples; the window is filled with zeros to ``fft``.
        high_hz: upper edge of the last band; None is half the sample rate.
        kind: ``mel`` (power), ``log_mel`` (its natural logarithm) or ``pcen``.
        mel_scale: ``htk`` (logarithmic throughout) or ``slaney`` (linear below 1 kHz; librosa's default).
        equal_area: divide each band by its width in Hz (librosa's ``norm="slaney"``).
        floor: the least power, 1e-6 being about that of the rounding to 16 bits; in PCEN it is added to the smoother.
        gain, bias, power, smoothing: of PCEN; ``smoothing`` is the weight of the newest frame.

    Raises:
        ConfigError: all the settings that cannot be, in one message.
    """

    sample_rate: int = 16_000
    window: int = 400
    hop: int = 160
    fft: int = 512
    mels: int = 64
    low_hz: float = 20.0
    high_hz: float | None = None
    kind: str = "log_mel"
    mel_scale: str = "htk"
    equal_area: bool = False
    floor: float = 1e-6
    gain: float = 0.98
    bias: float = 2.0
    power: float = 0.5
    smoothing: float = 0.025

    def __post_init__(self) -> None:
        if wrong := self._mistakes():
            raise ConfigError("features: " + "; ".join(wrong))

    def _mistakes(self) -> list[str]:
        counts = {name: getattr(self, name) for name in ("sample_rate", "window", "hop", "fft", "mels")}
        wrong = [f"{name} is {value}, at least 1 was wanted" for name, value in counts.items() if value < 1]
        rules = [
            (self.hop <= self.window, f"hop is {self.hop}, at most window ({self.window}) was wanted"),
            (self.window <= self.fft, f"fft is {self.fft}, at least window ({self.window}) was wanted"),
            (
                0 <= self.low_hz < self.highest_hz <= self.sample_rate / 2,
                f"the bands lie from {self.low_hz:g} to {self.highest_hz:g} Hz, between 0 and half the sample rate "
                f"({self.sample_rate / 2:g}) was wanted",
            ),
            (self.kind in KINDS, f"kind is {self.kind!r}, one of {', '.join(KINDS)} was wanted"),
            (self.mel_scale in MEL_SCALES, f"mel_scale is {self.mel_scale!r}, one of {', '.join(MEL_SCALES)}"),
            (self.floor > 0, f"floor is {self.floor}, more than 0 was wanted"),
            (self.bias > 0 and self.power > 0, f"bias is {self.bias}, power {self.power}: more than 0 was wanted"),
            (0 < self.smoothing <= 1, f"smoothing is {self.smoothing}, more than 0 and at most 1 was wanted"),
        ]
        return wrong + [message for holds, message in rules if not holds]

    @property
    def highest_hz(self) -> float:
        return self.sample_rate / 2 if self.high_hz is None else self.high_hz

    def frames(self, samples: Count) -> Count:
        """How many frames a number (or tensor) of samples has: ``max(0, (samples - window) // hop + 1)``."""
        ready = samples - (self.window - self.hop)
        if isinstance(ready, Tensor):
            return ready.clamp(min=0) // self.hop
        return max(ready, 0) // self.hop


def hz_to_mel(hz: Tensor, scale: str) -> Tensor:
    """Pitch as it is heard. ``slaney``: 3 mels per 200 Hz up to 1 kHz, from there 27 for every factor of 6.4."""
    if scale == "htk":
        return 2595 * torch.log10(1 + hz / 700)
    return torch.where(hz < 1000, hz * 3 / 200, 15 + 27 * torch.log(hz.clamp(min=1000) / 1000) / math.log(6.4))


def mel_to_hz(mel: Tensor, scale: str) -> Tensor:
    """The inverse of ``hz_to_mel``."""
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel - 15) / 27 * math.log(6.4)))


def mel_filters(config: FeatureConfig) -> Tensor:
    """``(fft // 2 + 1, mels)`` in double: band m rises from edge m to edge m + 1 and falls to edge m + 2.

    Raises:
        ConfigError: bands so narrow that no bin of the spectrum falls into one of them.
    """
    lowest, highest = hz_to_mel(torch.tensor([config.low_hz, config.highest_hz]).double(), config.mel_scale).tolist()
    edges = mel_to_hz(torch.linspace(lowest, highest, config.mels + 2, dtype=torch.double), config.mel_scale)
    bins = torch.arange(config.fft // 2 + 1, dtype=torch.double)[:, None] * config.sample_rate / config.fft
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    filters = torch.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clamp(min=0)
    if empty := (filters.sum(0) == 0).nonzero().flatten().tolist():
        raise ConfigError(
            f"features: {len(empty)} of {config.mels} mel bands (the first is {empty[0]}) lie between two bins of an "
            f"fft of {config.fft}: take fewer mels, a longer fft or a higher low_hz"
        )
    return filters * 2 / (high - low) if config.equal_area else filters


def fourier_waves(config: FeatureConfig) -> Tensor:
    """``(fft // 2 + 1, 2, window)`` in double: the cosine and the sine of each bin."""
    bins = torch.arange(config.fft // 2 + 1, dtype=torch.double)
    angle = bins[:, None] * torch.arange(config.window) * (2 * math.pi / config.fft)
    return torch.stack((angle.cos(), angle.sin()), 1)


def smoothing_weights(count: int, s: float) -> tuple[Tensor, Tensor]:
    """``M[t] = (1 - s) M[t-1] + s E[t]``, solved: what E ``(count, count)`` and M before ``(count, 1)`` weigh in M."""
    time = torch.arange(count)
    age = time[:, None] - time
    return torch.where(age >= 0, s * (1 - s) ** age.clamp(min=0), 0.0), (1 - s) ** (time[:, None] + 1)


class Features(nn.Module):
    """``(batch, time)`` samples -> ``(batch, time', mels)``, in one piece or in chunks."""

    window: Tensor
    filters: Tensor
    tail: Tensor
    waves: Tensor
    newer: Tensor
    older: Tensor

    def __init__(self, config: FeatureConfig | None = None) -> None:
        super().__init__()
        self.config = config or FeatureConfig()
        with torch.device("cpu"):  # constants have values even where a network is only sketched (the meta device)
            self._make_constants(self.config)

    def _make_constants(self, config: FeatureConfig) -> None:
        window = torch.hann_window(config.window, dtype=torch.double)
        self._keep("window", functional.pad(window, (0, config.fft - config.window)))
        # Each bin twice: the squares of the real and of the imaginary part are summed by the same matrix product.
        filters = mel_filters(config)
        self._keep("filters", filters.repeat_interleave(2, 0))
        self._keep("tail", torch.zeros(1, config.fft - config.window))
        inside = filters.sum(1).nonzero().flatten().tolist()
        self.bins = slice(inside[0], inside[-1] + 1)
        self._keep("waves", fourier_waves(config)[self.bins].flatten(0, 1)[:, None] * window)
        for name, values in zip(("newer", "older"), smoothing_weights(SMOOTHED, config.smoothing), strict=True):
            self._keep(name, values)

    def _keep(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values.float(), persistent=False)

    def output_lengths(self, lengths: Tensor, state: State | None = None) -> Tensor:
        """Frames ``(batch,)`` of whole recordings of so many samples, or of the chunk after ``state``."""
        return self.config.frames(lengths if state is None else lengths + state[0].shape[1])

    def forward(
        self, samples: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Whole recordings, or the next chunk of a stream.

        Args:
            samples: ``(batch, time)``, floating point, full scale being 1; a chunk may be empty.
            state: what the call on the previous chunk returned; None at the start.
            lengths: ``(batch,)`` in samples, for rows that end before the others; None means that every row is full.

        Returns:
            Frames ``(batch, time', mels)``, zero past a row's ``output_lengths``, and the next state. It continues the
            rows that are full; a row that is shorter than its chunk has ended there.

        Raises:
            InputError: a wrong shape or dtype, NaN, lengths longer than the data, a state of another shape.
        """
        self._check(samples, state)
        device = samples.device.type
        # Entering a context costs as much as a fifth of a small chunk: only where it is needed.
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            frames, after = self.advance(samples.to(self.window.dtype), state)
        if lengths is not None:
            batch, time = samples.shape
            lengths = self.output_lengths(check_lengths(lengths, batch, time, samples.device), state)
            frames = frames.masked_fill(~lengths_mask(lengths, frames.shape[1])[..., None], 0.0)
        return frames, after

    def advance(self, samples: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The frames of one chunk and the next state; unchecked, not under autocast: for loops on a live stream."""
        tail = self.tail.expand(samples.shape[0], -1)
        padded = torch.cat((samples, tail) if state is None else (state[0], samples, tail), 1)
        end = padded.shape[1] - tail.shape[1]
        count = self.config.frames(end)
        energies = self._energies_by_convolution(padded[:, :end]) if tracing() else self._energies(padded, count)
        rest = padded[:, count * self.config.hop : end].clone()  # a view would keep the whole recording alive
        if self.config.kind == "pcen":
            before = samples.new_full((samples.shape[0], self.config.mels), -1.0) if state is None else state[1]
            frames, smoother = self._normalise(energies, before)
            return frames, (rest, smoother)
        if self.config.kind == "log_mel":
            energies = energies.clamp(min=self.config.floor).log()
        return energies, (rest,)

    def _energies(self, padded: Tensor, count: int) -> Tensor:
        """``(batch, time)`` with ``fft - window`` samples too many at its end -> ``(batch, count, mels)``."""
        fft, hop, at_once = self.config.fft, self.config.hop, max(1, BLOCK // padded.shape[0])
        blocks = []
        for first in range(0, count, at_once):
            last = min(first + at_once, count) - 1
            windows = padded[:, first * hop : last * hop + fft].unfold(1, fft, hop) * self.window
            spectrum = torch.view_as_real(torch.fft.rfft(windows))
            blocks.append(spectrum.square().flatten(-2) @ self.filters)
        if not blocks:
            return padded.new_zeros(padded.shape[0], 0, self.config.mels)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def _energies_by_convolution(self, samples: Tensor) -> Tensor:
        """The same with the Fourier transform written as a convolution: for graphs that are exported.

        It takes chunk and state of any size, as long as both together hold a window.
        """
        spectrum = functional.conv1d(samples[:, None], self.waves, stride=self.config.hop)
        return spectrum.square().transpose(1, 2) @ self.filters[2 * self.bins.start : 2 * self.bins.stop]

    def _normalise(self, energies: Tensor, smoother: Tensor) -> tuple[Tensor, Tensor]:
        """PCEN: ``(E / (floor + M) ** gain + bias) ** power - bias ** power``, M being the smoothed energy E."""
        c = self.config
        if not tracing() and energies.shape[1] == 0:
            return energies, smoother
        smoother = torch.where(smoother < 0, energies[:, 0], smoother)  # as if the first frame had always been there
        blocks = []
        for block in (energies,) if tracing() else torch.split(energies, SMOOTHED, 1):
            blocks.append(self._smooth(block, smoother))
            smoother = blocks[-1][:, -1]
        smoothed = blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)
        relative = energies * (smoothed + c.floor) ** -c.gain
        return (relative + c.bias) ** c.power - c.bias**c.power, smoother

    def _smooth(self, energies: Tensor, before: Tensor) -> Tensor:
        """``M[t] = (1 - s) M[t-1] + s E[t]`` for a few frames at once."""
        count = energies.shape[1]
        if tracing():  # an exported graph takes any number of frames
            newer, older = smoothing_weights(count, self.config.smoothing)
            newer, older = newer.to(energies), older.to(energies)
        else:
            newer, older = self.newer[:count, :count], self.older[:count]
        return newer @ energies + older * before[:, None]

    def _check(self, samples: Tensor, state: State | None) -> None:
        if tracing():
            return
        if samples.dim() != 2 or samples.shape[0] == 0:
            raise InputError(f"samples has shape {tuple(samples.shape)}; (batch, time) was wanted")
        if not samples.is_floating_point():
            raise InputError(f"samples has dtype {samples.dtype}; give floating point, e.g. int16 samples / 32768")
        # One sum finds a NaN or an infinity at less cost than a look at each; who is to blame is for the full check.
        if not math.isfinite(samples.sum().item()):
            check_finite(samples, "samples")
        if state is not None:
            self._check_state(state, samples.shape[0])

    def _check_state(self, state: State, batch: int) -> None:
        shapes = [tuple(part.shape) for part in state]
        wanted = [(batch, *shapes[0][1:2])] + [(batch, self.config.mels)] * (self.config.kind == "pcen")
        if shapes != wanted:
            raise InputError(
                f"the state has shapes {shapes}, {wanted} was wanted: give back what the last call returned"
            )
