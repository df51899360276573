"""A real server in a thread of its own, on free ports of this machine, for tests."""

import asyncio
import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fake_speech import DEADLY, FAKE, SLOW, STUCK
from voiceseq.apps.serve import workers
from voiceseq.apps.serve.catalogue import Catalogue, Model, open_catalogue
from voiceseq.apps.serve.limits import Limits
from voiceseq.apps.serve.logs import Log
from voiceseq.apps.serve.running import Running
from voiceseq.apps.serve.service import Service, Settings

PROCESSES = workers.SPAWN
WORDS = ("alexa", "computer", "jarvis", "six-words", "dates", "shakespeare")


def catalogue(*fakes: str, words: tuple[str, ...] = WORDS) -> Catalogue:
    """Real detectors and models of text, and recognisers that only count."""
    return Catalogue((*open_catalogue(words).models, *(Model(one, one, version="0") for one in fakes)))


class InThread:
    """A worker as a thread of this process, with the face of a process: what a test of the server's doors needs."""

    pid: int | None = None

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str, daemon: bool) -> None:
        self._end: socket.socket = args[0].dup()
        self._thread = threading.Thread(target=self._run, args=(target, args[1:]), name=name, daemon=daemon)

    def _run(self, target: Callable[..., None], rest: tuple[Any, ...]) -> None:
        with self._end:
            target(self._end, *rest)

    def start(self) -> None:
        self.pid = 1
        self._thread.start()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self._thread.join(30)


class Threads:
    """In the place of a multiprocessing context."""

    Process = InThread


class Server:
    """``url``, ``ws`` and ``wyoming`` are where it listens; ``log`` what it wrote."""

    def __init__(self, served: Catalogue, limits: Limits, **settings: Any) -> None:
        self.log = io.StringIO()
        self.served, self.limits = served, limits
        self.settings = Settings(**{"port": 0, "wyoming": "tcp://127.0.0.1:0"} | settings)
        self.running: Running | None = None
        self.error: BaseException | None = None
        self.stopped = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            self.service = Service(self.served, self.limits, Log(self.log), opener="fake_speech:open_model")
            self.running = Running(self.service, self.settings)
            await self.running.start()
            self.port, self.wyoming_port = self.running.port, self.running.wyoming.port
            self._ready.set()
            await self.running.wait()
            await self.running.stop()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._ready.set()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(600)
        assert self.error is None, self.error
        self.url, self.ws = f"http://127.0.0.1:{self.port}", f"ws://127.0.0.1:{self.port}"
        self.wyoming = f"tcp://127.0.0.1:{self.wyoming_port}"

    def ask_to_stop(self) -> None:
        self.loop.call_soon_threadsafe(self.running.stop_wanted.set)

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.ask_to_stop()
            self._thread.join(120)
            assert not self._thread.is_alive()


@contextmanager
def serving(
    served: Catalogue | None = None, limits: Limits | None = None, processes: bool = False, **settings: Any
) -> Iterator[Server]:
    """With workers in threads, which begin at once, or as the real server has them."""
    before, workers.SPAWN = workers.SPAWN, PROCESSES if processes else Threads
    server = Server(served or catalogue(FAKE), limits or Limits(stop_s=5.0, late_s=300.0), **settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        workers.SPAWN = before


__all__ = ["DEADLY", "FAKE", "SLOW", "STUCK", "Server", "catalogue", "serving"]
