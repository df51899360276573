"""Live speech utterance by utterance: the words of the whole, finals that stay, partials that cost no latency."""

import numpy as np
import pytest
from spoken_tones import LoudnessActivity, ToneRecogniser, speak

from voiceseq.audio import cutting
from voiceseq.audio.microphone import Block
from voiceseq.inference import live
from voiceseq.inference.live import UtteranceStream, live_events
from voiceseq.inference.speech import SAMPLE_RATE


@pytest.fixture(autouse=True)
def loudness(monkeypatch):
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)


def events(samples, size=1600, rate=SAMPLE_RATE, recogniser=None):
    stream = UtteranceStream(recogniser or ToneRecogniser(), rate)
    found = [event for at in range(0, len(samples), size) for event in stream.feed(samples[at : at + size])]
    return found + stream.finish()


def finals(found) -> list[str]:
    return [event.text for event in found if event.kind == "final"]


def test_partial_then_final():
    found = events(speak([".5", "one", "two", "three", ".9", "four", ".9"]))
    assert finals(found) == ["one two three", "four"]
    partials = [event.text for event in found if event.kind == "partial"]
    assert found[0].kind == "partial"
    assert "one two three" in partials
    last = [event for event in found if event.kind == "final"][-1]
    assert last.start == pytest.approx(2.3, abs=0.05)
    assert last.words[0].start == pytest.approx(2.3, abs=0.05)


@pytest.mark.parametrize(("size", "rate"), [(50, 8000), (160, 16_000), (10**9, 16_000), (1600, 44_100)])
def test_finals_do_not_depend_on_the_chunks(size, rate):
    words = ["one", "two", ".9", "three", "four"] * 2
    found = events(speak(words, rate=rate), size, rate)
    assert " ".join(finals(found)) == "one two three four one two three four"


def test_long_speech_loses_no_word_and_doubles_none():
    words = [str(word) for word in np.random.default_rng(5).choice(["one", "two", "six", "oak"], 150)]
    for longest_s in (4.0, 7.3):
        found = events(speak(words), 4000, recogniser=ToneRecogniser(longest_s))
        assert " ".join(finals(found)).split() == words
        assert len(finals(found)) > 3


def test_partials_are_left_out_when_they_take_too_long(monkeypatch):
    clock = iter(range(10**6))
    fast = len(events(speak(["one"] * 30), 1600))
    monkeypatch.setattr(live.time, "perf_counter", lambda: float(next(clock)))  # every call takes a second
    slow = len(events(speak(["one"] * 30), 1600))
    assert slow < fast / 3


def test_a_partial_result_costs_the_same_however_long_somebody_speaks():
    words = [str(word) for word in np.random.default_rng(7).choice(["one", "two", "six", "oak"], 20)]
    recogniser, lengths = ToneRecogniser(), []
    whole = recogniser.recognise
    recogniser.recognise = lambda pieces, decoding: lengths.extend(map(len, pieces)) or whole(pieces, decoding)
    found = events(speak(words), 1600, recogniser=recogniser)
    assert finals(found) == [" ".join(words)]
    assert max(lengths[:-1]) < (live.WINDOW_S + live.PARTIAL_S + 0.5) * SAMPLE_RATE < lengths[-1]
    shown = [event.text.split() for event in found if event.kind == "partial"]
    assert all(words[: len(one) - 1] == one[:-1] for one in shown)  # the last word may be cut in two
    assert len(shown[-1]) >= len(words) - 2


def test_reset_is_a_new_stream():
    stream = UtteranceStream(ToneRecogniser())
    stream.feed(speak(["one", "two"]))
    stream.reset()
    samples = speak(["three", ".9"])
    assert finals(stream.feed(samples) + stream.finish()) == ["three"]


def test_silence_is_no_event():
    assert events(np.zeros(3 * SAMPLE_RATE, np.float32)) == []


def test_a_gap_begins_a_new_stream_in_the_time_of_the_blocks():
    one, two = speak(["one", ".3"]), speak(["two", ".3"])
    blocks = [Block(one, SAMPLE_RATE, 5.0), Block(two, SAMPLE_RATE, 60.0, gap_s=54.0, lost_s=54.0)]
    found = list(live_events(lambda rate: UtteranceStream(ToneRecogniser(), rate), blocks))
    assert finals(found) == ["one", "two"]
    assert [event.start for event in found if event.kind == "final"] == pytest.approx([5.0, 60.0], abs=0.05)
    assert found[-1].words[0].end == pytest.approx(60.24, abs=0.05)
