"""`voiceseq wakeword` as it is typed: record at a terminal, make a bundle of next to nothing, make it again."""

import errno
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from places import ROOT
from small_ground import RATE, TINY, Speller, Whistlers, make_ground, only, whistle
from virtual_microphone import virtual_microphone  # noqa: F401

import voiceseq
from voiceseq.audio.files import audio_info, write_audio
from voiceseq.audio.microphone import Block
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.cli import wakeword_new, wakeword_record
from voiceseq.cli.main import COMMANDS, main
from voiceseq.datasets.manifest import read_manifest
from voiceseq.datasets.recordings import find_utterance
from voiceseq.errors import InputError
from voiceseq.evaluation.streams import streams

PHRASE = "hey luna"


def test_the_command_is_in_the_table_and_helps(capsys):
    assert COMMANDS["wakeword"].module == "voiceseq.cli.wakeword"
    for action in ("new", "record", "retrain", "tune", "bank"):
        assert main(["wakeword", action, "--help"]) == 0
        assert f"example: voiceseq wakeword {action}" in capsys.readouterr().out


# --- record ----------------------------------------------------------------------------------------------------------


class FakeMicrophone:
    """Hears the phrase once a take, 0.5 s after the countdown; ``takes`` says how loud."""

    sample_rate, trouble = 48_000, None
    takes: ClassVar[list[float]] = []
    opened = 0

    def __init__(self, device=None) -> None:
        self.queue = [Block(np.ones(4800, "f"), 48_000, 0.0)]  # what was heard during the countdown
        self.level = self.takes[min(FakeMicrophone.opened, len(self.takes) - 1)]
        FakeMicrophone.opened += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def read(self, timeout_s=0.2):
        if self.queue:
            return self.queue.pop(0)
        if timeout_s == 0:
            said = np.repeat(whistle("heyluna"), 3) * np.float32(self.level)
            quiet = np.random.default_rng(1).normal(0, 1e-4, 24_000).astype("f")
            sound = np.concatenate([quiet, said, *[quiet] * 8])
            self.queue = [Block(part, 48_000, 0.1) for part in np.array_split(sound, 40)]
            return None
        self.trouble = "gone"
        return None


@pytest.fixture
def desk(monkeypatch):
    """A terminal at which the given lines are typed, a microphone, and what was played."""
    played: list[float] = []
    FakeMicrophone.opened, FakeMicrophone.takes = 0, [0.5]
    monkeypatch.setattr("voiceseq.audio.microphone.Microphone", FakeMicrophone)
    monkeypatch.setattr("voiceseq.audio.microphone.find_device", lambda device: None)
    monkeypatch.setattr("voiceseq.audio.playback.play", lambda samples, rate: played.append(len(samples) / rate))
    monkeypatch.setattr(wakeword_record, "BEAT_S", 0.0)

    def type_in(*lines: str) -> None:
        waiting = [f"{line}\n" for line in lines]
        terminal = SimpleNamespace(isatty=lambda: True, readline=lambda: waiting.pop(0) if waiting else "")
        monkeypatch.setattr(sys, "stdin", terminal)

    return SimpleNamespace(type=type_in, played=played)


def record(out: Path, *words: object) -> int:
    return main(["wakeword", "record", PHRASE, "--out", str(out), "--seconds", "2", *map(str, words)])


def test_takes_are_kept_with_the_word_in_its_place(desk, tmp_path, capsys):
    desk.type("", "")
    assert record(tmp_path / "own", "--count", 2, "--speaker", "Ann B.") == 0
    said = capsys.readouterr()
    assert "normal voice" in said.err
    assert "louder" in said.err
    assert "--recordings" in said.out
    rows = read_manifest(tmp_path / "own" / "manifest.jsonl")
    assert [row.audio.name for row in rows] == ["hey-luna-001.wav", "hey-luna-002.wav"]
    assert {(row.speaker, row.text, row.extra["word"]) for row in rows} == {("Ann B.", PHRASE, PHRASE)}
    for row in rows:
        assert (row.extra["word_start"], row.extra["word_end"]) == pytest.approx((0.5, 0.85), abs=0.04)
        info = audio_info(row.audio)
        assert (info.sample_rate, info.channels, info.duration_s) == (48_000, 1, 2.0)
        assert find_utterance(row, 0).end_s == row.extra["word_end"]
    assert desk.played == [2.0, 2.0]


def test_again_skip_quit_and_the_end_of_the_input(desk, tmp_path, capsys):
    desk.type("a", "what?", "", "s", "q")
    assert record(tmp_path, "--count", 5, "--no-playback", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"folder": str(tmp_path), "takes": 1, "recordings": 1}
    assert FakeMicrophone.opened == 4
    assert "softly" in said.err  # after the skipped one
    assert desk.played == []
    desk.type()
    assert record(tmp_path, "--count", 5) == 0
    assert len(read_manifest(tmp_path / "manifest.jsonl")) == 1


