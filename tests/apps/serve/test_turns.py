"""Live speech of several clients in one process: the words of each alone, recognised together, a round at a time."""

import numpy as np
import pytest
from spoken_tones import LoudnessActivity, ToneRecogniser, speak
from voiceseq.apps.serve import turns
from voiceseq.apps.serve.orders import Order
from voiceseq.apps.serve.turns import SpeechStream, Turn, Turns

from voiceseq.audio import cutting
from voiceseq.errors import InputError
from voiceseq.inference.transcriber import Transcriber

WORDS = [
    ["one", "two", ".9", "three", ".9"],
    ["six", ".9", "oak", "six", "six", ".9"],
    ["two", "oak", ".9", "one", ".9"],
]


@pytest.fixture(autouse=True)
def loudness(monkeypatch):
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)


def pcm(words) -> bytes:
    return (speak(words) * 32767).astype("<i2").tobytes()


def finals(answers) -> list[str]:
    return [event["text"] for answer in answers for event in answer["events"] if event["type"] == "final"]


def run(sounds, recogniser, size=3200):
    """All clients send at the same pace; their answers, and how many were answered before the recogniser was asked."""
    transcriber = Transcriber(recogniser)
    streams = [SpeechStream(transcriber, Order()) for _ in sounds]
    queue, answers = Turns(), [[] for _ in sounds]
    longest = max(map(len, sounds))
    for at in range(0, longest + size, size):
        for number, (stream, sound) in enumerate(zip(streams, sounds, strict=True)):
            queue.add(Turn(number, stream, sound[at : at + size] if at < longest else None))
        while queue.waiting:
            for turn in queue.next(len(streams)):
                answers[turn.number].append(turn.answer())
    return answers


def test_each_client_hears_its_own_words_and_some_are_recognised_together():
    recogniser = ToneRecogniser()
    sounds = [pcm(words) for words in WORDS]
    together = [finals(one) for one in run(sounds, recogniser)]
    assert together == [finals(run([sound], ToneRecogniser())[0]) for sound in sounds]
    assert [" ".join(one).split() for one in together] == [[w for w in words if "." not in w] for words in WORDS]
    assert max(map(len, recogniser.batches)) >= 2


def test_a_round_is_no_longer_than_it_may_be(monkeypatch):
    monkeypatch.setattr(turns, "ROUND_S", 1.0)
    recogniser = ToneRecogniser()
    sounds = [pcm(["one", "two", ".9"])] * 6
    assert [finals(one) for one in run(sounds, recogniser)] == [["one two"]] * 6
    assert all(sum(batch[:-1]) <= turns.RATE for batch in recogniser.batches)


def test_who_has_nothing_to_be_recognised_is_answered_before_the_others_are():
    recogniser = ToneRecogniser()
    transcriber = Transcriber(recogniser)
    queue = Turns()
    for number, words in enumerate((["one", ".9"], [".9"])):
        queue.add(Turn(number, SpeechStream(transcriber, Order()), pcm(words)))
    order = queue.next(2)
    assert next(order).number == 1
    assert recogniser.batches == []
    assert next(order).number == 0
    assert len(recogniser.batches) == 1


def test_a_recogniser_that_fails_is_told_to_those_it_failed():
    class Broken(ToneRecogniser):
        def recognise(self, pieces, decoding):
            raise InputError("out of order")

    queue = Turns()
    sound = pcm(["one", ".9"])
    queue.add(Turn(1, SpeechStream(Transcriber(Broken()), Order()), sound))
    queue.add(Turn(2, SpeechStream(Transcriber(ToneRecogniser()), Order()), sound))
    first, second = sorted(queue.next(2), key=lambda turn: turn.number)
    with pytest.raises(InputError, match="out of order"):
        first.answer()
    assert finals([second.answer()]) == ["one"]


def test_nan_is_counted_and_nobody_is_harmed():
    stream = SpeechStream(Transcriber(ToneRecogniser()), Order(format="f32le"))
    queue = Turns()
    queue.add(Turn(1, stream, np.full(1600, np.nan, np.float32).tobytes()))
    (turn,) = queue.next(1)
    assert turn.answer()["events"] == []
    assert stream.replaced == 1600
