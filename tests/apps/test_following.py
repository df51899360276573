"""After a wake word: the command that follows, where it ends, and what is printed."""

import json

import numpy as np
import pytest
from spoken_tones import LoudnessActivity, ToneRecogniser, speak, tone_bundle, use_tones
from tones import ToneDetector
from tones import sound as wake_sound
from voiceseq.apps.listen.app import Listening
from voiceseq.apps.listen.following import LONGEST_S, WAIT_S, Following
from voiceseq.apps.listen.saving import Saver
from voiceseq.apps.listen.session import Detection, Session

import voiceseq
from voiceseq.audio import cutting, vad
from voiceseq.audio.files import write_audio
from voiceseq.audio.microphone import Block, InputDevice
from voiceseq.audio.resample import resample
from voiceseq.cli import main
from voiceseq.inference import transcriber
from voiceseq.inference.speech import SAMPLE_RATE
from voiceseq.inference.transcriber import Transcriber

WAKE = wake_sound(0.6, (0.2, "high"))


@pytest.fixture(autouse=True)
def tones(monkeypatch):
    monkeypatch.setattr(transcriber, "RECOGNISERS", dict(transcriber.RECOGNISERS))
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)
    monkeypatch.setattr(vad, "SpeechActivity", LoudnessActivity)
    use_tones()


@pytest.fixture
def following() -> Following:
    return Following(Transcriber(ToneRecogniser(16.0)))


def heard(following, samples, *times, rate=SAMPLE_RATE, size=960):
    found = []
    for at in range(0, len(samples), size):
        block = Block(samples[at : at + size], rate, at / rate)
        detected = [Detection("alexa", time, 0.9) for time in times if at / rate <= time < (at + size) / rate]
        found += following.hear(block, detected)
    return found


@pytest.mark.parametrize("rate", [16_000, 48_000])
@pytest.mark.parametrize("size", [960, 100_000_000])
def test_the_words_after_the_wake_word_until_a_second_of_silence(following, rate, size):
    samples = np.concatenate([speak(["one", ".3", "two", "three", ".9"]), speak([".9", "four", "four"])])
    samples = samples if rate == SAMPLE_RATE else resample(samples, SAMPLE_RATE, rate)
    found = heard(following, samples, 0.45, rate=rate, size=size)
    found += following.finish()
    assert [(one.word, one.text) for one in found] == [("alexa", "two three")]
    assert found[0].end < 2.6
    assert found[0].start == found[0].time == 0.45
    assert found[0].words[0].start == pytest.approx(0.6, abs=0.04)
    assert not following.listening


def test_nothing_is_said(following):
    found = heard(following, speak([".9"] * 10), 0.5)
    assert [one.text for one in found] == [""]
    assert found[0].end - found[0].start == pytest.approx(WAIT_S, abs=0.2)


def test_somebody_who_does_not_stop(following):
    found = heard(following, speak(["one"] * 80), 0.0)
    assert found[0].end - found[0].start == pytest.approx(LONGEST_S, abs=0.1)
    assert found[0].text.split()[:40] == ["one"] * 40


def test_without_a_wake_word_nothing_is_listened_to(following):
    assert heard(following, speak(["one", ".9", ".9"])) == []
    assert following.finish() == []


def test_a_second_wake_word_belongs_to_the_command(following):
    assert len(heard(following, speak(["one", "two", ".9", ".9"]), 0.0, 0.4)) == 1


def test_a_gap_ends_a_command(following):
    following.hear(Block(speak(["one", "two"]), SAMPLE_RATE, 0.0), [Detection("alexa", 0.0, 0.9)])
    found = following.hear(Block(speak(["three"]), SAMPLE_RATE, 9.0, gap_s=8.0), [])
    assert [one.text for one in found] == ["one two"]


class Recorded:
    """Stands in for a microphone."""

    info, sample_rate, trouble, overruns = InputDevice(0, "x", "y", 1, SAMPLE_RATE, True), SAMPLE_RATE, None, 0

    def __init__(self, samples):
        self.blocks = [
            Block(samples[at : at + 960], SAMPLE_RATE, at / SAMPLE_RATE) for at in range(0, len(samples), 960)
        ]

    def read(self, timeout_s):
        return self.blocks.pop(0)


def test_the_app_tells_and_gives_both(tmp_path, following):
    samples = np.concatenate([WAKE, speak(["two", "three", ".9", ".9"])])
    said = []
    app = Listening(
        Recorded(samples), Session({"t": ToneDetector(("high",))}), Saver(tmp_path, 1), None, said.append, following
    )
    found = [one.as_json() for _ in range(len(app.microphone.blocks)) for one in app.step(0)]
    assert [list(one) for one in found][:1] == [["word", "time", "score"]]
    assert found[-1]["text"].endswith("two three")  # the wake word is still going on when it is detected
    assert said[-1].startswith("after high: ")
    assert said[-1].endswith("two three")


def test_the_command_prints_both(tmp_path, monkeypatch, capsys):
    from tones import tone_bundle as wake_bundle

    wake_bundle(tmp_path / "wake", ("high",))
    tone_bundle(tmp_path / "speech")
    monkeypatch.setitem(voiceseq.KINDS, "tones", "tones:ToneDetector")
    write_audio(tmp_path / "a.wav", np.concatenate([WAKE, speak(["two", "three", ".9", ".9"])]), SAMPLE_RATE)
    words = ["listen", "--model", tmp_path / "wake", "--file", tmp_path / "a.wav", "--then", "transcribe"]
    words += ["--then-model", tmp_path / "speech"]
    assert main.main([*map(str, words), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(lines[0]) == ["file", "word", "time", "score"]
    assert list(lines[-1]) == ["file", "word", "time", "start", "end", "text", "words"]
    assert lines[-1]["text"].endswith("two three")
    assert main.main([*map(str, words)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("two three")
    assert main.main([*map(str, words[:-1]), str(tmp_path / "wake")]) == 1
    assert "a recogniser of speech was wanted" in capsys.readouterr().err