def test_a_second_run_goes_on_and_other_speakers_and_deleted_takes_are_counted_apart(desk, tmp_path, capsys):
    desk.type("", "")
    record(tmp_path, "--count", 2)
    desk.type("", "")
    record(tmp_path, "--count", 3)
    assert "2 takes by me are there already; 1 to go" in capsys.readouterr().err
    desk.type("")
    record(tmp_path, "--count", 1, "--speaker", "bob")
    assert [row.id for row in read_manifest(tmp_path / "manifest.jsonl")] == [
        *[f"me/hey-luna-{number:03}" for number in (1, 2, 3)],
        "bob/hey-luna-001",
    ]
    (tmp_path / "me" / "hey-luna-002.wav").unlink()
    desk.type("")
    record(tmp_path, "--count", 3)
    assert len(read_manifest(tmp_path / "manifest.jsonl")) == 4
    opened = FakeMicrophone.opened
    assert record(tmp_path, "--count", 3) == 0  # nothing to do, nobody is asked
    assert FakeMicrophone.opened == opened


def test_faults_are_told(desk, tmp_path, capsys):
    FakeMicrophone.takes = [0.0, 0.006, 5.0]
    desk.type("s", "s", "q")
    record(tmp_path)
    said = capsys.readouterr().err
    assert [text in said for text in ("nothing was said", "too quiet", "clipped")] == [True] * 3


def test_a_full_disk_leaves_nothing_half_written(desk, tmp_path, capsys, monkeypatch):
    desk.type("", "")
    record(tmp_path, "--count", 1)
    before = (tmp_path / "manifest.jsonl").read_bytes()

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    capsys.readouterr()
    real = os.replace
    for fails in ("hey-luna-002.wav", "manifest.jsonl"):
        monkeypatch.setattr(os, "replace", lambda a, b, f=fails: full() if Path(b).name == f else real(a, b))
        desk.type("")
        assert record(tmp_path, "--count", 2) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("voiceseq: error")]
        assert "No space left" in line
    assert (tmp_path / "manifest.jsonl").read_bytes() == before
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["hey-luna-001.wav", "manifest.jsonl"]


def test_ctrl_c_leaves_what_was_kept(desk, tmp_path, capsys, monkeypatch):
    desk.type("")
    monkeypatch.setattr(wakeword_record, "show", lambda found, lost: None if FakeMicrophone.opened == 1 else stop())

    def stop():
        raise KeyboardInterrupt

    assert record(tmp_path) == 130
    said = capsys.readouterr().err
    assert "1 of 10 takes" in said
    assert said.endswith("voiceseq: stopped\n")
    assert len(read_manifest(tmp_path / "manifest.jsonl")) == 1


def test_a_microphone_that_goes_away_is_one_line(desk, tmp_path, capsys, monkeypatch):
    desk.type("")
    assert record(tmp_path, "--seconds", 9) == 1
    assert "the microphone is gone" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["record", "...", "--out", "x"], 1, "nothing that can be said"),
        (["record", PHRASE, "--out", "x", "--count", "0", "--seconds", "99", "--speaker", " "], 2, "--seconds 99"),
        (["record", PHRASE, "--out", "x"], 2, "run it in a terminal"),
        (["retrain", "no-such-bundle"], 1, "no-such-bundle"),
        (["tune", "dates", "--negatives", "x.jsonl", "--out", "x"], 1, "a wake word was wanted"),
        (["tune", "computer", "--negatives", "x.jsonl", "--out", "x"], 1, "x.jsonl"),
        (["tune", "computer", "--negatives", "x.jsonl", "--alarms-per-hour", "0", "--out", "x"], 2, "more than 0"),
        (["record", PHRASE], 2, "--out"),
    ],
)
def test_mistakes_get_a_clear_line(words, code, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["wakeword", *words]) == code
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("raise OSError('PortAudio library not found')", b"apt-get install libportaudio2"),
        ("raise ModuleNotFoundError('sounddevice')", b"pip install 'voiceseq[mic]'"),
    ],
)
def test_without_a_microphone_one_line_says_what_to_install(tmp_path, problem, advice):
    (tmp_path / "sounddevice.py").write_text(problem)
    ran = at_terminal(tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)}, [])
    assert ran.code == 1
    assert advice in ran.said
    assert not (tmp_path / "own").exists()


