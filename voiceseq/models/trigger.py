"""The trigger-word detector: what a stream of sound says about one or several phrases, frame by frame.

    network = TriggerNetwork(TriggerConfig(words=("hey luna",)))
    logits, state = network(samples, state)      # any cut of the samples gives the same frames

A *front* turns sound into frames (the phone backbone, or a spectrogram with one strided convolution), a *head* turns
frames into one logit a word. Heads are small: many of them can listen to one backbone.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.core.convolution import CausalConvolution
from voiceseq.core.masks import zero_padding
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.spotting import PhraseSpotter
from voiceseq.core.streaming import StreamingEncoder
from voiceseq.core.transformer import TransformerConfig, TransformerEncoder
from voiceseq.errors import ConfigError
from voiceseq.models.backbone import LEVEL, SPREAD, Backbone, BackboneConfig

HEADS = ("gru", "convolution", "transformer", "phones")
Spellings = tuple[tuple[tuple[int, ...], ...], ...]
REACH, PIECE = 64, 256  # frames: how far a transformer looks back, how many it works on at once


@dataclass(frozen=True)
class HeadConfig:
    """``kind`` is one of gru, convolution, transformer; ``size`` and ``layers`` are its width and depth.

    The kind ``phones`` has none of them: it needs no training, but the words' ``spellings`` (see ``PhoneHead``).
    """

    kind: str = "gru"
    size: int = 64
    layers: int = 1
    kernel: int = 5
    dropout: float = 0.1


@dataclass(frozen=True)
class TriggerConfig:
    """``backbone=None``: the plain detector, whose head hears a spectrogram at a third of its rate.

    ``spellings``: for each word its pronunciations, each of them numbers of the backbone's phones.
    """

    words: tuple[str, ...] = ()
    backbone: BackboneConfig | None = field(default_factory=lambda: BackboneConfig(symbols=40))
    head: HeadConfig = field(default_factory=HeadConfig)
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(mels=40))
    channels: int = 64
    spellings: Spellings = ()


class Front(nn.Module):
    """``frames (batch, time, size), state, lengths = front(samples (batch, n), state, lengths)``, streaming.

    A front has ``features`` and says in ``from_features`` what it makes of them, so that training can mask them.
    """

    features: Any  # Features
    size: int
    frame_s: float

    def forward(self, samples: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any, Tensor]:
        heard, rest = (None, None) if state is None else state
        frames, heard = self.features(samples, heard, lengths)
        valid = self.features.output_lengths(lengths) if lengths is not None else None
        x, rest, valid = self.from_features(frames, rest, valid)
        return x, (heard, rest), valid

    def from_features(self, frames: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any, Tensor]:
        raise NotImplementedError


class PlainFront(Front):
    """Log-mel (or PCEN) frames and one causal convolution with stride 3: the front of a detector that stands alone."""

    def __init__(self, config: TriggerConfig) -> None:
        super().__init__()
        self.features = Features(config.features)
        self.convolution = CausalConvolution(config.features.mels, config.channels, 5, stride=3)
        self.norm = nn.LayerNorm(config.channels)
        self.frame_s = 3 * config.features.hop / config.features.sample_rate
        self.size = config.channels
        self.level, self.spread = (LEVEL, SPREAD) if config.features.kind == "log_mel" else (0.0, 1.0)

    def from_features(self, frames: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any, Tensor]:
        x = frames.new_zeros(frames.shape[0], 0, self.size)
        if frames.shape[1]:  # a short chunk may give no frame
            x, state = self.convolution((frames - self.level) / self.spread, state, lengths)
            x = self.norm(x).relu()
        if lengths is None:
            return x, state, x.new_full((len(x),), x.shape[1]).long()
        return x, state, self.convolution.output_lengths(lengths)


class BackboneFront(Front):
    """The backbone's bottleneck as frames."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.backbone = Backbone(config)
        self.frame_s, self.size = self.backbone.frame_s, config.bottleneck

    @property
    def features(self) -> Features:
        return self.backbone.features

    def from_features(self, frames: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any, Tensor]:
        output, state = self.backbone.from_features(frames, (None, *(state or (None,) * 3)), lengths)
        return output.bottleneck, state[1:], output.lengths


