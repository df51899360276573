"""`voiceseq listen` as it is typed: files of all kinds, PCM on stdin, and a real stream from a virtual microphone."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from places import ROOT
from tones import RATE, sound, tone_bundle
from virtual_microphone import virtual_microphone  # noqa: F401

from voiceseq.audio.files import write_audio
from voiceseq.audio.resample import resample
from voiceseq.cli import main
from voiceseq.cli.main import COMMANDS

NO_DEVICES = """
class default: device = [-1, -1]
query_devices = query_hostapis = lambda: []
"""
VOICESEQ = [sys.executable, str(ROOT / "tests" / "tones.py"), "listen"]
SOUND = sound(3.0, (0.5, "low"), (1.3, "high"), (2.1, "low"))
TIMES = [0.54, 1.32, 2.13]


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("listen")
    tone_bundle(folder / "tones")
    tone_bundle(folder / "low", ("low",))
    write_audio(folder / "a.wav", SOUND, RATE)
    return folder


def listen(here, *words: object, model="tones", **options) -> subprocess.CompletedProcess:
    words = (*VOICESEQ, "--model", model, *map(str, words))
    return subprocess.run(words, cwd=here, capture_output=True, check=False, **options)


def events(output: bytes) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


# --- files -----------------------------------------------------------------------------------------------------------


def test_an_event_a_line_with_exactly_the_fields_promised(here):
    ran = listen(here, "--file", "a.wav", "--json")
    assert (ran.returncode, ran.stderr) == (0, b"")
    found = events(ran.stdout)
    assert [list(event) for event in found] == [["file", "word", "time", "score"]] * 3
    assert [event["word"] for event in found] == ["low", "high", "low"]
    assert [event["time"] for event in found] == pytest.approx(TIMES, abs=0.001)
    assert {event["file"] for event in found} == {"a.wav"}


def test_lines_for_people(here):
    ran = listen(here, "--file", "a.wav")
    assert ran.stdout.decode().splitlines()[0] == "a.wav  0.54 s  low  1.00"


@pytest.mark.parametrize(
    ("rate", "channels", "name", "subtype"),
    [
        (8000, 1, "telephone.wav", "ULAW"),
        (11_025, 1, "eight bits.wav", "PCM_U8"),
        (44_100, 2, "stéréo.flac", "PCM_24"),
        (48_000, 6, "-six.wav", "FLOAT"),
        (96_000, 1, "fast.wav", "PCM_32"),
        (48_000, 1, "small.opus", "OPUS"),
    ],
)
def test_every_format_and_rate(here, rate, channels, name, subtype):
    samples = np.repeat(resample(SOUND, RATE, rate)[:, None], channels, axis=1)
    kind = "OGG" if name.endswith("opus") else None
    soundfile.write(here / name, samples, rate, subtype=subtype, format=kind)
    found = events(listen(here, f"--file={name}", "--json").stdout)
    assert [(event["file"], event["word"]) for event in found] == [(name, "low"), (name, "high"), (name, "low")]
    assert [event["time"] for event in found] == pytest.approx(TIMES, abs=0.04)


def test_several_words_and_files_and_a_bad_one_among_them(here):
    (here / "bad.wav").write_text("no sound")
    soundfile.write(here / "none.wav", np.zeros(0), RATE)
    words = ["--model", "low", "--file", "bad.wav", "--file", "a.wav", "--file", "none.wav", "--file", "nowhere.wav"]
    ran = listen(here, *words, "--file", "a.wav", "--json")
    assert ran.returncode == 1
    lines = ran.stderr.decode().splitlines()
    assert [line.startswith("voiceseq: error: ") for line in lines] == [True] * 3
    assert all(name in line for name, line in zip(("bad.wav", "none.wav", "nowhere.wav"), lines, strict=True))
    found = events(ran.stdout)
    assert [event["word"] for event in found] == ["low", "low", "high", "low", "low"] * 2  # both models hear "low"
    assert found[:5] == found[5:]  # one file leaves nothing behind for the next


def test_a_file_with_nan_and_a_cut_off_one_are_warned_of_and_heard(here):
    samples = SOUND.copy()
    samples[100:200] = np.nan
    soundfile.write(here / "nan.wav", samples, RATE, subtype="FLOAT")
    whole = (here / "a.wav").read_bytes()
    (here / "cut.wav").write_bytes(whole[: len(whole) // 2])
    ran = listen(here, "--file", "nan.wav", "--file", "cut.wav", "--json")
    assert ran.returncode == 0
    assert [(event["file"], event["word"]) for event in events(ran.stdout)] == [
        *[("nan.wav", word) for word in ("low", "high", "low")],
        *[("cut.wav", word) for word in ("low", "high")],
    ]
    assert ran.stderr.count(b"warning") == 2


def test_the_threshold(here):
    write_audio(here / "faint.wav", SOUND * np.float32(0.5), RATE)
    assert len(events(listen(here, "--file", "faint.wav", "--json", "--threshold", "0.45").stdout)) == 3
    assert events(listen(here, "--file", "faint.wav", "--json", "--threshold", "0.55").stdout) == []


def test_pcm_on_stdin_in_odd_pieces_as_it_comes(here):
    """Every piece has an odd number of bytes; an event is out before the stream ends."""
    data = (SOUND * 32767).astype("<i2").tobytes()
    words = [*VOICESEQ, "--model", "tones", "--file", "-", "--json"]
    process = subprocess.Popen(words, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for at in range(0, len(data) // 2, 1111):
        process.stdin.write(data[at : at + 1111])
        process.stdin.flush()
    early = json.loads(process.stdout.readline())
    assert (early["file"], early["word"]) == ("-", "low")
    process.stdin.write(data[at + 1111 :])
    process.stdin.close()
    found = [early, *events(process.stdout.read())]
    assert [event["time"] for event in found] == pytest.approx(TIMES, abs=0.001)
    assert (process.wait(), process.stderr.read()) == (0, b"")


def test_pcm_of_another_rate_and_half_a_sample_at_the_end(here):
    data = (resample(SOUND, RATE, 8000) * 32767).astype("<i2").tobytes()
    ran = listen(here, "--file", "-", "--rate", 8000, "--json", input=data + b"x")
    assert [event["time"] for event in events(ran.stdout)] == pytest.approx(TIMES, abs=0.04)
    assert ran.returncode == 0
    assert b"middle of a sample" in ran.stderr


def test_the_picture(here):
    ran = listen(here, "--file", "a.wav", "--plot", "trace.png")
    assert ran.returncode == 0
    assert (here / "trace.png").read_bytes().startswith(b"\x89PNG")
    ran = listen(here, "--file", "a.wav", "--plot", "no/folder/trace.png")
    assert ran.returncode == 1
    assert ran.stderr.count(b"\n") == 1


def test_a_command_for_each_event_in_order(here):
    code = "import sys; open('heard.jsonl', 'a').write(sys.stdin.read())"
    ran = listen(here, "--file", "a.wav", "--json", "--on-detect", f'{sys.executable} -c "{code}"')
    assert ran.returncode == 0, ran.stderr
    assert (here / "heard.jsonl").read_bytes() == ran.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--plot", "x.png"], 2, "one --file"),
        (["--file", "a.wav", "--device", "1"], 2, "one of them"),
        (["--threshold", "2", "--rate", "1"], 2, "--rate 1:"),
        (["--file", "a.wav", "--on-detect", "/no/such/program"], 2, "no program"),
        (["--file", "a.wav", "--model", "nowhere"], 1, "nowhere"),
    ],
)
def test_mistakes_get_one_clear_line(words, code, said, capsys):
    assert main.main(["listen", *words]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_bundle_that_is_no_detector(capsys, monkeypatch):
    monkeypatch.setattr("voiceseq.load", lambda name: "a text")
    assert main.main(["listen", "--file", "a.wav", "--model", "shakespeare"]) == 1
    assert "shakespeare is a str; a wake-word detector was wanted" in capsys.readouterr().err


def test_the_command_is_in_the_table():
    assert COMMANDS["listen"].module == "voiceseq.cli.listen"


@pytest.mark.parametrize("words", [["--json"], ["--list-devices"], ["--plain"]])
@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("raise OSError('PortAudio library not found')", b"apt-get install libportaudio2"),
        ("raise ModuleNotFoundError('sounddevice')", b"pip install 'voiceseq[mic]'"),
        (NO_DEVICES, b"plug one in"),
    ],
)
def test_without_a_microphone_one_line_says_what_to_do(here, tmp_path, words, problem, advice):
    (tmp_path / "sounddevice.py").write_text(problem)
    ran = listen(here, *words, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.count(b"\n") == 1, ran.stderr
    assert advice in ran.stderr


def test_files_need_no_sounddevice(here, tmp_path):
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    ran = listen(here, "--file", "a.wav", "--json", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert len(events(ran.stdout)) == 3


def test_listening_needs_no_torch_and_help_needs_nothing(here):
    code = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split())); sys.path.insert(0, sys.argv[2])\n"
    code += "import tones\nfrom voiceseq.cli.main import main\nsys.exit(main(sys.argv[3:]))"
    heavy = "torch torchaudio librosa pytorch_lightning hydra"
    for hidden, words in (
        (heavy, ["--model", "tones", "--file", "a.wav", "--plot", "without.png"]),
        (heavy, ["--model", "tones", "--list-devices"]),
        (f"{heavy} sounddevice matplotlib", ["--help"]),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", code, hidden, str(ROOT / "tests"), "listen", *words],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "torch" not in ran.stderr, ran.stderr
        assert ran.returncode == 0 or "--list-devices" in words, ran.stderr


# --- the microphone --------------------------------------------------------------------------------------------------


class Live:
    """The command listening to a microphone; its lines as they come."""

    def __init__(self, here, environment, *words: object) -> None:
        self.process = subprocess.Popen(
            [*VOICESEQ, "--model", "tones", "--json", *map(str, words)],
            cwd=here,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out, self.err = queue.Queue(), queue.Queue()
        for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            threading.Thread(target=lambda s=stream, q=lines: [q.put(line) for line in s], daemon=True).start()

    def event(self) -> dict:
        return json.loads(self.out.get(timeout=30))

    def said(self, part: str) -> str:
        """The next line on stderr that has ``part`` in it."""
        while part not in (line := self.err.get(timeout=30)):
            pass
        return line

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("rate", [16_000, None])
def test_live_events_are_those_of_the_file(here, virtual_microphone, rate):  # noqa: F811
    with Live(here, virtual_microphone.environment, *(["--rate", rate] if rate else [])) as live:
        live.said("listening to")
        virtual_microphone.play(here / "a.wav")
        found = [live.event() for _ in range(3)]
        assert live.stop() == 130
        assert live.out.empty()
        assert live.said("") == "voiceseq: stopped\n"
    assert [event["word"] for event in found] == ["low", "high", "low"]
    start = found[0]["time"] - TIMES[0]
    assert start > -0.031  # frames are 30 ms; a sound server may begin with the sound
    assert [event["time"] - start for event in found] == pytest.approx(TIMES, abs=0.031)


RECORD = """
import sys, time, json
sys.path.insert(0, sys.argv[1])
import numpy as np
from tones import ToneDetector
from voiceseq.apps.listen.session import Session
from voiceseq.audio.microphone import Block, Microphone
live, pieces, end = Session({"t": ToneDetector(("low", "high"))}), [], time.monotonic() + float(sys.argv[2])
found = []
with Microphone() as microphone:
    print("ready", flush=True)
    while time.monotonic() < end:
        if block := microphone.read():
            pieces.append(block.samples)
            found += live.hear(block)
