"""Each layout from a tiny tree of it, and what is kept of it."""

import dataclasses
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.datasets.corpora import KINDS, Found, Layout, Skipped
from voiceseq.datasets.corpora.prepare import Report, Wanted, audio_length, select, split_by_speaker, summary
from voiceseq.datasets.manifest import Clip, read_manifest, write_manifest
from voiceseq.errors import InputError


def sound(path: Path, seconds: float = 0.5, rate: int = 8000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(round(seconds * rate), dtype="float32"), rate)
    return path


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(kind: str, path: Path, **layout) -> tuple[list[Found], list[Skipped]]:
    rows = list(KINDS[kind].read(path, Layout(**layout)))
    found = [row for row in rows if isinstance(row, Found)]
    return found, [row for row in rows if isinstance(row, Skipped)]


def reasons(skipped: list[Skipped]) -> list[tuple[str, str]]:
    return [(row.reason, row.where) for row in skipped]


# --- folder ----------------------------------------------------------------------------------------------------------


def test_folder_joins_audio_with_the_text_beside_it(tmp_path):
    for name in ("anna/1.wav", "anna/2.FLAC", "bob/deep/1.wav", "alone.wav", "._junk.wav"):
        sound(tmp_path / name)
    put(tmp_path / "anna/1.txt", "\ufeffHello,\r\n  there \n")
    put(tmp_path / "anna/2.txt", "two")
    put(tmp_path / "bob/deep/1.txt", b"\xff\xfe")
    put(tmp_path / "README.txt", "read me")
    found, skipped = read("folder", tmp_path)
    assert [(row.id, row.text, row.speaker) for row in found] == [
        ("alone", None, None),
        ("anna/1", "Hello, there", "anna"),
        ("anna/2", "two", "anna"),
    ]
    assert found[1].audio == tmp_path / "anna/1.wav"
    assert reasons(skipped) == [("text without audio", "README.txt"), ("unreadable text", "bob/deep/1.txt")]


def test_folder_takes_the_speaker_from_a_pattern(tmp_path):
    for name in ("a_01.wav", "b_01.wav", "nobody.wav"):
        sound(tmp_path / name)
    found, _ = read("folder", tmp_path, speaker_pattern=re.compile(r"^(.*?)_"))
    assert [row.speaker for row in found] == ["a", "b", None]


