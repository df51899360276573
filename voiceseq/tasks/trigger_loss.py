"""What a wake-word detector is taught by: clips and where their words end, as a loss over frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.core.losses import trigger_loss, trigger_targets
from voiceseq.core.masks import DIVERGED, check_frames, lengths_mask
from voiceseq.datasets.synthesis import Ends
from voiceseq.errors import ConfigError

KINDS = ("smoothed", "maxpool")
Places = Sequence[Sequence[tuple[int, int]]]
"""For each row ``(word, frame)``: the first frame that has heard all of the word."""


class FrameBatch(NamedTuple):
    """What a front made of clips: ``frames (batch, time, size)`` with ``lengths (batch,)`` and the ``ends``."""

    frames: Tensor
    lengths: Tensor
    ends: tuple[Ends, ...]


@dataclass(frozen=True)
class TriggerLoss:
    """``loss(logits (batch, time, words), places, lengths)``; all sizes are in frames.

    ``smoothed``: every frame is told what to say, 1 on the ``spread`` frames after a word with ramps of ``edge``
    (``core.losses.trigger_loss``). ``maxpool``: of the ``window`` frames after a word only the highest must be high,
    and of all that is no word only the ``hardest`` of each clip must be low, so the network chooses when to speak.
    Either way the ``ignore`` frames before a word's end and after its frames do not count.

    Raises:
        ConfigError: all the settings that cannot be, in one message.
    """

    kind: str = "smoothed"
    spread: int = 8
    edge: int = 2
    ignore: int = 5
    window: int = 9
    hardest: int = 5
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        rules = [
            (self.kind in KINDS, f"kind is {self.kind!r}; one of {', '.join(KINDS)} was wanted"),
            (min(self.edge, self.ignore) >= 0, f"edge is {self.edge}, ignore {self.ignore}; 0 or more was wanted"),
            (self.spread > 2 * self.edge, f"spread is {self.spread}; more than two edges of {self.edge} was wanted"),
            (self.window >= 1, f"window is {self.window}; 1 or more was wanted"),
            (self.hardest >= 1, f"hardest is {self.hardest}; 1 or more was wanted"),
            (self.positive_weight > 0, f"positive_weight is {self.positive_weight}; more than 0 was wanted"),
        ]
        if wrong := [message for holds, message in rules if not holds]:
            raise ConfigError("loss: " + "; ".join(wrong))

    def __call__(self, logits: Tensor, places: Places, lengths: Tensor | None = None) -> Tensor:
        """Raises InputError for logits that are not finite, and lengths or words that do not fit them."""
        return (self._smoothed if self.kind == "smoothed" else self._maxpool)(logits, places, lengths)

    def _smoothed(self, logits: Tensor, places: Places, lengths: Tensor | None) -> Tensor:
        _, size, words = logits.shape
        ends = [[(min(frame, size), word) for word, frame in said] for said in places]
        targets, weights = trigger_targets(ends, words, size, self.spread, self.edge, self.ignore)
        return trigger_loss(logits, targets.to(logits), weights.to(logits), lengths, self.positive_weight)

    def _maxpool(self, logits: Tensor, places: Places, lengths: Tensor | None) -> Tensor:
        """``positive_weight * mean(-log s(max)) + mean(-log(1 - s(hard)))``, s the sigmoid."""
        lengths = check_frames(logits, lengths, name="logits", advice=DIVERGED)
        other = lengths_mask(lengths, logits.shape[1])[..., None].repeat(1, 1, logits.shape[2])
        highest = []
        for row, said in enumerate(places):
            for word, frame in said:
                first = min(frame, int(lengths[row]) - 1)
                last = min(first + self.window, int(lengths[row]))
                highest.append(logits[row, first:last, word].max())
                other[row, max(0, first - self.ignore) : last + self.ignore, word] = False
        loss = logits.new_zeros(())
        hard = logits.masked_fill(~other, -torch.inf).topk(min(self.hardest, logits.shape[1]), 1).values
        if len(calm := hard[hard > -torch.inf]):
            loss = loss + functional.softplus(calm).mean()
        if highest:
            loss = loss + self.positive_weight * functional.softplus(-torch.stack(highest)).mean()
        return loss
