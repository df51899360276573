"""The listening app without a microphone: the session, the screen's text, keys, saving, the user's command."""

import errno
import json
import os
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from tones import RATE, ToneDetector, sound
from voiceseq.apps.listen import saving, view
from voiceseq.apps.listen.app import Listening, clock
from voiceseq.apps.listen.hook import Hook, split_command
from voiceseq.apps.listen.saving import Saver, folder_name
from voiceseq.apps.listen.session import KEEP_S, Session

from voiceseq.audio.files import read_audio
from voiceseq.audio.microphone import Block, InputDevice
from voiceseq.audio.resample import resample
from voiceseq.datasets.manifest import read_manifest
from voiceseq.errors import AudioError, ConfigError, InputError
from voiceseq.inference.detector import Decision, Detector
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork


def blocks(samples, rate=RATE, size_s=0.06, start=0.0):
    size = round(size_s * rate)
    for at in range(0, len(samples), size):
        yield Block(samples[at : at + size], rate, start + at / rate)


def two_words(**settings) -> Session:
    return Session({"tones": ToneDetector(("low", "high"))}, **settings)


def heard(session, samples, rate=RATE, size_s=0.06):
    found = [one for block in blocks(samples, rate, size_s) for one in session.hear(block)]
    return [(one.word, one.time, round(one.score, 6)) for one in [*found, *session.finish()]]


SOUND = sound(6.0, (1.0, "low"), (2.5, "high"), (4.0, "low"))


# --- the session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
def test_blocks_of_any_size_and_rate_give_the_same_events(rate):
    samples = resample(SOUND, RATE, rate)
    whole = heard(two_words(), samples, rate, 6.0)
    assert [word for word, _, _ in whole] == ["low", "high", "low"]
    assert [at for _, at, _ in whole] == pytest.approx([1.03, 2.53, 4.03], abs=0.04)
    assert heard(two_words(), samples, rate, 0.06) == whole
    assert heard(two_words(), samples, rate, 0.0111) == whole


def test_several_models_at_once_give_the_events_of_each():
    session = Session({"a": ToneDetector(("low",)), "b": ToneDetector(("high",))})
    assert heard(session, SOUND) == heard(two_words(), SOUND)
    assert [one.model for one in session.detections] == ["a", "b", "a"]
    assert [row.word for row in session.rows] == ["low", "high"]


def test_a_threshold_of_the_bundle_is_left_as_it_is():
    detector = ToneDetector(("low",))
    detector.thresholds = [0.9975]
    assert Session({"tones": detector}).rows[0].threshold == 0.9975


def test_the_real_detector_live_is_the_real_detector_offline():
    """Two bundles share one backbone here; each word fires as it does by itself on the whole recording."""
    torch.manual_seed(1)
    words = ("one", "two")
    networks = [TriggerNetwork(TriggerConfig(words=(word,))).eval() for word in words]
    networks[1].front.load_state_dict(networks[0].front.state_dict())
    rate = 44_100
    samples = np.random.default_rng(2).normal(0, 0.1, 4 * rate).astype(np.float32)
    detectors, alone = {}, []
    for word, network in zip(words, networks, strict=True):
        _, scores = Detector.from_network(network, {word: Decision()}).scores(samples, rate)
        decision = Decision(threshold=float(np.quantile(scores, 0.7)), refractory_s=0.3)
        detectors[f"{word}.zip"] = Detector.from_network(network, {word: decision})
        alone += detectors[f"{word}.zip"].detect(samples, rate)
    session = Session(detectors)
    assert len(session.ears) == 1
    found = heard(session, samples, rate)
    assert sorted(found, key=lambda one: (one[1], one[0])) == sorted(
        [(event.word, event.time, round(event.score, 6)) for event in alone], key=lambda one: (one[1], one[0])
    )
    assert {one[0] for one in found} == set(words)
    assert {(one.word, one.model) for one in session.detections} == {("one", "one.zip"), ("two", "two.zip")}
    doubled = Session({"a": detectors["one.zip"], "b": detectors["one.zip"]})
    assert [(row.word, row.model) for row in doubled.rows] == [("one", "a"), ("one", "b")]


def test_after_a_gap_detectors_start_afresh_and_times_go_on():
    session = two_words()
    first = list(blocks(SOUND[: RATE + 100]))
    for block in first:
        session.hear(block)
    tone = SOUND[RATE : 2 * RATE]
    (found,) = session.hear(Block(tone, RATE, 100.0, gap_s=99.0))
    alone = heard(two_words(), tone)
    assert (found.word, found.time) == ("low", 100.0 + alone[0][1])
    assert len(session.last_seconds()) == len(tone)  # what is saved has no gap in it
    assert session.time == 101.0


