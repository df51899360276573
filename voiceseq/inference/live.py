"""A live listener for any recogniser: hears where utterances end, and recognises each; meanwhile partial results.

A partial result is made of what is not settled yet: words that two results agree on, and that lie a little back, are
kept and their sound is not heard again. So it costs the same however long somebody speaks. It is left out when the last
one took more than its share of the time, so that the latency of what is final never grows.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from voiceseq.audio.cutting import Cutter, Cutting, Piece
from voiceseq.audio.microphone import Block
from voiceseq.audio.resample import StreamResampler
from voiceseq.inference.joining import align
from voiceseq.inference.speech import (
    SAMPLE_RATE,
    Decoding,
    Hypothesis,
    LiveSpeech,
    Recogniser,
    Samples,
    SpeechEvent,
    Word,
)

PAUSE_S = 0.6  # ends an utterance
LONGEST_S = 10.0
PARTIAL_S = 0.4  # of new sound, at least, between two partial results
SHARE = 0.3  # of the time that partial results may take
WINDOW_S = 4.0  # of sound that a partial result is made of, before words are settled
OPEN_S = 1.5  # at the end of it in which none is

Answers = Sequence[list[Hypothesis]]


class UtteranceStream:
    """``feed`` samples of any rate in pieces of any size, ``finish``, ``reset``: the stream of `LiveSpeech`.

    ``feed`` is ``hear`` (what has to be recognised now), the recogniser, ``tell`` (its answers). Who has many streams
    takes these steps himself, and asks the recogniser for all of them together.
    """

    def __init__(
        self, recogniser: Recogniser, sample_rate: int = SAMPLE_RATE, decoding: Decoding | None = None
    ) -> None:
        self.recogniser, self.decoding = recogniser, decoding or Decoding()
        self._resampler = StreamResampler(sample_rate, SAMPLE_RATE)
        longest_s = min(LONGEST_S, recogniser.longest_s)
        self._cutter = Cutter(Cutting(longest_s=longest_s, pause_s=PAUSE_S))
        self.reset()

    def reset(self) -> None:
        """Forget everything: exactly a new stream."""
        self._resampler.reset()
        self._cutter.reset()
        self._said: list[Word] = []  # the words of the last final result, while the next piece shares sound with it
        self._cost_s = 0.0  # what the last partial result took
        self._ended: list[tuple[Piece, float | None]] = []  # utterances that wait for their answers
        self._window: Piece | None = None  # the rest of one that does
        self._begin_utterance()

    def _begin_utterance(self) -> None:
        self._shown_s = 0.0  # its length at the last partial result
        self._settled: list[Word] = []
        self._open: list[Word] = []  # words of the last partial result that are not settled

    def feed(self, samples: Samples) -> list[SpeechEvent]:
        """What has been said, as far as it is known now."""
        pieces = self.hear(samples)
        events = self.tell(self.recogniser.recognise(pieces, self.decoding)) if pieces else []
        if self.waiting_s() > 0:
            began = time.perf_counter()
            answers = self.recogniser.recognise([self.look()], self.decoding)
            events += self.tell(answers, time.perf_counter() - began)
        return events

    def finish(self) -> list[SpeechEvent]:
        """The rest; after it only ``reset`` makes sense."""
        pieces = self.hear_rest()
        return self.tell(self.recogniser.recognise(pieces, self.decoding)) if pieces else []

    def hear(self, samples: Samples) -> list[Samples]:
        """The utterances that end in it, to be recognised."""
        return self._end(self._cutter.feed(self._resampler.feed(samples)))

    def hear_rest(self) -> list[Samples]:
        """The utterances that end with the sound."""
        return self._end(self._cutter.feed(self._resampler.finish()) + self._cutter.finish())

    def _end(self, pieces: list[Piece]) -> list[Samples]:
        cuts = [piece.cut for piece in pieces[1:]] + [self._cutter.cut]
        self._ended += zip(pieces, cuts, strict=False)  # a cut without a piece is that of an earlier one
        return [piece.samples for piece in pieces]

    def waiting_s(self, share: float = SHARE) -> float:
        """Seconds of sound that no result has shown, if they are enough for one that takes this share of the time."""
        piece = self._cutter.heard()
        new_s = 0.0 if piece is None else piece.duration_s - self._shown_s
        return new_s if new_s >= max(PARTIAL_S, self._cost_s / share) else 0.0

    def look(self) -> Samples:
        """What a partial result is made of: the utterance so far, without the sound of what is settled."""
        self._window = self._cutter.heard()
        assert self._window is not None, "only while waiting_s() says so"
        self._shown_s = self._window.duration_s
        if self._settled:
            skip = round((self._settled[-1].end - self._window.start) * SAMPLE_RATE)
            start = self._window.start + skip / SAMPLE_RATE
            self._window = Piece(self._window.samples[skip:], start)
        return self._window.samples

    def tell(self, answers: Answers, cost_s: float = 0.0) -> list[SpeechEvent]:
        """What is known now, from the answers for all that had to be recognised; a partial one took ``cost_s``."""
        events = [self._final(piece, until, answers[row]) for row, (piece, until) in enumerate(self._ended)]
        if self._window is not None:
            self._cost_s = cost_s
            events.append(self._partial(self._window, answers[-1]))
        self._ended, self._window = [], None
        return [event for event in events if event is not None]

    def _final(self, piece: Piece, until: float | None, answer: list[Hypothesis]) -> SpeechEvent | None:
        """``until``: where a piece that goes on in the next one is parted from it."""
        words = self._words(piece, answer)
        if until is not None:
            words = [word for word in words if word.start + word.end < 2 * until]
        self._said = words
        self._begin_utterance()
        return self._event("final", words)

    def _partial(self, window: Piece, answer: list[Hypothesis]) -> SpeechEvent | None:
        words = self._words(window, answer)
        if window.duration_s > WINDOW_S:
            agreed = 0
            for old, new in zip(self._open, words, strict=False):
                if old.word != new.word or new.end > window.start + window.duration_s - OPEN_S:
                    break
                agreed += 1
            self._settled += words[:agreed]
            words = words[agreed:]
        self._open = words
        return self._event("partial", [*self._settled, *words])

    def _words(self, piece: Piece, answer: list[Hypothesis]) -> list[Word]:
        """What is new in a piece: without the words that the final result before it has had."""
        words = [word.later(piece.start) for word in answer[0].words] if answer else []
        if piece.cut is None or not self._said:
            return words
        over = self._said[-1].end
        pairs = align(self._said, words)
        return [new for old, new in pairs if new is not None and old is None and new.start + new.end > 2 * over]

    @staticmethod
    def _event(kind: Literal["partial", "final"], words: list[Word]) -> SpeechEvent | None:
        if not words:
            return None
        text = " ".join(word.word for word in words)
        return SpeechEvent(kind, text, words[0].start, words[-1].end, tuple(words))


def live_events(open_stream: Callable[[int], LiveSpeech], blocks: Iterable[Block]) -> Iterator[SpeechEvent]:
    """What is said in blocks of sound, in the time of the blocks; after a gap a new stream begins."""
    stream: LiveSpeech | None = None
    rate, start = 0, 0.0
    for block in blocks:
        if stream is None or block.gap_s or block.sample_rate != rate:
            yield from _later(stream.finish() if stream else [], start)
            rate, start = block.sample_rate, block.time
            stream = open_stream(rate)
        yield from _later(stream.feed(block.samples), start)
    yield from _later(stream.finish() if stream else [], start)


def _later(events: Iterable[SpeechEvent], seconds: float) -> Iterator[SpeechEvent]:
    for event in events:
        words = tuple(word.later(seconds) for word in event.words)
        yield replace(event, start=event.start + seconds, end=event.end + seconds, words=words)
