"""The screen in a real terminal (tmux) on a real stream (the virtual microphone): keys, pictures, and a clean end."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT
from tones import RATE, sound, tone_bundle
from virtual_microphone import virtual_microphone  # noqa: F401

from voiceseq.audio.files import read_audio, write_audio
from voiceseq.datasets.manifest import read_manifest

WAIT_S = 40.0


class Terminal:
    """A tmux of its own, in ``folder``."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.words = ["tmux", "-u", "-S", str(folder / "tmux")]
        self.environment = {**environment, "TERM": "screen-256color"}
        self.environment.pop("TMUX", None)

    def tmux(self, *words: str) -> str:
        ran = subprocess.run([*self.words, *words], env=self.environment, capture_output=True, text=True, check=True)
        return ran.stdout

    def start(self, command: str) -> None:
        """Run the command between two looks at the terminal's settings."""
        script = f"stty -g > before; {command}; echo ended with $?; stty -g > after; sleep 100"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "28", "-c", str(self.folder), script)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def wait_for(self, *parts: str) -> str:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            screen = self.screen()
            if all(part in screen for part in parts):
                return screen
            time.sleep(0.1)
        raise AssertionError(f"{parts} never came:\n{screen}")

    def is_as_it_was(self) -> bool:
        facts = self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split()
        return facts == ["0", "1"] and (self.folder / "before").read_text() == (self.folder / "after").read_text()


@pytest.fixture
def terminal(tmp_path, virtual_microphone):  # noqa: F811
    if shutil.which("tmux") is None:
        pytest.skip("no terminal to drive without tmux: apt-get install tmux")
    tone_bundle(tmp_path / "tones")
    write_audio(tmp_path / "a.wav", sound(3.0, (0.5, "low"), (1.3, "high"), (2.1, "low")), RATE)
    terminal = Terminal(tmp_path, {**virtual_microphone.environment, "LC_ALL": "C.UTF-8"})
    yield terminal
    subprocess.run([*terminal.words, "kill-server"], capture_output=True, check=False)


def command(*words: str) -> str:
    return shlex.join([sys.executable, str(ROOT / "tests" / "tones.py"), "listen", "--model", "tones", *words])


def test_the_screen_hears_shows_saves_pauses_and_ends_clean(terminal, virtual_microphone):  # noqa: F811
    terminal.start(command())
    first = terminal.wait_for("voiceseq listen   default, ALSA", "[q] quit", "threshold  0.500", "detections 0")
    assert "▶ low" in first
    virtual_microphone.play(terminal.folder / "a.wav")
    screen = terminal.wait_for("detections 3")
    lines = screen.splitlines()
    heard = [line.split()[1] for line in lines if line.startswith("  0:00:")]
    assert heard == ["low", "high", "low"]
    assert "█" in screen
    assert "▼" in screen
    assert "lost 0.0 s" in screen

    terminal.press("f")
    terminal.wait_for("saved as false alarm of low", "saved 1 in saved/")
    terminal.press("Tab")
    terminal.wait_for("▶ high")
    terminal.press("m")
    terminal.wait_for("saved as missed of high", "saved 2")
    alarm, missed = read_manifest(terminal.folder / "saved" / "saved.jsonl")
    assert (alarm.extra["word"], missed.extra["word"]) == ("low", "high")
    clip = read_audio(alarm.audio)
    assert clip.duration_s == pytest.approx(alarm.duration, abs=0.01)
    assert abs(clip.samples[round(alarm.extra["at"] * clip.sample_rate) :][: clip.sample_rate // 5]).max() > 0.3

    terminal.press("+", "+")
    terminal.wait_for("threshold of high: 0.622", "threshold  0.622")
    terminal.press("Space")
    terminal.wait_for("paused: the microphone is closed")
    terminal.press("Space")
    terminal.wait_for("listening")
    terminal.tmux("resize-window", "-x", "50", "-y", "12")
    terminal.wait_for("▶ high", "[f] false alarm")
    terminal.press("C-c")
    terminal.wait_for("voiceseq: stopped", "ended with 130")
    assert terminal.is_as_it_was()
    assert "[q] quit" not in terminal.screen()


def test_q_ends_with_0_and_what_libraries_say_stays_off_the_screen(terminal, virtual_microphone):  # noqa: F811
    terminal.start(command("--on-detect", f"{sys.executable} -c \"print('noise' * 99)\""))
    terminal.wait_for("detections 0")
    virtual_microphone.unplug()
    screen = terminal.wait_for("no microphone found")
    assert "Expression" not in screen
    virtual_microphone.plug()
    terminal.wait_for("s of sound were lost")
    virtual_microphone.play(terminal.folder / "a.wav")
    assert "noise" not in terminal.wait_for("detections 3")
    terminal.press("q")
    assert "noise" not in terminal.wait_for("ended with 0")
    assert terminal.is_as_it_was()


def test_a_plain_terminal_gets_plain_letters_and_sigterm_ends_clean(terminal, virtual_microphone):  # noqa: F811
    terminal.environment |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    terminal.start(command())
    screen = terminal.wait_for("> low", "[q] quit")
    assert screen.isascii()
    (pane,) = terminal.tmux("list-panes", "-F", "#{pane_pid}").split()
    children = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    terminal.wait_for("ended with 130")
    assert terminal.is_as_it_was()


def test_saved_rows_are_json(terminal):
    """A session in which nothing was said can be saved as missed, too."""
    terminal.start(command("--save-dir", "my clips"))
    terminal.wait_for("detections 0", "0:00:0")
    time.sleep(1.0)
    terminal.press("m")
    terminal.wait_for("saved 1 in my clips/")
    (line,) = (terminal.folder / "my clips" / "saved.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == "missed"
    terminal.press("q")
    terminal.wait_for("ended with 0")
