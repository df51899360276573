"""Blocks from a thread: the same ones, errors passed on, a hang given up, nothing left running."""

import threading
import time

import pytest

from voiceseq.audio.reading_ahead import read_ahead
from voiceseq.errors import AudioError


def test_the_same_blocks_in_order():
    assert list(read_ahead(iter(range(100)), "x", 5)) == list(range(100))
    assert list(read_ahead(iter(()), "x", 5)) == []


def test_errors_come_after_the_blocks_before_them():
    def blocks():
        yield 1
        raise AudioError("broken")

    found = read_ahead(blocks(), "x", 5)
    assert next(found) == 1
    with pytest.raises(AudioError, match="broken"):
        next(found)


def test_a_hang_is_given_up():
    over = threading.Event()

    def blocks():
        yield 1
        over.wait(30)

    found = read_ahead(blocks(), "bad.flac", 0.2)
    assert next(found) == 1
    with pytest.raises(AudioError, match=r"bad\.flac: decoding hung for 0\.2 s"):
        next(found)
    over.set()


def test_who_leaves_early_leaves_nothing_behind():
    closed = threading.Event()

    def blocks():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    found = read_ahead(blocks(), "x", 5)
    next(found)
    found.close()
    assert closed.wait(5)


def test_only_a_few_blocks_are_made_ahead():
    made = []

    def blocks():
        for number in range(1000):
            made.append(number)
            yield number

    found = read_ahead(blocks(), "x", 5)
    next(found)
    time.sleep(0.1)
    assert len(made) <= 5
    found.close()
