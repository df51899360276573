"""The microphone: the bounded queue, time in samples, devices that are missing, busy or go away; and a real stream."""

import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
from virtual_microphone import virtual_microphone  # noqa: F401

from voiceseq.audio import microphone as module
from voiceseq.audio.microphone import BLOCK_S, Intake, Microphone, find_device, list_devices
from voiceseq.errors import DeviceError

RATE = 1000
BLOCK = round(BLOCK_S * RATE)


class PortAudioError(Exception):
    pass


class FakeStream:
    """What sounddevice.InputStream is to us; ``give`` is the device's next block."""

    def __init__(self, owner, **settings) -> None:
        self.owner, self.settings = owner, settings
        self.frames = 0
        self.closed = False
        owner.tried.append(settings)
        if owner.refuses:
            raise PortAudioError(f"Error opening InputStream: {owner.refuses}")
        owner.streams.append(self)

    def start(self) -> None:
        pass

    def give(self, blocks: int = 1, status: bool = False) -> None:
        size, channels = self.settings["blocksize"], self.settings["channels"]
        for _ in range(blocks):
            rows = np.arange(self.frames, self.frames + size, dtype=np.float32)[:, None] + np.arange(channels)
            self.settings["callback"](rows, size, None, status)
            rows[:] = np.nan  # PortAudio uses its buffer again
            self.frames += size

    def end(self) -> None:
        self.settings["finished_callback"]()

    def abort(self) -> None:
        self.owner.closing.wait()
        raise PortAudioError("gone")

    def close(self) -> None:
        self.closed = True


class FakeSound(types.ModuleType):
    """A sounddevice with as many devices as the test wants."""

    PortAudioError = PortAudioError

    def __init__(self, *devices) -> None:
        super().__init__("sounddevice")
        self.devices = list(devices)
        self.default = types.SimpleNamespace(device=[0, 0])
        self.refuses = ""
        self.tried, self.streams, self.scans = [], [], 0
        self.closing = threading.Event()
        self.closing.set()

    def query_devices(self):
        return self.devices

    def query_hostapis(self):
        return [{"name": "ALSA"}, {"name": "JACK"}]

    def InputStream(self, **settings):
        return FakeStream(self, **settings)

    def _terminate(self) -> None:
        assert all(stream.closed for stream in self.streams), "PortAudio ended under an open stream"

    def _initialize(self) -> None:
        self.scans += 1


def device(name="Mic", channels=1, rate=RATE, host=0):
    return {"name": name, "max_input_channels": channels, "default_samplerate": float(rate), "hostapi": host}


@pytest.fixture
def sound(monkeypatch):
    fake = FakeSound(device(), device("USB Audio", 2), device("Speaker", 0), device("USB Audio", 2, host=1))
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    monkeypatch.setattr(module, "WAITS_S", (0.02, 0.05))
    monkeypatch.setattr(Microphone, "_in_use", 0)
    return fake


# --- the queue -------------------------------------------------------------------------------------------------------


def test_a_full_queue_drops_the_oldest_and_numbers_tell(sound):
    intake = Intake(4)
    for start in range(0, 100, 10):
        intake.callback(np.full((10, 1), start, np.float32), 10, None, False)
    start, data = intake.take(1000, 0)
    assert (start, len(data)) == (60, 40)
    assert data[::10, 0].tolist() == [60, 70, 80, 90]
    assert intake.take(1000, 0) is None


def test_what_is_taken_has_no_gap_inside():
    intake = Intake(4)

    def give(count):
        for _ in range(count):
            intake.callback(np.full((10, 1), intake.frames, np.float32), 10, None, False)

    give(2)
    assert intake.take(10, 0)[0] == 0
    give(3)
    assert [intake.take(1000, 0)[0]] == [10]
    give(5)
    assert intake.take(20, 0) == (60, pytest.approx(np.repeat([[60.0], [70.0]], 10, axis=0)))


def test_taking_wakes_when_sound_arrives_and_when_the_stream_ends():
    for wake in (lambda i: i.callback(np.zeros((5, 1), np.float32), 5, None, False), Intake.finished):
        intake = Intake(4)
        threading.Timer(0.05, wake, (intake,)).start()
        start = time.monotonic()
        intake.take(10, 30.0)
        assert time.monotonic() - start < 20