def test_another_rate_starts_afresh_too():
    session = two_words()
    session.hear(Block(SOUND[:1000], RATE, 0.0))
    (found,) = session.hear(Block(resample(SOUND[RATE : 2 * RATE], RATE, 48_000), 48_000, 50.0, gap_s=1.0))
    assert found.time == pytest.approx(50.03, abs=0.04)


def test_the_threshold_for_all_words_and_for_one():
    assert heard(two_words(threshold=0.99), SOUND * np.float32(0.7)) == []
    session = two_words()
    session.rows[0].threshold = 0.99
    assert [word for word, _, _ in heard(session, SOUND * np.float32(0.7))] == ["high"]
    with pytest.raises(InputError, match="threshold is 1"):
        two_words(threshold=1)


def test_the_last_seconds_are_bounded_and_exact():
    session = two_words()
    samples = np.arange(30 * 1000, dtype=np.float32)
    for block in blocks(samples, 1000, 0.37):
        session.hear(block)
    assert session.last_seconds().tolist() == samples[-round(KEEP_S * 1000) :].tolist()
    assert sum(map(len, session._kept)) < (KEEP_S + 1) * 1000


# --- saving ----------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_a_manifest_of_wavs(tmp_path):
    saver = Saver(tmp_path / "saved")
    one = saver.save("missed", SOUND, RATE, word="Hey, Luna!", time=3.5, score=0.2)
    saver.save("false-alarm", SOUND[:RATE], RATE, word="alexa", time=9.0, score=0.9)
    assert one.parent == tmp_path / "saved" / "missed" / "hey-luna"
    assert read_audio(one).samples == pytest.approx(SOUND, abs=1e-4)
    first, second = read_manifest(tmp_path / "saved" / "saved.jsonl")
    assert (first.audio, first.duration, first.extra["kind"]) == (one, 6.0, "missed")
    assert (second.extra["word"], second.extra["score"]) == ("alexa", 0.9)
    assert saver.count == 2


@pytest.mark.parametrize(
    ("word", "name"), [("../../etc", "etc"), ("smart mirror", "smart-mirror"), ("дом", "дом"), ("?!", "word")]
)
def test_folders_have_safe_names(word, name):
    assert folder_name(word) == name


def test_the_cap_is_kept(tmp_path):
    saver = Saver(tmp_path, cap_mb=0.3)
    saver.save("missed", SOUND, RATE, word="low")
    with pytest.raises(AudioError, match="raise --save-cap"):
        saver.save("missed", SOUND, RATE, word="low")
    assert len(list(tmp_path.rglob("*.wav"))) == len(read_manifest(tmp_path / "saved.jsonl")) == 1


def test_a_disk_that_fills_up_leaves_neither_half_a_row_nor_a_clip_without_one(tmp_path, monkeypatch):
    saver = Saver(tmp_path)
    saver.save("missed", SOUND, RATE, word="low")
    before = (tmp_path / "saved.jsonl").read_bytes()

    class Raw:
        """An unbuffered file whose disk has room for nine more bytes."""

        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            return self.file.write(data[:9])

    really_open = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, *words, **options: Raw(really_open(path, *words, **options)))
        with pytest.raises(OSError) as error:
            saving.append_line(tmp_path / "saved.jsonl", "x" * 100)
    assert error.value.errno == errno.ENOSPC
    assert (tmp_path / "saved.jsonl").read_bytes() == before

    monkeypatch.setattr(saving, "append_line", lambda *words: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(AudioError, match="cannot be written: full"):
        saver.save("missed", SOUND, RATE, word="low")
    assert len(list(tmp_path.rglob("*.wav"))) == 1
    assert saver.count == 1


# --- the user's command ----------------------------------------------------------------------------------------------

COPY = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read())"


def python(code: str, *words: object) -> str:
    import shlex

    return shlex.join([sys.executable, "-c", code, *map(str, words)])


def test_the_command_gets_the_event_on_stdin_and_no_shell(tmp_path):
    said = []
    target = tmp_path / "$(touch x); out"
    hook = Hook(python(COPY, target), said.append)
    assert hook.fire({"word": "`low`", "time": 1.5, "score": 0.9})
    hook.wait()
    assert json.loads(target.read_text()) == {"word": "`low`", "time": 1.5, "score": 0.9}
    assert said == []


