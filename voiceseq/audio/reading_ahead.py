"""Blocks that are made by a thread of their own, a few ahead of who uses them, and in time or not at all."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

from voiceseq.errors import AudioError

T = TypeVar("T")
AHEAD = 2  # blocks that may wait
LOOK_S = 0.2  # how often a thread that nobody reads looks whether it is to end


def read_ahead(blocks: Iterator[T], name: str, limit_s: float) -> Iterator[T]:
    """The same blocks, and the errors of making them. ``name`` is how the message calls where they come from.

    A decoder that hangs cannot be stopped from inside its own process: its thread is left behind, and ends with the
    program. Raises AudioError when a block takes longer than ``limit_s``.
    """
    ready: queue.Queue[tuple[T | None, Exception | None]] = queue.Queue(AHEAD)
    over = threading.Event()
    threading.Thread(target=_make, args=(blocks, ready, over), daemon=True).start()
    try:
        while True:
            try:
                block, error = ready.get(timeout=limit_s)
            except queue.Empty:
                raise AudioError(
                    f"{name}: decoding hung for {limit_s:g} s and was given up: is the file damaged?"
                ) from None
            if error is not None:
                raise error
            if block is None:
                return
            yield block
    finally:
        over.set()


def _make(blocks: Iterator[T], ready: "queue.Queue[tuple[T | None, Exception | None]]", over: threading.Event) -> None:
    def give(block: T | None, error: Exception | None = None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                return ready.put((block, error), timeout=LOOK_S)

    try:
        for block in blocks:
            give(block)
            if over.is_set():
                break
        give(None)
    except Exception as error:  # whoever reads gets it
        give(None, error)
    finally:
        with contextlib.suppress(Exception):
            getattr(blocks, "close", lambda: None)()  # a decoder's process ends with its generator
