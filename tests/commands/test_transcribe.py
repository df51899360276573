"""`voiceseq transcribe` as it is typed: files, folders, stdin, all formats, a second run, bad files, live."""

import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from places import ROOT
from spoken_tones import LoudnessActivity, ToneRecogniser, speak, tone_bundle, use_tones

from voiceseq.audio import cutting, decoding
from voiceseq.audio.files import write_audio
from voiceseq.bundles import save_bundle
from voiceseq.cli import main, transcribe_outputs, transcribe_progress
from voiceseq.inference import sounds, transcriber
from voiceseq.inference.speech import SAMPLE_RATE

CUES = "00:00:00.496 --> 00:00:01.056\none two\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "tones"
    tone_bundle(path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, bundle):
    monkeypatch.setattr(transcriber, "RECOGNISERS", dict(transcriber.RECOGNISERS))
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)
    use_tones()
    monkeypatch.chdir(tmp_path)
    write_audio(tmp_path / "a.wav", speak([".5", "one", "two"]), SAMPLE_RATE)
    write_audio(tmp_path / "b.flac", speak(["three", ".9", ".9", "four"]), SAMPLE_RATE)
    return tmp_path


@pytest.fixture
def run(bundle, capsys):
    def type_in(*words: object, model: object = None) -> tuple[int, str, str]:
        code = main.main(["transcribe", "--model", str(model or bundle), *map(str, words)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return type_in


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# --- what comes out --------------------------------------------------------------------------------------------------


def test_a_line_of_json_a_file_with_exactly_the_fields_promised(run):
    code, out, err = run("a.wav", "b.flac", "--format", "json")
    assert (code, err) == (0, "")
    found = rows(out)
    assert [row["file"] for row in found] == ["a.wav", "b.flac"]
    assert list(found[0]) == ["file", "duration", "language", "text", "segments"]
    assert list(found[0]["segments"][0]) == ["start", "end", "text", "confidence", "words"]
    assert list(found[0]["segments"][0]["words"][0]) == ["word", "start", "end", "confidence"]
    assert found[0]["text"] == "one two"
    assert [segment["text"] for segment in found[1]["segments"]] == ["three", "four"]
    assert found[0]["duration"] == pytest.approx(1.1)


def test_text_is_a_line_a_file(run):
    assert run("a.wav", "b.flac") == (0, "one two\nthree four\n", "")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--format", "json", "a.wav"), ["a.json"]),
        (("a.wav", "--format", "json,txt"), ["a.json", "a.txt"]),
        (("--format", "srt", "json", "a.wav", "--threads", "1"), ["a.json", "a.srt"]),
        (("a.wav",), ["a.txt"]),
    ],
)
def test_formats_before_and_after_the_files(run, here, words, wanted):
    code, _, err = run(*words, "--out", "o")
    assert code == 0, err
    assert sorted(path.name for path in (here / "o").glob("[!.]*")) == wanted


def test_every_format_at_once(run, here):
    code, out, err = run("a.wav", "b.flac", "--format", "txt", "srt", "vtt", "tsv", "json", "--out", "o")
    assert (code, out) == (0, "")
    assert re.search(r"2 files, 3\.\d s of sound in .* \(.*x\)", err)
    read = {path.name: path.read_text() for path in (here / "o").iterdir()}
    assert read["b.txt"] == "three\nfour\n"
    assert read["a.vtt"] == f"WEBVTT\n\n{CUES}"
    assert read["a.srt"] == "1\n" + CUES.replace(".", ",")
    assert read["b.srt"].splitlines()[4] == "2"
    assert read["a.tsv"] == "start\tend\ttext\n496\t1056\tone two\n"
    assert json.loads(read["b.json"])["text"] == "three four"


def test_what_cannot_share_stdout(run):
    assert "give --out" in run("a.wav", "--format", "txt", "srt")[2]
    assert run("a.wav", "b.flac", "--format", "srt")[0] == 2
    assert run("a.wav", "--format", "vtt") == (0, f"WEBVTT\n\n{CUES}", "")


def test_folders_are_searched_and_their_shape_is_kept(run, here):
    (here / "in/deep").mkdir(parents=True)
    shutil.copy(here / "a.wav", here / "in/deep/x.WAV")
    shutil.copy(here / "b.flac", here / "in/y.flac")
    (here / "in/notes.txt").write_text("no sound")
    code, out, _ = run("in", "--format", "json")
    assert code == 0
    assert [(row["file"], row["text"]) for row in rows(out)] == [
        ("in/deep/x.WAV", "one two"),
        ("in/y.flac", "three four"),
    ]
    run("in", "--out", "o")
    assert (here / "o/deep/x.txt").read_text() == "one two\n"
    (here / "none").mkdir()
    code, _, err = run("none", "a.wav")
    assert code == 1
    assert "none is a folder without sound files" in err


