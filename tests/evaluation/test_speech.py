"""Speech reports on a language in which what is heard is known exactly, and on hypotheses made by hand."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from echo import VOCABULARY, Echo, say, silence

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import InputError
from voiceseq.evaluation import speech
from voiceseq.evaluation.speech import (
    Heard,
    Hearing,
    calibration,
    confused_words,
    error_row,
    group_rows,
    hear,
    judged_words,
    plain,
    search_report,
    speech_report,
    write_utterances,
)
from voiceseq.evaluation.speech_plots import plot_speech
from voiceseq.inference.recogniser import AcousticRecogniser, SearchSettings
from voiceseq.inference.speech import Decoding, Hypothesis, Word
from voiceseq.inference.transcriber import Transcriber

RATE = 16_000


def heard(said: str, text: str, speaker: str | None = "a", sure: float = 0.9, **extra: object) -> Heard:
    words = tuple(Word(word, 0.0, 0.1, sure) for word in text.split())
    clip = Clip(f"{speaker}:{said}>{text}", Path("x.wav"), 1.0, 0.0, said, speaker, extra)
    return Heard(clip, said, text, Hypothesis(text, -1.0, words))


@pytest.fixture
def transcriber() -> Transcriber:
    return Transcriber(AcousticRecogniser(Echo(), VOCABULARY, SearchSettings(beam=4)))


def clips(folder: Path, *texts: tuple[str, str], speaker: str = "a") -> list[Clip]:
    """What is said and what the manifest says of it."""
    found = []
    for number, (said, text) in enumerate(texts):
        path = write_audio(folder / f"{speaker}{number}.wav", say(said), RATE)
        found.append(Clip(f"{speaker}{number}", path, len(say(said)) / RATE, 0.0, text, speaker))
    return found


def test_clips_are_heard_in_order_whatever_the_batches(transcriber: Transcriber, tmp_path: Path) -> None:
    rows = clips(tmp_path, ("the cab", "The cab!"), ("a", "a"), ("hello sea", "hello, C"), ("cat", "cat"))
    sizes = []
    recognise = transcriber.recogniser.recognise

    def counted(pieces, decoding):
        sizes.append(sum(map(len, pieces)) / RATE)
        return recognise(pieces, decoding)

    transcriber.recogniser.recognise = counted
    shown = []
    for seconds in (0.01, 1.0, 100.0):
        found = hear(transcriber, rows, Decoding("greedy"), seconds, lambda what, done: shown.append(done))
        assert [one.clip.id for one in found.heard] == [row.id for row in rows]
        assert [one.text for one in found.heard] == ["the cab", "a", "hello sea", "cat"]
        assert [one.reference for one in found.heard] == ["the cab", "a", "hello c", "cat"]
        assert found.seconds == pytest.approx(sum(row.duration for row in rows))
        assert not found.failed
        assert max(sizes) <= max(seconds, max(row.duration for row in rows)) + 1e-6
    assert len(sizes) == 4 + 3 + 1  # one by one; the two short ones together; all
    assert sum(shown) == pytest.approx(3 * found.seconds)


def test_what_cannot_be_heard_is_told_and_the_rest_goes_on(transcriber: Transcriber, tmp_path: Path) -> None:
    rows = clips(tmp_path, ("the cab", "the cab"), ("a cat", "кот"))
    rows += [
        Clip("gone", tmp_path / "gone.wav", 1.0, text="gone"),
        dataclasses.replace(rows[0], id="silent", text=None),
        dataclasses.replace(rows[0], id="beyond", duration=60.0),
    ]
    found = hear(transcriber, rows, Decoding())
    assert [one.clip.id for one in found.heard] == ["a0"]
    assert {row["id"] for row in found.failed} == {"a1", "gone", "silent", "beyond"}
    assert any("к" in row["why"] for row in found.failed)
    with pytest.raises(InputError, match=r"none of 2 clips.*no text"):
        hear(transcriber, [dataclasses.replace(rows[0], id=name, text=None) for name in "bc"], Decoding())


def test_a_clip_longer_than_the_recogniser_hears_is_transcribed(transcriber: Transcriber, tmp_path: Path) -> None:
    rows = clips(tmp_path, ("the cab", "the cab"))
    transcriber.recogniser.longest_s = 0.3
    given = []

    def transcribe(samples, sample_rate, **settings):
        given.append((len(samples), sample_rate, settings["decoder"], settings["beam"]))
        return type("Found", (), {"text": "the cab", "words": (Word("the", 0, 1, 0.5),)})

    transcriber.transcribe = transcribe
    (one,) = hear(transcriber, rows, Decoding("beam", beam=3)).heard
    assert (one.text, one.best.words[0].confidence) == ("the cab", 0.5)
    assert given == [(len(say("the cab")), RATE, "beam", 3)]


def test_both_sides_are_normalised_and_other_scripts_are_wrong_words() -> None:
    assert plain("It's $5, Anna-Marie!") == "it's five dollars anna marie"
    assert plain("the Привет cab") == "the привет cab"
    assert plain("5 Привет") == "five привет"
    assert plain("...") == ""


def test_rates_are_of_all_words_with_intervals_over_speakers() -> None:
    found = [heard("a b c d", "a x c"), heard("a b", "a b c"), heard("a b c d", "a b c d", "b")]
    row = error_row(found)
    assert (row["utterances"], row["speakers"], row["words"], row["right"]) == (3, 2, 10, 8)
    assert (row["substitutions"], row["insertions"], row["deletions"]) == (1, 1, 1)
    assert row["wer"]["rate"] == pytest.approx(3 / 10)
    assert row["cer"]["rate"] == pytest.approx((3 + 2) / (7 + 3 + 7))
    assert row["wrong_sentences"] == pytest.approx(2 / 3)
    # drawn twice, speaker a has 3 errors in 6 words, speaker b none in 4
    assert (row["wer"]["low"], row["wer"]["high"]) == (0.0, 0.5)
    assert error_row([heard("", "a")])["wer"] is None
    assert error_row([])["wrong_sentences"] is None


def test_of_one_speaker_the_utterances_are_drawn() -> None:
    row = error_row([heard("a b", "a b"), heard("c d", "")])
    assert (row["wer"]["low"], row["wer"]["high"]) == (0.0, 1.0)


def test_clips_without_a_speaker_are_drawn_one_by_one() -> None:
    row = error_row([heard("a", "a", None), heard("b", "c", None)])
    assert row["speakers"] == 2
    assert (row["wer"]["low"], row["wer"]["high"]) == (0.0, 1.0)


def test_groups_and_sentences_of_the_training() -> None:
    found = [
        heard("a b", "a b", "p", role="agent", age=30),
        heard("c d", "c", "p", role="caller"),
        heard("e", "f", "q", role="caller"),
    ]
    report = speech_report(Hearing(found, [{"id": "x", "why": "y"}], 3.0, 0.6), ["role", "age"], ["A, b!", "zzz"])
    assert [(row["name"], row["words"]) for row in report["groups"]["role"]] == [("caller", 3), ("agent", 2)]
    assert [row["name"] for row in report["groups"]["age"]] == ["(not given)", "30"]
    assert [row["name"] for row in report["speakers"]] == ["q", "p"]
    assert (report["seen"]["wer"]["rate"], report["unseen"]["wer"]["rate"]) == (0.0, pytest.approx(2 / 3))
    assert report["cpu_s_per_s"] == pytest.approx(0.2)
    assert report["edits"]["words"] == {
        "substitutions": 1, "insertions": 0, "deletions": 1, "reference": 5, "right": 3,
    }  # fmt: skip
    assert report["failed"] == [{"id": "x", "why": "y"}]
    assert group_rows(found, lambda one: "all")[0]["wer"] == report["all"]["wer"]


def test_confused_words() -> None:
    found = confused_words([heard("a b a", "c b c"), heard("a b", "a"), heard("a", "a z")])
    assert found["substituted"] == [{"said": "a", "heard": "c", "count": 2, "of": 4}]
    assert found["deleted"] == [{"said": "b", "count": 1, "of": 2}]
    assert found["inserted"] == [{"heard": "z", "count": 1}]


def test_confidences_that_mean_what_they_say() -> None:
    """Of the words at 0.75 three in four are right, of those at 0.25 one in four: no error. Surer: 0.2 too much."""
    texts = ["a b c x", "a x y z"]
    assert calibration([heard("a b c d", texts[0], sure=0.75), heard("a b c d", texts[1], sure=0.25)]) == {
        "words": 8,
        "confidence": 0.5,
        "right": 0.5,
        "expected_error": 0.0,
        "bins": [
            {"low": n / 10, "high": (n + 1) / 10, "words": 4 * (n in (2, 7))}
            | ({"confidence": c, "right": c} if (c := {2: 0.25, 7: 0.75}.get(n)) else {})
            for n in range(10)
        ],
    }
    surer = calibration([heard("a b c d", texts[0], sure=0.95), heard("a b c d", texts[1], sure=0.45)])
    assert surer["expected_error"] == pytest.approx(0.2)
    assert calibration([heard("a", "")]) is None
    assert calibration([heard("a", "a", sure=1.0)])["bins"][9]["right"] == 1.0


def test_a_word_that_is_written_in_figures_is_judged_as_it_is_said() -> None:
    one = heard("twenty one cats", "21 cats", sure=0.7)
    assert judged_words([one]) == [(0.7, True)] * 3
    assert judged_words([heard("a c", "a b c")]) == [(0.9, True), (0.9, False), (0.9, True)]


def test_the_search_or_the_model(transcriber: Transcriber, tmp_path: Path) -> None:
    """? lies half-way between a and b. A search that misses the better of two texts is at fault, else the model."""
    rows = clips(tmp_path, ("c?t", "cat"), ("the sea", "the tea"), ("hello", "hello"))
    hearing = hear(transcriber, rows, Decoding("greedy"))
    found = search_report(transcriber.recogniser, hearing, Decoding("greedy"))
    wrong = [one for one in hearing.heard if one.text != one.reference]
    assert found["wrong"] == len(wrong)
    assert found["of"] == 3
    assert found["search"]["count"] == 0
    assert found["model"]["count"] == len(wrong)  # equally good texts count as the model's fault
    # had the search given something worse than what was said, the search would be at fault
    bad = dataclasses.replace(hearing.heard[2], text="zzzzz")
    found = search_report(
        transcriber.recogniser, dataclasses.replace(hearing, heard=[bad, *hearing.heard[1:2]]), Decoding("beam")
    )
    assert (found["search"]["count"], found["model"]["count"]) == (1, 1)
    assert search_report(transcriber.recogniser, hearing, Decoding("attention")) is None
    assert search_report(type("Other", (), {"decoders": ("beam",)})(), hearing, Decoding()) is None


def test_files_and_pictures(tmp_path: Path) -> None:
    found = [heard("a b", "a b", f"speaker {n}", role="x" * n) for n in range(40)] + [heard("c", "", "z")]
    hearing = Hearing(found, [], 41.0, 1.0)
    report = speech_report(hearing, ["role"], ["a b"])
    json.dumps(report, allow_nan=False)
    drawn = plot_speech(report, tmp_path)
    assert [path.name for path in drawn] == ["errors.png", "speakers.png", "calibration.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    write_utterances(hearing, tmp_path / "utterances.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "utterances.jsonl").read_text().splitlines()]
    assert rows[-1] == {"id": "z:c>", "speaker": "z", "reference": "c", "heard": "", "errors": 1, "words": 1}
    assert len(rows) == 41
    with pytest.raises(InputError, match="cannot be written"):
        write_utterances(hearing, tmp_path / "none" / "utterances.jsonl")
    nothing = speech_report(Hearing([heard("c", "")], [], 1.0, 1.0))
    assert [path.name for path in plot_speech(nothing, tmp_path)] == ["errors.png", "speakers.png"]


def test_silence_is_no_words(transcriber: Transcriber, tmp_path: Path) -> None:
    path = write_audio(tmp_path / "silence.wav", silence(1), RATE)
    (one,) = hear(transcriber, [Clip("s", path, 1.0, text="")], Decoding()).heard
    assert one.text == ""
    assert np.isclose(speech.error_row([one])["wrong_sentences"], 0)
