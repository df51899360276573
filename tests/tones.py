"""A detector that needs no training: each of its words is a pure tone. It keeps to the contract of the real one.

python tests/tones.py listen --model BUNDLE ...     the real command, with bundles of kind ``tones``
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import voiceseq
from voiceseq.audio.resample import StreamResampler
from voiceseq.bundles import save_bundle

RATE, FRAME = 16_000, 480
FREQUENCIES = {"low": 1000.0, "high": 2500.0}


@dataclass(frozen=True)
class ToneEvent:
    word: str
    time: float
    score: float


class ToneDetector:
    frame_s = FRAME / RATE

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.thresholds = [0.5] * len(words)

    @classmethod
    def from_bundle(cls, bundle) -> "ToneDetector":
        return cls(tuple(bundle.config["words"]))

    def times(self, frames):
        return (frames + 1) * self.frame_s

    def stream(self, sample_rate: int) -> "ToneStream":
        return ToneStream(self, sample_rate)


class ToneStream:
    """Fires when a tone begins, and again only after it has ended."""

    def __init__(self, detector: ToneDetector, sample_rate: int) -> None:
        self.words, self.thresholds = detector.words, list(detector.thresholds)
        self.resampler = StreamResampler(sample_rate, RATE)
        phase = 2j * np.pi * np.arange(FRAME) / RATE
        self.waves = np.stack([np.exp(phase * FREQUENCIES[word]) for word in self.words])
        self.reset()

    def reset(self) -> None:
        self.resampler.reset()
        self.rest = np.zeros(0, np.float32)
        self.frames = 0
        self.on = [False] * len(self.words)
        self.scores = np.zeros((0, len(self.words)))

    def feed(self, samples) -> list[ToneEvent]:
        return self._score(self.resampler.feed(samples))

    def finish(self) -> list[ToneEvent]:
        return self._score(self.resampler.finish())

    def _score(self, samples) -> list[ToneEvent]:
        self.rest = np.concatenate((self.rest, samples))
        count = len(self.rest) // FRAME
        whole, self.rest = self.rest[: count * FRAME].reshape(count, FRAME), self.rest[count * FRAME :]
        self.scores = np.minimum(1.0, np.abs(whole @ self.waves.T) * 4 / FRAME)
        events = []
        for row in self.scores:
            self.frames += 1
            for number, (word, score) in enumerate(zip(self.words, row, strict=True)):
                if score >= self.thresholds[number] and not self.on[number]:
                    events.append(ToneEvent(word, self.frames * FRAME / RATE, float(score)))
                self.on[number] = bool(score >= self.thresholds[number])
        return events


def tone_bundle(path: Path, words: tuple[str, ...] = ("low", "high")) -> Path:
    return save_bundle(path, kind="tones", config={"words": list(words)})


def sound(length_s: float, *tones: tuple[float, str], rate: int = RATE, size_s: float = 0.3) -> np.ndarray:
    """Faint noise with tones in it that begin at the times given."""
    samples = np.random.default_rng(1).normal(0, 0.001, round(length_s * rate)).astype(np.float32)
    for start, word in tones:
        at, count = round(start * rate), round(size_s * rate)
        samples[at : at + count] += 0.5 * np.sin(2 * np.pi * FREQUENCIES[word] * np.arange(count) / rate)
    return samples.astype(np.float32)


voiceseq.KINDS["tones"] = "tones:ToneDetector"

if __name__ == "__main__":
    from voiceseq.cli.main import main

    sys.exit(main())
