"""The microphone as blocks of samples: sounddevice (PortAudio) and numpy, no torch.

    with Microphone() as microphone:
        while True:
            block = microphone.read()          # Block or None: nothing has come within the time

PortAudio's callback copies into a queue of bounded length, which drops the oldest when nobody reads. Time is counted in
samples, the dropped ones included, so that ``Block.time`` stays right; ``Block.gap_s`` says what is missing before a
block. A device that goes away is tried again, with growing pauses, by ``read``; ``trouble`` says so meanwhile.
"""

import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import DeviceError

Samples = NDArray[np.float32]
BLOCK_S = 0.09  # what the callback gets at once: three frames of the wake-word network, at 3/4 of the cost of two
QUEUE_S = 10.0  # what may wait for a reader
READ_S = 1.0  # what one read gives at most
LATENCY_S = 0.1  # asked of PortAudio: room for a busy machine
STALL_S = 3.0  # a device that is silent for so long has gone without a word
CLOSE_S = 2.0  # closing a hung device would wait for ever
WAITS_S = (0.5, 1.0, 2.0, 3.0)  # between attempts to get a lost device back; the last one repeats
MOST_CHANNELS = 8  # a device that offers more is a sound server, which mixes better than a mean does

INSTALL_PACKAGE = "no microphone without sounddevice: pip install 'voiceseq[mic]'"
INSTALL_LIBRARY = (
    "no microphone without PortAudio: apt-get install libportaudio2 (Fedora: dnf install portaudio, macOS: brew "
    "install portaudio)"
)
NO_DEVICE = "no microphone found: plug one in, or check the permissions of the sound devices"


@dataclass(frozen=True)
class InputDevice:
    """A microphone as PortAudio sees it."""

    index: int
    name: str
    host: str
    channels: int
    sample_rate: int
    default: bool

    @property
    def full_name(self) -> str:
        return f"{self.name}, {self.host}"


@dataclass(frozen=True)
class Block:
    """``samples (frames,)`` that were heard from ``time`` on (seconds since the beginning, counted in samples).

    ``gap_s`` seconds right before it are missing: whoever carries a state over from the block before starts afresh.
    Of these, ``lost_s`` should have been heard (the others passed while the microphone was closed on purpose).
    """

    samples: Samples
    sample_rate: int
    time: float
    gap_s: float = 0.0
    lost_s: float = 0.0

    @property
    def end(self) -> float:
        return self.time + len(self.samples) / self.sample_rate


def list_devices() -> list[InputDevice]:
    """The microphones, perhaps none. Raises DeviceError where sounddevice or PortAudio is missing."""
    sounddevice = _portaudio()
    hosts = [host["name"] for host in sounddevice.query_hostapis()]
    default = sounddevice.default.device[0]
    return [
        InputDevice(
            index,
            found["name"],
            hosts[found["hostapi"]],
            found["max_input_channels"],
            round(found["default_samplerate"]),
            index == default,
        )
        for index, found in enumerate(sounddevice.query_devices())
        if found["max_input_channels"] > 0
    ]


def find_device(device: int | str | None = None) -> InputDevice:
    """The microphone of that number or name (a part of it will do), or the system's default one.

    Raises DeviceError with the list of microphones where there is none or more than one.
    """
    devices = list_devices()
    if not devices:
        raise DeviceError(NO_DEVICE)
    if device is None:
        return next((found for found in devices if found.default), devices[0])
    if isinstance(device, int):
        matches = [found for found in devices if found.index == device]
    else:
        wanted = device.casefold()
        exact = [found for found in devices if wanted in (found.name.casefold(), found.full_name.casefold())]
        matches = exact or [found for found in devices if wanted in found.full_name.casefold()]
    if len(matches) != 1:
        problem = "fits more than one microphone" if matches else "is no microphone here"
        raise DeviceError(f"{device!r} {problem}; there are: {_listed(devices)}")
    return matches[0]


