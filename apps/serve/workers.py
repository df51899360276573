"""The server's side of its workers: processes that are started, asked, watched, and started again when they die."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from voiceseq.apps.serve.catalogue import Catalogue
from voiceseq.apps.serve.limits import Limits
from voiceseq.apps.serve.link import Message, pack, read
from voiceseq.apps.serve.logs import Log
from voiceseq.apps.serve.metrics import Metrics
from voiceseq.apps.serve.orders import Order
from voiceseq.apps.serve.worker import Spec, work

from voiceseq.errors import AudioError, BundleError, InputError

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy the server's threads and sockets
START_S = 300.0
AGAIN_S = 1.0  # before a worker that died is started again
CANCEL_S = 20.0  # that a file may go on when nobody waits for it
TURN_S = 0.5  # of sound that a stream may send at a time, so that one that floods does not keep the others waiting
SPEAKERS = 4  # live transcriptions that one process keeps up with
LIVE = ("listeners", "speakers")
ERRORS: Mapping[str, type[Exception]] = {"InputError": InputError, "AudioError": AudioError, "BundleError": BundleError}

Tell = Callable[[Message], Awaitable[None]]


class WorkerLost(Exception):
    """The process died, and with it what it knew of this client."""


class TooLong(Exception):
    """A file took more time than there is for it."""


class Worker:
    """One process. ``run`` keeps it alive; ``up`` is set while it can be asked."""

    def __init__(self, spec: Spec, metrics: Metrics, log: Log) -> None:
        self.spec, self.metrics, self.log = spec, metrics, log
        self.up, self.lock = asyncio.Event(), asyncio.Lock()
        self.languages: dict[str, str] = {}
        self.failed: str | None = None
        self.busy = 0  # streams it has
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[Message | None]] = {}
        self._asked: dict[int, float] = {}  # when each question that has no answer was asked
        self._writer: asyncio.StreamWriter | None = None
        self._process: Any = None

    @property
    def late_s(self) -> float:
        """How long the oldest question has been waiting."""
        return time.monotonic() - min(self._asked.values()) if self._asked and self.spec.role in LIVE else 0.0

    async def run(self) -> None:
        """Start the process, and again whenever it ends, until cancelled or it cannot start at all."""
        while self.failed is None:
            try:
                await self._live()
            finally:
                self._lose()
            if not self.languages:
                self.failed = self.failed or f"the process for {self.spec.role} ended before it was ready"
            self.metrics.count("worker_ends_total", role=self.spec.role)
            self.log.warning("worker ended", role=self.spec.role, reason=self.failed)
            await asyncio.sleep(AGAIN_S)

    async def _live(self) -> None:
        ours, theirs = socket.socketpair()
        process = SPAWN.Process(target=work, args=(theirs, self.spec), name=f"voiceseq {self.spec.role}", daemon=True)
        try:
            await asyncio.to_thread(process.start)
            theirs.close()
            self._process = process
            reader, self._writer = await asyncio.open_connection(sock=ours)
            with contextlib.suppress(EOFError):
                while True:
                    self._take(await read(reader))
        finally:
            theirs.close()
            if self._writer is not None:
                self._writer.close()
            else:
                ours.close()
            if process.pid is not None:
                process.kill()
                await asyncio.to_thread(process.join)

    def _take(self, message: Message) -> None:
        say, number = message.get("say"), message.get("id")
        if say == "up":
            self.languages = dict(message["languages"])
            self.up.set()
        elif say == "failed":
            self.failed = str(message["message"])
        elif isinstance(number, int) and number in self._answers:
            if say in ("answer", "error"):
                self._asked.pop(number, None)
            self._answers[number].put_nowait(message)

    def _lose(self) -> None:
        self.up.clear()
        self._writer = None
        self._asked.clear()
        for queue in self._answers.values():
            queue.put_nowait(None)

    def kill(self) -> None:
        self.up.clear()  # before anybody asks what is about to die
        if self._process is not None:
            self._process.kill()

    def open_channel(self) -> "Channel":
        return Channel(self, next(self._numbers))


class Channel:
    """One client's conversation with a worker: a question at a time."""

    def __init__(self, worker: Worker, number: int) -> None:
        self.worker, self.number = worker, number
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        worker._answers[number] = self._queue

    async def ask(self, do: str, data: bytes = b"", **fields: Any) -> Message:
        """Raises what the worker raised, or WorkerLost."""
        self.worker._asked[self.number] = time.monotonic()
        await self.send(do, data, **fields)
        return await self.next()

    async def send(self, do: str, data: bytes = b"", **fields: Any) -> None:
        writer = self.worker._writer
        if writer is None or not self.worker.up.is_set():
            self.worker._asked.pop(self.number, None)
            raise WorkerLost("the process that listens is being started again")
        try:
            writer.write(pack({"id": self.number, "do": do, **fields}, data))
            await writer.drain()
        except OSError as error:
            raise WorkerLost("the process that listens has ended") from error

    async def next(self) -> Message:
        message = await self._queue.get()
        if message is None:
            raise WorkerLost("the process that listens has ended; it is being started again")
        if message["say"] == "error":
            raise ERRORS.get(message["kind"], RuntimeError)(message["message"])
        return message

    async def close(self) -> None:
        self.worker._answers.pop(self.number, None)
        self.worker._asked.pop(self.number, None)
        with contextlib.suppress(WorkerLost):
            await self.send("close")


class LiveStream:
    """A stream that a worker holds for one client."""

    def __init__(self, channel: Channel, order: Order, about: Message) -> None:
        self.channel, self.order, self.about = channel, order, about

    async def feed(self, data: bytes) -> Message:
        return await self.channel.ask("feed", data)

    async def finish(self) -> Message:
        return await self.channel.ask("finish")

    async def change(self, thresholds: Mapping[str, float]) -> None:
        await self.channel.ask("thresholds", thresholds=dict(thresholds))

    async def close(self) -> None:
        self.channel.worker.busy -= 1
        await self.channel.close()