def test_threads_lose_nothing_that_is_not_told():
    """A producer at full speed against a slow consumer: every frame is either taken or inside a gap."""
    intake = Intake(8)
    total = 20_000

    def produce():
        for _ in range(total // 10):
            intake.callback(np.arange(intake.frames, intake.frames + 10, dtype=np.float32)[:, None], 10, None, False)

    thread = threading.Thread(target=produce)
    thread.start()
    taken = expected = 0
    while (found := intake.take(50, 0.2)) is not None:
        start, data = found
        assert start >= expected
        assert data[:, 0].tolist() == list(range(start, start + len(data)))
        taken += len(data)
        expected = start + len(data)
    thread.join()
    assert expected == total
    assert taken <= total


# --- time ------------------------------------------------------------------------------------------------------------


def test_blocks_carry_their_time_and_mean_of_channels(sound):
    with Microphone("usb audio, alsa") as microphone:
        (stream,) = sound.streams
        assert stream.settings["channels"] == 2
        assert stream.settings["samplerate"] == RATE
        stream.give(3)
        block = microphone.read()
        assert (block.time, block.gap_s, block.sample_rate) == (0.0, 0.0, RATE)
        assert block.samples.tolist() == [i + 0.5 for i in range(3 * BLOCK)]
        stream.give()
        assert microphone.read().time == pytest.approx(3 * BLOCK_S)
        assert microphone.read(0.01) is None
    assert stream.closed
    assert not microphone.listening


def test_a_sound_server_with_many_channels_mixes_itself(sound):
    sound.devices[0] = device("pulse", 32, 44100)
    with Microphone() as microphone:
        assert (sound.streams[0].settings["channels"], microphone.sample_rate) == (1, 44100)


def test_a_slow_reader_loses_the_oldest_which_is_counted_and_the_time_stays_right(sound):
    with Microphone(queue_s=1.0) as microphone:
        sound.streams[0].give(1000)
        given = 1000 * BLOCK_S
        blocks = []
        while (block := microphone.read(0)) is not None:
            blocks.append(block)
        heard = sum(len(block.samples) for block in blocks) / RATE
        assert heard == pytest.approx(1.0, abs=BLOCK_S)
        assert blocks[0].gap_s == blocks[0].lost_s == pytest.approx(given - heard)
        assert blocks[0].samples[0] / RATE == pytest.approx(blocks[0].time)
        assert blocks[-1].end == pytest.approx(given)
        assert microphone.lost_s == pytest.approx(given - heard)
        sound.streams[0].give()
        assert microphone.read().gap_s == 0.0
        assert microphone.lost_s == pytest.approx(given - heard)


def test_overruns_of_the_device_are_counted(sound):
    with Microphone() as microphone:
        sound.streams[0].give(2, status=True)
        sound.streams[0].give(1)
        microphone.read()
        microphone.read(0)
        assert microphone.overruns == 2


# --- devices ---------------------------------------------------------------------------------------------------------


def test_listing_and_finding(sound):
    found = list_devices()
    assert [(d.index, d.full_name, d.default) for d in found] == [
        (0, "Mic, ALSA", True),
        (1, "USB Audio, ALSA", False),
        (3, "USB Audio, JACK", False),
    ]
    assert find_device().index == 0
    assert find_device(3).host == "JACK"
    assert find_device("mic").index == 0
    assert find_device("jack").index == 3


@pytest.mark.parametrize(("wanted", "said"), [(2, "no microphone here"), ("x", "no microphone here"), ("usb", "more")])
def test_a_wrong_device_gets_the_list(sound, wanted, said):
    with pytest.raises(DeviceError, match=said) as error:
        Microphone(wanted).open()
    assert "0 Mic, ALSA; 1 USB Audio, ALSA; 3 USB Audio, JACK" in str(error.value)


def test_no_device_at_all(sound):
    sound.devices.clear()
    with pytest.raises(DeviceError, match="plug one in"):
        Microphone().open()


def test_a_busy_device_gets_a_reason_and_the_list(sound):
    sound.refuses = "Device unavailable [PaErrorCode -9985]"
    with pytest.raises(DeviceError, match="another program") as error:
        Microphone(sample_rate=500).open()
    assert "Device unavailable" in str(error.value)
    assert "its own rate is 1000 Hz" in str(error.value)
    assert "1 USB Audio, ALSA" in str(error.value)


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("raise OSError('PortAudio library not found')", "apt-get install libportaudio2"),
        ("raise ModuleNotFoundError('sounddevice')", r"pip install 'voiceseq\[mic\]'"),
    ],
)
def test_what_to_install(tmp_path, monkeypatch, problem, advice):
    (tmp_path / "sounddevice.py").write_text(problem)
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match=advice):
        Microphone().open()


def test_importing_needs_neither_sounddevice_nor_torch():
    code = "import voiceseq.audio.microphone, sys; print('sounddevice' in sys.modules, 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"


# --- a device that goes away -----------------------------------------------------------------------------------------


def read_until(microphone, wanted, seconds=5.0):
    """Read on until ``wanted(block)``; how many reads it took, too."""
    end, reads = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        block = microphone.read(0.01)
        reads += 1
        if wanted(block):
            return block, reads
    raise AssertionError("it never came")


