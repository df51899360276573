"""Whisper's encoder as the ear of an acoustic model: our CTC above it, and a small decoder where one is asked for.

``AcousticConfig(encoder="whisper", size=384, heads=6, layers=4)`` is the encoder of ``tiny.en``. The names of its
tensors are those of ``WhisperNetwork``, so a run may ``start_from`` a bundle or a run of that kind. Where ``above``
says so, recurrent layers stand above it, one frame for two of its own: they do what it leaves undone for CTC.
"""

from torch import Tensor, nn

from voiceseq.core.convolution import strided_lengths
from voiceseq.core.transformer import TransformerConfig, TransformerEncoder
from voiceseq.errors import ConfigError
from voiceseq.models.acoustic import AcousticConfig, AcousticNetwork, AcousticOutput, build_decoder
from voiceseq.models.encoders import RecurrentEncoder, pairs
from voiceseq.models.whisper import FRAME_S, HOP, SAMPLE_RATE, STRIDE, WhisperConfig, WhisperHearing

TAIL_S = 0.3  # of silence after each recording


class WhisperStack(TransformerEncoder):
    """Whisper's blocks with what acoustic models ask of an encoder."""

    causal, factor, lookahead = False, 1, 0

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.outputs = config.size


class WhisperAcoustic(WhisperHearing, AcousticNetwork):  # type: ignore[misc]  # its parts have other types
    """An ``AcousticNetwork`` on frames of 20 ms. Raises ConfigError for a config without symbols."""

    def __init__(self, config: AcousticConfig) -> None:
        if config.symbols < 3:
            raise ConfigError(f"an acoustic model of {config.symbols} symbols: blank, end and one more were wanted")
        sizes = WhisperConfig(tail_s=TAIL_S, size=config.size, heads=config.heads, encoder_layers=config.layers)
        WhisperHearing.__init__(self, sizes)
        self.config = config
        self.encoder = WhisperStack(sizes.stack(config.layers, "none"))
        self.dropout = nn.Dropout(config.dropout)
        self.above = layers_above(config) if config.above else None
        outputs = self.above.outputs if self.above is not None else config.size
        self.decoder = build_decoder(config, outputs)
        self.output = nn.Linear(outputs, config.symbols)

    @property
    def frame_s(self) -> float:
        return FRAME_S * (2 if self.above is not None else 1)

    @property
    def shortest(self) -> int:
        return HOP * STRIDE

    def frames_of(self, samples: Tensor) -> Tensor:
        full = samples + round(TAIL_S * SAMPLE_RATE)
        frames = full.clamp(max=self.hearing.audio_positions * HOP * STRIDE) // HOP
        return strided_lengths(strided_lengths(frames, STRIDE), 2 if self.above is not None else 1)

    def forward(self, samples: Tensor, lengths: Tensor | None = None) -> AcousticOutput:
        return self.encode(*self.listen(samples, lengths))

    def listen(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.mels(samples, lengths)

    def encode(self, frames: Tensor, lengths: Tensor) -> AcousticOutput:
        heard, counts = self.hear(frames, lengths)
        if self.above is not None:
            heard, counts = self.above(pairs(self.dropout(heard)), strided_lengths(counts, 2))
        return AcousticOutput(self.output(self.dropout(heard)), heard, counts)


def layers_above(config: AcousticConfig) -> RecurrentEncoder:
    """Layers that read two neighbouring frames of Whisper's encoder as one; both ways, on a stream forwards alone."""
    shape = 2 * config.size, config.above_size, config.cell, config.above, config.dropout
    return RecurrentEncoder(*shape, causal=config.encoder == "whisper-chunked", delay=config.delay)