class Workers:
    """All of them, by role; a role whose models are not served has none.

    Args:
        count: processes a role; else one, and of live speech one for every ``SPEAKERS``.
        opener: as in ``Spec``.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        limits: Limits,
        metrics: Metrics,
        log: Log,
        count: Mapping[str, int] | None = None,
        opener: str = Spec.opener,
    ) -> None:
        self.catalogue, self.limits, self.metrics, self.log = catalogue, limits, metrics, log
        parts = catalogue.wake, catalogue.speech, catalogue.texts
        wake, speech, texts = ({one.name: one.path for one in part} for part in parts)
        self.roles: dict[str, list[Worker]] = {}
        for role, paths in (("listeners", wake), ("speakers", speech), ("files", speech), ("texts", texts)):
            usual = min(os.cpu_count() or 1, -(-limits.speakers // SPEAKERS)) if role == "speakers" else 1
            wanted = (count or {}).get(role, usual) if paths else 0
            self.roles[role] = [Worker(Spec(role, paths, opener), metrics, log) for _ in range(wanted)]
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[Worker]:
        return [one for role in self.roles.values() for one in role]

    @property
    def ready(self) -> bool:
        return all(one.up.is_set() for one in self.all)

    @property
    def languages(self) -> dict[str, str]:
        return {name: spoken for one in self.all for name, spoken in one.languages.items() if spoken}

    def late_s(self, role: str) -> float:
        return max((one.late_s for one in self.roles.get(role, ())), default=0.0)

    async def start(self) -> None:
        """Until all can be asked. Raises BundleError where one cannot open its models."""
        keepers = [asyncio.create_task(one.run()) for one in self.all]
        self._tasks.update(keepers)
        ups = [asyncio.create_task(one.up.wait()) for one in self.all]
        try:
            async with asyncio.timeout(START_S):
                for up, keeper, one in zip(ups, keepers, self.all, strict=True):
                    await asyncio.wait((up, keeper), return_when=asyncio.FIRST_COMPLETED)
                    if not up.done():
                        raise BundleError(one.failed or "a worker could not be started")
        except TimeoutError:
            raise BundleError(f"the workers did not start within {START_S:g} s: is the machine too busy?") from None
        finally:
            for up in ups:
                up.cancel()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open_stream(self, role: str, order: Order) -> LiveStream:
        """Raises InputError for models that are not served and settings that they do not take, WorkerLost."""
        if role == "listeners":
            models = self.catalogue.detectors(order.models)
        else:
            models = [self.catalogue.recogniser(order.models[0] if order.models else None)]
        if not models:
            raise InputError("no wake words are served here; start the server with --model BUNDLE")
        words = {word: one.name for one in models for word in one.words}
        worker = min(self.roles[role], key=lambda one: (not one.up.is_set(), one.busy))
        channel = worker.open_channel()
        worker.busy += 1
        try:
            settings = order.to_json() | {"models": [one.name for one in models]}
            about = await channel.ask("open", order=settings, words=words)
        except BaseException:
            worker.busy -= 1
            await channel.close()
            raise
        keep = {key: value for key, value in about.items() if key not in ("id", "say")}
        return LiveStream(channel, order, {"model": models[0].name, **keep} if role == "speakers" else keep)

    async def transcribe(self, tell: Tell, **job: Any) -> Message:
        """A file; ``job`` is what ``worker.Worker._transcribe`` wants, ``tell`` hears of pieces and progress.

        Raises InputError, AudioError, TooLong, WorkerLost.
        """
        return await self.run("files", "transcribe", self.limits.job_s, tell, duration_s=self.limits.duration_s, **job)

    async def run(self, role: str, do: str, seconds: float, tell: Tell, **job: Any) -> Message:
        """A job for a worker that has nothing else to do meanwhile; it has so many ``seconds``.

        Raises InputError, AudioError, TooLong, WorkerLost.
        """
        worker = await self._idle_worker(role)
        channel = worker.open_channel()
        done = False
        try:
            async with asyncio.timeout(seconds):
                message = await channel.ask(do, **job)
                while message["say"] != "answer":
                    await tell(message)
                    message = await channel.next()
            done = True
            return message
        except TimeoutError:
            raise TooLong(f"it took longer than {seconds:g} s") from None
        except (InputError, AudioError, BundleError, RuntimeError, WorkerLost):
            done = True
            raise
        finally:
            rest = self._leave(worker, channel, done)
            self._tasks.add(task := asyncio.create_task(rest))
            task.add_done_callback(self._tasks.discard)

    async def _idle_worker(self, role: str) -> Worker:
        """One that has nothing to do; it is locked."""
        free = [one for one in self.roles[role] if not one.lock.locked()]
        worker = (free or self.roles[role])[0]
        await worker.lock.acquire()
        try:
            async with asyncio.timeout(START_S):
                await worker.up.wait()
        except BaseException as error:
            worker.lock.release()
            if isinstance(error, TimeoutError):
                raise WorkerLost("the process that does this does not start") from error
            raise
        return worker

    async def _leave(self, worker: Worker, channel: Channel, done: bool) -> None:
        """Free the worker; one that still works on what nobody wants is told, and killed where it does not stop."""
        try:
            if not done:
                await channel.send("cancel")
                async with asyncio.timeout(CANCEL_S):
                    while (await channel.next())["say"] != "answer":
                        pass
        except TimeoutError:
            worker.kill()
        except (WorkerLost, RuntimeError, InputError, AudioError, BundleError):
            pass
        finally:
            await channel.close()
            worker.lock.release()