class Intake:
    """The bounded queue between PortAudio's thread and ours; a full one drops the oldest.

    Every piece carries the number of its first frame, so whoever takes them sees what was dropped.
    """

    def __init__(self, pieces: int) -> None:
        self.frames = 0  # that the device has given
        self.overruns = 0  # PortAudio's own losses, of unknown length
        self.ended = False
        self.last = time.monotonic()  # when the device gave the last ones
        self._pieces: deque[tuple[int, Samples]] = deque(maxlen=pieces)
        self._changed = threading.Condition()

    def callback(self, data: Samples, frames: int, times: Any, status: Any) -> None:
        """Copies; called by PortAudio."""
        with self._changed:
            self._pieces.append((self.frames, data.copy()))
            self.frames += frames
            self.overruns += bool(status)
            self.last = time.monotonic()
            self._changed.notify()

    def finished(self) -> None:
        """Called by PortAudio when the stream has ended, whoever ended it."""
        with self._changed:
            self.ended = True
            self._changed.notify()

    def take(self, most: int, timeout_s: float) -> tuple[int, Samples] | None:
        """About ``most`` frames without a gap, and the number of the first; None when none came in time."""
        taken: list[Samples] = []
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self.ended, timeout_s)
            if not self._pieces:
                return None
            start = end = self._pieces[0][0]
            while self._pieces and end - start < most:  # inside the queue there is never a gap: only its oldest go
                taken.append(self._pieces.popleft()[1])
                end += len(taken[-1])
        return start, np.concatenate(taken)


class Microphone:
    """An input device; ``open`` and ``close`` it, or use it in a ``with`` statement, and ``read``.

    Args:
        device: number or (part of a) name; None is the system's default.
        sample_rate: asked of the device; None is its own.
        queue_s: seconds that may wait for a reader before the oldest are dropped.

    Attributes:
        info: the device that is, or was last, open.
        trouble: what is wrong while the device is gone, else None.
        lost_s: seconds of sound that were missed: dropped, or spoken while the device was gone.
        overruns: losses that PortAudio told of; it does not say how long they were.
        reconnects: how often a lost device came back.
    """

    _in_use = 0  # streams of this process; PortAudio can look for new devices only while there are none

    def __init__(
        self, device: int | str | None = None, *, sample_rate: int | None = None, queue_s: float = QUEUE_S
    ) -> None:
        self.device, self.wanted_rate, self.queue_s = device, sample_rate, queue_s
        self.info: InputDevice | None = None
        self.sample_rate = 0
        self.trouble: str | None = None
        self.lost_s = 0.0
        self.overruns = self.reconnects = 0
        self._stream: Any = None
        self._intake = Intake(1)
        self._closer: threading.Thread | None = None
        self._base_s = self._expected_s = 0.0  # the time of the stream's frame 0, and of the next frame
        self._closed = False  # on purpose
        self._excused_s = 0.0  # of the gap before the next block: nobody was to listen
        self._attempts, self._retry_at = 0, 0.0

    def __enter__(self) -> "Microphone":
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def listening(self) -> bool:
        return self._stream is not None

    def open(self) -> None:
        """Begin to listen, or go on after ``close``.

        Raises DeviceError, with what to do about it, the first time; later on ``read`` tries again.
        """
        if self._stream is not None:
            return
        self._attempts, self.trouble = 0, None
        if self.info is None:
            self._start()
        else:
            self._try()

    def close(self) -> None:
        """Let go of the device; the time until it is opened again is passed over and is no loss."""
        self._closed = True
        self._stop()

    def read(self, timeout_s: float = 0.2) -> Block | None:
        """What has been heard since, at most a second of it; None when nothing came in time.

        While the device is gone it is tried again now and then; between attempts this sleeps.
        """
        if self._stream is None:
            self._try_again(timeout_s)
            return None
        found = self._intake.take(round(READ_S * self.sample_rate), timeout_s)
        if found is None:
            if self._intake.ended or time.monotonic() - self._intake.last > STALL_S:
                self._lose()
            return None
        return self._block(*found)

    def _block(self, start: int, data: Samples) -> Block:
        at = self._base_s + start / self.sample_rate
        gap_s = at - self._expected_s
        self._expected_s = self._base_s + (start + len(data)) / self.sample_rate
        lost_s = gap_s - self._excused_s
        self.lost_s += lost_s
        self._excused_s = 0.0
        self.overruns += self._intake.overruns
        self._intake.overruns = 0
        if self._attempts:
            self._attempts, self.trouble = 0, None
            self.reconnects += 1
        samples = data[:, 0] if data.shape[1] == 1 else data.mean(1)
        return Block(np.ascontiguousarray(samples), self.sample_rate, at, gap_s, lost_s)

    def _start(self) -> None:
        info = find_device(self.device)
        rate = self.wanted_rate or info.sample_rate
        intake = Intake(max(1, round(self.queue_s / BLOCK_S)))
        self._stream = _open_stream(info, rate, intake)
        Microphone._in_use += 1
        if self.info is not None:  # the clock says how long there was nobody to count samples
            heard_s = self._intake.frames / self.sample_rate
            self._base_s += heard_s + max(0.0, time.monotonic() - self._intake.last)
        if self._closed:
            self._closed, self._excused_s = False, self._base_s - self._expected_s
        self.info, self.sample_rate, self._intake = info, rate, intake
        if self.device is not None:
            self.device = info.full_name  # numbers change when devices come and go

    def _stop(self) -> None:
        if self._stream is None:
            return
        self._closer = threading.Thread(target=_close_stream, args=(self._stream,), daemon=True)
        self._stream = None
        self._closer.start()
        self._closer.join(CLOSE_S)
        Microphone._in_use -= 1

    def _lose(self) -> None:
        self._stop()
        name = self.info.full_name if self.info else "the microphone"
        self.trouble = f"{name} is gone; waiting for it to come back"
        self._wait()

    def _try_again(self, timeout_s: float) -> None:
        wait_s = self._retry_at - time.monotonic() if self._attempts else timeout_s
        if wait_s > 0:
            time.sleep(min(timeout_s, wait_s))
        else:
            self._try()

    def _try(self) -> None:
        try:
            if self._closer is not None and self._closer.is_alive():
                raise DeviceError("the device does not answer: unplug it, or restart the sound server")
            _look_again()
            self._start()
        except DeviceError as error:
            self.trouble = f"{error}; trying again"
            self._wait()

    def _wait(self) -> None:
        self._retry_at = time.monotonic() + WAITS_S[min(self._attempts, len(WAITS_S) - 1)]
        self._attempts += 1