def test_folder_survives_a_link_that_leads_back(tmp_path):
    sound(tmp_path / "in/1.wav")
    (tmp_path / "in/loop").symlink_to(tmp_path)
    found, _ = read("folder", tmp_path)
    assert [row.id for row in found] == ["in/1"]


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "mark"), [("csv", ","), ("csv", ";"), ("csv", "|"), ("tsv", "\t")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_are_understood_by_their_header(tmp_path, kind, mark, end):
    sound(tmp_path / "clips/1.wav")
    sound(tmp_path / "clips/2.wav")
    lines = [
        ("Path", "Sentence", "speaker_id", "mood"),
        ("clips/1.wav", "hello", "anna", "good"),
        ("clips/2", "you", "", ""),
    ]
    table = put(tmp_path / "t.csv", "\ufeff" + "".join(mark.join(line) + end for line in lines) + end)
    found, skipped = read(kind, table)
    assert skipped == []
    assert found == [
        Found("clips/1", tmp_path / "clips/1.wav", "hello", "anna", extra={"mood": "good"}),
        Found("clips/2", tmp_path / "clips/2.wav", "you", None),
    ]


def test_csv_quotes_hold_commas_and_lines_and_tsv_quotes_are_letters(tmp_path):
    sound(tmp_path / "1.wav")
    table = put(tmp_path / "t.csv", 'audio,text\n1.wav,"one, ""two""\nthree"\n')
    assert read("csv", table)[0][0].text == 'one, "two"\nthree'
    table = put(tmp_path / "t.tsv", 'audio\ttext\n1.wav\t"one\n1.wav\ttwo"\n')
    assert [row.text for row in read("tsv", table)[0]] == ['"one', 'two"']


def test_columns_can_be_named_or_numbered(tmp_path):
    sound(tmp_path / "wavs/LJ1.wav")
    table = put(tmp_path / "t.csv", "LJ1|Raw, text|plain text\nLJ2|x|y\n")
    found, skipped = read("csv", table, columns={"audio": "1", "text": "3"}, root=tmp_path / "wavs")
    assert [(row.id, row.text) for row in found] == [("LJ1", "plain text")]
    assert [(row.reason, row.where, row.detail) for row in skipped] == [("missing audio", "t.csv: row 2", "LJ2")]
    table = put(tmp_path / "n.csv", "file,text,words\nwavs/LJ1.wav,a,b\n")
    (row,) = read("csv", table, columns={"text": "words"})[0]
    assert (row.text, row.extra) == ("b", {"column text": "a"})


def test_tables_may_cut_long_recordings(tmp_path):
    sound(tmp_path / "long.wav", 4)
    lines = ["audio,start,end,duration,text", "long,,,,a", "long,1,2.5,,b", "long,1.5,,0.25,c", "long,x,,,d", "long,1"]
    found, skipped = read("csv", put(tmp_path / "t.csv", "\n".join(lines)))
    assert [(row.id, row.offset, row.duration) for row in found] == [
        ("long", 0.0, None),
        ("long@1", 1.0, 1.5),
        ("long@1.5", 1.5, 0.25),
    ]
    assert reasons(skipped) == [("broken row", "t.csv: row 5"), ("broken row", "t.csv: row 6")]
    assert skipped[1].detail == "2 cells, 5 wanted"


@pytest.mark.parametrize(
    ("raw", "columns", "message"),
    [
        (b"a,b\n1,2\n", {}, "no column for audio among a, b; name it with --columns"),
        (b"audio,text\n1,2\n", {"text": "words"}, "has no column 'words' for text; it has audio, text"),
        (b"1,2\n", {"audio": "1", "text": "3"}, "has 2 columns, so no column 3 for text"),
        (b"1,2\n", {"text": "1"}, "no column of .* is named as audio"),
        (b"audio,text\n", {}, "has no rows"),
        (b"", {}, "has no rows"),
        (b'audio,text\n1,"never closed\n2,x\n', {}, "wrong at line 3"),
        (b"audio,text\n1,\xff\n", {}, "is not UTF-8"),
    ],
)
def test_a_table_that_cannot_be_understood_is_refused(tmp_path, raw, columns, message):
    with pytest.raises(InputError, match=message):
        read("csv", put(tmp_path / "t.csv", raw), columns=columns)


# --- LibriSpeech -----------------------------------------------------------------------------------------------------


@pytest.fixture
def librispeech(tmp_path) -> Path:
    root = tmp_path / "LibriSpeech"
    for part, speaker in (("dev-clean", 84), ("dev-clean", 174), ("test-clean", 61)):
        folder = root / part / str(speaker) / "7"
        for number in range(2):
            sound(folder / f"{speaker}-7-000{number}.flac", rate=16000)
        put(folder / f"{speaker}-7.trans.txt", f"{speaker}-7-0000 HELLO THERE\n{speaker}-7-0001 IT'S ME\n")
    put(
        root / "SPEAKERS.TXT",
        ";ID |SEX| SUBSET |MINUTES| NAME\n84   | F | dev-clean |  8.02 | A | B\n174 | M | x | 1 | C\n",
    )
    return root


def test_librispeech(librispeech):
    sound(librispeech / "dev-clean/84/7/84-7-0009.flac")
    (librispeech / "dev-clean/174/7/174-7-0001.flac").unlink()
    found, skipped = read("librispeech", librispeech)
    assert found[0] == Found(
        "ls-174-7-0000",
        librispeech / "dev-clean/174/7/174-7-0000.flac",
        "HELLO THERE",
        "librispeech-174",
        extra={"gender": "m", "source_part": "dev-clean", "chapter": "7"},
    )
    assert [(row.id, row.text) for row in found[1:]] == [
        ("ls-84-7-0000", "HELLO THERE"),
        ("ls-84-7-0001", "IT'S ME"),
        ("ls-84-7-0009", None),
        ("ls-61-7-0000", "HELLO THERE"),
        ("ls-61-7-0001", "IT'S ME"),
    ]
    assert "gender" not in found[-1].extra
    assert reasons(skipped) == [("missing audio", "174-7.trans.txt: line 2")]


def test_librispeech_parts_and_where_one_may_begin(librispeech):
    assert {row.speaker for row in read("librispeech", librispeech, parts=("test-clean",))[0]} == {"librispeech-61"}
    assert len(read("librispeech", librispeech.parent)[0]) == 6
    one = read("librispeech", librispeech / "dev-clean")[0]
    assert len(one) == 4
    assert one[0].extra["gender"] == "m"
    with pytest.raises(InputError, match="no part 'train'; choose among dev-clean, test-clean"):
        read("librispeech", librispeech, parts=("train",))
    with pytest.raises(InputError, match=r"no \.trans\.txt is below"):
        read("librispeech", sound(librispeech.parent / "other/x.wav").parent)


# --- Common Voice ----------------------------------------------------------------------------------------------------


@pytest.fixture
def commonvoice(tmp_path) -> Path:
    header = "client_id\tpath\tsentence\tup_votes\tage\tgender\taccents\n"
    for number in (11, 12, 13):
        sound(tmp_path / f"clips/common_voice_en_{number}.mp3", rate=16000)
    row = "{}\tcommon_voice_en_{}.mp3\t{}\t2\ttwenties\t\tWelsh English\n".format
    put(
        tmp_path / "validated.tsv",
        header + row("a" * 128, 11, '"Open quote, he said.') + row("b" * 128, 12, "Two.") + row("", 99, "x"),
    )
    put(tmp_path / "train.tsv", header + row("b" * 128, 12, "Two."))
    put(tmp_path / "dev.tsv", header + row("", 13, "Three."))
    put(tmp_path / "clip_durations.tsv", "clip\tduration[ms]\n")
    return tmp_path


def test_commonvoice_reads_validated_by_itself(commonvoice):
    found, skipped = read("commonvoice", commonvoice)
    assert found[0] == Found(
        "cv-11",
        commonvoice / "clips/common_voice_en_11.mp3",
        '"Open quote, he said.',
        f"commonvoice-{'a' * 16}",
        extra={"age": "twenties", "accent": "Welsh English"},
    )
    assert [row.id for row in found] == ["cv-11", "cv-12"]
    assert [(row.reason, row.where, row.detail) for row in skipped] == [
        ("missing audio", "validated.tsv: row 4", "common_voice_en_99.mp3")
    ]


def test_commonvoice_parts(commonvoice):
    assert [row.id for row in read("commonvoice", commonvoice, parts=("train", "dev"))[0]] == ["cv-13", "cv-12"]
    assert [row.speaker for row in read("commonvoice", commonvoice / "dev.tsv")[0]] == [None]
    (commonvoice / "validated.tsv").unlink()
    assert len(read("commonvoice", commonvoice)[0]) == 2
    with pytest.raises(InputError, match="no part 'test'; choose among dev, train"):
        read("commonvoice", commonvoice, parts=("test",))
    with pytest.raises(InputError, match=r"no \.tsv of Common Voice"):
        read("commonvoice", commonvoice / "clips")


# --- Kaldi -----------------------------------------------------------------------------------------------------------


def test_kaldi_whole_files(tmp_path):
    data = tmp_path / "egs/data/train"
    sound(tmp_path / "egs/wavs/1.wav")
    absolute = sound(tmp_path / "elsewhere/2.wav")
    put(data / "wav.scp", f"u1\twavs/1.wav\nu2 {absolute}\nu3 wavs/3.wav\nu4 ark/x.ark:77\nu2 again.wav\n")
    put(data / "text", "u1 HELLO THERE\nu3 x\nu7 nobody\n")
    put(data / "utt2spk", "u1 anna\nu2 bob\n")
    found, skipped = read("kaldi", data)
    assert [(row.id, row.text, row.speaker) for row in found] == [("u1", "HELLO THERE", "anna"), ("u2", None, "bob")]
    assert found[0].audio.samefile(tmp_path / "egs/wavs/1.wav")
    assert reasons(skipped) == [
        ("duplicate id", "train/wav.scp: line 5"),
        ("missing audio", "train/wav.scp: u3"),
        ("missing audio", "train/wav.scp: u4"),
        ("text without audio", "train/text: u7"),
    ]
    assert "archives cannot be read" in skipped[2].detail
    assert read("kaldi", data, root=tmp_path)[0][0].id == "u2"  # --root is believed


def test_kaldi_commands_are_refused_and_never_run(tmp_path):
    mark = tmp_path / "was run"
    put(tmp_path / "wav.scp", f"u1 touch '{mark}' |\nu2 | touch '{mark}'\nu3 -\nr4 cat x.wav |\n")
    found, skipped = read("kaldi", tmp_path)
    assert found == []
    assert {row.reason for row in skipped} == {"refused command"}
    assert len(skipped) == 4
    assert "is a command; make an audio file with it first" in skipped[0].detail
    put(tmp_path / "segments", "s1 r4 0 1\ns2 r4 1 2\n")
    assert reasons(read("kaldi", tmp_path)[1]) == [
        ("refused command", f"{tmp_path.name}/segments: s1"),
        ("refused command", f"{tmp_path.name}/segments: s2"),
    ]
    assert not mark.exists()


def test_kaldi_segments(tmp_path):
    sound(tmp_path / "long.wav", 5)
    put(tmp_path / "wav.scp", "rec long.wav\n")
    put(tmp_path / "segments", "a rec 0.5 2.0\nb rec 3 -1\nc none 0 1\nd rec 1\ne rec one two\n")
    put(tmp_path / "text", "a one\nb two\n")
    found, skipped = read("kaldi", tmp_path)
    assert [(row.id, row.text, row.offset, row.duration) for row in found] == [
        ("a", "one", 0.5, 1.5),
        ("b", "two", 3.0, None),
    ]
    assert [row.reason for row in skipped] == ["missing audio", "broken row", "broken row"]


def test_kaldi_parts_of_the_same_name_are_not_mixed_up(tmp_path):
    for corpus in ("x", "y"):
        sound(tmp_path / corpus / "train" / f"{corpus}.wav")
        put(tmp_path / corpus / "train/wav.scp", f"{corpus} {corpus}.wav\n")
    assert [row.id for row in read("kaldi", tmp_path)[0]] == ["x", "y"]
    assert [row.id for row in read("kaldi", tmp_path, parts=("y/train",))[0]] == ["y"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_path_that_is_not_there_is_an_input_error(tmp_path, kind):
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "none"))):
        read(kind, tmp_path / "none")


