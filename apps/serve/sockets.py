"""WebSockets: ``/v1/listen`` (wake words) and ``/v1/transcribe`` (partials and finals).

The client's first message is JSON (`orders.Order`), then sound in binary messages of any size. Text messages in between
change thresholds (``{"type": "thresholds", "thresholds": {"alexa": 0.7}}``) or end the stream (``{"type": "finish"}``).
"""

import asyncio
import json
from typing import Any

from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse
from starlette.websockets import WebSocketDisconnect
from voiceseq.apps.serve.feeding import Feeder
from voiceseq.apps.serve.guard import problem
from voiceseq.apps.serve.limits import Busy
from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.orders import MOST, Order, are_thresholds
from voiceseq.apps.serve.service import Service
from voiceseq.apps.serve.workers import LiveStream, WorkerLost

from voiceseq.errors import InputError, VoiceseqError

NORMAL, UNSUPPORTED, POLICY, TOO_BIG, INTERNAL, RESTART = 1000, 1003, 1008, 1009, 1011, 1012
FIRST_BYTES = 64 << 10


class Ended(Exception):
    """The conversation is over: a close code and what to say."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def add_sockets(app: FastAPI, service: Service) -> None:
    @app.websocket("/v1/listen")
    async def listen(socket: WebSocket) -> None:
        await serve(socket, service, "listeners")

    @app.websocket("/v1/transcribe")
    async def transcribe(socket: WebSocket) -> None:
        await serve(socket, service, "speakers")


async def serve(socket: WebSocket, service: Service, role: str) -> None:
    try:
        with service.gate.enter(role):
            await socket.accept()
            conversation = Conversation(socket, service, role)
            await conversation.run()
    except Busy as busy:
        await socket.send_denial_response(JSONResponse(problem(503, str(busy)), 503, {"Retry-After": "5"}))
    except (WebSocketDisconnect, OSError):
        service.metrics.count("refused_total", reason="vanished")


class Conversation:
    """One client from its first message to its last."""

    def __init__(self, socket: WebSocket, service: Service, role: str) -> None:
        self.socket, self.service, self.role, self.limits = socket, service, role, service.limits

    async def run(self) -> None:
        """Whatever goes wrong is told to the client before the connection is closed."""
        try:
            async with asyncio.timeout(self.limits.total_s):
                await self._talk()
            ended = Ended(RESTART, "the server stops") if self.service.gate.stopping.is_set() else Ended(NORMAL, "")
        except Ended as error:
            ended = error
        except VoiceseqError as error:
            ended = Ended(UNSUPPORTED, str(error))
        except WorkerLost as error:
            ended = Ended(INTERNAL, f"{error}: connect again")
        except TimeoutError:
            ended = Ended(POLICY, f"a stream may last {self.limits.total_s:g} s")
        except RuntimeError as error:
            if self.socket.client_state.name != "CONNECTED" or self.socket.application_state.name != "CONNECTED":
                raise WebSocketDisconnect from error
            ended = Ended(INTERNAL, str(error))
        try:
            await self._part(ended)
        except RuntimeError as error:  # the server's library had closed it already, on bytes that are no frame
            raise WebSocketDisconnect from error

    async def _part(self, ended: Ended) -> None:
        if ended.code not in (NORMAL, RESTART):
            self.service.metrics.count("refused_total", reason=str(ended.code))
            await self.say({"type": "error", "message": ended.message})
        await self.socket.close(ended.code, ended.message.encode()[:120].decode(errors="ignore"))

    async def say(self, message: Message) -> None:
        """Raises Ended when the client does not read."""
        try:
            async with asyncio.timeout(self.limits.send_s):
                await self.socket.send_text(json.dumps(message))
        except TimeoutError:
            raise WebSocketDisconnect(POLICY, "the client does not read what it is told") from None

    async def receive(self, seconds: float) -> str | bytes:
        """The next message. Raises Ended when none comes in time, and for one that is too large."""
        try:
            message = await asyncio.wait_for(self.socket.receive(), seconds)
        except TimeoutError:
            raise Ended(POLICY, f"nothing came for {seconds:g} s") from None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text = message.get("text")
        body: str | bytes = message["bytes"] if text is None else text
        if len(body) > self.limits.message_bytes:
            raise Ended(TOO_BIG, f"a message of {len(body)} bytes came; at most {self.limits.message_bytes} are read")
        return body

    async def _talk(self) -> None:
        first = await self.receive(self.limits.header_s)
        if isinstance(first, bytes) or len(first) > FIRST_BYTES:
            raise Ended(UNSUPPORTED, 'the first message was wanted as JSON text, such as {"rate": 16000}')
        order = Order.from_message(parse(first))
        stream = await self.service.workers.open_stream(self.role, order)
        try:
            await self.say({"type": "ready", "rate": order.rate, "format": order.format, **stream.about})
            last = await self._hear(stream)
            await self.say({"type": "done", "duration": round(last["time"], 3), "replaced": last["replaced"]})
        finally:
            await stream.close()

    async def _hear(self, stream: LiveStream) -> Message:
        """Sound in, events out, until the client has finished or the server stops; the last answer."""
        feeder = Feeder(stream, self.limits, self.service.metrics, self.role)
        reading = asyncio.create_task(self._read(feeder, stream))
        feeding = asyncio.create_task(feeder.run(self._deliver))
        stopping = asyncio.create_task(self.service.gate.stopping.wait())
        try:
            await asyncio.wait((reading, feeding, stopping), return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                return feeding.result()
            if reading.done():
                reading.result()
            reading.cancel()
            await feeder.end()
            return await feeding
        finally:
            for task in (reading, feeding, stopping):
                task.cancel()

    async def _read(self, feeder: Feeder, stream: LiveStream) -> None:
        """Until the client says that it has finished."""
        while True:
            data = await self.receive(self.limits.idle_s)
            if isinstance(data, bytes):
                await feeder.put(data)
                continue
            message = parse(data)
            kind = message.get("type") if isinstance(message, dict) else None
            if kind == "finish":
                return
            if kind != "thresholds" or not are_thresholds(message.get("thresholds")):
                raise InputError("sound in binary messages was wanted, or {type: finish}, or {type: thresholds}")
            feeder.changes |= message["thresholds"]
            if len(feeder.changes) > MOST:
                raise InputError(f"thresholds of at most {MOST} words were wanted")

    async def _deliver(self, answer: Message) -> None:
        for event in answer["events"]:
            await self.say(event)
            if event["type"] != "partial":
                self.service.metrics.count("events_total", kind=event["type"])
                said = event.get("word") or event.get("text", "")
                self.service.log.said(event["type"], said, at=event.get("time", event.get("end")))
        if "scores" in answer:
            await self.say({"type": "scores", "time": round(answer["time"], 3), "scores": answer["scores"]})


def parse(text: str) -> Any:
    """Raises InputError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the message is no JSON: {error}"[:200]) from error