@pytest.mark.parametrize("suffix", ["mp3", "ogg", "opus", "m4a", "mp4", "webm"])
def test_other_kinds_of_files(run, here, suffix):
    wave = speak(["one", "two", ".9", "three"], rate=44_100)
    if suffix in ("mp3", "ogg"):
        soundfile.write(here / f"c.{suffix}", wave, 44_100)
    else:
        if shutil.which("ffmpeg") is None:
            pytest.skip("no ffmpeg")
        write_audio(here / "c.wav", wave, 44_100)
        video = ["-f", "lavfi", "-i", "color=s=64x64:d=2"] if suffix in ("mp4", "webm") else []
        command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-i", "c.wav", *video, "-shortest", f"c.{suffix}"]
        if subprocess.run(command, cwd=here, check=False).returncode:
            pytest.skip(f"this ffmpeg writes no {suffix}")
    code, out, _ = run(f"c.{suffix}", "--format", "json")
    assert code == 0
    assert rows(out)[0]["text"].startswith("one two")


def test_channels(run, here):
    one, two = speak(["one", "two"]), speak([".3", "four"])
    length = min(len(one), len(two))
    write_audio(here / "c.wav", np.stack([one[:length], two[:length], 0 * one[:length]]), SAMPLE_RATE)
    assert run("c.wav", "--channels", "1")[1] == "four\n"
    found = rows(run("c.wav", "--channels", "separate", "--format", "json")[1])[0]
    assert [(one["channel"], one["text"]) for one in found["segments"]] == [(0, "one two"), (1, "four")]
    code, _, err = run("c.wav", "--channels", "3")
    assert code == 1
    assert "has 3 channels" in err


def test_stdin(run, here, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / "b.flac").read_bytes())))
    code, out, _ = run("-", "--format", "json")
    assert code == 0
    assert (rows(out)[0]["file"], rows(out)[0]["text"]) == ("-", "three four")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, _, err = run("-")
    assert code == 1
    assert "stdin is empty" in err


def test_raw_sound_on_stdin(run, here, monkeypatch):
    data = (speak(["one", "two"], rate=8000) * 32767).astype("<i2").tobytes()
    (here / "raw").write_bytes(data)
    with (here / "raw").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run("-", "--rate", "8000")[1] == "one two\n"


def test_n_best(run):
    found = rows(run("a.wav", "--nbest", "2", "--format", "json")[1])[0]
    assert [one["text"] for one in found["segments"][0]["alternatives"]] == ["one two or 1"]


# --- a second run ----------------------------------------------------------------------------------------------------


def test_a_second_run_skips_what_is_done(run, here, monkeypatch):
    seen = []
    recognise = ToneRecogniser.recognise

    def counted(self, pieces, decoding):
        seen.append(len(pieces))
        return recognise(self, pieces, decoding)

    monkeypatch.setattr(ToneRecogniser, "recognise", counted)
    assert run("a.wav", "b.flac", "--out", "o")[0] == 0
    assert sum(seen) == 3
    seen.clear()
    code, _, err = run("a.wav", "b.flac", "--out", "o")
    assert (code, seen) == (0, [])
    assert "2 of 2 files are done and skipped (--again does them anew)" in err

    def done_again(*words) -> int:
        seen.clear()
        assert run("a.wav", "b.flac", "--out", "o", *words)[0] == 0
        return sum(seen)

    assert done_again("--again") == 3
    assert done_again("--hotwords", "luna") == 3  # other settings
    assert done_again("--hotwords", "luna") == 0
    (here / "o/a.txt").unlink()
    assert done_again("--hotwords", "luna") == 1  # an output is gone
    write_audio(here / "a.wav", speak(["six", "six", "six"]), SAMPLE_RATE)
    assert done_again("--hotwords", "luna") == 1  # another file
    assert (here / "o/a.txt").read_text() == "six six six\n"
    assert done_again("--hotwords", "luna", "--format", "json") == 3  # no such output yet
    with (here / "o" / transcribe_outputs.INDEX).open("a") as file:
        file.write('{"output": "a", "sou')  # cut off by a crash
    assert done_again("--hotwords", "luna", "--format", "json") == 0


