"""Acoustic models: from sound to symbols, by CTC always and by an attention decoder where one is asked for.

samples -> log-mel frames, their level taken out -> two causal convolutions, the second with a stride -> an encoder ->
CTC's symbols; a decoder beside it reads the encoder's frames. The encoders are in ``encoders.py``, the decoders in
``decoders.py``. With a causal encoder the same network takes a stream. ``whisper_acoustic.py`` has one with another
front end.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.core.conformer import ConformerConfig, ConformerEncoder
from voiceseq.core.convolution import CausalConvolution, strided_lengths
from voiceseq.core.masks import masked_mean, zero_padding
from voiceseq.core.transformer import TransformerConfig, TransformerEncoder
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.decoders import AttentionDecoder, RecurrentDecoder, SpeechDecoder
from voiceseq.models.encoders import (
    AcousticEncoder,
    AttentionEncoder,
    ChunkedEncoder,
    ConvolutionEncoder,
    PyramidEncoder,
    RecurrentEncoder,
)

ENCODERS = (
    *("bilstm", "pyramid", "transformer", "conformer", "causal", "chunked", "convolution"),
    *("whisper", "whisper-chunked"),
)
TALL = ("convolution", "whisper", "whisper-chunked")  # recurrent layers may stand above these
DECODERS = ("none", "recurrent", "transformer")
# log-mel frames of speech lie around LEVEL; a running mean believes in it as long as PRIOR frames do not say otherwise
LEVEL, SPREAD, PRIOR = -6.0, 3.0, 100.0
LM_FILE = "lm.arpa.gz"  # the n-gram model of a bundle, where it has one
MAX_LAYERS = 100  # a stranger's config must not keep us building for ever


@dataclass(frozen=True)
class AcousticConfig:
    """One for all encoders and decoders; ``symbols`` (blank, end and what is written) comes from the data.

    ``stride`` frames of the spectrogram make one; ``cell`` is that of recurrent encoders and decoders; ``heads`` and
    ``feed_forward`` (times the size) are for attention; ``conformer_kernel``, ``chunk`` and ``left_chunks`` (in
    frames and chunks) for conformers; a causal encoder answers ``delay`` frames late; ``above`` convolutions or
    Whisper's encoder stand that many recurrent layers of ``above_size``, both ways unless they answer late. Raises
    ConfigError with all that is wrong.
    """

    symbols: int = 0
    features: FeatureConfig = field(default_factory=FeatureConfig)
    channels: int = 128
    kernel: int = 5
    stride: int = 3
    encoder: str = "bilstm"
    cell: str = "lstm"
    size: int = 256
    layers: int = 3
    heads: int = 4
    feed_forward: int = 4
    conformer_kernel: int = 15
    chunk: int = 16
    left_chunks: int = 4
    delay: int = 0
    above: int = 0
    above_size: int = 256
    dropout: float = 0.1
    decoder: str = "none"
    decoder_size: int = 256
    decoder_layers: int = 1

    def __post_init__(self) -> None:
        if wrong := self._mistakes():
            raise ConfigError("; ".join(wrong))

    def _mistakes(self) -> list[str]:
        least = ("channels", "kernel", "stride", "size", "heads", "feed_forward", "chunk", "decoder_size", "above_size")
        wrong = [f"{name} is {getattr(self, name)}; at least 1 was wanted" for name in least if getattr(self, name) < 1]
        for name in ("layers", "decoder_layers"):
            if not 1 <= getattr(self, name) <= MAX_LAYERS:
                wrong.append(f"{name} is {getattr(self, name)}; 1 to {MAX_LAYERS} was wanted")
        for name, valid in (("encoder", ENCODERS), ("decoder", DECODERS)):
            if getattr(self, name) not in valid:
                wrong.append(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(valid)}")
        late = self.encoder == "causal" or (self.encoder in ("convolution", "whisper-chunked") and self.above > 0)
        if self.delay < 0 or (self.delay and not late):
            wrong.append(f"delay is {self.delay} with the encoder {self.encoder!r}; 0, or more for causal, was wanted")
        if not 0 <= self.above <= MAX_LAYERS or (self.above and self.encoder not in TALL):
            most = f"0, or more for {', '.join(TALL)}, was wanted"
            wrong.append(f"above is {self.above} with the encoder {self.encoder!r}; {most}")
        if self.encoder == "whisper-chunked" and self.above and self.chunk % 2:
            wrong.append(f"chunk is {self.chunk} under layers that read frames in pairs; an even one was wanted")
        if not 0 <= self.dropout < 1:
            wrong.append(f"dropout is {self.dropout}; 0 <= dropout < 1 was wanted")
        return wrong

    def stack(self, size: int, layers: int) -> dict[str, Any]:
        """The settings of a stack of attention blocks."""
        inner = self.feed_forward * size
        return {"size": size, "heads": self.heads, "layers": layers, "feed_forward": inner, "dropout": self.dropout}


class AcousticOutput(NamedTuple):
    """CTC's ``logits (batch, time, symbols)`` and the encoder's ``frames (batch, time, size)``, with their lengths."""

    logits: Tensor
    frames: Tensor
    lengths: Tensor


class AcousticNetwork(nn.Module):
    """``output = network(samples (batch, n), lengths (batch,))``; raises ConfigError for a config without symbols."""

    def __init__(self, config: AcousticConfig) -> None:
        super().__init__()
        if config.symbols < 3:
            raise ConfigError(f"an acoustic model of {config.symbols} symbols: blank, end and one more were wanted")
        if config.encoder.startswith("whisper"):
            raise ConfigError(f"models.whisper_stream builds the encoder {config.encoder!r}")
        self.config = config
        self.features = Features(config.features)
        self.first = CausalConvolution(config.features.mels, config.channels, config.kernel)
        self.second = CausalConvolution(config.channels, config.size, config.kernel, stride=config.stride)
        self.norms = nn.ModuleList([nn.LayerNorm(config.channels), nn.LayerNorm(config.size)])
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = build_encoder(config)
        self.decoder = build_decoder(config, self.encoder.outputs)
        self.output = nn.Linear(self.encoder.outputs, config.symbols)

    @property
    def frame_s(self) -> float:
        """Seconds from one output frame to the next."""
        features = self.config.features
        return self.encoder.factor * self.config.stride * features.hop / features.sample_rate

    @property
    def shortest(self) -> int:
        """The fewest samples that make a frame."""
        return self.config.features.window

    def frames_of(self, samples: Tensor) -> Tensor:
        """How many output frames recordings of ``samples (batch,)`` have."""
        frames = strided_lengths(self.config.features.frames(samples), self.config.stride)
        return strided_lengths(frames, self.encoder.factor)

    def forward(self, samples: Tensor, lengths: Tensor | None = None) -> AcousticOutput:
        """``samples (batch, n)`` at the config's rate with their ``lengths (batch,)``: whole recordings.

        Raises InputError for wrong shapes, NaN, and recordings shorter than a window.
        """
        return self.encode(*self.listen(samples, lengths))

    def listen(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-mel frames ``(batch, time, mels)`` around zero, and their lengths: what training masks and warps."""
        if lengths is None:
            lengths = torch.full((samples.shape[0],), samples.shape[1])
        if int(lengths.min()) < self.shortest:
            raise InputError(f"a recording of {int(lengths.min())} samples came; {self.shortest} or more were wanted")
        frames, _ = self.features(samples, None, lengths)
        lengths = self.features.output_lengths(lengths)
        if self.encoder.causal:
            return zero_padding(running_level(frames, None)[0], lengths), lengths
        return zero_padding((frames - masked_mean(frames, lengths)[:, None]) / SPREAD, lengths), lengths

    def encode(self, frames: Tensor, lengths: Tensor) -> AcousticOutput:
        """The rest of the way, from what ``listen`` gave."""
        x, _ = self.first(frames, None, lengths)
        x, _ = self.second(self.norms[0](x).relu(), None, lengths)
        x = self.dropout(self.norms[1](x).relu())
        x, lengths = self.encoder(x, strided_lengths(lengths, self.config.stride))
        return AcousticOutput(self.output(self.dropout(x)), x, lengths)

    def advance(self, samples: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The next ``samples (batch, 0 or more)`` of a stream: CTC's logits that are ready, and the state.

        Any cut of the samples gives the logits of the whole. Raises InputError for an encoder that needs the whole.
        """
        if not self.encoder.causal:
            raise InputError(
                f"a {self.config.encoder} encoder needs the whole utterance; stream a causal or chunked one"
            )
        features, level, first, second, inner = (None,) * 5 if state is None else state
        frames, features = self.features(samples, features)
        x, level = running_level(frames, level)
        if x.shape[1]:
            x, first = self.first(x, first)
            x, second = self.second(self.norms[0](x).relu(), second)
        ready = samples.new_zeros(samples.shape[0], 0, self.encoder.outputs)
        if frames.shape[1] and x.shape[1]:
            ready, inner = self.encoder.advance(self.dropout(self.norms[1](x).relu()), inner)
        return self.output(self.dropout(ready)), (features, level, first, second, inner)

    def flush(self, state: Any) -> Tensor | None:
        """The logits that were waiting for a future, or None: the stream is over."""
        ready = None if state is None else self.encoder.flush(state[4])
        return None if ready is None else self.output(ready)


def running_level(frames: Tensor, state: Any) -> tuple[Tensor, Any]:
    """``frames (batch, time, mels)`` less the mean of what was heard so far: what a stream can know of its level.

    State: the sum ``(batch, mels)`` and the number ``(batch,)`` of the frames heard, which begin with a prior.
    """
    if state is None:
        total = frames.new_full((frames.shape[0], frames.shape[2]), PRIOR * LEVEL, dtype=torch.double)
        state = total, total.new_full((frames.shape[0],), PRIOR)
    total, count = state
    sums = total[:, None] + frames.double().cumsum(1)
    counts = count[:, None] + torch.arange(1, frames.shape[1] + 1, device=frames.device)
    level = (sums / counts[..., None]).to(frames.dtype)
    after = (sums[:, -1], counts[:, -1]) if frames.shape[1] else state
    return (frames - level) / SPREAD, after


def build_encoder(config: AcousticConfig) -> AcousticEncoder:
    """The encoder that the config asks for."""
    size, layers = config.size, config.layers
    recurrent = {"inputs": size, "size": size, "cell": config.cell, "layers": layers, "dropout": config.dropout}
    if config.encoder == "bilstm":
        return RecurrentEncoder(**recurrent)  # type: ignore[arg-type]
    if config.encoder == "causal":
        return RecurrentEncoder(**recurrent, causal=True, delay=config.delay)  # type: ignore[arg-type]
    if config.encoder == "pyramid":
        return PyramidEncoder(**recurrent)  # type: ignore[arg-type]
    if config.encoder == "convolution":
        return ConvolutionEncoder(
            size, layers, config.cell, config.above, config.above_size, config.dropout, config.delay
        )
    stack = config.stack(size, layers)
    if config.encoder == "transformer":
        return AttentionEncoder(TransformerEncoder(TransformerConfig(**stack)))
    if config.encoder == "conformer":
        return AttentionEncoder(ConformerEncoder(ConformerConfig(**stack, kernel=config.conformer_kernel)))
    causal = ConformerConfig(**stack, kernel=config.conformer_kernel, causal=True)
    return ChunkedEncoder(causal, config.chunk, config.left_chunks)


def build_decoder(config: AcousticConfig, inputs: int) -> SpeechDecoder | None:
    """The decoder that the config asks for, over encoder frames of ``inputs`` features."""
    size, layers = config.decoder_size, config.decoder_layers
    if config.decoder == "none":
        return None
    if config.decoder == "recurrent":
        return RecurrentDecoder(config.symbols, inputs, size, config.cell, layers, config.dropout)
    return AttentionDecoder(config.symbols, inputs, TransformerConfig(**config.stack(size, layers)))
