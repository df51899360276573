"""A recogniser of speech that needs no weights, for tests of what stands around one: it counts, and says what it heard.

A piece of n tenths of a second is answered with one word for each started second, ``one two three ...``.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import voiceseq
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Samples, Word
from voiceseq.inference.transcriber import Transcriber

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
FAKE, SLOW, STUCK, DEADLY = "fake", "fake-slow", "fake-stuck", "fake-deadly"


class Counter:
    """``wait_s`` for each piece; ``deadly`` ends the whole process."""

    name, language, longest_s, decoders = "counter", "en", 12.0, ("greedy",)

    def __init__(self, wait_s: float = 0.0, deadly: bool = False) -> None:
        self.wait_s, self.deadly = wait_s, deadly

    def recognise(self, pieces: Sequence[Samples], decoding: Decoding) -> list[list[Hypothesis]]:
        time.sleep(self.wait_s)
        if self.deadly:
            import os

            os._exit(3)
        return [[self._count(len(piece) / SAMPLE_RATE, decoding)] for piece in pieces]

    def _count(self, seconds: float, decoding: Decoding) -> Hypothesis:
        said = [*decoding.hotwords, *NUMBERS[: math.ceil(seconds)]]
        words = tuple(Word(word, min(n, seconds), min(n + 0.5, seconds), 0.9) for n, word in enumerate(said))
        return Hypothesis(" ".join(said), -1.0, words)


def open_model(path: str) -> Any:
    """A stand-in for ``voiceseq.load``: real bundles by their path, the fakes by name."""
    waits = {FAKE: 0.0, SLOW: 0.7, STUCK: 1000.0, DEADLY: 0.0}
    if path in waits:
        return Transcriber(Counter(waits[path], path == DEADLY))
    return voiceseq.load(path)
