"""A microphone without hardware: a private PulseAudio whose loudspeaker is what the microphone hears.

The sound goes the whole way of a real one: PulseAudio, ALSA's default device, PortAudio, sounddevice.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NEEDED = ("pulseaudio", "paplay", "pactl")
INSTALL = "apt-get install pulseaudio pulseaudio-utils libasound2-plugins libportaudio2"
# norewinds: without it PulseAudio now and then loses or repeats half a second of what is played
SCRIPT = """
load-module module-native-protocol-unix auth-anonymous=1 socket={socket}
load-module module-null-sink sink_name=speaker norewinds=1 rate=16000 channels=1 format=s16le
load-module module-remap-source source_name=microphone master=speaker.monitor channels=1
set-default-sink speaker
set-default-source microphone
"""
LOOK = "import sounddevice, sys; sys.exit(not len(sounddevice.query_devices()))"


class VirtualMicrophone:
    """``environment`` is for programs that shall hear it; ``unplug`` and ``plug`` are what a user does to a cable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen[bytes] | None = None
        self.socket = folder / "native"
        own = {"XDG_RUNTIME_DIR": str(folder), "PULSE_RUNTIME_PATH": str(folder), "HOME": str(folder)}
        self.environment = {**os.environ, "PULSE_SERVER": f"unix:{self.socket}"}
        self._own = {**os.environ, **own}

    def plug(self) -> None:
        self.folder.chmod(0o700)
        script = self.folder / "script.pa"
        script.write_text(SCRIPT.format(socket=self.socket))
        options = ("--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--realtime=no", "--high-priority=no")
        words = ["pulseaudio", "-n", *options, f"--log-target=file:{self.folder / 'log'}", f"--file={script}"]
        quiet = subprocess.DEVNULL
        self.server = subprocess.Popen(words, env=self._own, stdin=quiet, stdout=quiet, stderr=quiet)
        for _ in range(100):
            ready = ["pactl", "get-default-source"]
            ran = subprocess.run(ready, env=self.environment, capture_output=True, text=True, check=False)
            if ran.stdout.strip() == "microphone":
                return
            time.sleep(0.05)
        self.unplug()
        pytest.skip(f"PulseAudio does not start here: {(self.folder / 'log').read_text()[-300:]}")

    def unplug(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self.server = None
            self.socket.unlink(missing_ok=True)

    def freeze(self, frozen: bool) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def play(self, path: Path) -> None:
        """Returns when the file has been played to its end."""
        subprocess.run(["paplay", "--device=speaker", str(path)], env=self.environment, check=True, timeout=60)


@pytest.fixture
def virtual_microphone(tmp_path_factory):
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no virtual microphone without {', '.join(missing)}: {INSTALL}")
    microphone = VirtualMicrophone(tmp_path_factory.mktemp("pulse"))
    microphone.plug()
    try:
        seen = subprocess.run(
            [sys.executable, "-c", LOOK], env=microphone.environment, capture_output=True, check=False
        )
        if seen.returncode:
            pytest.skip(f"PortAudio does not see the virtual microphone: {INSTALL}")
        yield microphone
    finally:
        microphone.unplug()
