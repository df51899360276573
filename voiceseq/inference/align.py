"""Forced alignment: when was each word of a known text said?

An *ear* hears symbols in sound frame by frame (the output of a CTC network) and spells words in these symbols. The best
path through the spelt text (``core.alignment``) says on which frames each symbol was heard. A CTC network hears a
symbol for a frame or two and nothing in between, so words are then widened into the gaps around them: up to a pause
where there is one, else to where they meet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voiceseq.audio.files import stream_audio
from voiceseq.audio.resample import finite, resample
from voiceseq.core.alignment import forced_align
from voiceseq.core.ctc import TokenSpan
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.phones import PhoneRecogniser
from voiceseq.inference.pronounce import Pronouncer, found_dictionary
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import SAMPLE_RATE, Samples, Word
from voiceseq.inference.whisper import WhisperRecogniser
from voiceseq.models.whisper import FRAME_S
from voiceseq.text.pronounce import Dictionary, phrase_words
from voiceseq.text.vocabulary import Vocabulary

BLOCK_S = 20.0  # heard at once
AROUND_S = 2.0  # what an ear that looks both ways hears before and after each block
STEP = SAMPLE_RATE // 100  # samples for each level
QUIET = 0.35  # below this share of the way from the quietest to the loudest levels (in dB) nobody speaks
FLAT_DB = 6.0  # in sound that varies less nothing tells speech from silence
PAUSE_S = 0.08  # a quiet stretch between two words that is shorter is a part of them
REACH_S = 0.25  # a word sounds at most so long before its first symbol is heard, and after its last

Symbols = list[int]
Span = tuple[float, float]
Levels = NDArray[np.float64]


@dataclass(frozen=True)
class Alignment:
    """The ``words`` of a text with their seconds; ``phones`` where the ear hears phones, else none.

    ``warnings`` say what was wrong with the recording (its end is missing, some of it is no number).
    """

    file: str
    duration: float
    words: tuple[Word, ...]
    phones: tuple[Word, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(word.word for word in self.words)

    @property
    def confidence(self) -> float:
        """The mean over the words: far below what is usual where text and sound do not belong together."""
        return float(np.mean([word.confidence for word in self.words]))

    def to_textgrid(self) -> str:
        """For Praat: a tier of words and, where there are any, one of phones; silences are empty intervals."""
        tiers = [("words", self.words), *([("phones", self.phones)] if self.phones else [])]
        head = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
        head += [f"xmin = 0\nxmax = {self.duration:.6f}\ntiers? <exists>\nsize = {len(tiers)}\nitem []:"]
        for number, (name, words) in enumerate(tiers, 1):
            intervals = list(_intervals(words, self.duration))
            head += [f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{name}"']
            head += [
                f"        xmin = 0\n        xmax = {self.duration:.6f}\n        intervals: size = {len(intervals)}"
            ]
            for place, (start, end, text) in enumerate(intervals, 1):
                head += [f"        intervals [{place}]:\n            xmin = {start:.6f}\n            xmax = {end:.6f}"]
                head += ['            text = "' + text.replace('"', '""') + '"']
        return "\n".join(head) + "\n"

    def to_json(self) -> dict[str, Any]:
        def rows(words: Iterable[Word], name: str) -> list[dict[str, Any]]:
            return [
                {name: w.word, "start": round(w.start, 3), "end": round(w.end, 3), "confidence": round(w.confidence, 4)}
                for w in words
            ]

        found = {"file": self.file, "duration": round(self.duration, 3), "text": self.text}
        found["words"] = rows(self.words, "word")
        return found | ({"phones": rows(self.phones, "phone")} if self.phones else {})


def _intervals(words: Sequence[Word], duration: float) -> Iterator[tuple[float, float, str]]:
    """What covers the whole time without a gap; nothing is shorter than a microsecond, which is all that is written."""
    at = 0.0
    for word in words:
        if word.start - at > 1e-6:
            yield at, word.start, ""
        yield word.start if word.start - at > 1e-6 else at, word.end, word.word
        at = word.end
    if duration - at > 1e-6:
        yield at, duration, ""


# --- ears ------------------------------------------------------------------------------------------------------------


class Ear(Protocol):
    """``blank``, and how much later than it is said (``delay_s``) the network hears a symbol."""

    blank: int
    delay_s: float

    def hear(self, blocks: Iterator[Samples]) -> tuple[Tensor, float]:
        """16 kHz sound -> ``log_probs (frames, symbols)`` and the seconds of a frame."""
        ...

    def spell(self, words: Sequence[str]) -> tuple[list[Symbols], Symbols]:
        """The symbols of each word, and those that stand between two words."""
        ...

    def name(self, symbol: int) -> str | None:
        """The phone that a symbol stands for; None where it is no phone."""
        ...


class PhoneEar:
    """Hears phones (a bundle of kind ``backbone``), spells by dictionary and by letters to sounds."""

    blank, delay_s = 0, 0.07

    def __init__(self, model: PhoneRecogniser, pronouncer: Pronouncer, dictionary: Dictionary | None = None) -> None:
        self.network, self.vocabulary, self.pronouncer = model.network, model.vocabulary, pronouncer
        self.dictionary = found_dictionary() if dictionary is None else dictionary

    @torch.no_grad()
    def hear(self, blocks: Iterator[Samples]) -> tuple[Tensor, float]:
        state, heard = None, []
        for block in blocks:
            output, state = self.network(torch.from_numpy(block)[None], state)
            heard.append(output.logits[0].log_softmax(-1))
        return torch.cat(heard), self.network.frame_s

    def spell(self, words: Sequence[str]) -> tuple[list[Symbols], Symbols]:
        known = sorted(set(words))
        number = {phone: place for place, phone in enumerate(self.vocabulary.symbols)}
        ways = self.pronouncer.pronounce(known, dictionary=self.dictionary)
        spelt = {word: [number[phone] for phone in way[0]] for word, way in zip(known, ways, strict=True)}
        return [spelt[word] for word in words], []

    def name(self, symbol: int) -> str | None:
        return self.vocabulary.symbols[symbol]


class RecogniserEar:
    """Hears letters or pieces of words: the CTC of a recogniser. ``listen``: samples -> log_probs (frames, symbols)."""

    delay_s = 0.0

    def __init__(self, listen: Callable[[Samples], Tensor], vocabulary: Vocabulary, frame_s: float) -> None:
        self.listen, self.vocabulary, self.frame_s = listen, vocabulary, frame_s
        self.blank = vocabulary.special("blank")

    @classmethod
    def of(cls, recogniser: AcousticRecogniser) -> Self:
        return cls(lambda samples: recogniser.hear([samples]).log_probs[0], recogniser.vocabulary, recogniser.frame_s)

    @classmethod
    def of_whisper(cls, recogniser: WhisperRecogniser, letters: Vocabulary) -> Self:
        def listen(samples: Samples) -> Tensor:
            """Without the frames of the silence that this encoder is given after the sound."""
            log_probs = recogniser.hear([samples]).log_probs
            assert log_probs is not None
            return log_probs[0, : round(len(samples) / SAMPLE_RATE / FRAME_S)]

        return cls(listen, letters, FRAME_S)

    def hear(self, blocks: Iterator[Samples]) -> tuple[Tensor, float]:
        """In overlapping pieces, of each of which the middle is kept."""
        heard, frame_s = [], self.frame_s
        for before, block, after in surrounded(blocks, AROUND_S):
            log_probs = self.listen(np.concatenate((before, block, after)))
            first = round(len(before) / SAMPLE_RATE / frame_s)
            last = round((len(before) + len(block)) / SAMPLE_RATE / frame_s) if len(after) else len(log_probs)
            heard.append(log_probs[first:last])
        return torch.cat(heard), frame_s

    def spell(self, words: Sequence[str]) -> tuple[list[Symbols], Symbols]:
        """What stands between two words is found by spelling one twice: a space, or nothing."""
        encode = self.vocabulary.encode
        spelt = {word: encode(word) for word in set(words)}
        size = len(spelt[words[0]])
        return [spelt[word] for word in words], encode(f"{words[0]} {words[0]}")[size:-size]

    def name(self, symbol: int) -> str | None:
        return None


def surrounded(blocks: Iterator[Samples], around_s: float) -> Iterator[tuple[Samples, Samples, Samples]]:
    """Each block with the end of the one before it and the beginning of the one after it."""
    size = round(around_s * SAMPLE_RATE)
    none = np.zeros(0, np.float32)
    before, current = none, next(blocks)
    for following in blocks:
        yield before, current, following[:size]
        before, current = current[-size:], following
    yield before, current, none


# --- the aligner -----------------------------------------------------------------------------------------------------


class Aligner:
    """``voiceseq align``: words of a text to seconds of a recording, in memory that hardly grows with its length."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear

    @classmethod
    def of(cls, model: Any, pronouncer: Pronouncer | None = None, dictionary: Dictionary | None = None) -> "Aligner":
        """Of what ``voiceseq.load`` gives: a phone backbone (which wants a pronouncer) or a transcriber with CTC."""
        if isinstance(model, PhoneRecogniser):
            if pronouncer is None:
                raise InputError("a phone backbone aligns with a pronouncer: give voiceseq.load('pronounce-en'), too")
            return cls(PhoneEar(model, pronouncer, dictionary))
        recogniser = getattr(model, "recogniser", model)
        if isinstance(recogniser, AcousticRecogniser):
            return cls(RecogniserEar.of(recogniser))
        if isinstance(recogniser, WhisperRecogniser) and recogniser.letters is not None:
            return cls(RecogniserEar.of_whisper(recogniser, recogniser.letters))
        raise BundleError(f"a {type(recogniser).__name__} came; a phone backbone or a recogniser with CTC was wanted")

    def align(self, source: str | Path | Samples, text: str, sample_rate: int | None = None) -> Alignment:
        """A file, or samples ``(n,)`` with their rate.

        The words are those of the normalised text: numbers are spelt out. Raises InputError for a text that cannot be
        said and for one that does not fit into the sound, AudioError for a file that cannot be read.
        """
        words = phrase_words(text)
        spelt, between = self.ear.spell(words)
        warnings: list[str] = []
        meter = _Meter(_blocks(source, sample_rate, warnings))
        log_probs, frame_s = self.ear.hear(iter(meter))
        duration = meter.samples / SAMPLE_RATE
        unfit = f"the text ({len(words)} words) does not fit into {duration:.2f} s of sound"
        if not len(log_probs):
            raise InputError(f"{unfit}, which is less than a frame: is it the right recording?")
        try:
            groups = align_words(log_probs, spelt, between, self.ear.blank)
        except InputError as error:
            raise InputError(f"{unfit}: {error}") from error
        delay_s = min(self.ear.delay_s, groups[0][0].start * frame_s)
        heard = [_seconds(group, frame_s, delay_s, duration) for group in groups]
        ends = widened([(spans[0][0], spans[-1][1]) for spans in heard], np.concatenate(meter.levels), duration)
        found = tuple(
            Word(word, start, end, _confidence(group))
            for word, (start, end), group in zip(words, ends, groups, strict=True)
        )
        name = str(source) if isinstance(source, str | Path) else "samples"
        return Alignment(name, duration, found, tuple(self._phones(groups, heard, ends)), tuple(warnings))

    def _phones(
        self, groups: Sequence[Sequence[TokenSpan]], heard: Sequence[Sequence[Span]], words: Sequence[Span]
    ) -> Iterator[Word]:
        """The phones of each word share its time: two meet half-way between where they are heard."""
        for group, spans, (start, end) in zip(groups, heard, words, strict=True):
            meetings = [(first[1] + second[0]) / 2 for first, second in pairwise(spans)]
            edges = np.clip([start, *meetings, end], start, end)
            for span, (one, other) in zip(group, pairwise(edges.tolist()), strict=True):
                if (phone := self.ear.name(span.token)) is not None:
                    yield Word(phone, one, other, span.confidence)


