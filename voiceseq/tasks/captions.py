"""Image captions: a decoder of words that attends over the columns of a picture of one to three digits."""

from functools import lru_cache
from typing import Any

from voiceseq.datasets.digits import NUMBERS, captioned, columns
from voiceseq.tasks.rows import FrameTextData
from voiceseq.text.vocabulary import Vocabulary

WORDS = ("a", "an", "and", *NUMBERS)


class CaptionData(FrameTextData):
    """Endless pictures of the digits for training; ``validation`` pictures of digits that were written by others."""

    kind = "captioner"
    features = 24

    def __init__(
        self, batch: int = 64, steps_per_epoch: int = 100, validation: int = 512, seed: int = 1, overfit: bool = False
    ) -> None:
        target = Vocabulary(("<bos>", "<eos>", *WORDS), "word", ("bos", "eos"))
        held_out = [framed(seed, number, True) for number in range(validation)]
        super().__init__(target, target, {"": held_out}, steps_per_epoch, overfit)
        self.batch, self.seed = batch, seed
        self.sources = [{"name": "digits of scikit-learn", "licence": "CC BY 4.0 (UCI, Alpaydin and Kaynak 1998)"}]

    def pairs(self, step: int) -> Any:
        return [framed(self.seed, number) for number in range(step * self.batch, (step + 1) * self.batch)]


@lru_cache(maxsize=4096)
def framed(seed: int, number: int, held_out: bool = False) -> tuple[Any, str]:
    """The columns of a picture, and its caption."""
    image, text = captioned(seed, number, held_out)
    return columns(image), text
