"""From settings to a server that runs, and its end: what is inside is finished or told, nothing is lost silently."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from voiceseq.apps.serve.logs import LibraryLogs
from voiceseq.apps.serve.routes import make_app
from voiceseq.apps.serve.service import Service, Settings
from voiceseq.apps.serve.wyoming_server import WyomingServer

from voiceseq.errors import ConfigError

PING_S, PONG_S = 10.0, 20.0


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """HTTP whose client has so many seconds for the head of its first request; without it, connections are for ever."""

    class TimedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if self.cycle is None and self.scope is None and self in self.connections:
                self.transport.close()

    return TimedProtocol


class HttpServer(uvicorn.Server):
    """uvicorn, whose signals only ask for the end; a second one does not wait."""

    def __init__(self, config: uvicorn.Config, ask: Callable[[], None]) -> None:
        super().__init__(config)
        self._ask = ask

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ask()


class Running:
    """A server between ``start`` and ``stop``; ``stop_wanted`` is set by signals, or by whoever started it."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service, self.settings, self.limits = service, settings, service.limits
        self.stop_wanted, self.stop_now = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.http = HttpServer(self._config(), self._asked)
        self.wyoming = None
        if settings.wyoming is not None:
            self.wyoming = WyomingServer(service, settings.wyoming, settings.wyoming_allow)
        self._serving: asyncio.Task[None] | None = None

    def _config(self) -> uvicorn.Config:
        limits, settings = self.limits, self.settings
        return uvicorn.Config(
            make_app(self.service, settings),
            host=settings.host,
            port=settings.port,
            http=timed_protocol(limits.header_s),
            ws="websockets-sansio",  # it stops reading while nobody takes what came
            # who still sends when all is closed never reads why; so what is a little too large is read, then refused
            ws_max_size=4 * limits.message_bytes,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_S,
            ws_per_message_deflate=False,
            limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=16 << 10,
            timeout_graceful_shutdown=2,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )

    def _asked(self) -> None:
        """A signal came, perhaps in the middle of anything."""
        again = self.stop_wanted.is_set()
        self._loop.call_soon_threadsafe((self.stop_now if again else self.stop_wanted).set)

    @property
    def port(self) -> int:
        return int(self.http.servers[0].sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Until clients are answered. Raises BundleError, ConfigError where an address is taken."""
        library = logging.getLogger("uvicorn")
        library.handlers, library.propagate = [LibraryLogs(self.service.log)], False
        await self.service.start()
        try:
            if self.wyoming is not None:
                await self._bind(self.wyoming.start())
                if self.settings.zeroconf is not None:
                    await self.wyoming.announce(self.settings.zeroconf)
            self._serving = asyncio.create_task(self._serve())
            while not self.http.started:
                if self._serving.done():
                    self._serving.result()
                await asyncio.sleep(0.02)
        except BaseException:
            await self.stop()
            raise
        names = [one.name for one in self.service.catalogue.models]
        self.service.log.info("serving", host=self.settings.host, port=self.port, models=names)

    async def _serve(self) -> None:
        try:
            await self.http.serve()
        except SystemExit:  # uvicorn's way to say that it cannot bind
            raise ConfigError(
                f"{self.settings.host}:{self.settings.port} cannot be listened on: is it taken?"
            ) from None

    async def _bind(self, starting: Any) -> None:
        try:
            await starting
        except OSError as error:
            raise ConfigError(f"{self.settings.wyoming} cannot be listened on: {error}") from error

    async def wait(self) -> None:
        """Until somebody wants it to stop. Raises whatever ended the server by itself."""
        assert self._serving is not None
        wanted = asyncio.create_task(self.stop_wanted.wait())
        await asyncio.wait((wanted, self._serving), return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()
        if self._serving.done():
            self._serving.result()

    async def stop(self) -> None:
        """Newcomers are refused; those inside are finished, or told after ``stop_s``."""
        self.service.log.info("stopping")
        draining, now = asyncio.create_task(self.service.drain()), asyncio.create_task(self.stop_now.wait())
        await asyncio.wait((draining, now), return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        now.cancel()
        self.http.should_exit = True
        if self._serving is not None:
            with contextlib.suppress(asyncio.CancelledError, ConfigError):
                await self._serving
        if self.wyoming is not None:
            await self.wyoming.stop()
        await self.service.stop()
        self.service.log.info("stopped")


async def run(service: Service, settings: Settings, started: Callable[[Running], None]) -> None:
    """Serve until a signal comes."""
    running = Running(service, settings)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running._asked())  # also while the models are still being opened
    starting = asyncio.create_task(running.start())
    wanted = asyncio.create_task(running.stop_wanted.wait())
    await asyncio.wait((starting, wanted), return_when=asyncio.FIRST_COMPLETED)
    wanted.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    starting.result()
    started(running)
    await running.wait()
    await running.stop()