def test_a_run_that_is_killed_goes_on_where_it_was(run, here, monkeypatch):
    write = transcribe_outputs.Outputs.write

    def stop(self, item, transcript):
        if item.name == "b.flac":
            raise KeyboardInterrupt
        write(self, item, transcript)

    monkeypatch.setattr(transcribe_outputs.Outputs, "write", stop)
    assert run("a.wav", "b.flac", "--out", "o")[0] == 130
    monkeypatch.setattr(transcribe_outputs.Outputs, "write", write)
    assert "1 of 2 files are done" in run("a.wav", "b.flac", "--out", "o")[2]
    assert (here / "o/b.txt").exists()
    assert not list((here / "o").glob("*.part"))


def test_a_run_that_is_killed_after_its_last_file_leaves_no_plan(run, here, monkeypatch):
    assert run("a.wav", "b.flac", "--out", "whole")[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr(transcribe_outputs.Outputs, "finish", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("a.wav", "b.flac", "--out", "o")[0] == 130
    assert run("a.wav", "b.flac", "--out", "o")[0] == 0
    whole, killed = ((here / folder / transcribe_outputs.INDEX).read_text() for folder in ("whole", "o"))
    assert killed == whole


# --- bad input -------------------------------------------------------------------------------------------------------


def test_one_bad_file_never_stops_a_batch(run, here):
    (here / "text.wav").write_text("no sound")
    (here / "empty.wav").write_bytes(b"")
    write_audio(here / "silent.wav", np.zeros(SAMPLE_RATE, np.float32), SAMPLE_RATE)
    write_audio(here / "one.wav", np.zeros(1, np.float32), SAMPLE_RATE)
    data = (here / "a.wav").read_bytes()
    (here / "cut.wav").write_bytes(data[: len(data) * 3 // 4])
    files = ["text.wav", "a.wav", "empty.wav", "silent.wav", "gone.wav", "one.wav", "cut.wav", "b.flac"]
    code, out, err = run(*files, "--format", "json")
    assert code == 1
    assert [(row["file"], row["text"]) for row in rows(out)] == [
        *(("a.wav", "one two"), ("silent.wav", ""), ("one.wav", ""), ("cut.wav", "one"), ("b.flac", "three four")),
    ]
    lines = err.splitlines()
    assert "warning: silent.wav: digital silence" in err
    assert "cut.wav is cut short" in err
    assert [line for line in lines if "error" in line] == lines[-4:-1]  # at the end
    assert lines[-1] == "voiceseq: 3 files failed"
    assert all(
        any(name in line and "error" in line for line in lines) for name in ("text.wav", "empty.wav", "gone.wav")
    )
    assert "Traceback" not in err


def test_without_ffmpeg_the_message_says_what_to_install(run, here, monkeypatch):
    (here / "c.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(1000))
    monkeypatch.setattr(decoding.shutil, "which", lambda name: None)
    code, out, err = run("c.m4a", "a.wav")
    assert (code, out) == (1, "one two\n")
    assert "c.m4a cannot be read" in err
    assert "install ffmpeg" in err


def test_a_decoder_that_hangs_is_given_up(run, here, monkeypatch):
    hanging = here / "bin"
    hanging.mkdir()
    (hanging / "ffmpeg").write_text("#!/bin/sh\nexec sleep 60\n")
    (hanging / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{hanging}:{os.environ['PATH']}")
    monkeypatch.setattr(decoding, "STALL_S", 0.3)
    monkeypatch.setattr(sounds, "STALL_S", 5.0)
    (here / "c.m4a").write_bytes(b"\0\0\0\x20ftypM4A " + bytes(1000))
    code, out, err = run("c.m4a", "a.wav")
    assert (code, out) == (1, "one two\n")
    assert "c.m4a: ffmpeg hung" in err


def test_outputs_of_the_same_name(run, here):
    write_audio(here / "a.flac", speak(["five"]), SAMPLE_RATE)
    (here / "sub").mkdir()
    shutil.copy(here / "b.flac", here / "sub/b.flac")
    code, _, err = run("a.wav", "a.flac", "b.flac", "sub/b.flac", "./b.flac", "--out", "o")
    assert code == 1
    assert "sub/b.flac: its output o/b.flac.* is that of b.flac too" in err or "is that of ./b.flac too" in err
    names = sorted(path.name for path in (here / "o").glob("*.txt"))
    assert names == ["a.flac.txt", "a.wav.txt", "b.flac.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(run, here):
    (here / "o").mkdir()
    (here / "o").chmod(stat.S_IRUSR | stat.S_IXUSR)
    code, _, err = run("a.wav", "--out", "o")
    assert code == 1
    assert "--out o cannot be written to" in err


def test_an_output_folder_that_cannot_be(run, here):
    (here / "o").write_text("a file")
    code, out, err = run("a.wav", "--out", "o")
    assert (code, out) == (1, "")
    assert "--out o cannot be written to" in err
    assert err.count("\n") == 1


def test_an_output_that_cannot_be_written(run, here):
    (here / "o/a.txt").mkdir(parents=True)
    code, _, err = run("a.wav", "b.flac", "--out", "o")
    assert code == 1
    assert "a.txt cannot be written" in err
    assert (here / "o/b.txt").exists()
    assert not list((here / "o").glob(".*.part"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no files"),
        (("a.wav", "--format", "doc"), "no format 'doc'"),
        (("a.wav", "--decoder", "magic"), "has greedy, beam"),
        (("a.wav", "--lm", "none.arpa"), "no such file"),
        (("a.wav", "--beam", "0"), "--beam 0"),
        (("a.wav", "--beam", "2", "--nbest", "3"), "--nbest 3 wants a --beam as wide"),
        (("a.wav", "--channels", "left"), "--channels left"),
        (("a.wav", "--threads", "0"), "--threads 0"),
        (("a.wav", "--batch-seconds", "-1"), "--batch-seconds -1"),
        (("a.wav", "--rate", "8000"), "raw sound on stdin"),
        (("a.wav", "--again"), "--again wants --out"),
        (("a.wav", "--live"), "--live hears the microphone"),
        (("a.wav", "--device", "1"), "--device is for --live"),
        (("--live", "--format", "srt"), "txt or json"),
        (("-", "-"), "more than once"),
    ],
)
def test_wrong_usage(run, words, said):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_another_kind_of_bundle(run, here):
    save_bundle(here / "x", kind="language-model", config={})
    code, _, err = run("a.wav", model="x")
    assert code == 1
    assert err.startswith("voiceseq: error:")
    code, _, err = run("a.wav", model="nowhere")
    assert code == 1
    assert "nowhere" in err


def test_names_that_are_hard(run, here):
    for name in ("-x.wav", "spaces and 'quotes'.wav", "ünï.wav", "new\nline.wav"):
        shutil.copy(here / "a.wav", here / name)
    code, out, _ = run("--format", "json", "--", "-x.wav", "spaces and 'quotes'.wav", "ünï.wav", "new\nline.wav")
    assert code == 0
    assert [row["file"] for row in rows(out)] == ["-x.wav", "spaces and 'quotes'.wav", "ünï.wav", "new\nline.wav"]


# --- progress and live -----------------------------------------------------------------------------------------------


def test_progress_has_speed_and_time_left(run, here, monkeypatch):
    monkeypatch.setattr(transcribe_progress, "FIRST_S", 0.0)
    monkeypatch.setattr(transcribe_progress, "EVERY_S", {True: 0.0, False: 0.0})
    write_audio(here / "long.wav", speak(["one", "two", ".9", ".9"] * 30), SAMPLE_RATE)
    err = run("a.wav", "long.wav", "b.flac", "--out", "o", "--batch-seconds", "2")[2]
    assert re.search(r"\d of 3 files, [\d.]+ s of sound, [\d.]+x, [\d.]+ s left", err)
    assert re.search(r"3 files, 1:1\d of sound in", err)


def test_live_from_a_file(run):
    code, out, _ = run("--live", "--file", "b.flac", "--format", "json")
    assert code == 0
    found = rows(out)
    assert [row["text"] for row in found if row["kind"] == "final"] == ["three", "four"]
    assert list(found[-1]) == ["kind", "text", "start", "end", "words"]
    assert run("--live", "--file", "b.flac") == (0, "three\nfour\n", "")


def test_live_without_a_microphone(run, monkeypatch):
    from voiceseq.audio import microphone

    monkeypatch.setattr(microphone, "list_devices", list)
    code, _, err = run("--live")
    assert code == 1
    assert "no microphone found" in err


def test_the_real_command(here, bundle):
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests/spoken_tones.py"), "transcribe", "--model", str(bundle), "-"],
        input=(here / "b.flac").read_bytes(), capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, b"three four\n"), ran.stderr
