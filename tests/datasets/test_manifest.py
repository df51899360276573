"""Manifests: every wrong row is named, what is written comes back, and the shared manifests read as they are."""

import dataclasses
import gzip
import json
import math
import os
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.datasets.manifest import Clip, iterate_manifest, read_manifest, write_manifest, write_manifests
from voiceseq.errors import InputError

GOOD = {"id": "a", "audio": "a.wav", "offset": 1.5, "duration": 2, "text": "hello", "speaker": "anna", "mos": [3]}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "a.wav").touch()
    return tmp_path


def write_rows(path: Path, *rows) -> Path:
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def fault(folder: Path, *rows, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_manifest(write_rows(folder / "m.jsonl", *rows), **options)
    return str(caught.value)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_row_becomes_a_clip(folder):
    (clip,) = read_manifest(write_rows(folder / "m.jsonl", GOOD))
    assert clip == Clip("a", folder / "a.wav", 2.0, 1.5, "hello", "anna", {"mos": [3]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        clip.text = "x"
    assert pickle.loads(pickle.dumps(clip)) == clip


def test_what_is_left_out_has_a_default(folder):
    row = {"id": "a", "audio": "a.wav", "duration": 1}
    for rows in (row, row | {"offset": None, "text": None, "speaker": None}):
        (clip,) = read_manifest(write_rows(folder / "m.jsonl", rows))
        assert (clip.offset, clip.text, clip.speaker, clip.extra) == (0.0, None, None, {})


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_byte_order_mark_crlf_blank_lines_and_gzip(folder, pack):
    rows = [GOOD, GOOD | {"id": "b", "text": "käse"}]
    raw = (
        b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(row, ensure_ascii=False).encode() for row in rows) + b"\r\n \r\n"
    )
    path = folder / "m.jsonl.gz"
    path.write_bytes(pack(raw))
    assert [(clip.id, clip.text) for clip in read_manifest(path)] == [("a", "hello"), ("b", "käse")]


def test_audio_is_beside_the_manifest_or_in_the_folder_above(folder, monkeypatch):
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "x.wav").touch()
    row = GOOD | {"audio": "corpus/x.wav"}
    path = write_rows(corpus / "m.jsonl", row)
    assert read_manifest(path)[0].audio == corpus / "x.wav"
    monkeypatch.chdir(corpus)  # a bare name has no folder above in its text, but the disk has
    assert read_manifest("m.jsonl")[0].audio.samefile(corpus / "x.wav")
    (corpus / "corpus").mkdir()
    (corpus / "corpus/x.wav").touch()
    assert read_manifest(path)[0].audio == corpus / "corpus/x.wav"
    absolute = write_rows(corpus / "n.jsonl", GOOD | {"audio": str(folder / "a.wav")})
    assert read_manifest(absolute)[0].audio == folder / "a.wav"


def test_missing_audio_is_an_error_unless_not_asked(folder):
    missing = GOOD | {"audio": "no.wav"}
    assert "line 1: audio: no file 'no.wav' beside" in fault(folder, missing)
    (clip,) = read_manifest(folder / "m.jsonl", check_files=False)
    assert clip.audio == folder / "no.wav"
    assert "no file '.'" in fault(folder, GOOD | {"audio": "."})  # a folder is not a file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ...}, "id: is missing"),
        ({"id": ""}, 'id: "" came; a text that is not empty was wanted'),
        ({"id": 3}, "id: 3 came"),
        ({"audio": ...}, "audio: is missing"),
        ({"audio": None}, "audio: null came"),
        ({"audio": "a\0.wav"}, "audio: "),
        ({"duration": ...}, "duration: is missing"),
        ({"duration": 0}, "duration: 0 came; seconds above 0 were wanted"),
        ({"duration": -1.0}, "duration: -1.0 came"),
        ({"duration": math.nan}, "duration: NaN came"),
        ({"duration": math.inf}, "duration: Infinity came"),
        ({"duration": 10**400}, "duration: 1000"),
        ({"duration": True}, "duration: true came"),
        ({"duration": "2.0"}, 'duration: "2.0" came'),
        ({"duration": None}, "duration: null came"),
        ({"offset": -0.1}, "offset: -0.1 came; seconds from 0 on were wanted"),
        ({"offset": math.nan}, "offset: NaN came"),
        ({"offset": "0"}, 'offset: "0" came'),
        ({"text": 5}, "text: 5 came; a text or null was wanted"),
        ({"speaker": ["anna"]}, 'speaker: ["anna"] came'),
    ],
)
def test_a_wrong_field_is_named_with_its_line(folder, change, message):
    row = {name: value for name, value in (GOOD | change).items() if value is not ...}
    said = fault(folder, GOOD | {"id": "fine"}, row)
    assert f"{folder / 'm.jsonl'} is wrong in 1 place:" in said
    assert f"line 2: {message}" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is not JSON (Expecting"),
        (b'{"id": "a"} x', "is not JSON (Extra data"),
        (b"[1]", "is a list; an object like"),
        (b"null", "is null; an object"),
        (b'{"id": "\xff"}', "is not UTF-8 (invalid start byte at byte 9)"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_line_that_is_no_row_is_named(folder, line, message):
    assert f"line 2: {message}" in fault(folder, GOOD, line)


def test_a_duplicate_id_names_both_lines(folder):
    said = fault(folder, GOOD, GOOD | {"id": "b"}, GOOD, GOOD)
    assert "line 3: id: 'a' is already the id of line 1" in said
    assert "line 4: id: 'a' is already the id of line 1" in said


def test_all_mistakes_come_in_one_message_but_not_more_than_twenty(folder):
    said = fault(folder, GOOD | {"duration": 0, "offset": -1}, b"{", GOOD | {"id": 1})
    assert "is wrong in 4 places" in said
    assert said.count("\n") == 4
    said = fault(folder, *[GOOD | {"id": str(i), "duration": 0} for i in range(50)])
    assert "at least 20 places (reading stopped there)" in said
    assert said.count("\n") == 20
    assert "line 20:" in said
    assert "line 21:" not in said


def test_no_clip_is_given_after_a_mistake(folder):
    path = write_rows(folder / "m.jsonl", GOOD, b"{", GOOD | {"id": "c"})
    rows = iterate_manifest(path)
    assert next(rows).id == "a"
    with pytest.raises(InputError, match="line 2"):
        next(rows)


@pytest.mark.parametrize("raw", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_manifest_is_refused(folder, raw):
    (folder / "m.jsonl").write_bytes(raw)
    with pytest.raises(InputError, match="has no rows"):
        read_manifest(folder / "m.jsonl")


def test_what_cannot_be_read_is_an_input_error(folder):
    for path in (folder / "none.jsonl", folder):
        with pytest.raises(InputError, match="cannot be read"):
            read_manifest(path)
    cut = gzip.compress(json.dumps(GOOD).encode() * 100)[:-20]
    (folder / "cut.jsonl.gz").write_bytes(cut)
    with pytest.raises(InputError, match="cannot be read"):
        read_manifest(folder / "cut.jsonl.gz")


def test_rows_are_read_as_they_are_asked_for(folder):
    path = folder / "m.jsonl"
    line = json.dumps(GOOD | {"text": "word " * 200})
    with path.open("w") as file:
        for number in range(20_000):  # 20 MB of text
            file.write(line.replace('"a"', f'"{number}"', 1) + "\n")
    tracemalloc.start()
    assert sum(1 for _ in iterate_manifest(path)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6


# --- writing ---------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=20)
clips = st.builds(
    Clip,
    id=names.filter(str.strip),
    audio=names.filter(lambda name: name.strip() and name not in (".", "..")).map(lambda name: Path("sub", name)),
    duration=st.floats(1e-3, 1e5),
    offset=st.floats(0, 1e5),
    text=st.none() | st.text(),
    speaker=st.none() | st.text(),
    extra=st.dictionaries(names.filter(lambda n: n not in Clip.__slots__), json_values, max_size=3),
)


@given(
    st.lists(clips, min_size=1, max_size=5, unique_by=lambda clip: clip.id), st.sampled_from(["m.jsonl", "m.jsonl.gz"])
)
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read_again(tmp_path_factory, rows, name):
    folder = tmp_path_factory.mktemp("m")
    rows = [dataclasses.replace(clip, audio=folder / clip.audio) for clip in rows]
    assert write_manifest(folder / name, rows) == len(rows)
    assert read_manifest(folder / name, check_files=False) == rows
    assert os.listdir(folder) == [name]


def test_paths_are_relative_to_the_manifest(folder):
    write_manifest(folder / "deep/er/m.jsonl", [Clip("a", folder / "a.wav", 1.0)])
    row = json.loads((folder / "deep/er/m.jsonl").read_text())
    assert row == {"id": "a", "audio": "../../a.wav", "offset": 0.0, "duration": 1.0}
    assert read_manifest(folder / "deep/er/m.jsonl")[0].audio.samefile(folder / "a.wav")


def test_a_manifest_behind_a_link_still_finds_its_audio(folder):
    (folder / "real/inner").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "real/inner")
    write_manifest(folder / "link/m.jsonl", [Clip("a", folder / "a.wav", 1.0)])
    through = read_manifest(folder / "link/m.jsonl")
    assert through[0].audio.samefile(folder / "a.wav")
    write_manifest(folder / "copy/m.jsonl", through)  # link/../.. is not what its text looks like
    assert read_manifest(folder / "copy/m.jsonl")[0].audio.samefile(folder / "a.wav")


def test_a_file_name_that_is_not_utf8_comes_back(folder):
    audio = folder / os.fsdecode(b"k\xe4se.wav")
    audio.touch()
    write_manifest(folder / "m.jsonl", [Clip("a", audio, 1.0, text="käse")])
    (clip,) = read_manifest(folder / "m.jsonl")
    assert clip.audio == audio
    assert clip.text == "käse"


def test_the_same_clips_make_the_same_bytes(folder):
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write_manifest(folder / name, [Clip("a", folder / "a.wav", 1.0)])
    assert (folder / "one.jsonl.gz").read_bytes() == (folder / "two.jsonl.gz").read_bytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"duration": math.nan}, "duration: NaN"),
        ({"duration": 0.0}, "duration: 0.0"),
        ({"id": ""}, "id: "),
        ({"extra": {"text": "x"}}, "text: is the clip's own field"),
        ({"extra": {"x": math.nan}}, "cannot be written as JSON"),
        ({"extra": {"x": {1, 2}}}, "cannot be written as JSON"),
        ({"id": "a"}, "the id 'a' comes twice"),
    ],
)
def test_a_clip_that_cannot_be_written_leaves_everything_as_it_was(folder, wrong, message):
    fine = Clip("a", folder / "a.wav", 1.0)
    bad = dataclasses.replace(fine, **({"id": "b"} | wrong))
    (folder / "m.jsonl").write_text("before")
    with pytest.raises(InputError, match=message):
        write_manifests({folder / "n.jsonl": [fine], folder / "m.jsonl": [fine, bad]})
    assert (folder / "m.jsonl").read_text() == "before"
    assert sorted(os.listdir(folder)) == ["a.wav", "m.jsonl"]


