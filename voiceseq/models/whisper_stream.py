"""Whisper's encoder on a stream: it sees chunks and their past, and one-way layers above it answer a little late.

The names of the tensors are those of `WhisperAcoustic`, so a run may ``start_from`` what heard whole utterances. What
differs: the loudest spot so far decides what is silence, there is silence before the first sample, and the table of
positions begins again after 30 s.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.audio.features import State
from voiceseq.core.masks import chunk_mask, lengths_mask
from voiceseq.core.streaming import StreamingEncoder
from voiceseq.core.transformer import TransformerConfig
from voiceseq.models.acoustic import AcousticConfig, AcousticNetwork
from voiceseq.models.encoders import pairs
from voiceseq.models.whisper import DYNAMIC_RANGE, HOP, MEL_FLOOR, SAMPLE_RATE, LogMel
from voiceseq.models.whisper_acoustic import TAIL_S, WhisperAcoustic, WhisperStack

MelState = tuple[State, Tensor]
LOUDEST = 0.0  # in powers of ten: as loud as this a stream is believed to become


class ChunkedStack(WhisperStack):
    """Whisper's blocks, each of whose frames sees its chunk and ``left_chunks`` before it."""

    causal = True

    def __init__(self, config: TransformerConfig, chunk: int, left_chunks: int) -> None:
        super().__init__(config)
        self.chunk, self.left_chunks, self.lookahead = chunk, left_chunks, chunk - 1

    def forward(self, frames: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        mask = chunk_mask(frames.shape[1], self.chunk, self.left_chunks, device=frames.device)
        return super().forward(frames, lengths, mask)

    @property
    def stream(self) -> StreamingEncoder:
        return StreamingEncoder(self, self.chunk, self.left_chunks)


class StreamLogMel(LogMel):
    """As ``LogMel``, of what a stream can know."""

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        half = self.features.config.window // 2
        samples = samples.masked_fill(~lengths_mask(lengths, samples.shape[1]), 0.0)
        frames, _ = self.advance(functional.pad(samples, (0, half)))
        counts = lengths // HOP
        frames = frames[:, : int(counts.max())]
        return frames.masked_fill(~lengths_mask(counts, frames.shape[1])[..., None], 0.0), counts

    def advance(self, samples: Tensor, state: MelState | None = None) -> tuple[Tensor, MelState]:
        """The next samples of a stream, and the state: the features' own, and the loudest so far ``(batch, 1)``."""
        if state is None:
            inner, loudest = None, samples.new_full((samples.shape[0], 1), LOUDEST)
            samples = functional.pad(samples, (self.features.config.window // 2, 0))
        else:
            inner, loudest = state
        power, inner = self.features(samples, inner)
        levels = power.clamp(min=MEL_FLOOR).log10()
        running = torch.cat((loudest, levels.amax(2)), 1).cummax(1).values
        frames = (torch.maximum(levels, running[:, 1:, None] - DYNAMIC_RANGE) + 4.0) / 4.0
        return frames, (inner, running[:, -1:])


class WhisperStream(WhisperAcoustic):
    """``WhisperAcoustic`` with ``advance`` and ``flush``; the same answers whole and in pieces."""

    features: StreamLogMel  # type: ignore[assignment]
    encoder: ChunkedStack  # type: ignore[assignment]

    def __init__(self, config: AcousticConfig) -> None:
        super().__init__(config)
        self.features = StreamLogMel(self.hearing.mels)
        self.encoder = ChunkedStack(self.hearing.stack(config.layers, "none"), config.chunk, config.left_chunks)

    def advance(self, samples: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        start: Any = (0, 0, None, None, None, 0, None, None)
        heard, mels, *rest = start if state is None else state
        frames, rest[0] = self.features.advance(samples, rest[0])
        logits, rest = self._go_on(frames, rest)
        return logits, (heard + samples.shape[1], mels + frames.shape[1], *rest)

    def flush(self, state: Any) -> Tensor | None:
        """The logits that were waiting for a future; those of the silence after the recording are the last."""
        if state is None:
            return None
        heard, mels, *rest = state
        tail, half = round(TAIL_S * SAMPLE_RATE), self.features.features.config.window // 2
        loudest = rest[0][1]
        frames, rest[0] = self.features.advance(loudest.new_zeros(loudest.shape[0], tail + half), rest[0])
        return self._go_on(frames[:, : (heard + tail) // HOP - mels], rest, last=True)[0]

    def _go_on(self, mels: Tensor, state: list[Any], last: bool = False) -> tuple[Tensor, list[Any]]:
        """Log-mel frames -> the logits that are ready, and the state; ``last``: nothing comes after these."""
        features, first, second, at, inner, above = state
        frames, first = convolve(self.first, mels, first, last)
        frames, second = convolve(self.second, frames, second, last)
        places = torch.arange(at, at + frames.shape[1]) % len(self.positions)
        at += frames.shape[1]
        ready, stream = mels.new_zeros(mels.shape[0], 0, self.config.size), self.encoder.stream
        if frames.shape[1]:
            ready, inner = stream(frames + self.positions[places], inner)
        if last and inner is not None:
            ready = torch.cat((ready, stream.flush(inner)), 1)
        if self.above is not None:
            ready, above = self._above(ready, above, last)
        return self.output(self.dropout(ready)), [features, first, second, at, inner, above]

    def _above(self, frames: Tensor, state: Any, last: bool) -> tuple[Tensor, Any]:
        assert self.above is not None
        answers = [frames.new_zeros(frames.shape[0], 0, self.above.outputs)]
        if frames.shape[1]:
            ready, state = self.above.advance(pairs(self.dropout(frames)), state)
            answers.append(ready)
        rest = self.above.flush(state) if last else None
        return torch.cat(answers if rest is None else [*answers, rest], 1), state


def convolve(layer: nn.Conv1d, frames: Tensor, kept: Tensor | None, last: bool) -> tuple[Tensor, Tensor]:
    """The next ``frames (batch, time, inputs)`` of a stream through a convolution of Whisper's, which has one frame of
    zeros at both ends; and the frames that its next answers need."""
    edge = frames.new_zeros(frames.shape[0], 1, frames.shape[2])
    seen = torch.cat((edge if kept is None else kept, frames, *([edge] if last else [])), 1)
    width, stride = layer.kernel_size[0], layer.stride[0]
    count = max(0, (seen.shape[1] - width) // stride + 1)
    if not count:
        return frames.new_zeros(frames.shape[0], 0, layer.out_channels), seen
    answers = functional.conv1d(seen.transpose(1, 2), layer.weight, layer.bias, stride)
    return functional.gelu(answers).transpose(1, 2), seen[:, count * stride :]


def build_acoustic(config: AcousticConfig) -> AcousticNetwork:
    """The network that a config asks for."""
    kinds = {"whisper": WhisperAcoustic, "whisper-chunked": WhisperStream}
    return kinds.get(config.encoder, AcousticNetwork)(config)