def _confidence(group: Sequence[TokenSpan]) -> float:
    """The mean probability of the word's symbols over the frames on which they are heard."""
    frames = [span.end - span.start for span in group]
    return float(np.average([span.confidence for span in group], weights=frames))


def _seconds(group: Sequence[TokenSpan], frame_s: float, delay_s: float, duration: float) -> list[Span]:
    return [(span.start * frame_s - delay_s, min(span.end * frame_s - delay_s, duration)) for span in group]


# --- sound -----------------------------------------------------------------------------------------------------------


def _blocks(source: str | Path | Samples, sample_rate: int | None, warnings: list[str]) -> Iterator[Samples]:
    """Blocks at 16 kHz; ``warnings`` gets what is wrong with a file."""
    if isinstance(source, str | Path):
        for audio in stream_audio(source, BLOCK_S, sample_rate=SAMPLE_RATE):
            yield audio.samples
            warnings += audio.warnings
        return
    if sample_rate is None or source.ndim != 1 or not len(source):
        raise InputError(f"samples of shape {source.shape} at {sample_rate} Hz came; (n,) and a rate were wanted")
    samples, size = resample(finite(source)[0], sample_rate, SAMPLE_RATE), round(BLOCK_S * SAMPLE_RATE)
    yield from (samples[at : at + size] for at in range(0, len(samples), size))