def test_an_unwritable_place_is_an_input_error(folder):
    with pytest.raises(InputError, match="cannot be written"):
        write_manifest(folder / "a.wav/m.jsonl", [Clip("a", folder / "a.wav", 1.0)])


# --- the real ones ---------------------------------------------------------------------------------------------------

COUNTS = {  # of the README's tables: utterances, speakers
    "harpervalley/manifest-train.jsonl": (4689, 44),
    "harpervalley/manifest-dev.jsonl": (649, 7),
    "harpervalley/manifest-extra.jsonl": (2268, 38),
    "speechocean762/manifest-train.jsonl": (1058, 199),
    "speechocean762/manifest-dev.jsonl": (144, 21),
    "speechocean762/manifest-extra.jsonl": (2922, 199),
    "commonvoice/manifest-train.jsonl": (872, 446),
    "commonvoice/manifest-dev.jsonl": (127, 62),
    "commonvoice/manifest-extra.jsonl": (2300, 168),
    "librispeech/manifest-train.jsonl": (814, 57),
    "librispeech/manifest-dev.jsonl": (96, 12),
    "librispeech/manifest-extra.jsonl": (1236, 24),
    "commonvoice_untranscribed/manifest.jsonl": (2184, None),
    "wakeword/picovoice/manifest.jsonl": (1415, None),
    "wakeword/speech_commands/manifest.jsonl": (2024, None),
    "wakeword/noise/manifest.jsonl": (174, None),
    "wakeword/mycroft/manifest.jsonl": (40, 1),
    "wakeword/rir/manifest.jsonl": (80, None),
}


def test_every_shared_manifest_is_in_the_table(shared):
    root = shared / "data/speech"
    assert {path.relative_to(root).as_posix() for path in root.rglob("*.jsonl")} == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_shared_manifests_read_as_they_are(shared, tmp_path, name):
    path = shared / "data/speech" / name
    rows, speakers = COUNTS[name]
    read = read_manifest(path)
    assert len(read) == rows
    assert speakers is None or len({clip.speaker for clip in read}) == speakers
    write_manifest(tmp_path / "copy.jsonl", read)
    for ours, theirs in zip(read_manifest(tmp_path / "copy.jsonl"), read, strict=True):
        assert dataclasses.replace(ours, audio=theirs.audio) == theirs
        assert ours.audio.resolve() == theirs.audio.resolve()
