"""Where somebody speaks: the probability of speech in every 32 ms, for whole recordings and for streams.

The network is Silero's (MIT licence), whose weights come with the package ``silero-vad``; it is built here from torch's
own layers, so that a block of frames is one call and nothing of the package is imported. A frame of 512 samples at
16 kHz, with the 64 before it, becomes four spectra, convolutions make one vector of them, an LSTM remembers:

    x_t = conv(|STFT(samples_t)|),   h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1}),   p_t = sigmoid(w relu(h_t) + b)
"""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from voiceseq.audio.resample import finite
from voiceseq.errors import InputError, MissingDependencyError

Samples = NDArray[np.float32]
SAMPLE_RATE = 16_000
FRAME, CONTEXT = 512, 64  # samples
FRAME_S = FRAME / SAMPLE_RATE
BLOCK = 1024  # frames in one call
WINDOW, HOP, SIZE = 256, 128, 128
BINS = WINDOW // 2 + 1
PACKAGE, WEIGHTS = "silero_vad", "silero_vad_16k.safetensors"

State = tuple[Tensor, Tensor]


class SpeechNetwork(nn.Module):
    """``probabilities (n,), state = network(frames (n, 64 + 512), state)``: any cut of the frames gives the same."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 2 * BINS, WINDOW, stride=HOP, bias=False)
        layers = [(BINS, 128, 1), (128, 64, 2), (64, 64, 2), (64, SIZE, 1)]
        self.convolutions = nn.ModuleList(
            [nn.Conv1d(inputs, outputs, 3, stride=stride, padding=1) for inputs, outputs, stride in layers]
        )
        self.recurrent = nn.LSTM(SIZE, SIZE)
        self.output = nn.Linear(SIZE, 1)

    def forward(self, frames: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        padded = nn.functional.pad(frames[:, None], (0, CONTEXT), mode="reflect")
        real, imaginary = self.spectrum(padded).split(BINS, 1)
        x = (real.square() + imaginary.square()).sqrt()
        for convolution in self.convolutions:
            x = convolution(x).relu()
        x, state = self.recurrent(x[:, :, 0], state)
        return self.output(x.relu()).sigmoid()[:, 0], state

    def load(self, arrays: Mapping[str, Tensor]) -> None:
        """Take the weights under the package's names."""
        names = {"spectrum": "stft_conv", "recurrent": "lstm_cell", "output": "final_conv"}
        names |= {f"convolutions.{place}": f"conv{place + 1}" for place in range(len(self.convolutions))}

        def theirs(key: str) -> str:
            module, _, tensor = key.rpartition(".")
            return f"{names[module]}.{tensor.removesuffix('_l0')}"

        own = self.state_dict()
        self.load_state_dict({key: arrays[theirs(key)].reshape(value.shape) for key, value in own.items()})


@cache
def speech_network() -> SpeechNetwork:
    """The network with its weights, read once. Raises MissingDependencyError where the package is not installed."""
    from safetensors.torch import load_file

    found = importlib.util.find_spec(PACKAGE)  # finds without importing: the package sets torch's number of threads
    path = Path(found.origin).parent / "data" / WEIGHTS if found and found.origin else None
    if path is None or not path.is_file():
        raise MissingDependencyError("where somebody speaks is not known without silero-vad: pip install silero-vad")
    network = SpeechNetwork().eval().requires_grad_(False)
    network.load(load_file(path))
    return network


class SpeechActivity:
    """One stream of 16 kHz sound: ``feed`` samples, get the probabilities of the frames that are complete.

    ``finish`` gives the last frame, filled up with silence. NaN and infinity count as 0.
    """

    def __init__(self) -> None:
        self._network = speech_network()
        self.reset()

    def reset(self) -> None:
        """Forget everything: exactly a new stream."""
        self._held = np.zeros(CONTEXT, np.float32)  # the context of the next frame, and what is not a whole frame yet
        self._state: State | None = None

    def feed(self, samples: Samples) -> Samples:
        """``(n,)`` -> ``(frames,)``. Raises InputError for another shape."""
        if samples.ndim != 1:
            raise InputError(f"samples have shape {samples.shape}; one channel (n,) was wanted")
        held = np.concatenate((self._held, finite(samples.astype(np.float32, copy=False))[0]))
        count = (len(held) - CONTEXT) // FRAME
        self._held = held[count * FRAME :].copy()
        return np.concatenate([self._probabilities(held, at, count) for at in range(0, max(1, count), BLOCK)])

    def finish(self) -> Samples:
        left = len(self._held) - CONTEXT
        return self.feed(np.zeros(FRAME - left, np.float32)) if left else np.zeros(0, np.float32)

    def _probabilities(self, held: Samples, at: int, count: int) -> Samples:
        """Of the frames ``at .. at + BLOCK``, as far as there are any."""
        number = min(BLOCK, count - at)
        if number <= 0:
            return np.zeros(0, np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(held[at * FRAME :], CONTEXT + FRAME)[::FRAME][:number]
        with torch.inference_mode():
            found, self._state = self._network(torch.from_numpy(frames.copy()), self._state)
        return np.asarray(found.numpy())


def speech_probabilities(samples: Samples) -> Samples:
    """``(n,)`` at 16 kHz -> ``(frames,)``, one for every 512 samples, the last one filled up with silence."""
    stream = SpeechActivity()
    return np.concatenate((stream.feed(samples), stream.finish()))