class _Meter:
    """Passes blocks on, counts their samples and keeps their levels: dB of every 10 ms."""

    def __init__(self, blocks: Iterator[Samples]) -> None:
        self.blocks, self.samples = blocks, 0
        self.levels: list[Levels] = []

    def __iter__(self) -> Iterator[Samples]:
        for block in self.blocks:
            self.samples += len(block)
            self.levels.append(levels(block))
            yield block


def levels(samples: Samples) -> Levels:
    """dB below full scale of every 10 ms; the last may be shorter. The floor is -90."""
    starts = np.arange(0, len(samples), STEP)
    energy = np.add.reduceat(np.square(samples, dtype=np.float64), starts) / np.diff(starts, append=len(samples))
    return np.asarray(10 * np.log10(np.maximum(energy, 1e-9)))


# --- from frames to symbols ------------------------------------------------------------------------------------------


def align_words(log_probs: Tensor, words: Sequence[Symbols], between: Symbols, blank: int) -> list[list[TokenSpan]]:
    """The spans of each word's symbols. Raises InputError where they do not fit into the frames."""
    target = [symbol for word in words for symbol in (*between, *word)][len(between) :]
    used = sorted({blank, *target})  # of a large vocabulary only what is spelt is looked at
    place = {symbol: number for number, symbol in enumerate(used)}
    spans = forced_align(log_probs[:, used], [place[symbol] for symbol in target], place[blank])
    groups, at = [], 0
    for word in words:
        groups.append([span._replace(token=used[span.token]) for span in spans[at : at + len(word)]])
        at += len(word) + len(between)
    return groups


