"""Whisper's network (Radford et al. 2022) on the core's transformer: log-mel frames -> encoder -> decoder of pieces.

Its makers fill every recording up to 30 s with silence. ``tail_s`` instead adds a moment of silence, which a network
must have been taught (``tasks.whisper``): then the work is proportional to the sound. A CTC head on the encoder spells
characters, and says when they were said.

A recording gets the same answer alone and in a batch.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.core.attention import Cache, MultiHeadAttention
from voiceseq.core.eight_bits import EightBitLinear, counts_fast, to_eight_bits
from voiceseq.core.masks import check_frames, check_lengths, check_tokens, lengths_mask, zero_padding
from voiceseq.core.positions import LearnedPositions
from voiceseq.core.transformer import (
    DecoderBlock,
    TransformerConfig,
    TransformerDecoder,
    TransformerEncoder,
)
from voiceseq.errors import ConfigError, InputError

SAMPLE_RATE = 16_000
LONGEST_S = 30.0
HOP, STRIDE = 160, 2
FRAME_S = HOP * STRIDE / SAMPLE_RATE  # of the encoder's frames
MEL_FLOOR, DYNAMIC_RANGE = 1e-10, 8.0  # in powers of ten
MAX_LAYERS = 1000  # a stranger's config must not keep us building for ever

Memory = tuple[tuple[Cache, ...], Tensor | None]
"""What the decoder reads: keys and values for each block, and the mask ``(batch, 1, frames)`` where rows differ."""
Caches = tuple[Cache, ...]
"""Keys and values of what was written, for each block: ``(rows, head, tokens, head size)``."""


@dataclass(frozen=True)
class WhisperConfig:
    """The sizes of the network; those of ``tiny.en`` are the defaults.

    Args:
        symbols: pieces of the vocabulary.
        characters: symbols of the CTC head, its blank included; 0: there is none.
        tail_s: seconds of silence after each recording; None: up to 30 s, as the makers of Whisper do.

    Raises:
        ConfigError: all the settings that cannot be, in one message.
    """

    symbols: int = 0
    characters: int = 0
    tail_s: float | None = None
    mels: int = 80
    size: int = 384
    heads: int = 6
    encoder_layers: int = 4
    decoder_layers: int = 4
    audio_positions: int = 1500
    text_positions: int = 448
    dropout: float = 0.0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)}; at least 1 was wanted"
            for name in ("mels", "size", "heads", "audio_positions", "text_positions")
            if getattr(self, name) < 1
        ]
        wrong += [
            f"{name} is {getattr(self, name)}; 0 or more was wanted"
            for name in ("symbols", "characters")
            if getattr(self, name) < 0
        ]
        wrong += [
            f"{name} is {getattr(self, name)}; 1 to {MAX_LAYERS} was wanted"
            for name in ("encoder_layers", "decoder_layers")
            if not 1 <= getattr(self, name) <= MAX_LAYERS
        ]
        if self.tail_s is not None and not 0 <= self.tail_s <= LONGEST_S:
            wrong.append(f"tail_s is {self.tail_s}; 0 to {LONGEST_S:g} seconds were wanted, or null")
        if self.size % 2 or self.size < 4:
            wrong.append(f"size is {self.size}; an even one of at least 4 was wanted: positions pair the features up")
        if wrong:
            raise ConfigError("; ".join(wrong))

    def stack(self, layers: int, positions: str) -> TransformerConfig:
        return TransformerConfig(
            size=self.size,
            heads=self.heads,
            layers=layers,
            feed_forward=4 * self.size,
            dropout=self.dropout,
            positions=positions,
            max_length=self.text_positions,
        )


def sinusoids(positions: int, size: int) -> Tensor:
    """``(positions, size)``: all sines, then all cosines, at rates from 1 down to 1/10000; in the 16 bits published."""
    rates = torch.exp(-math.log(10_000) / (size // 2 - 1) * torch.arange(size // 2))
    phase = torch.arange(positions)[:, None] * rates
    return torch.cat((phase.sin(), phase.cos()), 1).half().float()


class LogMel(nn.Module):
    """Whisper's front end: ``(batch, samples)`` -> ``(batch, samples // 160, mels)``, about -1 to 1.5.

    Frame t is centred on sample 160 t; before the first sample the sound is mirrored, after the last one there is
    silence. The loudest spot of a recording decides what is silence: 80 dB below it.
    """

    def __init__(self, mels: int) -> None:
        super().__init__()
        self.features = Features(
            FeatureConfig(
                window=400, hop=HOP, fft=400, mels=mels, low_hz=0.0, kind="mel", mel_scale="slaney", equal_area=True
            )
        )

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames, zero after each row's own, and their number ``(batch,)``."""
        half = self.features.config.window // 2
        samples = samples.masked_fill(~lengths_mask(lengths, samples.shape[1]), 0.0)
        padded = functional.pad(functional.pad(samples[:, None], (half, 0), mode="reflect")[:, 0], (0, half))
        power, _ = self.features(padded)
        counts = lengths // HOP
        levels = power[:, : int(counts.max())].clamp(min=MEL_FLOOR).log10()
        valid = lengths_mask(counts, levels.shape[1])[..., None]
        loudest = levels.masked_fill(~valid, -torch.inf).amax((1, 2), keepdim=True)
        frames = (torch.maximum(levels, loudest - DYNAMIC_RANGE) + 4.0) / 4.0
        return frames.masked_fill(~valid, 0.0), counts


