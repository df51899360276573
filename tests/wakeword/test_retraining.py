"""Where the word of a saved clip is, and how a detector is judged by the clips."""

import numpy as np
import pytest
from small_ground import RATE

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import find_utterance
from voiceseq.inference.events import Event
from voiceseq.wakeword.retraining import SavedClip, compared, judge, length_of, own_of, place

LENGTH_S = 0.8


class Ear:
    """A detector of two words: surest of the first at ``peak`` seconds; fires where a sample is over a half."""

    words = ("luna", "other")

    def __init__(self, peak: float = 0.0) -> None:
        self.peak = peak

    def scores(self, samples, rate):
        times = np.arange(1, len(samples) * 100 // (3 * rate) + 1) * 0.03
        return times, np.stack([1e-6 / (1 + np.abs(times - self.peak)), np.linspace(0, 1, len(times))], 1)

    def detect(self, samples, rate):
        return [Event("luna", 1.0, 0.9)] if np.abs(samples).max() > 0.5 else []


@pytest.fixture
def saved(tmp_path):
    def make(name: str, *said: tuple[float, float], missed=True, at=None, level=0.4) -> SavedClip:
        samples = np.random.default_rng(1).normal(0, 1e-4, 6 * RATE)
        for start, end in said:
            samples[round(start * RATE) : round(end * RATE)] += level * np.sin(
                np.arange(round((end - start) * RATE)) / 5
            )
        path = write_audio(tmp_path / f"{name}.wav", samples.astype(np.float32), RATE)
        return SavedClip(Clip(name, path, 6.0), "luna", missed, at)

    return make


def test_a_word_that_stands_alone_is_where_it_is_not_silent(saved):
    found = place(saved("alone", (2.0, 2.9), at=5.0), Ear(0.5), LENGTH_S)
    assert (found["word_start"], found["word_end"]) == pytest.approx((2.0, 2.9), abs=0.03)


def test_amid_talk_it_ends_where_the_old_detector_was_nearest_to_waking(saved):
    found = place(saved("talk", (0.5, 5.5), at=5.8), Ear(3.0), LENGTH_S)
    assert found["word_end"] == pytest.approx(2.9, abs=0.03)
    assert found["word_end"] - found["word_start"] == pytest.approx(LENGTH_S)


def test_not_after_the_key_was_pressed(saved):
    found = place(saved("key", (0.5, 5.5), at=2.0), Ear(5.0), LENGTH_S)
    assert found["word_end"] < 2.3


@pytest.mark.parametrize("peak", [0.0, 0.03, 6.0])
def test_wherever_it_peaks_the_place_lies_in_the_clip(saved, peak):
    one = saved("edge", (0.0, 6.0))
    found = place(one, Ear(peak), LENGTH_S)
    assert 0 <= found["word_start"] < found["word_end"] <= 6.0


def test_a_false_alarm_is_a_negative_and_its_part_another_word(saved):
    alarm, missed = saved("alarm", (0.5, 5.5), missed=False, at=4.0), saved("missed", (2.0, 2.9))
    own = own_of([alarm, missed], Ear(1.0), {"luna": LENGTH_S, "other": 0.6})
    assert own.negatives == [alarm.clip]
    (part,) = own.others
    assert (part.extra["word_start"], part.extra["word_end"]) == pytest.approx((3.1, 3.9), abs=0.03)
    assert {word: [clip.id for clip in clips] for word, clips in own.recordings.items()} == {
        "luna": ["missed"],
        "other": [],
    }
    assert find_utterance(own.recordings["luna"][0], 0).start_s == pytest.approx(2.0, abs=0.03)


def test_before_and_after(saved):
    clips = [
        saved("a", (1, 2), missed=False, level=0.8),
        saved("b", (1, 2), missed=False),
        saved("c", (1, 2), level=0.8),
    ]
    before = judge(Ear(), clips)
    assert before == {"false alarms": {"clips": 2, "fire": 1}, "missed": {"clips": 1, "heard": 1}}
    after = {"false alarms": {"clips": 2, "fire": 0}, "missed": {"clips": 1, "heard": 1}}
    assert compared(before, after) == [
        "of 2 false alarms 1 fired, now 0 do",
        "of 1 missed words 1 were heard, now 1 are",
    ]
    assert judge(Ear(), []) == {"false alarms": {"clips": 0, "fire": 0}, "missed": {"clips": 0, "heard": 0}}


def test_longer_phrases_take_longer():
    assert length_of([("HH", "EY")]) < length_of([("HH", "EY", "L", "UW", "N", "AH")]) == pytest.approx(0.8)
