"""Cutting long sound: nothing of the speech is lost, no piece is too long, any cut of the blocks gives the same."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoken_tones import LoudnessActivity, speak

from voiceseq.audio import cutting
from voiceseq.audio.cutting import Cutter, Cutting, cut_speech
from voiceseq.audio.vad import SAMPLE_RATE
from voiceseq.errors import InputError


@pytest.fixture(autouse=True)
def loudness(monkeypatch):
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)


def covered(pieces, samples) -> np.ndarray:
    """Which samples are in a piece; checks that pieces hold what lies there."""
    inside = np.zeros(len(samples), bool)
    for piece in pieces:
        start = round(piece.start * SAMPLE_RATE)
        there = samples[start : start + len(piece.samples)]
        assert np.array_equal(piece.samples[: len(there)], there)
        inside[start : start + len(there)] = True
    return inside


def test_a_pause_parts_two_pieces():
    samples = speak([".7", "one", "two", ".9", ".9", "three", ".9"])
    pieces = cut_speech(samples)
    assert [piece.cut for piece in pieces] == [None, None]
    inside = covered(pieces, samples)
    assert inside[np.abs(samples) > 0].all()
    assert 0.3 < 1 - inside.mean() < 0.7  # silence is left out


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["one", "two", ".1", ".3", ".9"]), min_size=1, max_size=80), st.integers(2, 9))
def test_no_loud_sample_is_lost_and_no_piece_too_long(words, longest_s):
    samples = speak(words)
    pieces = cut_speech(samples, Cutting(longest_s=longest_s))
    assert covered(pieces, samples)[np.abs(samples) > 0].all()
    assert all(piece.duration_s <= longest_s + 1e-6 for piece in pieces)
    for before, piece in pairwise(pieces):
        if piece.cut is None:
            assert piece.start >= before.start + before.duration_s - 1e-6
        else:
            assert piece.start < piece.cut < before.start + before.duration_s
            assert before.start + before.duration_s - piece.start <= 2.0 + 1e-6


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 60_000), max_size=10))
def test_any_cut_of_the_blocks_gives_the_same_pieces(sizes):
    samples = speak(["one", "two", "three"] * 25 + [".9", ".9", "four"])
    cutter, pieces, at = Cutter(Cutting(longest_s=6)), [], 0
    for size in [*sizes, len(samples)]:
        pieces += cutter.feed(samples[at : at + size])
        at += size
    pieces += cutter.finish()
    whole = cut_speech(samples, Cutting(longest_s=6))
    assert [(piece.start, piece.cut) for piece in pieces] == [(piece.start, piece.cut) for piece in whole]
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(pieces, whole, strict=True))


def test_a_cut_inside_speech_lies_where_it_is_quiet():
    time = np.arange(30 * SAMPLE_RATE) / SAMPLE_RATE
    loud = np.where((time % 5 > 3.9) & (time % 5 < 4.1), 0.05, 0.3)  # a dip every five seconds, too brief for a pause
    samples = (loud * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
    for piece in cut_speech(samples, Cutting(longest_s=12))[1:]:
        assert abs(piece.cut % 5 - 4.0) < 0.15


def test_memory_is_bounded_and_forgotten():
    cutter = Cutter(Cutting(longest_s=5))
    for _ in range(60):
        cutter.feed(speak(["one"] * 10))
        assert len(cutter._held) <= 9 * SAMPLE_RATE
    cutter.feed(np.zeros(60 * SAMPLE_RATE, np.float32))
    assert len(cutter._held) < SAMPLE_RATE
    assert not cutter.speaking
    assert cutter.heard() is None


def test_the_piece_that_is_being_heard():
    cutter = Cutter()
    assert cutter.feed(speak([".5", "one", "two"])) == []
    assert cutter.speaking
    assert cutter.heard().duration_s == pytest.approx(0.5, abs=0.5)
    cutter.feed(np.zeros(8000, np.float32))
    assert cutter.silence_s == pytest.approx(0.5, abs=0.2)


def test_speech_that_is_never_sure_is_dropped(monkeypatch):
    class Doubtful(LoudnessActivity):
        def feed(self, samples):
            return 0.7 * super().feed(samples)

    monkeypatch.setattr(cutting, "SpeechActivity", Doubtful)
    assert cut_speech(speak(["one", "two"])) == []


@pytest.mark.parametrize("wrong", [{"longest_s": 0.1}, {"longest_s": float("nan")}, {"begin": 0.1, "go_on": 0.5}])
def test_wrong_settings(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Cutting(**wrong)


def test_nothing_and_silence():
    assert cut_speech(np.zeros(0, np.float32)) == []
    assert cut_speech(np.zeros(1, np.float32)) == []
    assert cut_speech(np.zeros(SAMPLE_RATE, np.float32)) == []