def _portaudio() -> Any:
    try:
        import sounddevice
    except ModuleNotFoundError as error:
        raise DeviceError(INSTALL_PACKAGE) from error
    except OSError as error:  # the package is there, the library is not
        raise DeviceError(INSTALL_LIBRARY) from error
    return sounddevice


def _look_again() -> None:
    """Let PortAudio see what was plugged in since it started; it can only while no stream is open."""
    sounddevice = _portaudio()
    if Microphone._in_use == 0:
        try:
            sounddevice._terminate()
            sounddevice._initialize()
        except sounddevice.PortAudioError as error:
            raise DeviceError(f"PortAudio does not start ({error})") from error


def _open_stream(info: InputDevice, sample_rate: int, intake: Intake) -> Any:
    sounddevice = _portaudio()
    channels = info.channels if info.channels <= MOST_CHANNELS else 1
    try:
        stream = sounddevice.InputStream(
            device=info.index,
            channels=channels,
            samplerate=sample_rate,
            blocksize=max(1, round(BLOCK_S * sample_rate)),
            latency=LATENCY_S,
            dtype="float32",
            callback=intake.callback,
            finished_callback=intake.finished,
        )
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        reason = str(error).removeprefix("Error opening InputStream: ")
        raise DeviceError(
            f"microphone {info.full_name!r} does not open at {sample_rate} Hz ({reason}): is another program using it, "
            f"may this user? its own rate is {info.sample_rate} Hz; there are: {_listed(list_devices())}"
        ) from error
    return stream


def _close_stream(stream: Any) -> None:
    with contextlib.suppress(Exception):  # it may be gone already
        stream.abort()
    with contextlib.suppress(Exception):
        stream.close()


def _listed(devices: list[InputDevice]) -> str:
    return "; ".join(f"{found.index} {found.full_name}" for found in devices) or "none"
