"""Wyoming, Home Assistant's protocol, on a port of its own: wake words and speech to text."""

import asyncio
import contextlib
import ipaddress
import socket
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from voiceseq.apps.serve.feeding import Feeder
from voiceseq.apps.serve.limits import Busy
from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.orders import WIDTHS, Order
from voiceseq.apps.serve.service import Service
from voiceseq.apps.serve.workers import LiveStream, WorkerLost
from voiceseq.apps.serve.wyoming_events import LINE, make_info, read_event, wake_names
from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.info import Describe
from wyoming.ping import Ping, Pong
from wyoming.wake import Detect, Detection, NotDetected

from voiceseq.errors import ConfigError, InputError, MissingDependencyError, VoiceseqError

QUIET_S = 3600.0  # a satellite keeps its connection while it talks to others
MARKS = 4096  # chunks whose timestamps are remembered


class WyomingServer:
    """``start`` and ``stop``. ``allow``: networks that may connect; empty is anybody who reaches the address."""

    def __init__(self, service: Service, uri: str, allow: tuple[str, ...] = ()) -> None:
        self.service, self.uri = service, urlsplit(uri)
        self.networks = [ipaddress.ip_network(one, strict=False) for one in allow]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._announced: Any = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Raises OSError where the address is taken."""
        if self.uri.scheme == "unix":
            self._remove_socket()
            self._server = await asyncio.start_unix_server(self._connected, self.uri.path, limit=LINE)
        else:
            self._server = await asyncio.start_server(self._connected, self.uri.hostname, self.uri.port, limit=LINE)

    async def announce(self, name: str) -> None:
        """Let Home Assistant find it (mDNS).

        Raises MissingDependencyError without the package zeroconf, ConfigError where nobody can be told.
        """
        try:
            from wyoming.zeroconf import HomeAssistantZeroconf
        except ImportError as error:
            raise MissingDependencyError("--zeroconf needs the package zeroconf: pip install zeroconf") from error
        from zeroconf import Error as ZeroconfError

        if self.uri.scheme == "unix":
            raise ConfigError(f"{self.uri.geturl()} cannot be announced: --zeroconf wants --wyoming tcp://host:port")
        try:
            every = self.uri.hostname in ("0.0.0.0", "::", None)
            host = None if every else socket.gethostbyname(str(self.uri.hostname))
            self._announced = HomeAssistantZeroconf(self.port, name, host)
            await self._announced.register_server()
        except (OSError, ZeroconfError) as error:
            reason = str(error) or f"{type(error).__name__}: is the name {name!r} taken?"
            raise ConfigError(f"Wyoming cannot be announced: {reason}; leave --zeroconf out") from error

    async def stop(self) -> None:
        if self._announced is not None:
            await self._announced._aiozc.async_close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.uri.scheme == "unix":
            self._remove_socket()

    def _remove_socket(self) -> None:
        """What a server before left behind; a file of another kind is somebody's."""
        if Path(self.uri.path).is_socket():
            Path(self.uri.path).unlink()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._allowed(writer):
                with self.service.gate.enter("connections"):
                    await Connection(self.service, reader, writer).run()
        except Busy as busy:
            self.service.metrics.count("refused_total", reason="wyoming busy")
            with contextlib.suppress(OSError):
                await async_write_event(Error(str(busy), "busy").event(), writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    def _allowed(self, writer: asyncio.StreamWriter) -> bool:
        if not self.networks or self.uri.scheme == "unix":
            return True
        peer = ipaddress.ip_address(writer.get_extra_info("peername")[0])
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer in network for network in self.networks)