found += live.finish()
rate = block.sample_rate
offline = Session({"t": ToneDetector(("low", "high"))})
again = offline.hear(Block(np.concatenate(pieces), rate, 0.0)) + offline.finish()
print(json.dumps([[one.as_json() for one in events] for events in (found, again)] + [microphone.lost_s, rate]))
"""


def test_what_was_heard_live_is_what_the_same_samples_give_offline(virtual_microphone, here):  # noqa: F811
    words = [sys.executable, "-c", RECORD, str(ROOT / "tests"), "6"]
    process = subprocess.Popen(words, env=virtual_microphone.environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    virtual_microphone.play(here / "a.wav")
    live, offline, lost, rate = json.loads(process.communicate(timeout=60)[0])
    assert live == offline
    assert [event["word"] for event in live] == ["low", "high", "low"]
    assert (lost, rate) == (0.0, 44_100)


def test_an_unplugged_microphone_is_told_and_used_again_when_it_is_back(here, virtual_microphone):  # noqa: F811
    with Live(here, virtual_microphone.environment) as live:
        live.said("listening to")
        virtual_microphone.play(here / "a.wav")
        before = [live.event() for _ in range(3)][-1]
        clock = time.monotonic()
        virtual_microphone.unplug()
        assert live.said("is gone") == "voiceseq: default, ALSA is gone; waiting for it to come back\n"
        live.said("no microphone found")
        virtual_microphone.plug()
        live.said("the microphone is back")
        assert "s of sound were lost" in live.said("lost")
        virtual_microphone.play(here / "a.wav")
        after = live.event()
        passed = time.monotonic() - clock
        assert after["word"] == "low"
        assert 1.0 < after["time"] - before["time"] < passed + 6.0  # the time without a microphone counts
        assert live.stop() == 130
        assert live.said("") == "voiceseq: stopped\n"  # and nothing of what PortAudio and ALSA had to say


@pytest.mark.slow
def test_a_frozen_sound_server_does_not_hang_us(here, virtual_microphone):  # noqa: F811
    with Live(here, virtual_microphone.environment) as live:
        live.said("listening to")
        virtual_microphone.freeze(True)
        live.said("is gone")
        live.said("does not answer")
        virtual_microphone.freeze(False)
        live.said("is back")
        virtual_microphone.play(here / "a.wav")
        assert live.event()["word"] == "low"


def test_the_microphones_are_listed(here, virtual_microphone):  # noqa: F811
    ran = listen(here, "--list-devices", env=virtual_microphone.environment)
    assert ran.returncode == 0
    assert any(line.endswith("default") for line in ran.stdout.decode().splitlines())
    assert b"ALSA" in ran.stdout
    found = events(listen(here, "--list-devices", "--json", env=virtual_microphone.environment).stdout)
    assert sum(device["default"] for device in found) == 1
    ran = listen(here, "--device", "no such", env=virtual_microphone.environment)
    assert ran.returncode == 1
    assert b"there are: " in ran.stderr
