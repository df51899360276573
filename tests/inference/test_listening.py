"""A live stream: partials as words come, finals after a pause, the same whatever the chunks."""

import numpy as np
import pytest
from echo import VOCABULARY, Echo, say, silence
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import Decoding, SpeechEvent
from voiceseq.text.kneser_ney import train_ngram


def spoken(text: str) -> np.ndarray:
    """Slow enough to be heard on any grid of frames."""
    return say(text, 4, 3)


CALL = np.concatenate((silence(2.3), spoken("hello"), silence(1.5), spoken("the cab"), silence(4), spoken("sea")))


def recogniser(lm: bool = False) -> AcousticRecogniser:
    return AcousticRecogniser(Echo(causal=True), VOCABULARY, lm=train_ngram([["cab"], ["the"]], 1) if lm else None)


def run(sound: np.ndarray, cuts: list[int], rate: int = 16_000, lm: bool = False) -> list[SpeechEvent]:
    stream = recogniser(lm).stream(rate)
    pieces = np.split(sound, sorted(cuts))
    return [event for piece in pieces for event in stream.feed(piece)] + stream.finish()


def finals(events: list[SpeechEvent]) -> list[SpeechEvent]:
    return [event for event in events if event.kind == "final"]


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, len(CALL)), max_size=40))
def test_finals_do_not_depend_on_the_chunks(cuts: list[int]) -> None:
    whole = finals(run(CALL, []))
    assert [event.text for event in whole] == ["hello", "the cab", "sea"]
    assert finals(run(CALL, cuts)) == whole


def test_times_are_those_of_the_sound() -> None:
    """A frame more or less: a stream begins anew at its own blocks."""
    starts = [2.3, 2.3 + 5 * 0.21 + 1.5, 2.3 + 5 * 0.21 + 1.5 + 7 * 0.21 + 4]
    for event, start in zip(finals(run(CALL, [])), starts, strict=True):
        assert event.start == pytest.approx(start, abs=0.07)
        assert event.words[0].start == event.start
        assert event.words[-1].end == event.end
        assert event.words[0].word == event.text.split()[0]


def test_partials_grow_and_come_before_their_final() -> None:
    events = run(CALL, list(range(800, len(CALL), 800)))
    first = [event for event in events if event.start < 4]
    assert [event.text for event in first] == ["h", "he", "hel", "hell", "hello", "hello"]
    assert [event.kind for event in first] == ["partial"] * 5 + ["final"]


def test_a_final_comes_soon_after_the_pause_and_a_partial_soon_after_the_word() -> None:
    stream, sound = recogniser().stream(), np.concatenate((spoken("cab"), silence(2)))
    end = 3 * 0.21 - 0.09
    for number in range(0, len(sound), 160):
        for event in stream.feed(sound[number : number + 160]):
            now = (number + 160) / 16_000
            if event.kind == "final":
                assert 0.6 <= now - end <= 0.8
                return
            if event.text == "cab":
                assert now - end < 0.2
    raise AssertionError("no final came")


def test_without_a_pause_the_words_still_come() -> None:
    words = "sea " * 60
    found = finals(run(np.concatenate((spoken(words), silence(1))), []))
    assert len(found) > 2
    assert " ".join(event.text for event in found).split() == words.split()
    assert all(event.end - event.start <= 20.1 for event in found)


def test_a_final_is_read_with_the_language_model() -> None:
    sound = np.concatenate((say("c?b", 1, 3), silence(1)))
    assert [event.text for event in finals(run(sound, [], lm=True))] == ["cab"]
    stream = recogniser().stream(decoding=Decoding("beam", hotwords=("cbb",)))
    assert [event.text for event in finals(stream.feed(sound))] == ["cbb"]


def test_another_rate_and_broken_samples() -> None:
    sound = np.repeat(CALL, 3)
    sound[100] = np.nan
    events = finals(run(sound, [], rate=48_000))
    assert [event.text for event in events] == ["hello", "the cab", "sea"]
    stream = recogniser().stream(48_000)
    stream.feed(sound)
    assert stream.replaced == 1


def test_reset_is_a_new_stream() -> None:
    stream = recogniser().stream()
    stream.feed(CALL[:60_000])
    stream.reset()
    assert finals(stream.feed(CALL) + stream.finish()) == finals(run(CALL, []))
    assert stream.finish() == []
    with pytest.raises(InputError, match="finished"):
        stream.feed(CALL)


def test_silence_says_nothing_for_ever() -> None:
    stream = recogniser().stream()
    assert [event for _ in range(20) for event in stream.feed(silence(1))] == []
    assert stream._rows.shape[0] < 60  # and nothing piles up


def test_what_needs_the_whole_does_not_stream() -> None:
    with pytest.raises(InputError, match="whole utterances"):
        AcousticRecogniser(Echo(), VOCABULARY).stream()
