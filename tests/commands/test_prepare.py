"""``voiceseq prepare`` as it is typed: what it writes, says and returns."""

import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voiceseq.cli.main import main
from voiceseq.cli.prepare import transfer
from voiceseq.datasets.manifest import read_manifest


def sound(path: Path, seconds: float = 0.5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(round(seconds * 8000), dtype="float32"), 8000)
    return path


@pytest.fixture
def recordings(tmp_path) -> Path:
    for speaker in ("anna", "bob", "cleo", "dan"):
        for number in range(3):
            audio = sound(tmp_path / f"recordings/{speaker}/{number}.wav", 0.5 + number / 4)
            audio.with_suffix(".txt").write_text(f"Take {number}, {speaker.title()}!")
    return tmp_path / "recordings"


def prepare(*words: str | Path) -> int:
    return main(["prepare", *map(str, words)])


def test_a_folder_becomes_a_manifest(recordings, tmp_path, capsys):
    assert prepare("folder", recordings, "-o", tmp_path / "out/m.jsonl") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "kept 12 clips, 0.00 hours, 4 speakers of 12 rows" in said.err
    clips = read_manifest(tmp_path / "out/m.jsonl")
    assert [clip.id for clip in clips[:2]] == ["anna/0", "anna/1"]
    row = json.loads((tmp_path / "out/m.jsonl").read_text().splitlines()[1])
    assert row == {
        "id": "anna/1",
        "audio": "../recordings/anna/1.wav",
        "offset": 0.0,
        "duration": 0.75,
        "text": "take one anna",
        "speaker": "anna",
        "sentence": "Take 1, Anna!",
    }


def test_the_report_for_machines(recordings, tmp_path, capsys):
    (recordings / "bob/0.wav").write_bytes(b"not a sound")
    (recordings / "bob/1.txt").unlink()
    code = prepare("folder", recordings, "-o", tmp_path / "m.jsonl.gz", "--json", "--max-s", "0.9")
    assert code == 1
    said = capsys.readouterr()
    assert said.err == ""
    report = json.loads(said.out)
    assert report["kept"] == {"rows": 6 + 0, "hours": round(6 * 0.625 / 3600, 4), "speakers": 3}
    assert {reason: row["count"] for reason, row in report["skipped"].items()} == {
        "unreadable audio": 1,
        "no text": 1,
        "too long": 4,
    }
    assert report["skipped"]["unreadable audio"]["failure"] is True
    assert report["skipped"]["no text"] == {"count": 1, "failure": False, "examples": ["bob/1"]}
    assert report["manifests"] == [{"path": str(tmp_path / "m.jsonl.gz"), **report["kept"]}]
    assert len(read_manifest(tmp_path / "m.jsonl.gz")) == 6


def test_what_is_only_unwanted_is_no_failure(recordings, tmp_path, capsys):
    for text in recordings.glob("bob/*.txt"):
        text.unlink()
    (recordings / "anna/0.txt").write_text("привет")
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl") == 0
    said = capsys.readouterr().err
    assert "skipped 3: no text\n  bob/0\n  bob/1\n  bob/2\n" in said
    assert "skipped 1: text cannot be normalised\n  anna/0 (the text 'привет' has" in said


def test_more_than_the_examples_are_counted(recordings, tmp_path, capsys):
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl", "--min-s", "0.6") == 0
    assert (
        "skipped 4: too short\n  anna/0 (0.5 s)\n  bob/0 (0.5 s)\n  cleo/0 (0.5 s)\n  and 1 more\n"
        in capsys.readouterr().err
    )


def test_nothing_kept_writes_nothing(recordings, tmp_path, capsys):
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl", "--min-s", "60") == 1
    said = capsys.readouterr().err
    assert "skipped 12: too short" in said
    assert "no clip of" in said
    assert os.listdir(tmp_path) == ["recordings"]


def test_an_existing_manifest_is_kept_unless_told(recordings, tmp_path, capsys):
    output = tmp_path / "m.jsonl"
    output.write_text("mine")
    assert prepare("folder", recordings, "-o", output) == 1
    assert "exists; choose another name with -o, or replace it with --overwrite" in capsys.readouterr().err
    assert output.read_text() == "mine"
    assert prepare("folder", recordings, "-o", output, "--overwrite") == 0
    assert len(read_manifest(output)) == 12


