"""After a wake word: the command that follows it, until somebody has been silent for a moment, and its text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from voiceseq.apps.listen.session import Detection

from voiceseq.audio.microphone import Block
from voiceseq.audio.resample import StreamResampler
from voiceseq.inference.speech import SAMPLE_RATE, Word

if TYPE_CHECKING:
    from voiceseq.inference.transcriber import Transcriber

SILENCE_S = 1.0  # ends a command
WAIT_S = 5.0  # until it begins
LONGEST_S = 15.0
FRAME_S = 0.032  # of the detector of speech
SPEECH = 0.4  # the probability at which somebody speaks


@dataclass(frozen=True)
class Command:
    """What was said after a wake word; ``text`` is empty where nothing was. Seconds since listening began."""

    word: str
    time: float
    start: float
    end: float
    text: str
    words: tuple[Word, ...] = ()

    def as_json(self) -> dict[str, Any]:
        times = {"time": round(self.time, 3), "start": round(self.start, 3), "end": round(self.end, 3)}
        words = [{"word": one.word, "start": round(one.start, 3), "end": round(one.end, 3)} for one in self.words]
        sure = [{"confidence": round(one.confidence, 4)} for one in self.words]
        joined = [word | how for word, how in zip(words, sure, strict=True)]
        return {"word": self.word, **times, "text": self.text, "words": joined}


class Following:
    """``hear`` every block with what was detected in it; a detection while a command is heard belongs to it."""

    def __init__(self, transcriber: "Transcriber") -> None:
        self.transcriber = transcriber
        self._about: Detection | None = None

    @property
    def listening(self) -> bool:
        """Whether a command is being heard."""
        return self._about is not None

    def hear(self, block: Block, detections: list[Detection]) -> list[Command]:
        """The commands that end in the block."""
        found = self.finish() if block.gap_s or (self._about and block.sample_rate != self._rate) else []
        start = 0
        if self._about is None and detections:
            self._begin(detections[0], block.sample_rate)
            start = min(len(block.samples), max(0, round((detections[0].time - block.time) * block.sample_rate)))
        if self._about is not None:
            found += self._take(self._resampler.feed(block.samples[start:]))
        return found

    def finish(self) -> list[Command]:
        """The command that is being heard, as far as it has come."""
        return [] if self._about is None else [self._end()]

    def _begin(self, about: Detection, rate: int) -> None:
        from voiceseq.audio.vad import SpeechActivity  # needs torch, which listening for words does not

        self._about, self._rate = about, rate
        self._resampler = StreamResampler(rate, SAMPLE_RATE)
        self._activity = SpeechActivity()
        self._heard: list[NDArray[np.float32]] = []
        self._frames, self._last = 0, -1  # all, and the last one with speech

    def _take(self, samples: NDArray[np.float32]) -> list[Command]:
        self._heard.append(samples)
        for probability in self._activity.feed(samples).tolist():
            if probability >= SPEECH:
                self._last = self._frames
            self._frames += 1
            silence_s = (self._frames - 1 - self._last) * FRAME_S
            if silence_s >= (SILENCE_S if self._last >= 0 else WAIT_S) or self._frames * FRAME_S >= LONGEST_S:
                return [self._end()]
        return []

    def _end(self) -> Command:
        assert self._about is not None
        about, self._about = self._about, None
        samples = np.concatenate(self._heard)[: round((self._frames + 1) * FRAME_S * SAMPLE_RATE)]
        end = about.time + len(samples) / SAMPLE_RATE
        if self._last < 0:
            return Command(about.word, about.time, about.time, end, "")
        said = self.transcriber.transcribe(samples, SAMPLE_RATE)
        return Command(
            about.word, about.time, about.time, end, said.text, tuple(word.later(about.time) for word in said.words)
        )
