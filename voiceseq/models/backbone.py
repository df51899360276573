"""The phone backbone: from sound to phones as it comes, the ground on which wake words and streaming recognition stand.

spectrogram -> causal convolution -> causal convolution with a stride -> residual convolutions (or recurrent layers) ->
a narrow layer (the *bottleneck*, what heads listen to) -> phones. Everything looks back only, and the state goes in and
out. Convolutions look back a second or two and no further, so that a day of noise cannot make them deaf: the state of
recurrent layers, which learn from sentences, drifts in it (docs/experiments.md).
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.core.convolution import CausalConvolution, ResidualConvolutions
from voiceseq.core.recurrent import Recurrent
from voiceseq.errors import ConfigError

# log-mel frames of speech lie around here
LEVEL, SPREAD = -6.0, 4.0


@dataclass(frozen=True)
class BackboneConfig:
    """``symbols`` (blank and phones) comes from the data; ``cell`` is convolution, gru, lstm or rnn.

    ``span`` and ``cycle`` are those of ``ResidualConvolutions``.
    """

    symbols: int = 0
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(mels=40))
    channels: int = 96
    kernel: int = 5
    stride: int = 3
    cell: str = "convolution"
    size: int = 224
    layers: int = 8
    bottleneck: int = 64
    dropout: float = 0.1
    span: int = 3
    cycle: int = 4


class BackboneOutput(NamedTuple):
    """``logits (batch, time, symbols)`` and ``bottleneck (batch, time, bottleneck)``, with the ``lengths (batch,)``."""

    logits: Tensor
    bottleneck: Tensor
    lengths: Tensor


class Backbone(nn.Module):
    """``output, state = backbone(samples (batch, n), state)``: any cut of the samples gives the same frames."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        if config.symbols < 2:
            raise ConfigError(f"a backbone of {config.symbols} symbols was asked for; blank and phones were wanted")
        self.config = config
        self.features = Features(config.features)
        self.first = CausalConvolution(config.features.mels, config.channels, config.kernel)
        self.second = CausalConvolution(config.channels, config.size, config.kernel, stride=config.stride)
        self.norms = nn.ModuleList([nn.LayerNorm(config.channels), nn.LayerNorm(config.size)])
        if config.cell == "convolution":
            self.convolutions = ResidualConvolutions(
                config.size, config.layers, config.span, config.cycle, config.dropout
            )
        else:
            self.recurrent = Recurrent(
                config.size,
                config.size,
                cell=config.cell,
                layers=config.layers,
                dropout=config.dropout,
                layer_norm=True,
                residual=True,
            )
        # What the convolutions see is near zero mean and unit variance; PCEN is so by itself.
        self.level, self.spread = (LEVEL, SPREAD) if config.features.kind == "log_mel" else (0.0, 1.0)
        self.bottleneck = nn.Sequential(nn.Linear(config.size, config.bottleneck), nn.Tanh())
        self.output = nn.Linear(config.bottleneck, config.symbols)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def body(self) -> Any:
        """What puts frames together in time."""
        return self.convolutions if self.config.cell == "convolution" else self.recurrent

    @property
    def frame_s(self) -> float:
        """Seconds from one output frame to the next."""
        return self.config.stride * self.config.features.hop / self.config.features.sample_rate

    @property
    def reach_s(self) -> float:
        """Seconds before the end of a frame on which it depends; endless for recurrent layers."""
        if self.config.cell != "convolution":
            return math.inf
        frames = self.first.left_context + self.second.left_context
        frames += self.config.stride * self.convolutions.left_context
        features = self.config.features
        return (frames * features.hop + features.window) / features.sample_rate

    def forward(self, samples: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[BackboneOutput, Any]:
        """``samples (batch, n)`` at the config's rate; ``lengths (batch,)`` in samples for whole padded recordings.

        Raises InputError for wrong shapes, NaN, and recordings shorter than a window.
        """
        features, first, second, context = (None,) * 4 if state is None else state
        frames, features = self.features(samples, features, lengths)
        valid = self.features.output_lengths(lengths) if lengths is not None else None
        return self.from_features(frames, (features, first, second, context), valid)

    def from_features(self, frames: Tensor, state: Any, lengths: Tensor | None) -> tuple[BackboneOutput, Any]:
        """The rest of the way, from ``frames (batch, time, mels)``: where training masks and warps the spectrogram."""
        features, first, second, context = state
        x = (frames - self.level) / self.spread
        if x.shape[1]:  # a short chunk may give no frame, and a few frames no strided one
            x, first = self.first(x, first, lengths)
            x, second = self.second(self.norms[0](x).relu(), second, lengths)
        x = x if x.shape[1] else x.new_zeros(x.shape[0], 0, self.config.size)
        if x.shape[1]:
            lengths = None if lengths is None else self.second.output_lengths(lengths)
            x, context = self.body(self.dropout(self.norms[1](x).relu()), context, lengths)
        narrow = self.bottleneck(x)
        logits = self.output(self.dropout(narrow))
        valid = lengths if lengths is not None else x.new_full((x.shape[0],), x.shape[1]).long()
        return BackboneOutput(logits, narrow, valid), (features, first, second, context)