class Head(nn.Module):
    """``logits (batch, time, words), state = head(frames (batch, time, inputs), state, lengths)``, streaming.

    Logits past a row's length are zero.
    """

    def __init__(self, config: HeadConfig, inputs: int, words: int) -> None:
        super().__init__()
        if config.kind not in HEADS:
            raise ConfigError(f"there is no head {config.kind!r}; choose from {', '.join(HEADS)}")
        self.config, self.words = config, words
        self.input = nn.Sequential(nn.Linear(inputs, config.size), nn.LayerNorm(config.size), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.body = _BODIES[config.kind](config)
        self.output = nn.Linear(config.size, words)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        if not frames.shape[1]:
            return frames.new_zeros(len(frames), 0, self.words), state
        x, state = self.body(self.dropout(self.input(frames)), state, lengths)
        logits = self.output(self.dropout(x))
        return (logits if lengths is None else zero_padding(logits, lengths)), state

    def lower(self, word: int, amount: float) -> None:
        """From now on the logits of a word are lower by ``amount``."""
        with torch.no_grad():
            self.output.bias[word] -= amount


class PhoneHead(nn.Module):
    """A head without training: how well the spellings of each word explain what the backbone heard.

    ``logits = SLOPE * (score - level)``, the score being the mean log-probability of a phone (``core.spotting``).
    """

    SLOPE = 4.0

    def __init__(self, spellings: Spellings, inputs: int, symbols: int) -> None:
        super().__init__()
        self.words = len(spellings)
        self.phones = nn.Linear(inputs, symbols)  # the backbone's own output
        self.spotter = PhraseSpotter(spellings)
        self.level = nn.Parameter(torch.zeros(self.words), requires_grad=False)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        if not frames.shape[1]:
            return frames.new_zeros(len(frames), 0, self.words), state
        scores, state = self.spotter(self.phones(frames).log_softmax(-1), state, lengths)
        logits = self.SLOPE * (scores - self.level)
        return (logits if lengths is None else zero_padding(logits, lengths)), state

    def lower(self, word: int, amount: float) -> None:
        """From now on the logits of a word are lower by ``amount``."""
        self.level[word] += amount / self.SLOPE


class ConvolutionBody(nn.Module):
    """Residual causal convolutions whose reach doubles from layer to layer (as in MDTC)."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            CausalConvolution(config.size, config.size, config.kernel, dilation=2**layer)
            for layer in range(config.layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.size) for _ in range(config.layers))

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        new = []
        for layer, norm, context in zip(self.layers, self.norms, state or [None] * len(self.layers), strict=True):
            y, context = layer(x, context, lengths)
            x = x + norm(y).relu()
            new.append(context)
        return x, tuple(new)


class TransformerBody(nn.Module):
    """A streaming transformer that answers every frame at once and looks back ``REACH`` frames a layer.

    Positions are relative: on a stream that never ends, absolute ones would leave what was trained.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        settings = TransformerConfig(
            size=config.size,
            layers=config.layers,
            heads=4,
            feed_forward=4 * config.size,
            dropout=config.dropout,
            positions="relative",
            max_distance=REACH,
        )
        self.encoder = StreamingEncoder(TransformerEncoder(settings), chunk=1, left_chunks=REACH)

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        if state is None and lengths is not None:  # whole clips: in training
            return self.encoder.whole(x, lengths), None
        pieces = []
        for piece in x.split(PIECE, 1):  # attention over a long recording at once would be a square of it
            y, state = self.encoder(piece, state)
            pieces.append(y)
        return torch.cat(pieces, 1), state


def _gru(config: HeadConfig) -> nn.Module:
    return Recurrent(config.size, config.size, cell="gru", layers=config.layers, dropout=config.dropout)


_BODIES: dict[str, Any] = {"gru": _gru, "convolution": ConvolutionBody, "transformer": TransformerBody}


class TriggerNetwork(nn.Module):
    """``logits (batch, frames, words), state = network(samples (batch, n), state)``."""

    def __init__(self, config: TriggerConfig) -> None:
        super().__init__()
        if not config.words:
            raise ConfigError("a detector without words was asked for; give at least one")
        self.config = config
        self.front: Any = PlainFront(config) if config.backbone is None else BackboneFront(config.backbone)
        self.head: Head | PhoneHead = self._head(config)

    def _head(self, config: TriggerConfig) -> "Head | PhoneHead":
        if config.head.kind != "phones":
            return Head(config.head, self.front.size, len(config.words))
        if config.backbone is None or len(config.spellings) != len(config.words):
            raise ConfigError("a head of phones wants a backbone and the spellings of every word")
        return PhoneHead(config.spellings, self.front.size, config.backbone.symbols)

    @property
    def words(self) -> tuple[str, ...]:
        return self.config.words

    @property
    def frame_s(self) -> float:
        """Seconds from one frame to the next."""
        return float(self.front.frame_s)

    @property
    def window_s(self) -> float:
        """Frame t has heard the first ``t * frame_s + window_s`` seconds."""
        features = self.front.features.config
        return float(features.window / features.sample_rate)

    def first_after(self, time_s: float) -> int:
        """The first frame that has heard all of the first ``time_s`` seconds."""
        return max(0, math.ceil((time_s - self.window_s) / self.frame_s - 1e-6))

    def forward(self, samples: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """``lengths (batch,)`` in samples for whole padded recordings.

        Raises InputError for wrong shapes, NaN, and recordings shorter than a window.
        """
        front, head = (None, None) if state is None else state
        frames, front, valid = self.front(samples, front, lengths)
        logits, head = self.head(frames, head, valid if lengths is not None else None)
        return logits, (front, head)