class Connection:
    """One client. What it asked for last, ``detect`` or ``transcribe``, decides what its sound is for."""

    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.service, self.reader, self.writer, self.limits = service, reader, writer, service.limits
        self.names = wake_names({one.name: one for one in service.catalogue.wake})
        self.detect: Detect | None = None
        self.transcribe: Transcribe | None = None
        self.hearing: Hearing | None = None

    async def run(self) -> None:
        """Until the client goes, does something that it may not, or the server stops."""
        stopping = asyncio.create_task(self.service.gate.stopping.wait())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                await self._stop_hearing()
            else:
                reading.result()
        except (VoiceseqError, WorkerLost, Busy, RuntimeError, TimeoutError) as error:
            self.service.metrics.count("refused_total", reason="wyoming")
            with contextlib.suppress(OSError, TimeoutError):
                await self.say(Error(str(error) or "nothing came for too long", type(error).__name__))
        except OSError:
            self.service.metrics.count("refused_total", reason="vanished")
        finally:
            stopping.cancel()
            reading.cancel()
            if self.hearing is not None:
                await self.hearing.close()

    async def say(self, event: Any) -> None:
        async with asyncio.timeout(self.limits.send_s):
            await async_write_event(event.event(), self.writer)

    async def _read(self) -> None:
        while True:
            seconds = QUIET_S if self.hearing is None or self.detect is not None else self.limits.idle_s
            async with asyncio.timeout(seconds):
                event = await read_event(self.reader, self.limits.message_bytes)
            if event is None:
                return
            try:
                await self._handle(event)
            except VoiceseqError:
                raise
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                raise InputError(f"a message {event.type[:40]!r} that lacks something: {error}"[:200]) from error

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.say(make_info(self.service.catalogue, self.service.workers.languages))
        elif Ping.is_type(event.type):
            await self.say(Pong(text=Ping.from_event(event).text))
        elif Detect.is_type(event.type):
            detect = Detect.from_event(event)
            if detect != self.detect:  # a satellite says it again and again, in the middle of its sound
                await self._drop_hearing()
            self.detect, self.transcribe = detect, None
        elif Transcribe.is_type(event.type):
            await self._drop_hearing()
            self.detect, self.transcribe = None, Transcribe.from_event(event)
        elif AudioStart.is_type(event.type):
            await self._drop_hearing()
            await self._start_hearing(AudioStart.from_event(event))
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            if self.hearing is None or not self.hearing.same(chunk):
                await self._drop_hearing()
                await self._start_hearing(chunk)
            assert self.hearing is not None
            await self.hearing.put(chunk)
        elif AudioStop.is_type(event.type):
            await self._stop_hearing()

    async def _start_hearing(self, sound: Any) -> None:
        if self.detect is None and self.transcribe is None:
            self.detect = Detect()  # sound alone can only be for wake words
        speech = self.transcribe
        settings = {"rate": sound.rate, "format": WIDTHS.get(sound.width), "channels": sound.channels}
        if speech is None:
            assert self.detect is not None
            order = self._order(settings, models=self._models(self.detect.names))
            self.hearing = WakeHearing(self, order, self.detect.names)
        else:
            hot = [*(speech.transcript_names or ()), *(speech.transcript_terms or ())][:64]
            order = self._order(settings, models=[speech.name] if speech.name else [], hotwords=hot)
            self.hearing = SpeechHearing(self, order)
        await self.hearing.open()

    @staticmethod
    def _order(settings: dict[str, Any], **more: Any) -> Order:
        return Order.from_message(settings | more)

    def _models(self, names: list[str] | None) -> list[str]:
        """The models of these wake words; a model's own name stands for all its words."""
        wanted = names or ()
        return list(dict.fromkeys(self.names[name][0] if name in self.names else name for name in wanted))

    async def _stop_hearing(self) -> None:
        """The end of the sound: the client is told what is still to be told."""
        hearing, self.hearing = self.hearing, None
        if hearing is not None:
            await hearing.finish()

    async def _drop_hearing(self) -> None:
        hearing, self.hearing = self.hearing, None
        if hearing is not None:
            await hearing.close()


