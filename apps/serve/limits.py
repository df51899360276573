"""How much anybody may ask of the server, and how many at once."""

import asyncio
import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from voiceseq.errors import ConfigError

MB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What is over one of these is refused at once, and told why. Raises ConfigError for what cannot be."""

    listeners: int = 128  # live wake-word streams
    speakers: int = 8  # live transcriptions
    files: int = 4  # uploaded files, at work or waiting
    texts: int = 16  # tasks of text, at work or waiting
    connections: int = 512  # of all kinds, each port for itself
    message_bytes: int = MB  # one message of a live stream
    upload_bytes: int = 512 * MB
    duration_s: float = 4 * 3600.0  # of an uploaded file's sound
    job_s: float = 3600.0  # to transcribe it, waiting not counted
    short_s: float = 60.0  # for a task of text, or a look inside
    header_s: float = 10.0  # to send the head of a request, or the first message of a stream
    upload_s: float = 900.0  # to send a file
    idle_s: float = 60.0  # without a byte in the middle of an upload or a stream
    total_s: float = 24 * 3600.0  # of a live stream
    queue_s: float = 5.0  # of a stream's sound that waits; then no more is read from that client
    late_s: float = 2.0  # when workers are so far behind, newcomers are refused
    send_s: float = 10.0  # to take an answer
    stop_s: float = 20.0  # to finish what runs, when the server stops

    def __post_init__(self) -> None:
        if wrong := [f"{one.name}={getattr(self, one.name)}" for one in fields(self) if getattr(self, one.name) <= 0]:
            raise ConfigError(f"limits of more than 0 were wanted: {', '.join(wrong)}")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Limits":
        """From ``name -> number`` as somebody typed it. Raises ConfigError with all that is wrong."""
        kinds: dict[str, type[float]] = {one.name: int if one.type in (int, "int") else float for one in fields(cls)}
        values: dict[str, float] = {}
        wrong = []
        for name, text in given.items():
            try:
                values[name] = kinds[name](text)
            except KeyError:
                near = difflib.get_close_matches(name, kinds, n=1)
                wrong.append(f"no limit {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
            except ValueError:
                wrong.append(f"{name}={text!r} is no {kinds[name].__name__}")
        if wrong:
            raise ConfigError(f"{'; '.join(wrong)} (limits: {', '.join(kinds)})")
        return cls(**values)  # type: ignore[arg-type]


class Busy(Exception):
    """There is no room: come back later."""


class Gate:
    """Counts who is inside. ``late`` says by how many seconds the workers of a kind are behind."""

    def __init__(self, limits: Limits, late: Callable[[str], float]) -> None:
        self.room = {"listeners": limits.listeners, "speakers": limits.speakers, "files": limits.files}
        self.room |= {"texts": limits.texts, "connections": limits.connections}
        self.inside: Counter[str] = Counter()
        self.stopping = asyncio.Event()
        self._late, self._late_s = late, limits.late_s

    @contextmanager
    def enter(self, kind: str) -> Iterator[None]:
        """Hold a place. Raises Busy where there is none, and when the server stops."""
        if self.stopping.is_set():
            raise Busy("the server is stopping")
        if self.inside[kind] >= self.room[kind]:
            raise Busy(f"{self.room[kind]} {kind} are served at once, and all places are taken")
        if self._late(kind) > self._late_s:
            raise Busy(f"the machine is {self._late(kind):.1f} s behind")
        self.inside[kind] += 1
        try:
            yield
        finally:
            self.inside[kind] -= 1
