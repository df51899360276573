"""The user's own command for a detection: an argument list, no shell, the event as JSON on its stdin."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from voiceseq.errors import ConfigError

LIMIT_S = 10.0


class Hook:
    """Runs ``command`` for events, one at a time; one that takes longer than ``limit_s`` is ended with its children.

    Args:
        command: split as a shell would, but run without one.
        say: gets a line when something goes wrong.
        output: where the command's own output goes; None is nowhere.

    Raises ConfigError for a command that is empty, badly quoted or not found.
    """

    def __init__(
        self, command: str, say: Callable[[str], None], *, limit_s: float = LIMIT_S, output: IO[Any] | None = None
    ) -> None:
        self.words = split_command(command)
        self.say, self.limit_s = say, limit_s
        self.output = subprocess.DEVNULL if output is None else output
        self._runner: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def running(self) -> bool:
        return self._runner is not None and self._runner.is_alive()

    def fire(self, event: Mapping[str, Any]) -> bool:
        """Start the command; False, and a line, where that fails or the one before is still running."""
        if self.running:
            self.say(f"{self.words[0]} is still running: not started for {event['word']} at {event['time']} s")
            return False
        try:
            self._process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=self.output,
                stderr=self.output,
                text=True,
                start_new_session=True,  # Ctrl-C is for us, and its children end with it
            )
        except OSError as error:
            self.say(f"{self.words[0]} does not start: {error.strerror}")
            return False
        self._runner = threading.Thread(target=self._attend, args=(self._process, json.dumps(event)), daemon=True)
        self._runner.start()
        return True

    def wait(self) -> None:
        """Until the command is through, or its time is."""
        if self._runner is not None:
            self._runner.join()

    def stop(self) -> None:
        """End the command if it is running."""
        if self.running and self._process is not None:
            end_group(self._process)
        self.wait()

    def _attend(self, process: "subprocess.Popen[str]", line: str) -> None:
        try:
            process.communicate(line + "\n", timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            end_group(process)
            process.wait()
            self.say(f"{self.words[0]} took longer than {self.limit_s:g} s and was ended")
        else:
            if process.returncode > 0:  # below 0: ended by us
                self.say(f"{self.words[0]} ended with {process.returncode}")


def split_command(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--on-detect {command!r}: {error}; quote it as for a shell") from error
    if not words:
        raise ConfigError("--on-detect is empty; give a program and its arguments")
    if shutil.which(words[0]) is None:
        raise ConfigError(f"--on-detect: there is no program {words[0]!r}; give its full path")
    return words


def end_group(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):  # no process groups on Windows
        process.kill()