def at_terminal(folder: Path, environment: dict, steps: list, *words: object) -> SimpleNamespace:
    """The real command at a real (pseudo) terminal; ``steps`` are (what to wait for, what to do then)."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "voiceseq", "wakeword", "record", PHRASE, "--out", "own", *map(str, words)]
    process = subprocess.Popen(line, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, steps, end = b"", list(steps), time.monotonic() + 90
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                data = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            said += data
            if steps and steps[0][0] in said.rpartition(b"\ntake ")[2]:
                steps.pop(0)[1](ours, process)
        return SimpleNamespace(code=process.wait(timeout=20), said=said)
    finally:
        process.kill()
        os.close(ours)


def test_at_a_terminal_with_the_virtual_microphone(tmp_path, virtual_microphone):  # noqa: F811
    """The true path: sounddevice hears the phrase, it is kept, Ctrl-C ends the second take."""
    sound = np.concatenate([np.zeros(RATE // 2, "f"), whistle("heyluna") * 0.5, np.zeros(RATE // 10, "f")])
    write_audio(tmp_path / "said.wav", sound, RATE)
    steps = [
        (b"now!", lambda terminal, process: virtual_microphone.play(tmp_path / "said.wav")),
        (b"quit:", lambda terminal, process: os.write(terminal, b"\n")),
        (b"2 of 3", lambda terminal, process: process.send_signal(signal.SIGINT)),
    ]
    ran = at_terminal(tmp_path, virtual_microphone.environment, steps, "--count", 3, "--seconds", 4, "--no-playback")
    assert ran.code == 130, ran.said
    assert b"1 of 3 takes" in ran.said
    (row,) = read_manifest(tmp_path / "own" / "manifest.jsonl")
    assert row.duration == 4.0
    assert row.extra["word_end"] - row.extra["word_start"] == pytest.approx(0.35, abs=0.06)


# --- new and retrain -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ground(tmp_path_factory) -> tuple[str, str]:
    return make_ground(tmp_path_factory.mktemp("ground"))


@pytest.fixture
def workshop(ground, tmp_path, monkeypatch):
    """Where `new` and `retrain` work with next to nothing."""
    engine, load = Whistlers(), voiceseq.load
    only(monkeypatch, engine)
    monkeypatch.setattr(voiceseq, "load", lambda name: Speller() if name == "pronounce-en" else load(name))
    monkeypatch.chdir(tmp_path)
    made = ["--backbone", ground[0], "--bank", ground[1], "--workers", "1"]
    return SimpleNamespace(engine=engine, folder=tmp_path, words=made)


def tiny(alarms_per_hour, workers, learning):
    return replace(TINY, alarms_per_hour=alarms_per_hour, workers=workers)


def test_a_phrase_becomes_a_bundle_that_listens(workshop, capsys, monkeypatch):
    with monkeypatch.context() as patched:  # retraining then reads the recipe from the bundle
        patched.setattr("voiceseq.wakeword.making.Recipe", tiny)
        assert main(["wakeword", "new", PHRASE, *workshop.words, "--json"]) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    assert told["bundle"] == "hey-luna"
    bundle = load_bundle(workshop.folder / "hey-luna")
    assert (bundle.kind, bundle.config["words"]) == ("trigger", [PHRASE])
    assert bundle.training["recipe"]["amounts"]["alone"] == 10
    assert {"clips said by whistle"} <= {row["name"] for row in bundle.training["data"]}
    detector = voiceseq.load("hey-luna")
    assert detector.words == (PHRASE,)
    assert detector.detect(np.zeros(10 * RATE, "f")) == []
    stream = detector.stream(48_000)
    assert stream.feed(np.zeros(48_000, "f")) + stream.finish() == []
    said = workshop.engine.said
    assert said > 15

    # and again, with what was saved meanwhile
    monkey_save(workshop.folder / "saved")
    assert main(["wakeword", "retrain", "hey-luna", *workshop.words]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "of 2 false alarms" in out
    assert "of 1 missed words" in out
    assert "bundle  hey-luna-2" in out
    again = load_bundle(workshop.folder / "hey-luna-2")
    assert again.training["recipe"] == bundle.training["recipe"]
    assert json.loads(again.read("report.json"))["material"]["recorded"] == 1
    assert workshop.engine.said == said  # nothing is said twice
    assert voiceseq.load("hey-luna-2").detect(np.zeros(5 * RATE, "f")) == []
    assert load_bundle("hey-luna").files == bundle.files  # the old one is as it was

    assert main(["wakeword", "retrain", "hey-luna", *workshop.words, "--out", "hey-luna-2"]) == 2
    assert "--replace" in capsys.readouterr().err


def monkey_save(folder: Path) -> None:
    """What the listening app leaves: two false alarms, a missed word, a clip of another word."""
    from voiceseq.apps.listen.saving import FALSE_ALARM, MISSED, Saver

    saver, hiss = Saver(folder), np.random.default_rng(1).normal(0, 1e-3, 3 * RATE).astype("f")
    said = hiss.copy()
    said[RATE : RATE + 5600] += whistle("heyluna") * np.float32(0.5)
    saver.save(FALSE_ALARM, said[::-1].copy(), RATE, word=PHRASE, at=2.0)
    saver.save(FALSE_ALARM, np.tile(said[::-1], 2), RATE, word=PHRASE, at=2.0)
    saver.save(MISSED, said, RATE, word=PHRASE, at=2.5)
    saver.save(MISSED, said, RATE, word="another word", at=2.5)


def trigger(folder: Path, words=(PHRASE,)) -> str:
    return str(save_bundle(folder / "old", kind="trigger", config={"words": list(words)}))


def test_retrain_wants_clips_that_can_be_read(tmp_path, capsys):
    old = trigger(tmp_path)
    assert main(["wakeword", "retrain", old, "--saved", str(tmp_path / "none")]) == 1
    assert "f saves a false alarm" in capsys.readouterr().err
    monkey_save(tmp_path / "saved")
    for name, data in (("bad.wav", b"no sound"), ("empty.wav", b"")):
        (tmp_path / "saved" / "missed" / "hey-luna" / name).write_bytes(data)
    assert main(["wakeword", "retrain", old, "--saved", str(tmp_path / "saved")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 saved clips cannot be used" in line
    assert "bad.wav" in line
    assert "empty.wav" in line
    save_bundle(tmp_path / "text", kind="language-model", config={})
    assert main(["wakeword", "retrain", str(tmp_path / "text")]) == 1
    assert "a wake word was wanted" in capsys.readouterr().err


def test_recordings_are_found_by_manifest_by_folder_or_all(tmp_path):
    sound = whistle("heyluna")
    for place in ("plain/ann/1.wav", "plain/2.wav", "words/hey-luna/1.wav", "words/ok-bob/x/1.wav", "words/2.wav"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        write_audio(tmp_path / place, sound, RATE)
    of = wakeword_new.recordings_of
    assert of(None, [PHRASE]) == {PHRASE: []}
    assert len(of(tmp_path / "plain", [PHRASE])[PHRASE]) == 2
    found = of(tmp_path / "words", [PHRASE, "OK, Bob!"])
    assert {word: [clip.id for clip in clips] for word, clips in found.items()} == {
        PHRASE: ["hey-luna/1.wav"],
        "OK, Bob!": ["ok-bob/x/1.wav"],
    }
    booth = wakeword_record.Booth(tmp_path / "own", PHRASE, "ann")
    booth.keep(sound, RATE, (0.1, 0.3))
    wakeword_record.Booth(tmp_path / "own", "other words", "ann").keep(sound, RATE, None)
    (clip,) = of(tmp_path / "own", [PHRASE])[PHRASE]
    assert (clip.speaker, clip.extra["word_start"]) == ("ann", 0.1)
    with pytest.raises(InputError, match="none of alexa"):
        of(tmp_path / "own", ["alexa"])
    shutil.rmtree(tmp_path / "plain")
    (tmp_path / "plain").mkdir()
    with pytest.raises(InputError, match="holds no audio"):
        of(tmp_path / "plain", [PHRASE])


# --- tune ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_tuned_word_keeps_the_rate_that_was_asked_for(count, tmp_path, capsys):
    rows = [
        {"id": path.stem, "audio": str(path), "duration": audio_info(path).duration_s, "kind": "noise"}
        for path in sorted((ROOT / "data/clips").rglob("*.flac"))
    ]
    (tmp_path / "n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hours = sum(row["duration"] for row in rows) / 3600
    out, clips = tmp_path / "tuned", read_manifest(tmp_path / "n.jsonl")
    words = [
        "--negatives",
        f"noise={tmp_path / 'n.jsonl'}",
        "--alarms-per-hour",
        str((count + 0.5) / hours),
        "--out",
        str(out),
    ]
    assert main(["wakeword", "tune", "computer", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["report"]["computer"]
    tuned, shipped = voiceseq.load(out), voiceseq.load("computer")

    def alarms(detector):
        return sum(len(detector.detect(one.read(), RATE)) for one in streams("noise", clips))

    assert sum(told["false alarms"].values()) == alarms(tuned) == count
    assert load_bundle(out).training["tuned"]["computer"] == told
    probe = np.random.default_rng(1).normal(0, 0.1, RATE).astype("f")  # the shift changes no order of scores
    before, after = shipped.scores(probe, RATE)[1][:, 0], tuned.scores(probe, RATE)[1][:, 0]
    assert np.array_equal(np.argsort(before, kind="stable")[-3:], np.argsort(after, kind="stable")[-3:])
