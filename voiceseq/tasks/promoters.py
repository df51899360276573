"""DNA: is a stretch of 57 bases a promoter? 106 of them, so every one is tested by a network trained on the others."""

from collections.abc import Sequence

import numpy as np
import torch

from voiceseq.datasets.corpora.dna import frames_of, read_promoters
from voiceseq.models.frames import FrameConfig, FrameNetwork
from voiceseq.tasks.rows import ClassData, ClassTask

CLASSES = ("promoter", "other")


class PromoterData(ClassData):
    """All rows but those ``held_out`` (numbers of rows); a batch is a shuffled part of them."""

    classes = CLASSES

    def __init__(
        self,
        train: str,
        held_out: Sequence[int] = (0,),
        batch: int = 35,
        steps_per_epoch: int = 3,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        super().__init__(batch, steps_per_epoch, seed, overfit)
        rows = [(frames_of(bases), kind) for bases, kind in read_promoters(train)]
        self.rows = [row for number, row in enumerate(rows) if number not in held_out]
        self.held_out = [rows[number] for number in held_out]
        self.sources = [{"name": "promoters", "licence": licence}]


class PromoterTask(ClassTask):
    """A class a stretch of bases."""


def leave_one_out(
    rows: Sequence[tuple[str, int]], config: FrameConfig, steps: int, rate: float, seed: int = 1
) -> list[bool]:
    """Whether each row is told right by a network that learned from all the others, ``steps`` times, all at once."""
    frames = torch.tensor(np.stack([frames_of(bases) for bases, _ in rows]))
    kinds = torch.tensor([kind for _, kind in rows])
    right = []
    for number in range(len(rows)):
        others = torch.arange(len(rows)) != number
        torch.manual_seed(seed)
        network = FrameNetwork(config)
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.1)
        for _ in range(steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(frames[others])[0], kinds[others]).backward()
            optimiser.step()
        network.eval()
        with torch.no_grad():
            right.append(bool(network(frames[number : number + 1])[0].argmax() == kinds[number]))
    return right