def test_one_command_at_a_time():
    said = []
    hook = Hook(python("import sys; sys.stdin.read(); import time; time.sleep(60)"), said.append, limit_s=60)
    hook.fire({"word": "low", "time": 1.0})
    assert not hook.fire({"word": "low", "time": 2.0})
    assert "still running" in said[0]
    hook.stop()
    assert not hook.running


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path):
    said = []
    child = "import os, time, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[2]])"
    hook = Hook(python(parent, child, tmp_path / "pid"), said.append, limit_s=3.0)
    hook.fire({"word": "low", "time": 1.0})
    hook.wait()
    assert "took longer than 3 s" in said[0]
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):  # init may take a moment to clear it away
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())


def test_a_command_that_fails_or_reads_nothing_is_told_and_harmless():
    said = []
    hook = Hook(python("import sys; sys.exit(3)"), said.append)
    hook.fire({"word": "x" * 200_000, "time": 0.0})
    hook.wait()
    assert said == [f"{sys.executable} ended with 3"]


@pytest.mark.parametrize(("command", "said"), [("", "empty"), ("'a", "quot"), ("/no/such/thing x", "no program")])
def test_commands_that_cannot_be(command, said):
    with pytest.raises(ConfigError, match=said):
        split_command(command)


# --- the app: notices and keys ---------------------------------------------------------------------------------------


class FakeMicrophone:
    """Gives the blocks of the test, then nothing."""

    def __init__(self, given=()) -> None:
        self.blocks = deque(given)
        self.info = InputDevice(0, "Fake", "ALSA", 1, RATE, True)
        self.sample_rate, self.trouble, self.lost_s, self.overruns = RATE, None, 0.0, 0
        self.opened = True

    def read(self, timeout_s):
        return self.blocks.popleft() if self.blocks else None

    def open(self):
        self.opened = True

    def close(self):
        self.opened = False


@pytest.fixture
def app(tmp_path):
    said = []
    app = Listening(FakeMicrophone(blocks(SOUND)), two_words(), Saver(tmp_path / "saved"), say=said.append)
    app.said = said
    return app


def run(app) -> list:
    found = []
    while app.microphone.blocks:
        found += app.step(0)
    return found


def test_what_is_lost_gone_muted_or_overrun_is_said(app):
    app.microphone.blocks = deque([Block(np.zeros(100, np.float32), RATE, 3.0, gap_s=2.5, lost_s=2.5)])
    app.step()
    assert "2.50 s of sound were lost before 0:00:03.00" in app.said[-1]
    app.microphone.trouble = "Fake is gone"
    app.step()
    app.step()
    app.microphone.trouble = None
    app.step()
    assert app.said[-2:] == ["Fake is gone", "the microphone is back"]
    app.microphone.overruns = 2
    app.microphone.blocks = deque(blocks(np.zeros(4 * RATE, np.float32)))
    run(app)
    assert "overrun" in app.said[-2]
    assert "muted" in app.said[-1]
    assert len(app.said) == 5


def test_a_block_of_nan_does_not_deafen(app):
    app.microphone.blocks.insert(3, Block(np.full(960, np.nan, np.float32), RATE, 0.18))
    assert [one.word for one in run(app)] == ["low", "high", "low"]


def test_the_keys(app):
    run(app)
    app.press("next")
    assert app.session.rows[app.selected].word == "high"
    app.press("m")
    app.press("f")
    missed, alarm = read_manifest(app.saver.folder / "saved.jsonl")
    assert (missed.extra["kind"], missed.extra["word"], missed.extra["time"]) == ("missed", "high", 6.0)
    assert (alarm.extra["kind"], alarm.extra["word"], alarm.extra["model"]) == ("false-alarm", "low", "tones")
    assert alarm.extra["time"] == alarm.extra["at"] == pytest.approx(4.02)
    app.press("+")
    assert [row.threshold for row in app.session.rows] == pytest.approx([0.5, 0.562], abs=0.001)
    app.press("-")
    assert app.session.rows[1].threshold == pytest.approx(0.5)
    for key in "-+":
        for _ in range(99):
            app.press(key)
        assert 0 < app.session.rows[1].threshold < 1
        assert app.session.rows[1].threshold == pytest.approx({"-": 0.001, "+": 0.999}[key], abs=1e-4)
    app.press(" ")
    assert (app.paused, app.microphone.opened) == (True, False)
    app.press(" ")
    assert (app.paused, app.microphone.opened) == (False, True)
    app.press("x")
    app.press("")
    assert not app.done
    app.press("q")
    assert app.done