# --- what is kept ----------------------------------------------------------------------------------------------------


def keep(rows, **wanted) -> tuple[list[Clip], Report]:
    report = Report()
    return list(select(rows, Wanted(**wanted), report)), report


def test_text_is_normalised_and_what_was_written_is_kept(tmp_path):
    audio = sound(tmp_path / "1.wav", 0.5)
    (clip,), report = keep([Found("a", audio, "It's 5, Zoë!", "anna", extra={"age": "9"})])
    assert clip == Clip("a", audio, 0.5, 0.0, "it's five zoe", "anna", {"age": "9", "sentence": "It's 5, Zoë!"})
    assert (report.rows, report.failed, report.counts) == (1, 0, {})
    (clip,), _ = keep([Found("a", audio, "plain already")])
    assert clip.extra == {}
    (clip,), _ = keep([Found("a", audio, "Grüß Gott 5")], text="keep")
    assert clip.text == "Grüß Gott 5"
    (clip,), _ = keep([Found("a", audio)], text="ignore")
    assert clip.text is None


def test_every_reason_is_counted_with_its_first_examples(tmp_path):
    audio, empty = sound(tmp_path / "1.wav", 2), sound(tmp_path / "0.wav", 0)
    broken = put(tmp_path / "x.wav", b"no sound at all")
    words = Found("w", audio, "words")
    rows = [
        *(dataclasses.replace(words, id=f"n{i}", text=text) for i, text in enumerate((None, "", " \n", None, None))),
        dataclasses.replace(words, id="cyr", text="привет"),
        dataclasses.replace(words, id="dots", text="..."),
        dataclasses.replace(words, id="num", text="agent 7"),
        dataclasses.replace(words, id="short", duration=0.2),
        dataclasses.replace(words, id="long"),
        dataclasses.replace(words, id="empty", audio=empty),
        dataclasses.replace(words, id="bad", audio=broken),
        dataclasses.replace(words, id="past", offset=1.5, duration=1.0),
        dataclasses.replace(words, id="nan", duration=math.nan),
        dataclasses.replace(words, id="before", offset=-1, duration=1.0),
        dataclasses.replace(words, id="fine", duration=1.0),
        dataclasses.replace(words, id="fine", duration=1.1),
        Skipped("refused command", "u1", "rm |"),
    ]
    clips, report = keep(rows, min_s=0.3, max_s=1.5, digits="refuse")
    assert [(clip.id, clip.duration) for clip in clips] == [("fine", 1.0)]
    assert report.counts == {
        "no text": 5,
        "text cannot be normalised": 3,
        "too short": 2,
        "too long": 1,
        "unreadable audio": 1,
        "broken row": 3,
        "duplicate id": 1,
        "refused command": 1,
    }
    assert report.rows == len(rows) == len(clips) + sum(report.counts.values())
    assert report.failed == 5
    assert report.examples["no text"] == ["n0", "n1", "n2"]
    assert report.examples["too long"] == ["long (2 s)"]
    assert report.examples["refused command"] == ["u1 (rm |)"]


