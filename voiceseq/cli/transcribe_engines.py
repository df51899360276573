"""Who does the parts of ``voiceseq transcribe``: this process, some of its own (``--workers``), or Ray's.

All of them call ``transcribe_part``, and nothing else differs: the texts are the same to the byte on machines of one
kind. A worker opens the bundle once and is given part after part; this process writes what comes back. A worker that
dies takes nothing with it: its part is given to another one, and after some deaths its files one by one, so that only
the file that kills its workers is lost.
"""

import multiprocessing
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from voiceseq.cli.transcribe_outputs import STDIN, Item, pcm_sound, stdin_sound
from voiceseq.errors import VoiceseqError
from voiceseq.inference.pooling import Failure
from voiceseq.inference.sounds import Sound, file_sound
from voiceseq.inference.transcriber import Settings, Transcript, Watch, unwatched

if TYPE_CHECKING:
    from voiceseq.inference.transcriber import Transcriber

DEATHS = 3  # of workers over one part, or of the first ones, that are borne
Part = Sequence[Item]
Found = Transcript | Failure


def transcribe_part(
    transcriber: "Transcriber", part: Part, settings: Settings, watch: Watch = unwatched, rate: int | None = None
) -> Iterator[Found]:
    """What every engine maps: each item's transcript, or why there is none, in order."""
    sounds = (open_sound(item, settings, rate) for item in part)
    return transcriber.transcribe_sounds(sounds, settings, watch)


def open_sound(item: Item, settings: Settings, rate: int | None = None) -> Sound:
    if item.name != STDIN:
        return file_sound(item.path, settings.channels, item.name, item.clip)
    return stdin_sound(settings.channels) if rate is None else pcm_sound(rate)


class Worker:
    """A bundle in a process of its own; ``model`` is its name or path, or the bytes of its ``.zip``."""

    def __init__(self, model: str | bytes, settings: Settings, threads: int) -> None:
        import torch

        import voiceseq

        torch.set_num_threads(threads)
        self.settings = settings
        if isinstance(model, bytes):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "bundle.zip"
                path.write_bytes(model)
                self.transcriber = voiceseq.load(path)
        else:
            self.transcriber = voiceseq.load(model)

    def transcribe(self, part: Part) -> list[Found]:
        return list(transcribe_part(self.transcriber, part, self.settings))


class Crew(Protocol):
    """Workers: ``give`` a part to an idle one; ``take`` waits for the next that is over, or whose worker died (why)."""

    size: int

    def give(self, number: int, part: Part) -> None: ...

    def take(self) -> tuple[int, list[Found] | str]: ...

    def close(self) -> None: ...


@dataclass
class _Task:
    part: Part
    deaths: int = 0


def run_parts(crew: Crew, parts: Sequence[Part]) -> Iterator[tuple[Part, list[Found]]]:
    """Parts as they are finished, in any order. Raises VoiceseqError where no worker lives to do anything."""
    tasks = [_Task(part) for part in parts]
    waiting, busy = deque(range(len(tasks))), set[int]()
    done, births = 0, 0
    while waiting or busy:
        while waiting and len(busy) < crew.size:
            number = waiting.popleft()
            crew.give(number, tasks[number].part)
            busy.add(number)
        number, found = crew.take()
        busy.remove(number)
        task = tasks[number]
        if not isinstance(found, str):
            done += 1
            yield task.part, found
            continue
        task.deaths, births = task.deaths + 1, births + 1
        if not done and births >= DEATHS * crew.size:
            raise VoiceseqError(f"the workers die before they have done anything: {found}")
        if task.deaths < DEATHS:
            waiting.appendleft(number)
        elif len(task.part) > 1:
            waiting.extend(range(len(tasks), len(tasks) + len(task.part)))
            tasks += [_Task([item], DEATHS - 1) for item in task.part]
        else:
            name = task.part[0].name
            yield task.part, [Failure(name, f"{name}: the worker that read it died {DEATHS} times ({found})")]


class Processes:
    """A crew of processes on this machine."""

    def __init__(self, count: int, make: Callable[[], Worker]) -> None:
        self.size, self._make = count, make
        self._context: Any = multiprocessing.get_context("spawn")
        self._idle: list[tuple[Any, Any]] = []  # process and pipe
        self._busy: dict[int, tuple[Any, Any]] = {}

    def give(self, number: int, part: Part) -> None:
        worker = self._idle.pop() if self._idle else self._hire()
        try:
            worker[1].send(part)
        except OSError:  # it died while it waited
            worker = self._hire()
            worker[1].send(part)
        self._busy[number] = worker

    def take(self) -> tuple[int, list[Found] | str]:
        ready = wait([pipe for _, pipe in self._busy.values()])
        number, (process, pipe) = next((n, one) for n, one in self._busy.items() if one[1] in ready)
        del self._busy[number]
        try:
            found = pipe.recv()
        except (EOFError, OSError):
            process.join()
            return number, f"exit code {process.exitcode}"
        if isinstance(found, VoiceseqError):
            raise found
        self._idle.append((process, pipe))
        return number, found

    def close(self) -> None:
        for process, pipe in (*self._idle, *self._busy.values()):
            pipe.close()
            process.terminate()
            process.join(10)
        self._idle, self._busy = [], {}

    def _hire(self) -> tuple[Any, Any]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._make), daemon=True)
        process.start()
        theirs.close()
        return process, ours


def _serve(pipe: Any, make: Callable[[], Worker]) -> None:
    """A worker's whole life: it ends with its pipe."""
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    try:
        worker = make()
        while True:
            pipe.send(worker.transcribe(pipe.recv()))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return
    except VoiceseqError as error:  # the bundle's or the settings' fault: every other worker would meet it
        pipe.send(error)
