"""The whole measurement on a detector whose answers are known in advance."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from voiceseq.audio.files import read_audio, write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import InputError
from voiceseq.evaluation.conditions import RATE, Hardener
from voiceseq.evaluation.streams import PAUSE_S, kind_of, sort_rows, streams
from voiceseq.evaluation.wakeword import (
    CURVE,
    OWN,
    WordHearing,
    false_alarms,
    hear,
    notable_alarms,
    save_alarms,
    wakeword_report,
)
from voiceseq.evaluation.wakeword_plots import plot_wakewords
from voiceseq.inference.events import Decision

HOP = 480
WORDS = ("high", "low")
TONES = {"high": 3000.0, "low": 700.0}


class ToneDetector:
    """Hears tones: the score of a word is the share of its frequency in the last 0.21 s, times how loud it is."""

    words, frame_s = WORDS, HOP / RATE

    def __init__(self, threshold: float = 0.5) -> None:
        self.decisions = {word: Decision(threshold, smoothing=2, patience=2, refractory_s=0.6) for word in WORDS}

    def scores(self, waveform: np.ndarray, sample_rate: int) -> tuple[np.ndarray, np.ndarray]:
        assert sample_rate == RATE
        frames = len(waveform) // HOP
        padded = np.concatenate((np.zeros(6 * HOP, np.float32), waveform))
        heard = np.stack([padded[i * HOP : (i + 7) * HOP] for i in range(frames)])
        time = np.arange(7 * HOP) / RATE
        found = [np.abs(heard @ np.exp(2j * np.pi * TONES[word] * time)) / (3.5 * HOP) for word in WORDS]
        return (np.arange(frames) + 1) * HOP / RATE, np.minimum(1, np.stack(found, 1)).astype(np.float32)


def tone(word: str, level: float, seconds: float = 0.4) -> np.ndarray:
    return (level * np.sin(2 * np.pi * TONES[word] * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def clip(folder: Path, name: str, parts: list[np.ndarray], **fields: object) -> Clip:
    samples = np.concatenate(parts).astype(np.float32)
    write_audio(folder / f"{name}.wav", samples, RATE)
    text, speaker = fields.pop("text", None), fields.pop("speaker", None)
    return Clip(name, folder / f"{name}.wav", len(samples) / RATE, 0.0, text, speaker, fields)


SILENCE = np.zeros(RATE // 2, np.float32)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    """Four people say "high", one of them too softly; two say "low", of whom one says it twice."""
    folder = tmp_path_factory.mktemp("spoken")
    rows = []
    for person, level in (("ann", 0.9), ("bob", 0.8), ("cy", 0.3), ("di", 0.7)):
        for take in range(3):
            parts = [SILENCE, tone("high", level), SILENCE]
            rows.append(clip(folder, f"high-{person}-{take}", parts, speaker=person, label="high",
                             word_start=0.5, word_end=0.9))  # fmt: skip
    rows.append(clip(folder, "low-ann", [SILENCE, tone("low", 0.9), SILENCE], speaker="ann", label="low",
                     word_start=0.5, word_end=0.9))  # fmt: skip
    twice = [SILENCE, tone("low", 0.9), SILENCE, SILENCE, tone("low", 0.9), SILENCE]
    rows.append(clip(folder, "low-eve", twice, speaker="eve", word="low", word_start=0.5, word_end=0.9))
    rows.append(clip(folder, "other", [SILENCE, tone("low", 0.1), SILENCE], speaker="eve", label="middle"))
    return rows


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> list[Clip]:
    """Speech with one loud and one softer tone, noise with none, music with one; and a sentence with the word."""
    folder = tmp_path_factory.mktemp("quiet")
    hush = (0.01 * np.random.default_rng(0).standard_normal(4 * RATE)).astype(np.float32)
    return [
        clip(folder, "talk-1", [hush, tone("high", 0.95), hush], text="nothing to see"),
        clip(folder, "talk-2", [hush, tone("high", 0.62), hush], text="nor here", speaker="fay"),
        clip(folder, "talk-3", [hush, tone("high", 0.9), hush], text="as high as the sky"),
        clip(folder, "hum", [hush, hush], kind="noise"),
        clip(folder, "song", [hush, tone("high", 0.75), hush], kind="music"),
    ]


@pytest.fixture(scope="module")
def hearing(spoken: list[Clip], quiet: list[Clip]):
    positives, negatives = sort_rows(WORDS, spoken, quiet)
    return hear(ToneDetector(), positives, negatives, ("clean", "10db"), Hardener())


def test_rows_are_sorted_by_what_they_say(spoken: list[Clip], quiet: list[Clip]) -> None:
    positives, negatives = sort_rows(WORDS, spoken, quiet)
    assert [word for word, _ in positives] == ["high"] * 12 + ["low"] * 2
    assert {kind: [one.id for one in clips] for kind, clips in negatives.items()} == {
        "words": ["other"],
        "speech": ["talk-1", "talk-2"],  # the third says "high"
        "noise": ["hum"],
        "music": ["song"],
    }
    positives, _ = sort_rows(["Nothing-to see"], [], quiet)
    assert not positives
    positives, _ = sort_rows(["Nothing-to see"], quiet, [])
    assert [(word, one.id) for word, one in positives] == [("Nothing-to see", "talk-1")]


def test_kinds(quiet: list[Clip]) -> None:
    bare = Clip("x", Path("x.wav"), 1.0)
    assert kind_of(bare) == "speech"
    assert kind_of(Clip("x", Path("x.wav"), 1.0, extra={"kind": "environment", "label": "rain"})) == "noise"
    with pytest.raises(InputError, match="'silence'"):
        kind_of(Clip("x", Path("x.wav"), 1.0, extra={"kind": "silence"}))


def test_streams_join_clips_and_find_them_again(quiet: list[Clip]) -> None:
    one, other = streams("speech", quiet[:3], longest_s=16.0)
    assert [len(one.clips), len(other.clips)] == [2, 1]
    assert one.hours == pytest.approx(sum(clip.duration for clip in quiet[:2]) / 3600)
    samples = one.read()
    second = round((quiet[0].duration + PAUSE_S) * RATE)
    assert np.array_equal(samples[second : second + RATE], read_audio(quiet[1].audio).samples[:RATE])
    assert not samples[second - round(PAUSE_S * RATE) : second].any()
    assert one.clip_at(1.0) == (quiet[0], 1.0)
    found, since = one.clip_at(quiet[0].duration + PAUSE_S + 2.0)
    assert (found, since) == (quiet[1], pytest.approx(2.0))


def test_the_own_threshold_finds_who_is_loud_enough(hearing) -> None:
    report = wakeword_report(hearing)
    high = report["words"]["high"]["own_threshold"]
    clean = high["conditions"]["clean"]
    assert high["reading"] == OWN
    assert (clean["utterances"], clean["people"], clean["missed"], clean["miss_rate"]) == (12, 4, 3, 0.25)
    assert clean["low"] < 0.25 < clean["high"]
    assert high["people"][0] == {
        "person": "cy", "utterances": 3, "missed": 3, "missed_ids": ["high-cy-0", "high-cy-1", "high-cy-2"],
    }  # fmt: skip
    assert -0.4 < clean["delay_median_s"] < 0.1
    assert clean["answered_more_than_once"] == 0
    alarms = high["false_alarms"]
    assert {kind: row["alarms"] for kind, row in alarms.items() if "hours" in row} == {
        "words": 0, "speech": 2, "noise": 0, "music": 1, "all": 3,
    }  # fmt: skip
    assert alarms["all"]["hours"] == pytest.approx(sum(report["hours"].values()) - report["hours"]["words"])
    assert alarms["all"]["low"] < alarms["all"]["per_hour"] < alarms["all"]["high"]
    assert alarms["the other words of the detector"] == {"alarms": 0, "clips": 2}
    assert alarms["noise"]["high"] == pytest.approx(3.6889 / alarms["noise"]["hours"], rel=1e-4)
    json.dumps(report, allow_nan=False)


def test_a_second_answer_is_counted_and_the_first_one_gives_the_delay(hearing) -> None:
    low = wakeword_report(hearing)["words"]["low"]["own_threshold"]["conditions"]["clean"]
    assert (low["missed"], low["answered_more_than_once"]) == (0, 1)
    assert low["high"] == pytest.approx(1 - 0.025 ** (1 / 2))


def test_the_curve_is_told_apart_and_its_thresholds_come_from_the_negatives(hearing) -> None:
    curve = wakeword_report(hearing)["words"]["high"]["operating_curve"]
    assert curve["reading"] == CURVE
    assert [point["wanted_per_hour"] for point in curve["points"]] == [0.1, 0.5, 1.0]
    for point in curve["points"]:  # in 32 s no alarm at all may come, so the threshold stands above the loudest
        assert point["alarms"] == 0
        assert point["threshold"] > 0.9
        assert point["conditions"]["clean"]["miss_rate"] == 1.0
    det = curve["det"]
    assert det[0]["per_hour"] == 0
    assert all(one["threshold"] > other["threshold"] for one, other in pairwise(det))
    assert all(one["miss_rate"]["clean"] >= other["miss_rate"]["clean"] for one, other in pairwise(det))


def test_late_and_early_answers_are_no_answers(spoken: list[Clip], quiet: list[Clip]) -> None:
    moved = [
        Clip(one.id, one.audio, one.duration, extra={"label": "high", "word_start": start, "word_end": start + 0.05})
        for one, start in ((spoken[0], 0.02), (spoken[3], 1.2))
    ]
    positives, negatives = sort_rows(WORDS, moved, quiet)
    heard = hear(ToneDetector(), positives, negatives)
    verdicts = WordHearing.of(heard, "high").judge("clean", 0.5)
    assert verdicts[0].delay_s == pytest.approx(0.7, abs=0.35)  # within a second after "the end"
    assert verdicts[1].delay_s is None  # before it began


class TiringDetector(ToneDetector):
    """Hears nothing any more after half a minute of a stream."""

    def scores(self, waveform: np.ndarray, sample_rate: int) -> tuple[np.ndarray, np.ndarray]:
        times, scores = super().scores(waveform, sample_rate)
        return times, np.where(times[:, None] < 30, scores, 0).astype(np.float32)


def test_words_are_heard_in_the_middle_of_streams(spoken: list[Clip], quiet: list[Clip]) -> None:
    """One after the other as one stream: a detector that loses its hearing does not get away with it."""
    positives, negatives = sort_rows(WORDS, spoken, quiet)
    fresh, tired = (
        wakeword_report(hear(detector, positives, negatives))["words"]["low"]["own_threshold"]["conditions"]["clean"]
        for detector in (ToneDetector(), TiringDetector())
    )
    assert (fresh["missed"], tired["missed"]) == (0, 2)  # "low" comes after twelve times "high"


def test_offending_seconds_can_be_played(hearing, tmp_path: Path) -> None:
    one = WordHearing.of(hearing, "high")
    alarms = false_alarms(one, 0.5)
    assert [(alarm.clip.id, alarm.kind, alarm.own) for alarm in alarms] == [
        ("talk-1", "speech", True), ("song", "music", True), ("talk-2", "speech", True),
    ]  # fmt: skip
    assert alarms[0].time_s == pytest.approx(4.3, abs=0.2)
    rows = save_alarms(notable_alarms(one), tmp_path)
    assert sorted(row["file"] for row in rows) == ["high/music-001.wav", "high/speech-001.wav", "high/speech-002.wav"]
    played = read_audio(tmp_path / rows[0]["file"])
    assert played.sample_rate == RATE
    assert len(played.samples) == 3 * RATE
    assert np.abs(played.samples).max() > 0.9
    assert rows[0]["clip"] == "talk-1"


def test_without_negatives_there_is_no_curve_and_no_rate(spoken: list[Clip], tmp_path: Path) -> None:
    positives, _ = sort_rows(WORDS, spoken[:6], [])
    heard = hear(ToneDetector(), positives, {})
    report = wakeword_report(heard)
    assert set(report["words"]) == {"high"}
    assert "operating_curve" not in report["words"]["high"]
    assert report["words"]["high"]["own_threshold"]["false_alarms"] == {}
    assert [path.name for path in plot_wakewords(heard, report, tmp_path)] == ["scores.png", "delay.png", "people.png"]
    with pytest.raises(InputError, match="no clip says high or low"):
        hear(ToneDetector(), [], {})


def test_pictures(hearing, tmp_path: Path) -> None:
    paths = plot_wakewords(hearing, wakeword_report(hearing), tmp_path)
    assert [path.name for path in paths] == ["det.png", "scores.png", "delay.png", "people.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_progress_is_told(spoken: list[Clip], quiet: list[Clip]) -> None:
    told: list[str] = []
    hear(ToneDetector(), [("high", spoken[0])], {"noise": [quiet[3]]}, progress=lambda what, seconds: told.append(what))
    assert told == ["clean", "noise"]
