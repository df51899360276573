"""Transcripts as files: what each format promises, and texts that could break it."""

import json
import re

import pytest

from voiceseq.inference.formats import CUE_S, FORMATS, LINE, clock, make_cues
from voiceseq.inference.speech import Hypothesis, Word
from voiceseq.inference.transcripts import Answer, Segment, Transcript, make_segments


def transcript(*texts: str, word_s: float = 0.4, gap_s: float = 0.0) -> Transcript:
    segments, at = [], 0.5
    for text in texts:
        words = []
        for word in text.split():
            words.append(Word(word, at, at + word_s, 0.5))
            at += word_s + gap_s
        segments.append(Segment(words[0].start, words[-1].end, text, 0.5, tuple(words)))
        at += 2.0
    return Transcript("a.wav", at, "en", tuple(segments))


LONG = transcript(" ".join(f"word{number}" for number in range(60)), "the end")


def test_subtitles_are_short_and_in_order_and_lose_nothing():
    cues = list(make_cues(LONG))
    assert " ".join(cue.text for cue in cues).split() == LONG.text.split()
    for cue in cues:
        assert cue.start < cue.end <= cue.start + CUE_S + 1e-6
        assert len(cue.text.splitlines()) <= 2
        assert all(len(line) <= LINE for line in cue.text.splitlines())
    assert [cue.start for cue in cues] == sorted(cue.start for cue in cues)


def test_a_pause_ends_a_subtitle():
    assert [cue.text for cue in make_cues(transcript("one two three", gap_s=1.5))] == ["one", "two", "three"]


def test_a_word_that_is_longer_than_a_line_stays_whole():
    word = "x" * 100
    assert [cue.text for cue in make_cues(transcript(f"a {word} b"))] == [f"a\n{word}", "b"]


def test_a_segment_without_words_and_one_without_length():
    segments = (Segment(1.0, 2.0, "no times", 0.0, ()), Segment(3.0, 3.0, "at once", 0.0, ()))
    cues = list(make_cues(Transcript("a", 4.0, "en", segments)))
    assert [(cue.text, cue.start) for cue in cues] == [("no times", 1.0), ("at once", 3.0)]
    assert all(cue.end > cue.start for cue in cues)


def test_srt_and_vtt_are_well_formed():
    blocks = FORMATS["srt"](LONG).split("\n\n")
    for number, block in enumerate(blocks, 1):
        first, times, *lines = block.strip().splitlines()
        assert first == str(number)
        assert re.fullmatch(r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}", times)
        assert lines
    assert FORMATS["vtt"](LONG).startswith("WEBVTT\n\n00:00:00.500 --> ")
    assert "a &lt;b&gt; &amp; c" in FORMATS["vtt"](transcript("a <b> & c"))


def test_a_table_keeps_its_columns():
    odd = Transcript("a", 2.0, "en", (Segment(0.1, 1.2345, "tab\there\nand there", 0.0, ()),))
    assert FORMATS["tsv"](odd) == "start\tend\ttext\n100\t1234\ttab here and there\n"
    assert FORMATS["txt"](odd) == "tab here and there\n"


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_said(kind):
    text = FORMATS[kind](Transcript("a.wav", 1.0, "en", ()))
    wanted = {"txt": "", "srt": "", "vtt": "WEBVTT\n", "tsv": "start\tend\ttext\n"}
    assert text == wanted.get(kind, text)
    if kind == "json":
        assert json.loads(text) == {"file": "a.wav", "duration": 1.0, "language": "en", "text": "", "segments": []}


def test_json_of_a_name_that_is_not_utf8():
    text = FORMATS["json"](Transcript("bad\udcff.wav", 1.0, "en", ()))
    text.encode()
    assert text.count("\n") == 1


def test_clock():
    assert clock(0) == "00:00:00.000"
    assert clock(3661.2345, ",") == "01:01:01,234"
    assert clock(36_000) == "10:00:00.000"
    assert clock(59.9996) == "00:01:00.000"


def test_signs_for_music_are_no_speech():
    notes = Answer(0.0, 1.0, None, [Hypothesis("♪ ♪", -1.0, (Word("♪", 0.1, 0.4, 0.1),))])
    assert make_segments([notes, Answer(1.0, 2.0, None, []), Answer(2.0, 3.0, None, [Hypothesis(" ", 0.0, ())])]) == []