def test_a_false_alarm_wants_a_detection_that_is_still_in_memory(app):
    app.press("f")
    assert "nothing was detected" in app.message
    app.press("m")
    assert "nothing to save" in app.message
    run(app)
    app.microphone.blocks = deque(blocks(np.zeros(round(KEEP_S) * RATE, np.float32), start=6.0))
    run(app)
    app.press("f")
    assert "nothing was detected" in app.message
    assert not app.saver.folder.exists()


def test_a_full_disk_while_saving_is_one_message_and_listening_goes_on(app, monkeypatch):
    def full(*words):
        raise AudioError("saved/x.wav cannot be written: No space left on device; 0 MB are free in saved")

    monkeypatch.setattr(saving, "write_audio", full)
    app.step()
    app.press("m")
    assert app.said == ["not saved: saved/x.wav cannot be written: No space left on device; 0 MB are free in saved"]
    assert [one.word for one in run(app)] == ["low", "high", "low"]


def test_the_hook_fires_for_each_detection(app):
    fired = []
    app.hook = type("", (), {"fire": staticmethod(fired.append)})
    run(app)
    assert [event["word"] for event in fired] == ["low", "high", "low"]
    assert set(fired[0]) == {"word", "time", "score"}


def test_clock():
    assert [clock(0), clock(59.999), clock(3723.456)] == ["0:00:00.00", "0:01:00.00", "1:02:03.46"]


# --- the screen's text -----------------------------------------------------------------------------------------------


def text(app, width=90, height=30, glyphs=view.FINE) -> list[str]:
    return ["".join(piece for piece, _ in line) for line in view.draw(app, width, height, glyphs)]


def test_the_screen_shows_device_level_figures_traces_detections_and_keys(app):
    run(app)
    app.microphone.lost_s = 1.25
    app.saver.folder = Path("saved")
    lines = text(app)
    assert len(lines) == 30
    assert lines[0].startswith("voiceseq listen   Fake, ALSA, 16000 Hz")
    assert lines[0].endswith("0:00:06.00")
    assert "dB" in lines[1]
    assert "lost 1.2 s" in lines[2]
    assert "saved 0 in saved/" in lines[2]
    low = next(i for i, line in enumerate(lines) if line.startswith("▶ low"))
    assert lines[low].count("▼") == 2
    assert "threshold  0.500" in lines[low + 1]
    times = [line.split()[0] for line in lines if line.startswith("  0:00")]
    assert times == ["0:00:04.02", "0:00:02.52", "0:00:01.02"]
    assert lines[-1] == view.KEYS


def test_the_trace_moves_by_whole_columns_and_keeps_its_shape(app):
    """What was a column stays a column: the picture at a later time is the earlier one moved to the left."""
    row = app.session.rows[0]
    run(app)
    late = view.recent(row, 40)
    frames = row.frames
    app.microphone.blocks = deque(blocks(np.zeros(RATE * view.FRAMES * 3 * 3 // 100, np.float32), start=6.0))
    run(app)
    moved = (row.frames - 1) // view.FRAMES - (frames - 1) // view.FRAMES
    assert moved > 0
    assert view.recent(row, 40)[: 39 - moved] == late[moved:39]


def test_the_threshold_line_moves_with_the_threshold(app):
    def line_at(threshold):
        app.session.rows[0].threshold = threshold
        return next(i for i, line in enumerate(text(app)[5:13]) if "────" in line)

    assert line_at(0.95) == 0
    assert line_at(0.5) == 3
    assert line_at(0.05) == 7


def test_trouble_stands_on_the_screen_as_long_as_it_lasts(app):
    app.microphone.trouble = "Fake is gone; waiting for it to come back"
    assert text(app)[3] == app.microphone.trouble
    assert view.draw(app, 90, 30)[3][0][1] == "bad"


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (20, 5), (80, 24), (40, 10), (300, 100)])
def test_any_size_of_terminal(app, size, words):
    run(app)
    app.session.rows = app.session.rows[:words] * (words * 9 - 8)  # 1 or 20 words
    app.selected = len(app.session.rows) - 1
    for glyphs in (view.FINE, view.PLAIN):
        lines = text(app, *size, glyphs)
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
    assert all(ord(letter) < 128 for line in lines for letter in line)


def test_control_characters_do_not_reach_the_terminal(app):
    app.microphone.info = InputDevice(0, "Evil\x1b[2J\nMic", "ALSA", 1, RATE, True)
    assert all(letter.isprintable() for line in text(app) for letter in line)
