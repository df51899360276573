"""The screen in a terminal, by curses: it redraws only what has changed, and gives the terminal back as it was."""

import contextlib
import curses
import locale
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from voiceseq.apps.listen.app import Listening
from voiceseq.apps.listen.view import FINE, PLAIN, Glyphs, Line, draw

FRAME_S = 1 / 8
NAMES = {
    ord("\t"): "next",
    curses.KEY_DOWN: "next",
    curses.KEY_RIGHT: "+",
    curses.KEY_UP: "previous",
    curses.KEY_LEFT: "-",
    curses.KEY_BTAB: "previous",
    ord("="): "+",
    ord("_"): "-",
    ord("Q"): "q",
    ord("F"): "f",
    ord("M"): "m",
    27: "q",
}


def show(app: Listening) -> None:
    """Listen on the screen until the user quits; KeyboardInterrupt (Ctrl-C, SIGTERM) passes once the screen is gone."""
    locale.setlocale(locale.LC_ALL, "")
    glyphs = FINE if "utf" in locale.getpreferredencoding(False).lower() else PLAIN
    os.environ.setdefault("ESCDELAY", "25")
    with ending_by_signal():
        curses.wrapper(_run, app, glyphs)


def _run(window: Any, app: Listening, glyphs: Glyphs) -> None:
    styles = _styles()
    window.nodelay(True)
    with contextlib.suppress(curses.error):
        curses.curs_set(0)
    drawn = 0.0
    while not app.done:
        app.step(FRAME_S / 2)
        while (key := window.getch()) != -1:
            app.press(NAMES.get(key) or (chr(key) if key < 256 else ""))
            drawn = 0.0
        if time.monotonic() - drawn >= FRAME_S:
            height, width = window.getmaxyx()
            paint(window, draw(app, width, height, glyphs), styles)
            drawn = time.monotonic()


def paint(window: Any, lines: list[Line], styles: dict[str, int]) -> None:
    window.erase()
    for number, line in enumerate(lines):
        column = 0
        for text, style in line:
            with contextlib.suppress(curses.error):  # the last cell, or a window that has just shrunk
                window.addstr(number, column, text, styles[style])
            column += len(text)
    window.refresh()


def _styles() -> dict[str, int]:
    styles = {"plain": curses.A_NORMAL, "dim": curses.A_DIM, "strong": curses.A_BOLD}
    styles |= {"good": curses.A_BOLD, "bad": curses.A_REVERSE}
    if curses.has_colors():
        with contextlib.suppress(curses.error):
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_GREEN, -1)
            curses.init_pair(2, curses.COLOR_RED, -1)
            styles |= {"good": curses.color_pair(1), "bad": curses.color_pair(2) | curses.A_BOLD}
    return styles


@contextlib.contextmanager
def ending_by_signal() -> Iterator[None]:
    """SIGTERM and a closed terminal end the screen as Ctrl-C does."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
