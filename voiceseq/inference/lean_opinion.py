"""The phones' opinion without torch, as `voiceseq.models.trigger.PhoneOpinion` has it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voiceseq.core import spotting_loops
from voiceseq.inference import kernels

Array = NDArray[np.float32]
F = np.float32
# As in `voiceseq.core.ctc` and `voiceseq.models.trigger`, which cannot be imported without torch.
NEVER, BLANK = -1e30, 0
RECENT, LEAST, SLOPE = 7, -8.0, 4.0


@dataclass(frozen=True)
class Share:
    """What the opinion adds to one word's logits: ``slope * opinion + offset``, for the best of its spellings."""

    word: str
    spellings: tuple[tuple[int, ...], ...]
    slope: float
    offset: float = 0.0


class Opinions:
    """``frames (time, inputs)`` -> what is added to the logits, ``(time, words)``, of the words that are spelt."""

    def __init__(self, phones: tuple[Array, Array], shares: Sequence[Share]) -> None:
        self.phones, self.words = phones, tuple(share.word for share in shares)
        self.slope = np.array([share.slope for share in shares], F)
        self.offset = np.array([share.offset for share in shares], F)
        spellings = [spelling for share in shares for spelling in share.spellings]
        self.firsts = np.cumsum([0, *(len(share.spellings) for share in shares)])[:-1]
        self.count = np.array([len(spelling) for spelling in spellings], F)
        self.last = np.array([2 * len(spelling) - 2 for spelling in spellings])
        self.labels = np.full((len(spellings), int(self.last.max()) + 1), BLANK)
        for row, spelling in zip(self.labels, spellings, strict=True):
            row[: 2 * len(spelling) : 2] = spelling
        # shut: no path comes from two states before; only over a blank, to a different phone
        self.shut = np.ones(self.labels.shape, bool)
        self.shut[:, 2:] = (self.labels[:, 2:] == BLANK) | (self.labels[:, 2:] == self.labels[:, :-2])

    def start(self) -> list[Array]:
        return [np.full((1, *self.labels.shape), NEVER, F), np.full((RECENT - 1, len(self.words)), LEAST, F)]

    def advance(self, frames: Array, state: list[Array]) -> Array:
        logits = np.empty((len(frames), 1, self.phones[1].shape[1]), F)
        kernels.dense(frames.ravel(), frames.shape[1], *self.phones, logits)
        logits -= logits.max(-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        ends = np.empty((1, len(frames), len(self.labels)), F)
        lengths = np.array([len(frames)])
        spotting_loops.advance(
            log_probs.transpose(1, 0, 2).copy(), lengths, self.labels, self.shut, self.last, state[0], ends
        )
        scores = np.maximum.reduceat(ends[0] / self.count, self.firsts, axis=1)
        seen = np.concatenate((state[1], np.maximum(scores, F(LEAST))))
        state[1] = seen[1 - RECENT :]
        best = np.lib.stride_tricks.sliding_window_view(seen, RECENT, axis=0).max(-1)
        return np.asarray(self.slope * best + self.offset, F)
