"""Listening to a microphone: what is done with each block and with each key. Screen and plain lines both use it."""

import math
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from voiceseq.apps.listen.following import Command, Following
from voiceseq.apps.listen.hook import Hook
from voiceseq.apps.listen.saving import FALSE_ALARM, MISSED, Saver
from voiceseq.apps.listen.session import KEEP_S, Detection, Session

from voiceseq.audio.files import level_report
from voiceseq.audio.microphone import Block, Microphone
from voiceseq.errors import AudioError

STEP = 0.25  # of the threshold's log odds, a key press: 0.50, 0.56, 0.62, ... and fine steps near 0 and 1
MOST = 7.0  # log odds: 0.001 to 0.999
MESSAGE_S = 8.0
SILENCE_S = 3.0  # of nothing but zeros, before it is told
SILENT_DB = -120.0


class Listening:
    """``step`` again and again; ``press`` for keys.

    Args:
        say: gets every notice, a line each (a lost device, lost sound, a failed command); the last is also ``message``.
        following: hears the command after a wake word.
    """

    def __init__(
        self,
        microphone: Microphone,
        session: Session,
        saver: Saver,
        hook: Hook | None = None,
        say: Callable[[str], None] = lambda text: None,
        following: Following | None = None,
    ) -> None:
        self.microphone, self.session, self.saver, self.hook, self._say = microphone, session, saver, hook, say
        self.following = following
        self.selected = 0  # the word that keys are about
        self.done = self.paused = False
        self.level_db = self.peak_db = SILENT_DB
        self.processor = Processor()
        self._message, self._said_at = "", 0.0
        self._trouble: str | None = None
        self._overruns = 0
        self._zeros_s = 0.0
        self._keys: dict[str, Callable[[], None]] = {
            "f": lambda: self._save(FALSE_ALARM),
            "m": lambda: self._save(MISSED),
            "+": lambda: self._change(STEP),
            "-": lambda: self._change(-STEP),
            "next": lambda: self._select(1),
            "previous": lambda: self._select(-1),
            " ": self._pause,
            "q": self.stop,
        }

    @property
    def message(self) -> str:
        return self._message if time.monotonic() - self._said_at < MESSAGE_S else ""

    def say(self, text: str) -> None:
        self._message, self._said_at = text, time.monotonic()
        self._say(text)

    def step(self, timeout_s: float = 0.1) -> list[Detection | Command]:
        """Wait for sound, at most so long, and give it to the detectors; what they heard, and commands that ended."""
        block = self.microphone.read(timeout_s)
        self._tell_trouble()
        if block is None:
            return []
        self._tell_losses(block)
        self._measure(block)
        detected = self.session.hear(block)
        commands = self.following.hear(block, detected) if self.following is not None else []
        for command in commands:
            self.say(f"after {command.word}: {command.text or '(nothing was said)'}")
        found = [*detected, *commands]
        for one in found:
            if self.hook is not None:
                self.hook.fire(one.as_json())
        return found

    def press(self, key: str) -> None:
        if key in self._keys:
            self._keys[key]()

    def stop(self) -> None:
        self.done = True

    def _tell_trouble(self) -> None:
        now, before = self.microphone.trouble, self._trouble
        if now != before:
            self._trouble = now
            self.say(now or "the microphone is back")

    def _tell_losses(self, block: Block) -> None:
        if block.lost_s:
            self.say(f"{block.lost_s:.2f} s of sound were lost before {clock(block.time)}")
        if self.microphone.overruns != self._overruns:
            self._overruns = self.microphone.overruns
            self.say("the sound device lost a moment of sound (overrun): is the machine busy?")

    def _measure(self, block: Block) -> None:
        levels = level_report(block.samples)
        self.level_db = max(SILENT_DB, levels.peak_db)
        seconds = len(block.samples) / block.sample_rate
        self.peak_db = max(self.level_db, self.peak_db - 10 * seconds)
        before = self._zeros_s
        self._zeros_s = 0.0 if levels.peak_db > SILENT_DB else before + seconds
        if before < SILENCE_S <= self._zeros_s:
            self.say("digital silence: is the microphone muted, or its use not permitted?")

    def _select(self, step: int) -> None:
        self.selected = (self.selected + step) % len(self.session.rows)

    def _change(self, step: float) -> None:
        row = self.session.rows[self.selected]
        odds = math.log(row.threshold / max(1e-9, 1 - row.threshold)) + step
        row.threshold = 1 / (1 + math.exp(-min(MOST, max(-MOST, odds))))
        self.say(f"threshold of {row.word}: {row.threshold:.3f}")

    def _pause(self) -> None:
        self.paused = not self.paused
        if self.paused:
            self.microphone.close()
            self.level_db = self.peak_db = SILENT_DB
        else:
            self.microphone.open()
        self.say("paused: the microphone is closed" if self.paused else "listening")

    def _save(self, kind: str) -> None:
        """A missed word is the selected one; a false alarm is the last detection, if the sound of it is still here."""
        now, row = self.session.time, self.session.rows[self.selected]
        about = Detection(row.word, now, max(row.history, default=0.0), row.model)
        if kind == FALSE_ALARM:
            last = self.session.detections[-1] if self.session.detections else None
            if last is None or last.time < now - KEEP_S:
                self.say(f"nothing was detected in the last {KEEP_S:g} s; [m] saves a missed word")
                return
            about = last
        try:
            path = self._write(kind, about)
            self.say(f"saved as {kind.replace('-', ' ')} of {about.word}: {path}")
        except AudioError as error:
            self.say(f"not saved: {error}")

    def _write(self, kind: str, about: Detection) -> Path:
        samples, rate = self.session.last_seconds(), self.session.sample_rate
        thresholds = {(row.model, row.word): row.threshold for row in self.session.rows}
        facts = about.as_json() | {
            "at": round(max(0.0, about.time - self.session.time + len(samples) / max(1, rate)), 3),  # in the clip
            "threshold": round(thresholds[about.model, about.word], 4),
            "model": about.model,
            "saved": datetime.now().isoformat(timespec="seconds"),
        }
        return self.saver.save(kind, samples, rate, **facts)


class Processor:
    """The share of one core that this process uses, of late."""

    def __init__(self) -> None:
        self._at, self._used, self._share = time.monotonic(), time.process_time(), 0.0

    @property
    def share(self) -> float:
        now = time.monotonic()
        if now - self._at > 1.0:
            used = time.process_time()
            self._share = (used - self._used) / (now - self._at)
            self._at, self._used = now, used
        return self._share


def clock(seconds: float) -> str:
    """``0:01:02.50``"""
    whole, part = divmod(round(seconds * 100), 100)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}.{part:02}"
