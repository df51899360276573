"""Between a client and its stream: sound comes in at any pace, and goes to the worker a turn at a time."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from voiceseq.apps.serve.limits import Limits
from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.metrics import Metrics
from voiceseq.apps.serve.workers import TURN_S, LiveStream

# From one turn of a stream to the next, unless a whole turn waits: a turn has its price, whatever is in it. Frames of
# wake words have 30 ms; partial results of speech come every 0.4 s.
REST_S = {"listeners": 0.04, "speakers": 0.16}

Deliver = Callable[[Message], Awaitable[None]]


class Feeder:
    """``put`` what a client sends; ``run`` gives it to the stream and hands the answers to ``deliver``.

    One turn is on its way at a time: while a worker is busy the sound of a client adds up and then goes together, which
    costs less than as many small pieces. When ``queue_s`` of it wait, ``put`` waits, and so does the client.
    """

    def __init__(self, stream: LiveStream, limits: Limits, metrics: Metrics, kind: str) -> None:
        self.stream, self.metrics, self.kind = stream, metrics, kind
        self.turn = stream.order.bytes_of(TURN_S)
        self.room = max(self.turn, stream.order.bytes_of(limits.queue_s))
        self._waiting: deque[tuple[float, bytes]] = deque()  # when it came
        self._size = 0
        self._ended = False
        self.changes: dict[str, float] = {}  # of thresholds; they hold from the next turn on
        self._changed = asyncio.Condition()

    async def put(self, data: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < self.room)
            if data:
                self._waiting.append((time.monotonic(), data))
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        """No more will come."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def run(self, deliver: Deliver) -> Message:
        """Until the end; the answer to it. Raises InputError, WorkerLost, and what ``deliver`` raises."""
        heard_s, again = 0.0, 0.0
        while turn := await self._next(again):
            came, data = turn
            again = time.monotonic() + REST_S[self.kind]
            if self.changes:
                changes, self.changes = self.changes, {}
                await self.stream.change(changes)
            answer = await self.stream.feed(data)
            await deliver(answer)
            self.metrics.observe("latency_seconds", time.monotonic() - came, kind=self.kind)
            self.metrics.count("audio_seconds_total", answer["time"] - heard_s, kind=self.kind)
            heard_s = answer["time"]
        answer = await self.stream.finish()
        await deliver(answer)
        return answer

    async def _next(self, again: float) -> tuple[float, bytes] | None:
        """What waits, at most a turn of it, and when its first byte came; None at the end. Not before ``again``."""
        if self._size < self.turn and not self._ended:
            await asyncio.sleep(max(0.0, again - time.monotonic()))
        async with self._changed:
            await self._changed.wait_for(lambda: self._size or self._ended)
            if not self._size:
                return None
            came, pieces, size = self._waiting[0][0], [], 0
            while self._waiting and size < self.turn:
                at, data = self._waiting.popleft()
                if size + len(data) > self.turn:
                    cut = self.turn - size
                    self._waiting.appendleft((at, data[cut:]))
                    data = data[:cut]
                pieces.append(data)
                size += len(data)
            self._size -= size
            self._changed.notify_all()
            return came, b"".join(pieces)