def test_a_split_is_by_speaker_and_the_same_again(recordings, tmp_path, capsys):
    split = ("--split", "dev=0.25,test=0.25", "--seed", "3", "--json")
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl", *split) == 0
    report = json.loads(capsys.readouterr().out)
    assert [Path(row["path"]).name for row in report["manifests"]] == ["m-train.jsonl", "m-dev.jsonl", "m-test.jsonl"]
    assert [row["speakers"] for row in report["manifests"]] == [2, 1, 1]
    parts = [{clip.speaker for clip in read_manifest(row["path"])} for row in report["manifests"]]
    assert set.union(*parts) == {"anna", "bob", "cleo", "dan"}
    before = [Path(row["path"]).read_bytes() for row in report["manifests"]]
    assert not (tmp_path / "m.jsonl").exists()
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl", *split) == 1  # they are there
    assert prepare("folder", recordings, "-o", tmp_path / "m.jsonl", *split, "--overwrite") == 0
    assert [Path(row["path"]).read_bytes() for row in report["manifests"]] == before


def test_a_split_without_speakers_writes_nothing(tmp_path, capsys):
    sound(tmp_path / "r/1.wav").with_suffix(".txt").write_text("one")
    assert prepare("folder", tmp_path / "r", "-o", tmp_path / "m.jsonl", "--split", "dev=0.5") == 1
    assert "has no speaker" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["r"]


def test_tables_and_their_options(tmp_path, capsys):
    sound(tmp_path / "wavs/LJ1.wav")
    (tmp_path / "t.csv").write_text("LJ1|5|five\n")
    options = ("--columns", "audio=1,text=2", "--root", tmp_path / "wavs")
    assert prepare("csv", tmp_path / "t.csv", "-o", tmp_path / "m.jsonl", *options) == 0
    assert read_manifest(tmp_path / "m.jsonl")[0].text == "five"
    options = (*options, "--digits", "refuse", "--overwrite")
    assert prepare("csv", tmp_path / "t.csv", "-o", tmp_path / "m.jsonl", *options) == 1
    assert "has the digits 5" in capsys.readouterr().err
    assert read_manifest(tmp_path / "m.jsonl")[0].text == "five"


