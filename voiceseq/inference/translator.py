"""Translation at work: sentences in, sentences out, whatever the lines hold."""

import re
import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from voiceseq.inference.opening import check_texts
from voiceseq.inference.transduce import Transducer

LONGEST = 20_000  # characters; what is longer is no text that somebody wants translated in one line
PART = 60  # subwords translated as one: sentences of training are not longer
TOGETHER = 320  # hypotheses searched at once
SENTENCE = re.compile(r"(?<=[.!?…]) ")


class Translator(Transducer):
    """``voiceseq.load("multi30k-de-en")``: ``translate(["Ein Hund läuft."], beam=5)``."""

    def translate(self, texts: Sequence[str], beam: int | None = None) -> list[str]:
        """The translation of each text; "" where ``problem`` has something to say of it.

        What is longer than a sentence of training is cut, at the ends of its sentences where it has any. Raises
        InputError for one bare text instead of a list, and a beam below 1.
        """
        parts = [(number, part) for number, text in enumerate(check_texts(texts)) for part in self._parts(text)]
        order = sorted(range(len(parts)), key=lambda i: len(self.source.encode(parts[i][1])))
        width = max(1, TOGETHER // max(1, beam or self.decoding.beam))
        found: dict[int, str] = {}
        for some in (order[i : i + width] for i in range(0, len(order), width)):
            found.update(zip(some, self.convert([parts[i][1] for i in some], beam), strict=True))
        written: list[list[str]] = [[] for _ in texts]
        for i, (number, _) in enumerate(parts):
            written[number].append(found[i])
        return [" ".join(filter(None, some)) for some in written]

    def problem(self, text: str) -> str | None:
        """Why a text cannot be translated, or None."""
        if len(text) > LONGEST:
            return f"{len(text)} characters came; at most {LONGEST} were wanted: cut the line into sentences"
        if not (plain := plain_text(text)):
            return "the line is empty"
        unknown = self.source.special("unknown") if "unknown" in self.source.specials else -1
        symbols = zip(self.source.split(plain), self.source.encode(plain), strict=True)
        if not any(number != unknown and any(map(str.isalnum, symbol)) for symbol, number in symbols):
            return "the line holds no word that the model can read: is it of another language or script?"
        return None

    def limits(self, lengths: Tensor) -> int | Tensor:
        return torch.clamp(2 * lengths + 10, max=self.decoding.max_length)

    def _parts(self, text: str) -> list[str]:
        """What is translated on its own: the whole text where it is short, else sentences and pieces of them."""
        if self.problem(text):
            return []
        plain = plain_text(text)
        if len(self.source.encode(plain)) <= PART:
            return [plain]
        parts: list[str] = []
        for sentence in SENTENCE.split(plain):
            parts += self._cut(sentence)
        return [part for part in parts if self.problem(part) is None]

    def _cut(self, sentence: str) -> list[str]:
        """Pieces of at most ``PART`` subwords; a single word that is longer is cut by its letters."""
        parts, sizes = [""], [0]
        for word in sentence.split():
            for piece in (word[i : i + PART - 1] for i in range(0, len(word), PART - 1)):  # its mark may be one more
                size = len(self.source.encode(piece))
                if sizes[-1] + size > PART:
                    parts, sizes = [*parts, ""], [*sizes, 0]
                parts[-1] = f"{parts[-1]} {piece}".strip()
                sizes[-1] += size
        return parts


def plain_text(text: str) -> str:
    """Composed letters, single spaces, nothing invisible (BOM, NUL)."""
    visible = "".join(" " if character.isspace() else character for character in text)
    visible = "".join(character for character in visible if unicodedata.category(character) not in ("Cc", "Cf"))
    return " ".join(unicodedata.normalize("NFC", visible).split())
