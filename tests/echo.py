"""A language that needs no training: a symbol is a level of the sound, in the contract of an acoustic network."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from voiceseq.models.acoustic import AcousticOutput
from voiceseq.models.decoders import SpeechDecoder
from voiceseq.text.vocabulary import Vocabulary

FRAME, STEP = 480, 1 / 64  # samples of a frame; between the levels of two symbols
VOCABULARY = Vocabulary.from_text(" 'abcdefghijklmnopqrstuvwxyz", specials=("blank", "eos"))


def say(text: str, frames: int = 2, pause: int = 1) -> np.ndarray:
    """Each symbol on so many frames and a pause after it; ``?`` lies half-way between a and b."""
    half = {"?": VOCABULARY.index("a") + 0.5}
    levels = [half[letter] if letter in half else VOCABULARY.index(letter) for letter in text]
    spread = [level for symbol in levels for level in [symbol] * frames + [0] * pause]
    return np.repeat(np.array(spread, np.float32) * STEP, FRAME)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * 16_000), np.float32)


class Echo(nn.Module):
    """Hears frames that hold one level; where the level changes it hears nothing."""

    frame_s, shortest = FRAME / 16_000, FRAME

    def __init__(self, causal: bool = False, decoder: SpeechDecoder | None = None, vocabulary=VOCABULARY) -> None:
        super().__init__()
        self.encoder, self.decoder = SimpleNamespace(causal=causal, lookahead=0), decoder
        self.config = SimpleNamespace(symbols=len(vocabulary), encoder="echo")

    def forward(self, samples: Tensor, lengths: Tensor) -> AcousticOutput:
        logits = self.logits(samples)
        return AcousticOutput(logits, logits, lengths // FRAME)

    def logits(self, samples: Tensor) -> Tensor:
        frames = samples[:, : samples.shape[1] // FRAME * FRAME].unflatten(1, (-1, FRAME))
        even = frames.amax(2) - frames.amin(2) < 1e-4
        level = torch.where(even, frames.mean(2), 0.0) / STEP
        return -8 * (level[..., None] - torch.arange(self.config.symbols)).abs()

    def advance(self, samples: Tensor, state=None) -> tuple[Tensor, Tensor]:
        samples = samples if state is None else torch.cat((state, samples), 1)
        whole = samples.shape[1] // FRAME * FRAME
        if not whole:
            return samples.new_zeros(1, 0, self.config.symbols), samples
        return self.logits(samples[:, :whole]), samples[:, whole:]

    def flush(self, state) -> None:
        return None


class Bigrams(SpeechDecoder):
    """A decoder that hears nothing and knows which symbol follows which: ``table (symbols, symbols)`` of logits."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(self, tokens: Tensor, frames: Tensor, lengths: Tensor, token_lengths: Tensor | None = None) -> Tensor:
        return self.table[tokens]

    def start(self, frames: Tensor, lengths: Tensor):
        return torch.zeros(len(frames), 1), None

    def step(self, tokens: Tensor, state, memory=None):
        return self.table[tokens].log_softmax(-1), state
