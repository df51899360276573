"""The trigger-word detector: what a stream of sound says about one or several phrases, frame by frame.

    network = TriggerNetwork(TriggerConfig(words=("hey luna",)))
    logits, state = network(samples, state)      # any cut of the samples gives the same frames

A *front* turns sound into frames (the phone backbone, or a spectrogram with one strided convolution), a *head* turns
frames into one logit a word. Heads are small: many of them can listen to one backbone.
"""

import math
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.core.convolution import CausalConvolution, ResidualConvolutions
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

    ``opinion`` is the weight of what the backbone's phones say, where the words' ``spellings`` are given. The kind
    ``phones`` has nothing but that, and needs no training (see ``PhoneHead``). In training the head hears frames with
    ``noise`` (its standard deviation) and without a share ``lost`` of their numbers: see ``blurred``.
    """

    kind: str = "gru"
    size: int = 64
    layers: int = 1
    kernel: int = 5
    dropout: float = 0.1
    opinion: float = 2.0
    noise: float = 0.5
    lost: float = 0.3


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

    Logits past a row's length are zero. With an ``opinion`` its scores, times the config's weight, are added.
    """

    def __init__(self, config: HeadConfig, inputs: int, words: int, opinion: "PhoneOpinion | None" = None) -> None:
        super().__init__()
        if config.kind not in HEADS:
            raise ConfigError(f"there is no head {config.kind!r}; choose from {', '.join(HEADS)}")
        self.config, self.words, self.opinion = config, words, opinion
        self.input = nn.Sequential(nn.Linear(inputs, config.size), nn.LayerNorm(config.size), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.body = _BODIES[config.kind](config)
        self.output = nn.Linear(config.size, words)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        if not frames.shape[1]:
            return frames.new_zeros(len(frames), 0, self.words), state
        body, second = (None, None) if state is None else state
        heard = blurred(frames, self.config.noise, self.config.lost) if self.training else frames
        x, body = self.body(self.dropout(self.input(heard)), body, lengths)
        logits = self.output(self.dropout(x))
        if self.opinion is not None:
            opinion, second = self.opinion(frames, second, lengths)
            logits = logits + self.config.opinion * opinion
        return (logits if lengths is None else zero_padding(logits, lengths)), (body, second)

    def lower(self, word: int, amount: float) -> None:
        """From now on the logits of a word are lower by ``amount``."""
        with torch.no_grad():
            self.output.bias[word] -= amount


def blurred(frames: Tensor, noise: float, lost: float) -> Tensor:
    """``frames (batch, time, inputs)``, none of which is to be trusted: other voices and microphones will differ.

    Each number is off by chance, and of each row some are missing for the whole of its time. A head that learns from a
    few hundred voices without this learns these voices.
    """
    kept = torch.rand(frames.shape[0], 1, frames.shape[2], device=frames.device) >= lost
    return (frames + noise * torch.randn_like(frames)) * kept


class PhoneOpinion(nn.Module):
    """What the backbone's phones say of the words: ``(batch, time, words)``, 0 for certain, ``LEAST`` for never.

    The best score of the last ``RECENT`` frames (``core.spotting``: the mean log-probability of a phone), because a
    head makes up its mind some frames after the last phone.
    """

    RECENT, LEAST = 7, -8.0

    def __init__(self, spellings: Spellings, inputs: int, symbols: int) -> None:
        super().__init__()
        self.words = len(spellings)
        self.phones = nn.Linear(inputs, symbols).requires_grad_(False)  # the backbone's own output
        self.spotter = PhraseSpotter(spellings)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        alpha, recent = (None, None) if state is None else state
        scores, alpha = self.spotter(self.phones(frames).log_softmax(-1), alpha, lengths)
        scores = scores.clamp(min=self.LEAST)
        if recent is None:
            recent = scores.new_full((len(scores), self.RECENT - 1, self.words), self.LEAST)
        seen = torch.cat((recent, scores), 1)
        return seen.unfold(1, self.RECENT, 1).amax(-1), (alpha, seen[:, 1 - self.RECENT :])


class PhoneHead(nn.Module):
    """A head without training: ``logits = SLOPE * (opinion - level)``."""

    SLOPE = 4.0

    def __init__(self, opinion: PhoneOpinion) -> None:
        super().__init__()
        self.opinion, self.words = opinion, opinion.words
        self.level = nn.Parameter(torch.zeros(self.words), requires_grad=False)

    def forward(self, frames: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        if not frames.shape[1]:
            return frames.new_zeros(len(frames), 0, self.words), state
        opinion, state = self.opinion(frames, state, lengths)
        logits = self.SLOPE * (opinion - self.level)
        return (logits if lengths is None else zero_padding(logits, lengths)), state

    def lower(self, word: int, amount: float) -> None:
        """From now on the logits of a word are lower by ``amount``."""
        self.level[word] += amount / self.SLOPE


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
        if state is None and lengths is not None and x.shape[1] <= PIECE:  # whole clips: in training
            return self.encoder.whole(x, lengths), None
        pieces = []
        for piece in x.split(PIECE, 1):  # attention over a long recording at once would be a square of it
            y, state = self.encoder(piece, state)
            pieces.append(y)
        return torch.cat(pieces, 1), state


def _gru(config: HeadConfig) -> nn.Module:
    return Recurrent(config.size, config.size, cell="gru", layers=config.layers, dropout=config.dropout)


def _convolution(config: HeadConfig) -> nn.Module:
    return ResidualConvolutions(config.size, config.layers, config.kernel, cycle=config.layers)


_BODIES: dict[str, Any] = {"gru": _gru, "convolution": _convolution, "transformer": TransformerBody}


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
        opinion, given = None, len(config.spellings)
        if config.backbone is not None and given == len(config.words):
            opinion = PhoneOpinion(config.spellings, self.front.size, config.backbone.symbols)
        elif given or config.head.kind == "phones":
            raise ConfigError(f"{given} spellings for {len(config.words)} words; as many, and a backbone, were wanted")
        if config.head.kind == "phones":
            return PhoneHead(cast(PhoneOpinion, opinion))
        return Head(config.head, self.front.size, len(config.words), opinion)

    def load_backbone(self, backbone: Backbone) -> None:
        """Take over a trained backbone, also as the ground of the phones' opinion."""
        self.front.backbone.load_state_dict(backbone.state_dict())
        if self.head.opinion is not None:
            self.head.opinion.phones.load_state_dict(backbone.output.state_dict())

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
