"""Live speech of several clients in one process: what they say is recognised together, a round at a time.

A round takes at most ``ROUND_S`` seconds of sound: utterances that have ended, in the order in which they did, then
partial results of those who have waited longest. Who has nothing to be recognised is answered at once. So nobody waits
for more than the round that is under way, however much the others say.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.orders import Order, Pcm

from voiceseq.errors import InputError

if TYPE_CHECKING:
    from voiceseq.inference.speech import Decoding, Recogniser, Samples, SpeechEvent
    from voiceseq.inference.transcriber import Transcriber

RATE = 16_000
ROUND_S = 5.0


class SpeechStream:
    """One listener for speech. ``utterances`` is its stream if it can share its recogniser's time with others."""

    def __init__(self, transcriber: "Transcriber", order: Order) -> None:
        from voiceseq.inference.live import UtteranceStream
        from voiceseq.inference.speech import Decoding

        self.language = transcriber.recogniser.language
        decoding = Decoding(hotwords=tuple(order.hotwords)) if order.hotwords else None
        self.stream, self.pcm, self.order = transcriber.stream(order.rate, decoding), Pcm(order), order
        self.utterances = self.stream if isinstance(self.stream, UtteranceStream) else None
        self.samples = self.replaced = 0

    def about(self) -> Message:
        return {"language": self.language}

    def change(self, thresholds: Mapping[str, float]) -> Message:
        raise InputError("a transcription has no thresholds")

    def take(self, data: bytes) -> "Samples":
        from voiceseq.inference.detector import clean

        samples, replaced = clean(self.pcm.feed(data))
        self.samples += len(samples)
        self.replaced += replaced
        return samples

    def feed(self, data: bytes) -> Message:
        return self.told(self.stream.feed(self.take(data)))

    def finish(self) -> Message:
        return self.told(self.stream.finish(), last=True)

    def told(self, events: "Sequence[SpeechEvent]", last: bool = False) -> Message:
        told: Message = {"events": [_spoken(one) for one in events], "time": self.samples / self.order.rate}
        return told | ({"scores": []} if self.order.scores else {}) | ({"replaced": self.replaced} if last else {})


class Turn:
    """What a client sent, on its way through the recogniser; no ``data`` is the end."""

    def __init__(self, number: int, stream: SpeechStream, data: bytes | None) -> None:
        assert stream.utterances is not None
        self.number, self.stream, self.utterances, self.last = number, stream, stream.utterances, data is None
        self.events: list[SpeechEvent] = []
        self.error: Exception | None = None
        self.pieces: list[Samples] = []  # to be recognised
        try:
            self.pieces += self.utterances.hear_rest() if data is None else self.utterances.hear(stream.take(data))
        except Exception as error:  # told by ``answer``
            self.error = error

    @property
    def samples(self) -> int:
        return sum(map(len, self.pieces))

    def waiting_s(self, share: float) -> float:
        """Sound that a partial result could show; after the end of an utterance there is time for one later."""
        return 0.0 if self.error or self.last or self.pieces else self.utterances.waiting_s(share)

    def answer(self) -> Message:
        """Raises what went wrong."""
        if self.error is not None:
            raise self.error
        return self.stream.told(self.events, self.last)


class Turns:
    """``add`` them, and ``next`` gives those that can be answered now, until none is ``waiting``."""

    def __init__(self) -> None:
        self.waiting: list[Turn] = []

    def add(self, turn: Turn) -> None:
        self.waiting.append(turn)

    def next(self, streams: int) -> Iterator[Turn]:
        """One round; ``streams`` share the time that there is for partial results."""
        from voiceseq.inference.live import SHARE

        room, round_, rest = ROUND_S * RATE, [], []
        for turn in self.waiting:
            chosen = turn.pieces and (not round_ or turn.samples <= room)
            room -= turn.samples if chosen else 0
            (round_ if chosen else rest).append(turn)
        seconds = {turn.number: turn.waiting_s(SHARE / max(1, streams)) for turn in rest}
        for turn in sorted(rest, key=lambda one: -seconds[one.number]):
            if seconds[turn.number] and room > 0:
                turn.pieces.append(turn.utterances.look())
                room -= turn.samples
                round_.append(turn)
        self.waiting = [turn for turn in rest if turn.pieces and turn not in round_]
        yield from (turn for turn in rest if not turn.pieces)
        recognise(round_)
        yield from round_


def recognise(turns: Sequence[Turn]) -> None:
    groups: dict[tuple[Recogniser, Decoding], list[Turn]] = {}
    for turn in turns:
        groups.setdefault((turn.utterances.recogniser, turn.utterances.decoding), []).append(turn)
    for (recogniser, decoding), group in groups.items():
        pieces = [piece for turn in group for piece in turn.pieces]
        began = time.perf_counter()
        try:
            answers = iter(recogniser.recognise(pieces, decoding))
            cost = (time.perf_counter() - began) / sum(map(len, pieces))
            for turn in group:
                turn.events = turn.utterances.tell([next(answers) for _ in turn.pieces], cost * turn.samples)
        except Exception as error:  # told by ``answer``
            for turn in group:
                turn.error = error


def _spoken(event: "SpeechEvent") -> Message:
    words = [
        {
            "word": one.word,
            "start": round(one.start, 3),
            "end": round(one.end, 3),
            "confidence": round(one.confidence, 4),
        }
        for one in event.words
    ]
    told = {"type": event.kind, "text": event.text, "start": round(event.start, 3), "end": round(event.end, 3)}
    return told | ({"words": words} if event.kind == "final" else {})