def test_an_unplugged_device_comes_back_by_name_at_another_rate(sound):
    with Microphone(1) as microphone:
        sound.streams[0].give(2)
        sound.streams[0].end()
        assert len(microphone.read().samples) == 2 * BLOCK  # what came before the end is not lost
        saved, sound.devices = sound.devices, []
        read_until(microphone, lambda block: "plug one in" in (microphone.trouble or ""))
        assert not microphone.listening
        time.sleep(0.1)
        sound.devices = [saved[0], saved[2], device("USB Audio", 2, 2 * RATE)]
        read_until(microphone, lambda block: microphone.listening)
        assert sound.tried[-1]["device"] == 2
        sound.streams[-1].give()
        block, _ = read_until(microphone, lambda block: block is not None)
        assert (block.sample_rate, microphone.trouble, microphone.reconnects) == (2 * RATE, None, 1)
        assert block.gap_s == block.lost_s == pytest.approx(microphone.lost_s)
        assert 0.1 < block.gap_s < 5
        assert block.time == pytest.approx(2 * BLOCK_S + block.gap_s)


def test_attempts_become_rarer_and_reading_never_spins(sound, monkeypatch):
    monkeypatch.setattr(module, "WAITS_S", (0.01, 0.1, 0.2))
    with Microphone() as microphone:
        sound.streams[0].end()
        sound.refuses = "Device unavailable"
        start, reads = time.monotonic(), 0
        while time.monotonic() - start < 0.65:
            assert microphone.read(0.05) is None
            reads += 1
        assert 1 <= sound.scans <= 5  # at about 0.01, 0.11, 0.31, 0.51 s
        assert reads <= 25
        assert "Device unavailable" in microphone.trouble


def test_a_device_that_opens_and_gives_nothing_is_not_taken_for_well(sound, monkeypatch):
    """Pauses go on growing until sound has really come."""
    with Microphone() as microphone:
        sound.streams[0].end()
        for number in range(1, 4):
            read_until(microphone, lambda block, number=number: len(sound.streams) > number)
            assert microphone.trouble
            sound.streams[-1].end()
        assert microphone.reconnects == 0


def test_a_device_that_stops_without_a_word_is_noticed(sound, monkeypatch):
    monkeypatch.setattr(module, "STALL_S", 0.1)
    with Microphone() as microphone:
        sound.streams[0].give()
        microphone.read()
        read_until(microphone, lambda block: microphone.trouble is not None)
        assert "Mic, ALSA is gone" in microphone.trouble


def test_a_device_that_hangs_when_closed_is_left_alone_until_it_answers(sound, monkeypatch):
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    with Microphone() as microphone:
        sound.closing.clear()
        sound.streams[0].end()
        read_until(microphone, lambda block: "does not answer" in (microphone.trouble or ""))
        assert sound.scans == 0
        sound.closing.set()
        read_until(microphone, lambda block: microphone.listening)


def test_closing_on_purpose_passes_time_over_and_loses_nothing(sound):
    microphone = Microphone()
    microphone.open()
    sound.streams[0].give()
    microphone.read()
    microphone.close()
    time.sleep(0.1)
    assert microphone.read(0.01) is None
    assert len(sound.streams) == 1  # nobody reconnects what was closed on purpose
    microphone.open()
    sound.streams[1].give()
    block = microphone.read()
    assert 0.1 < block.gap_s < 5
    assert block.time == pytest.approx(BLOCK_S + block.gap_s)
    assert block.lost_s == microphone.lost_s == microphone.reconnects == 0
    microphone.close()


def test_opening_again_after_a_pause_waits_for_a_device_that_has_gone(sound):
    microphone = Microphone()
    microphone.open()
    microphone.close()
    sound.refuses = "Device unavailable"
    microphone.open()
    assert "Device unavailable" in microphone.trouble
    sound.refuses = ""
    read_until(microphone, lambda block: microphone.listening)
    microphone.close()


# --- the real thing --------------------------------------------------------------------------------------------------

SLOW = """
import time
from voiceseq.audio.microphone import Microphone
with Microphone(queue_s=1.0) as microphone:
    began = time.monotonic()
    microphone.read(5.0)
    time.sleep(3.0)                       # the reader is busy
    first = microphone.read(5.0)
    behind = 9.0
    while behind > 0.5 and time.monotonic() - began < 30:
        block = microphone.read(5.0)
        behind = time.monotonic() - began - block.end
    print(first.time, first.lost_s, microphone.lost_s, behind)
"""


def test_a_reader_that_was_slow_on_a_real_stream_is_soon_up_to_date(virtual_microphone):  # noqa: F811
    words = [sys.executable, "-c", SLOW]
    ran = subprocess.run(words, env=virtual_microphone.environment, capture_output=True, text=True, check=True)
    first, lost, all_lost, behind = map(float, ran.stdout.split())
    assert first > lost > 1.0
    assert all_lost >= lost
    assert behind <= 0.5