def test_kaldi_commands_end_with_1_and_are_not_run(tmp_path, capsys):
    sound(tmp_path / "data/1.wav")
    (tmp_path / "data/wav.scp").write_text(f"u1 1.wav\nu2 touch {tmp_path}/run |\n")
    (tmp_path / "data/text").write_text("u1 one\nu2 two\n")
    assert prepare("kaldi", tmp_path / "data", "-o", tmp_path / "m.jsonl") == 1
    assert "skipped 1: refused command" in capsys.readouterr().err
    assert len(read_manifest(tmp_path / "m.jsonl")) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["foldr", "x", "-o", "m"], "invalid choice: 'foldr'"),
        (["folder", "x"], "the following arguments are required: -o"),
        (["folder", "x", "-o", "m", "--root", "y"], "--root is for csv, tsv, kaldi and not for folder"),
        (["csv", "x", "-o", "m", "--part", "y"], "--part is for librispeech, commonvoice, kaldi and not for csv"),
        (["folder", "x", "-o", "m", "--min-s", "-1"], "seconds from 0 on were wanted"),
        (["folder", "x", "-o", "m", "--min-s", "nan"], "seconds from 0 on were wanted"),
        (["folder", "x", "-o", "m", "--min-s", "3", "--max-s", "2"], "--min-s 3 is above --max-s 2"),
        (["folder", "x", "-o", "m", "--split", "dev"], "NAME=VALUE was wanted"),
        (["folder", "x", "-o", "m", "--split", "dev=0.6,test=0.4"], "leave some for train"),
        (["folder", "x", "-o", "m", "--split", "train=0.6"], "leave some for train"),
        (["folder", "x", "-o", "m", "--split", "../dev=0.6"], "leave some for train"),
        (["folder", "x", "-o", "m", "--split", "dev=0.1,dev=0.2"], "each name once"),
        (["folder", "x", "-o", "m", "--split", "dev=nan"], "leave some for train"),
        (["csv", "x", "-o", "m", "--columns", "sound=1"], "no field is called 'sound'"),
        (["folder", "x", "-o", "m", "--speaker-pattern", "("], "is no regular expression"),
        (["folder", "x", "-o", "m", "--speaker-pattern", "x"], "has no group"),
        (["folder", "x", "-o", "m", "--sha256", "0" * 64], "name what to download"),
        (["folder", "x", "-o", "m", "--download", "http://h/x.zip", "--sha256", "abc"], "is no checksum"),
        (["librispeech", "x", "-o", "m", "--download", "dev"], "no download is called 'dev'; choose among dev-clean"),
        (["folder", "x", "-o", "m", "--download", "dev-clean"], "write voiceseq prepare librispeech"),
    ],
)
def test_wrong_usage_is_2(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert prepare(*words) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_path_that_is_not_there_is_1(tmp_path, capsys):
    assert prepare("folder", tmp_path / "none", "-o", tmp_path / "m.jsonl") == 1
    assert "is not there; a folder of audio files" in capsys.readouterr().err


def test_help_needs_no_numpy_and_no_audio():
    code = "import sys; sys.modules['numpy'] = sys.modules['torch'] = sys.modules['soundfile'] = None\n"
    code += "from voiceseq.cli.main import main; sys.exit(main(['prepare', '--help']))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "dev-clean" in ran.stdout


def test_progress_has_speed_and_time_left():
    assert transfer(30_000_000, 90_000_000, 20_000_000, 10.0) == "30.0 of 90.0 MB, 2.0 MB/s, 0:30 left"
    assert transfer(5_000_000, None, 5_000_000, 0.0) == "5.0 MB, 0.0 MB/s"


# --- download --------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A tiny LibriSpeech as an archive behind http on loopback: (address, sha256)."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        root = tmp_path / "LibriSpeech"
        audio = root / "dev-clean/84/7/84-7-0000.flac"
        sound(audio).with_name("84-7.trans.txt").write_text("84-7-0000 HELLO THERE\n")
        tar.add(root, "LibriSpeech")
    web = tmp_path / "web"
    web.mkdir()
    (web / "dev-clean.tar.gz").write_bytes(packed.getvalue())

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(web)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/dev-clean.tar.gz", hashlib.sha256(packed.getvalue()).hexdigest()
    server.shutdown()
    server.server_close()
    thread.join()


def test_download_unpack_and_prepare_in_one_line(served, tmp_path, capsys):
    url, digest = served
    words = ("librispeech", tmp_path / "corpus", "-o", tmp_path / "m.jsonl", "--download", url)
    assert prepare(*words) == 1
    assert "give the one that you trust with --sha256" in capsys.readouterr().err
    assert prepare(*words, "--sha256", "0" * 64) == 1
    assert "is not what was wanted" in capsys.readouterr().err
    assert not (tmp_path / "m.jsonl").exists()
    assert prepare(*words, "--sha256", digest) == 0
    assert "dev-clean.tar.gz: received" in capsys.readouterr().err
    (clip,) = read_manifest(tmp_path / "m.jsonl")
    assert (clip.id, clip.text, clip.speaker) == ("ls-84-7-0000", "hello there", "librispeech-84")
    (tmp_path / "sums").write_text(f"{digest}  dev-clean.tar.gz\n")
    assert prepare(*words, "--checksums", tmp_path / "sums", "--overwrite") == 0
    assert "dev-clean.tar.gz: there already" in capsys.readouterr().err


def test_an_output_that_exists_stops_before_the_download(served, tmp_path):
    url, digest = served
    (tmp_path / "m.jsonl").write_text("mine")
    words = ("librispeech", tmp_path / "corpus", "-o", tmp_path / "m.jsonl", "--download", url, "--sha256", digest)
    assert prepare(*words) == 1
    assert not (tmp_path / "corpus").exists()