# --- from symbols to words -------------------------------------------------------------------------------------------


def widened(spans: Sequence[Span], loudness: Levels, duration: float) -> list[Span]:
    """Words from where their symbols are heard to where they begin and end: ``spans`` in seconds, in order."""
    low, high = np.percentile(loudness, [5, 95])
    speaking = (loudness > low + QUIET * (high - low)) | (high - low < FLAT_DB)
    step_s = STEP / SAMPLE_RATE
    first, last = max(0.0, spans[0][0] - REACH_S), min(duration, spans[-1][1] + REACH_S)
    starts, ends = [], []
    for (_, end), (start, _) in pairwise([(0.0, first), *spans, (last, duration)]):
        pause = _pause(speaking[round(end / step_s) : round(start / step_s)], step_s)
        meeting = (end + start) / 2
        ends.append(min(end + pause[0] if pause else meeting, end + REACH_S))
        starts.append(max(end + pause[1] if pause else meeting, start - REACH_S))
    return [(float(start), float(max(start, end))) for start, end in zip(starts[:-1], ends[1:], strict=True)]


def _pause(speaking: NDArray[np.bool_], step_s: float) -> Span | None:
    """The longest quiet stretch, in seconds from the first entry, if it is long enough to be a pause."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], speaking, [True])).astype(int)))
    stretches = edges.reshape(-1, 2) * step_s
    if not len(stretches):
        return None
    first, last = max(stretches.tolist(), key=lambda stretch: stretch[1] - stretch[0])
    return (first, last) if last - first >= PAUSE_S else None
