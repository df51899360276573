"""What is said once is not said again; what fails is left out."""

import pytest
import soundfile
from small_ground import RATE, Whistlers, only

from voiceseq.audio.files import read_audio
from voiceseq.datasets.voices import Manner, Sentence, Take, Voice
from voiceseq.errors import AudioError, InputError
from voiceseq.wakeword import speaking
from voiceseq.wakeword.speaking import name_of, say_all

HOARSE = Voice("whistle", "choir", "hoarse")


@pytest.fixture
def choir(monkeypatch) -> Whistlers:
    engine = Whistlers()
    only(monkeypatch, engine)
    return engine


def takes(*speeds: float) -> list[Take]:
    return [Take(Sentence("luna", "hey"), Whistlers.voices[0], Manner(speed=speed)) for speed in speeds]


def test_clips_are_what_was_said_with_the_phrase_in_its_place(choir, tmp_path):
    (clip,) = say_all(takes(1.0), tmp_path)
    assert (clip.text, clip.speaker, clip.extra["engine"]) == ("hey luna", "whistle/choir/v0", "whistle")
    audio = read_audio(clip.audio)
    assert audio.sample_rate == RATE
    assert audio.duration_s == clip.duration
    assert clip.duration - 0.1 < 7 * 0.05 < clip.duration + 0.1
    assert clip.extra["word_end"] - clip.extra["word_start"] == pytest.approx(0.2, abs=0.03)
    assert clip.extra["word_start"] > 0.1


def test_a_second_run_says_nothing_again(choir, tmp_path):
    first = say_all(takes(1.0, 1.2), tmp_path)
    assert choir.said == 2
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert say_all(takes(1.0, 1.2), tmp_path) == first
    assert choir.said == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps
    assert len(say_all(takes(1.0, 1.3), tmp_path)) == 2
    assert choir.said == 3


def test_what_a_killed_run_left_half_done_is_said_again(choir, tmp_path):
    (clip,) = say_all(takes(1.0), tmp_path)
    clip.audio.with_suffix(".json").unlink()
    assert say_all(takes(1.0), tmp_path) == [clip]
    assert choir.said == 2


def test_takes_that_fail_are_left_out_and_the_others_stay_in_order(choir, tmp_path, monkeypatch):
    monkeypatch.setattr(speaking, "LONGEST_S", 1.0)
    failing = Take(Sentence("luna"), HOARSE, Manner())
    endless = Take(Sentence("luna " * 20), Whistlers.voices[0], Manner())
    told = []
    a, b = takes(1.0, 1.2)
    clips = say_all([a, failing, endless, b], tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [clip.id for clip in clips] == [name_of(a), name_of(b)]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_none_at_all_is_an_error(choir, tmp_path):
    with pytest.raises(InputError, match="try other voices"):
        say_all([Take(Sentence("luna"), HOARSE, Manner())], tmp_path)
    assert say_all([], tmp_path) == []


def test_names_tell_apart_what_sounds_apart():
    base = Take(Sentence("luna"), Whistlers.voices[0], Manner(seed=1))
    others = [
        Take(Sentence("luna", "hey"), base.voice, base.manner),
        Take(base.sentence, Whistlers.voices[1], base.manner),
        Take(base.sentence, base.voice, Manner(seed=2)),
        Take(base.sentence, base.voice, Manner(seed=1, other=Whistlers.voices[1], share=0.5)),
    ]
    assert len({name_of(one) for one in [base, *others]}) == 5
    assert name_of(Take(Sentence("luna"), Whistlers.voices[0], Manner(seed=1))) == name_of(base)


def test_a_full_disk_is_one_clear_error_and_leaves_nothing_that_looks_whole(choir, tmp_path, monkeypatch):
    from pathlib import Path

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(AudioError, match="No space left"):
            say_all(takes(1.0), tmp_path)
    assert not list(tmp_path.glob("*.json"))
    (clip,) = say_all(takes(1.0), tmp_path)
    assert soundfile.info(clip.audio).frames > 0