@pytest.mark.parametrize("suffix", ["wav", "ogg"])
def test_a_text_is_not_that_of_half_a_recording(tmp_path, suffix):
    """Whoever learns from it would learn words that nobody says; a part that is there, or no text at all, is fine."""
    rng = np.random.default_rng(1)
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, rng.normal(0, 0.1, 80_000).astype("float32"), 8000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    whole, part = Found("whole", path, "words"), Found("part", path, "words", duration=1.0)
    clips, report = keep([whole, part])
    assert [clip.id for clip in clips] == ["part"]
    assert (report.counts, report.failed) == ({"audio cut short": 1}, 1)
    assert f"whole ({path} is cut short" in report.examples["audio cut short"][0]
    assert len(keep([whole], text="ignore")[0]) == 1


def test_a_skipped_clip_does_not_take_the_id_of_a_good_one(tmp_path):
    audio = sound(tmp_path / "1.wav")
    clips, report = keep([Found("a", audio, None), Found("a", audio, "words")])
    assert [clip.text for clip in clips] == ["words"]
    assert report.counts == {"no text": 1}


def test_times_that_pass_the_end_by_rounding_end_with_the_audio(tmp_path):
    audio = sound(tmp_path / "1.wav", 1.0)
    (clip,), _ = keep([Found("a", audio, "x", offset=0.5, duration=0.51)])
    assert clip.duration == 0.5
    assert keep([Found("a", audio, "x", offset=0.5, duration=0.53)])[1].counts == {"broken row": 1}


