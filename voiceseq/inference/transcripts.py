"""What a transcriber gives: a file's text in segments, each with its words, their times and confidences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from voiceseq.inference.joining import join_words
from voiceseq.inference.speech import Hypothesis, Word


@dataclass(frozen=True)
class Segment:
    """A stretch of speech; ``channel`` where they were kept apart, ``others`` the further hypotheses of an n-best."""

    start: float
    end: float
    text: str
    confidence: float
    words: tuple[Word, ...]
    channel: int | None = None
    others: tuple[Hypothesis, ...] = ()

    def to_json(self) -> dict[str, Any]:
        value = _timed(self) | {"text": self.text, "confidence": round(self.confidence, 4)}
        value["words"] = [
            {"word": word.word} | _timed(word) | {"confidence": round(word.confidence, 4)} for word in self.words
        ]
        if self.channel is not None:
            value["channel"] = self.channel
        if self.others:
            value["alternatives"] = [{"text": one.text, "score": round(one.score, 4)} for one in self.others]
        return value


def _timed(value: Segment | Word) -> dict[str, Any]:
    return {"start": round(value.start, 3), "end": round(value.end, 3)}


@dataclass(frozen=True)
class Transcript:
    """What was said in a file; ``warnings`` tell what was wrong with the file, a line each."""

    file: str
    duration: float
    language: str
    segments: tuple[Segment, ...]
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(word for segment in self.segments for word in segment.words)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "duration": round(self.duration, 3),
            "language": self.language,
            "text": self.text,
            "segments": [segment.to_json() for segment in self.segments],
        }


@dataclass(frozen=True)
class Answer:
    """The hypotheses of one piece, with times counted from its ``start``; ``cut`` as in ``audio.cutting.Piece``."""

    start: float
    end: float
    cut: float | None
    hypotheses: Sequence[Hypothesis]

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0] if self.hypotheses else Hypothesis("", 0.0, ())


def make_segments(answers: Sequence[Answer], channel: int | None = None) -> list[Segment]:
    """The answers of one channel in order, a segment each; words that two of them share are kept once.

    A text without a letter or a digit (a recogniser's sign for music) is no speech.
    """
    said = [[word.later(answer.start) for word in answer.best.words] for answer in answers]
    texts = [answer.best.text for answer in answers]
    for place in range(1, len(answers)):
        cut = answers[place].cut
        if cut is not None and said[place - 1] and said[place]:
            said[place - 1], said[place] = join_words(said[place - 1], said[place], cut)
            texts[place - 1 : place + 1] = [" ".join(word.word for word in said[at]) for at in (place - 1, place)]
    rows = zip(answers, said, texts, strict=True)
    spoken = ((answer, words, text.strip()) for answer, words, text in rows if any(map(str.isalnum, text)))
    return [_segment(answer, words, text, channel) for answer, words, text in spoken]


def _segment(answer: Answer, words: Sequence[Word], text: str, channel: int | None) -> Segment:
    start, end = (words[0].start, words[-1].end) if words else (answer.start, answer.end)
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return Segment(start, end, text, confidence, tuple(words), channel, tuple(answer.hypotheses[1:]))