class WhisperHearing(nn.Module):
    """The half of Whisper that hears: sound -> log-mel frames -> two convolutions -> encoder."""

    positions: Tensor

    def __init__(self, config: WhisperConfig) -> None:
        nn.Module.__init__(self)  # not super: an acoustic network that hears with it has its own way to begin
        self.hearing = config
        size = config.size
        self.features = LogMel(config.mels)
        self.first = nn.Conv1d(config.mels, size, 3, padding=1)
        self.second = nn.Conv1d(size, size, 3, stride=STRIDE, padding=1)
        with torch.device("cpu"):  # a constant has values even where a network is only sketched
            self.register_buffer("positions", sinusoids(config.audio_positions, size), persistent=False)
        self.encoder = TransformerEncoder(config.stack(config.encoder_layers, "none"))

    def window(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``samples (batch, n)`` at 16 kHz with the silence after each of them, and the new lengths.

        Raises ``InputError`` for another shape, NaN, and recordings longer than 30 s with their silence.
        """
        check_frames(samples[..., None] if samples.dim() == 2 else samples, None, 1, "samples[..., None]")
        lengths = check_lengths(lengths, samples.shape[0], samples.shape[1], samples.device)
        longest = self.hearing.audio_positions * HOP * STRIDE
        tail = self.hearing.tail_s
        full = torch.full_like(lengths, longest) if tail is None else lengths + round(tail * SAMPLE_RATE)
        if int(lengths.max()) > longest:
            raise InputError(
                f"a recording of {int(lengths.max()) / SAMPLE_RATE:.1f} s came; at most {longest / SAMPLE_RATE:g} s "
                "fit: cut it into pieces"
            )
        full = full.clamp(min=2 * HOP * STRIDE, max=longest)
        samples = samples.masked_fill(~lengths_mask(lengths, samples.shape[1]), 0.0)
        return functional.pad(samples, (0, int(full.max()) - samples.shape[1])), full

    def mels(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-mel frames ``(batch, time, mels)`` of ``samples (batch, n)`` and of the silence after; their number."""
        return self.features(*self.window(samples, lengths))

    def hear(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Log-mel ``(batch, time, mels)`` -> frames ``(batch, ceil(time / 2), size)``, zeros in the padding."""
        frames = functional.gelu(self.first(mels.transpose(1, 2))).transpose(1, 2)
        frames = functional.gelu(self.second(zero_padding(frames, lengths).transpose(1, 2))).transpose(1, 2)
        lengths = (lengths + STRIDE - 1) // STRIDE
        frames = frames + self.positions[: frames.shape[1]]
        alike = bool((lengths == frames.shape[1]).all())
        return self.encoder(frames, None if alike else lengths), lengths


class WhisperNetwork(WhisperHearing):
    """Recordings in, log-probabilities of pieces out; ``start`` and ``step`` are for search.

    Raises ConfigError for a config without pieces.
    """

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        if config.symbols < 1:
            raise ConfigError("symbols is 0; set it to the number of pieces of the vocabulary")
        self.config, size = config, config.size
        self.embedding = nn.Embedding(config.symbols, size)
        self.decoder = TransformerDecoder(config.stack(config.decoder_layers, "learned"), memory_size=size)
        self.ctc = nn.Linear(size, config.characters) if config.characters else None
        self.output: EightBitLinear | None = None  # see ``light``

    def listen(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``samples (batch, n)`` -> the encoder's frames ``(batch, time, size)``, one every 20 ms, and their number."""
        return self.hear(*self.mels(samples, lengths))

    def encode(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """As ``hear``."""
        return self.hear(mels, lengths)

    def forward(
        self, frames: Tensor, frame_lengths: Tensor, tokens: Tensor, token_lengths: Tensor | None = None
    ) -> Tensor:
        """The encoder's frames and ``tokens (batch, written)`` -> logits ``(batch, written, symbols)`` of the next."""
        check_tokens(tokens, token_lengths, self.config.symbols)
        states, _ = self.decoder(self.embedding(tokens), frames, frame_lengths, lengths=token_lengths)
        return self.written(states)

    def written(self, states: Tensor) -> Tensor:
        """The decoder's ``states (..., size)`` -> logits ``(..., symbols)``."""
        return states @ self.embedding.weight.T if self.output is None else self.output(states)

    def light(self) -> "WhisperNetwork":
        """For inference alone: matrices in 8 bits (``core.eight_bits``), in place; the encoder's, which work on many
        frames at once, where that is faster."""
        self.output = EightBitLinear(self.embedding.weight)
        to_eight_bits(self.decoder)
        if counts_fast():
            to_eight_bits(self.encoder)
        return self.requires_grad_(False).eval()

    def characters(self, frames: Tensor) -> Tensor:
        """The CTC head: ``(batch, time, size)`` -> log-probabilities ``(batch, time, characters)``.

        Raises ``InputError`` where the network has none.
        """
        if self.ctc is None:
            raise InputError("this network has no CTC head: use another decoder")
        return self.ctc(frames).float().log_softmax(-1)

    def start(self, frames: Tensor, lengths: Tensor) -> Memory:
        """What ``step`` reads of the encoder's frames."""
        attentions = (cast(MultiHeadAttention, block.memory_attention) for block in self.decoder.blocks)
        memories = tuple(attention.keys_values(frames, frames) for attention in attentions)
        alike = bool((lengths == frames.shape[1]).all())
        return memories, None if alike else lengths_mask(lengths, frames.shape[1])[:, None]

    def step(self, tokens: Tensor, caches: Caches | None, memory: Memory) -> tuple[Tensor, Caches]:
        """``tokens (rows,)``, all at one place of their texts -> log-probabilities ``(rows, symbols)``, caches.

        ``memory`` has one row a recording, with equally many rows of tokens for each, one recording after the other.
        """
        place = 0 if caches is None else caches[0][0].shape[2]
        table = cast(LearnedPositions, self.decoder.positions.table).table
        states = self.embedding(tokens)[:, None] + table[place]
        memories, mask = memory
        kept = []
        for number, block in enumerate(self.decoder.blocks):
            cache = None if caches is None else caches[number]
            states, cache = step_block(cast(DecoderBlock, block), states, cache, memories[number], mask)
            kept.append(cache)
        return self.written(self.decoder.norm(states[:, 0])).float().log_softmax(-1), tuple(kept)


def step_block(
    block: DecoderBlock, states: Tensor, cache: Cache | None, memory: Cache, mask: Tensor | None
) -> tuple[Tensor, Cache]:
    """One token for each row, ``states (rows, 1, size)``; rows that share a recording ask its memory together."""
    normed = block.around_attention.enter(states)
    attended, _, cache = block.attention.look(normed, normed, normed, None, cache)
    states = block.around_attention.leave(states, attended)
    queries = block.around_memory.enter(states).view(memory[0].shape[0], -1, states.shape[2])
    attended, _ = cast(MultiHeadAttention, block.memory_attention).attend(queries, memory, mask)
    states = block.around_memory.leave(states, attended.reshape(states.shape))
    result = block.feed_forward(block.around_feed_forward.enter(states))
    return block.around_feed_forward.leave(states, result), cache