def test_real_clips_go_through_a_kaldi_folder(tmp_path, shared):
    """The shared dev set written as segments comes back as the same clips."""
    theirs = read_manifest(shared / "data/speech/librispeech/manifest-dev.jsonl")
    audio_length.cache_clear()
    put(tmp_path / "wav.scp", f"dev-00 {theirs[0].audio}\n")
    put(tmp_path / "segments", "".join(f"{c.id} dev-00 {c.offset} {c.offset + c.duration}\n" for c in theirs))
    put(tmp_path / "text", "".join(f"{c.id} {c.text.upper()}\n" for c in theirs))
    put(tmp_path / "utt2spk", "".join(f"{c.id} {c.speaker}\n" for c in theirs))
    clips, report = keep(read("kaldi", tmp_path)[0])
    assert report.counts == {}
    write_manifest(tmp_path / "m.jsonl", clips)
    for ours, other in zip(read_manifest(tmp_path / "m.jsonl"), theirs, strict=True):
        assert (ours.id, ours.text, ours.speaker, ours.offset) == (other.id, other.text, other.speaker, other.offset)
        assert ours.duration == pytest.approx(other.duration, abs=1e-6)
        assert ours.audio.samefile(other.audio)


# --- split -----------------------------------------------------------------------------------------------------------