class Hearing:
    """Sound of one format on its way to a stream, and the answers on their way back."""

    role = ""

    def __init__(self, connection: Connection, order: Order) -> None:
        self.connection, self.order = connection, order
        self.service = connection.service
        self._place = contextlib.ExitStack()
        self._stream: LiveStream | None = None

    async def open(self) -> None:
        """Raises Busy, InputError, WorkerLost."""
        self._place.enter_context(self.service.gate.enter(self.role))
        try:
            self._stream = await self.service.workers.open_stream(self.role, self.order)
        except BaseException:
            await self.close()
            raise
        self._feeder = Feeder(self._stream, self.service.limits, self.service.metrics, self.role)
        self._feeding = asyncio.create_task(self._feeder.run(self.deliver))

    def same(self, chunk: AudioChunk) -> bool:
        return (chunk.rate, WIDTHS.get(chunk.width), chunk.channels) == (
            self.order.rate,
            self.order.format,
            self.order.channels,
        )

    async def put(self, chunk: AudioChunk) -> None:
        """Raises what went wrong with the sound before."""
        putting = asyncio.create_task(self._feeder.put(chunk.audio))
        try:
            await asyncio.wait((putting, self._feeding), return_when=asyncio.FIRST_COMPLETED)
            if self._feeding.done():
                self._feeding.result()
        finally:
            putting.cancel()

    async def deliver(self, answer: Message) -> None:
        raise NotImplementedError

    async def finish(self) -> None:
        try:
            await self._feeder.end()
            await self._feeding
        finally:
            await self.close()

    async def close(self) -> None:
        if self._stream is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
            stream, self._stream = self._stream, None
            await stream.close()
        self._place.close()


class WakeHearing(Hearing):
    """Tells detections with the timestamps that the client itself gave to its sound."""

    role = "listeners"

    def __init__(self, connection: Connection, order: Order, names: list[str] | None) -> None:
        super().__init__(connection, order)
        known = connection.names
        self.wanted = {known[name][1] for name in names or () if name in known}
        self.whole = {name for name in names or () if name not in known}  # models whose every word is wanted
        self.called = {pair: name for name, pair in known.items()}
        self.found = 0
        self.marks: deque[tuple[int, float]] = deque(maxlen=MARKS)  # frame at which a chunk began, its timestamp
        self.frames = 0

    async def put(self, chunk: AudioChunk) -> None:
        if chunk.timestamp is not None or not self.marks:
            self.marks.append((self.frames, float(chunk.timestamp or 0)))
        self.frames += len(chunk.audio) // self.order.frame_bytes
        await super().put(chunk)

    def timestamp(self, seconds: float) -> int:
        """Milliseconds on the client's clock."""
        frame = seconds * self.order.rate
        start, stamp = next((mark for mark in reversed(self.marks) if mark[0] <= frame), self.marks[0])
        return round(stamp + 1000 * (frame - start) / self.order.rate)

    async def deliver(self, answer: Message) -> None:
        for event in answer["events"]:
            if (self.wanted or self.whole) and event["word"] not in self.wanted and event["model"] not in self.whole:
                continue
            self.found += 1
            self.service.metrics.count("events_total", kind="detection")
            self.service.log.said("detection", event["word"], at=event["time"])
            name = self.called[event["model"], event["word"]]
            await self.connection.say(Detection(name, self.timestamp(event["time"])))

    async def finish(self) -> None:
        await super().finish()
        if not self.found:
            await self.connection.say(NotDetected())


class SpeechHearing(Hearing):
    """Tells each final as a chunk of the transcript, and at the end the whole."""

    role = "speakers"

    def __init__(self, connection: Connection, order: Order) -> None:
        super().__init__(connection, order)
        self.texts: list[str] = []

    async def deliver(self, answer: Message) -> None:
        for event in answer["events"]:
            if event["type"] == "final":
                if not self.texts:
                    await self.connection.say(TranscriptStart(language=self.language))
                self.texts.append(event["text"])
                await self.connection.say(TranscriptChunk(" " * (len(self.texts) > 1) + event["text"]))

    @property
    def language(self) -> str | None:
        return None if self._stream is None else self._stream.about.get("language")

    async def finish(self) -> None:
        language = self.language
        await super().finish()
        if not self.texts:
            await self.connection.say(TranscriptStart(language=language))
        text = " ".join(self.texts)
        self.service.metrics.count("events_total", kind="final")
        self.service.log.said("transcribed", text)
        await self.connection.say(Transcript(text, language=language))
        await self.connection.say(TranscriptStop())