def clips_of(hours: dict[str, list[float]]) -> list[Clip]:
    return [Clip(f"{name}-{i}", Path("x"), d, speaker=name) for name, ds in hours.items() for i, d in enumerate(ds)]


speakers = st.dictionaries(
    st.text("abcdef", min_size=1), st.lists(st.floats(0.1, 20), min_size=1, max_size=4), min_size=3
)


@given(speakers, st.integers(0, 5), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_split_loses_nothing_and_never_cuts_a_speaker(hours, seed, random):
    clips = clips_of(hours)
    parts = split_by_speaker(clips, {"dev": 0.2, "test": 0.3}, seed)
    assert list(parts) == ["train", "dev", "test"]
    assert sorted(c.id for part in parts.values() for c in part) == sorted(c.id for c in clips)
    homes = [{c.speaker for c in part} for part in parts.values()]
    assert all(homes)
    assert sum(map(len, homes)) == len(hours)
    shuffled = random.sample(clips, len(clips))
    again = split_by_speaker(shuffled, {"dev": 0.2, "test": 0.3}, seed)
    assert [{c.speaker for c in part} for part in again.values()] == homes


def test_a_split_comes_near_its_shares_and_moves_with_the_seed():
    clips = clips_of({f"s{i}": [1.0 + i % 5] * 3 for i in range(100)})
    parts = split_by_speaker(clips, {"dev": 0.1, "test": 0.2}, 0)
    total = sum(clip.duration for clip in clips)
    shares = {name: sum(clip.duration for clip in part) / total for name, part in parts.items()}
    assert shares == pytest.approx({"train": 0.7, "dev": 0.1, "test": 0.2}, abs=0.02)
    assert parts["dev"] != split_by_speaker(clips, {"dev": 0.1, "test": 0.2}, 1)["dev"]


def test_a_split_wants_speakers():
    with pytest.raises(InputError, match="'a' has no speaker"):
        split_by_speaker([Clip("a", Path("x"), 1.0)], {"dev": 0.1}, 0)
    with pytest.raises(InputError, match="2 speakers for 3 parts"):
        split_by_speaker(clips_of({"a": [1], "b": [1]}), {"dev": 0.1, "test": 0.1}, 0)


def test_summary_counts_rows_hours_speakers():
    clips = [*clips_of({"a": [1800, 1800], "b": [1800]}), Clip("z", Path("x"), 1800.0)]
    assert summary(clips) == {"rows": 4, "hours": 2.0, "speakers": 2}


def test_a_name_that_is_not_utf8_stops_nothing(tmp_path):
    for name in (b"k\xe4se", b"b", b"c"):
        sound(tmp_path / "plain/1.wav").parent.rename(tmp_path / os.fsdecode(name))
        put(tmp_path / os.fsdecode(name) / "1.txt", "words")
    clips, report = keep(read("folder", tmp_path)[0])
    assert len(clips) + report.failed == 3  # the decoder may or may not open such a name; it is told
    write_manifest(tmp_path / "m.jsonl", clips)
    assert [clip.id for clip in read_manifest(tmp_path / "m.jsonl")] == [clip.id for clip in clips]


def test_speakers_that_are_not_utf8_can_be_split():
    parts = split_by_speaker(clips_of({os.fsdecode(b"k\xe4se"): [1], "b": [1], "c": [1]}), {"dev": 0.4}, 0)
    assert sum(map(len, parts.values())) == 3
