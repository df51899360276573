"""`make demo`: what it says of wake words with and without bundles, and the clips that ship for it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from places import ROOT
from spoken_tones import LoudnessActivity, speak, tone_bundle
from voiceseq.apps import demo

import voiceseq
from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.files import read_audio, write_audio
from voiceseq.datasets.manifest import Clip, read_manifest, write_manifest
from voiceseq.inference import transcriber
from voiceseq.inference.events import Decision
from voiceseq.models.backbone import BackboneConfig
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork

CLIPS = ROOT / "data" / "clips"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Nothing is trained, and no bundle is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "BUNDLES", ("nobody-has-this", "nor-that"))
    monkeypatch.setattr(demo, "speech", lambda: print("then it writes"))
    monkeypatch.setattr(demo, "dates", lambda: print("and on it goes") or 7)
    return tmp_path


def small_bundle(path: Path, threshold: float) -> Path:
    """A network of random weights; at a low threshold it hears its words everywhere."""
    torch.manual_seed(1)
    backbone = BackboneConfig(symbols=5, features=FeatureConfig(mels=13), channels=9, size=14, layers=1, bottleneck=7)
    network = TriggerNetwork(TriggerConfig(("one", "two"), backbone, HeadConfig(size=6)))
    decisions = dict.fromkeys(network.words, Decision(threshold))
    return voiceseq.save_bundle(
        path, kind="trigger", config=network.config, weights=network.state_dict(), decoding=decisions
    )


def test_without_bundles_one_line_tells_and_the_rest_runs(here, capsys):
    assert demo.main() == 7
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[1].startswith("   left out: nobody-has-this, nor-that (no bundle 'nobody-has-this'")
    assert lines[2:] == ["then it writes", "and on it goes"]
    assert not (here / "runs/demo/wakeword.png").exists()


def test_it_prints_the_events_of_every_clip_and_draws_the_scores(here, capsys, monkeypatch):
    low, high = small_bundle(here / "low", 0.01), small_bundle(here / "high", 0.999)
    monkeypatch.setattr(demo, "BUNDLES", (str(low), "nor-that", str(high)))
    drawn = []
    plot = demo.plot_trace
    monkeypatch.setattr(demo, "plot_trace", lambda *given: drawn.append(given) or plot(*given))
    demo.main()
    printed = capsys.readouterr().out
    assert "left out: nor-that (" in printed
    detector, start, wanted = voiceseq.load(low), 0.0, []
    for clip in read_manifest(CLIPS / "manifest.jsonl"):
        events = detector.detect(read_audio(clip.audio).samples)
        told = ", ".join(f"{event.word} at {event.time:.2f} s, score {event.score:.2f}" for event in events)
        assert events
        assert f"{low} {told}\n" in printed
        wanted += [(event.word, start + event.time) for event in events]
        start += clip.duration
    assert printed.count(f"{high} nothing\n") == 3
    (times, scores, thresholds, heard, path, _), *_ = drawn
    assert list(scores) == ["one", "two"]
    assert thresholds == {"one": 0.01, "two": 0.01}
    assert times[-1] == pytest.approx(start, abs=0.05)
    assert np.all(np.diff(times) > 0)
    assert [word for word, _ in heard] == [word for word, _ in wanted]  # clip after clip, as they were printed
    assert [time for _, time in heard] == pytest.approx([time for _, time in wanted], abs=0.001)
    assert (here / path).stat().st_size > 5000


def test_a_damaged_bundle_is_left_out_by_its_error(here, capsys, monkeypatch):
    path = small_bundle(here / "low", 0.5)
    (path / "bundle.json").write_text("{")
    monkeypatch.setattr(demo, "BUNDLES", (str(path),))
    assert demo.main() == 7
    assert f"left out: {path} (" in capsys.readouterr().out


def test_a_clip_at_another_rate_is_drawn_on_the_same_clock(here, monkeypatch):
    time = np.arange(2 * 44_100) / 44_100
    path = write_audio(here / "tone.wav", 0.1 * np.sin(2 * np.pi * 440 * time), 44_100)
    write_manifest(here / "manifest.jsonl", [Clip("tone", path, 2.0, text="", extra={"words": []})])
    monkeypatch.setattr(demo, "CLIPS", here / "manifest.jsonl")
    monkeypatch.setattr(demo, "BUNDLES", (str(small_bundle(here / "low", 0.5)),))
    times = []
    monkeypatch.setattr(demo, "plot_trace", lambda *given: times.append(given[0]))
    demo.main()
    assert times[0][-1] == pytest.approx(2.0, abs=0.05)


# --- speech ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recordings(tmp_path, monkeypatch) -> Path:
    """A recording of tones for a bundle that hears them, and one for a bundle that nobody has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(transcriber.RECOGNISERS, "recogniser", "spoken_tones:ToneBundle")
    monkeypatch.setattr("voiceseq.audio.cutting.SpeechActivity", LoudnessActivity)
    tone_bundle(tmp_path / "tones")
    path = write_audio(tmp_path / "tree.wav", speak([".5", "oak", "elm", ".5"]), 16_000)
    rows = [Clip(name, path, 1.5, text="Oak, elm.", extra={"model": name}) for name in ("nobody-has-this", "tones")]
    rows[1] = replace(rows[1], extra={"model": str(tmp_path / "tones")})
    write_manifest(tmp_path / "speech.jsonl", rows)
    monkeypatch.setattr(demo, "SPEECH", tmp_path / "speech.jsonl")
    demo.FOLDER.mkdir(parents=True)
    return tmp_path


def test_speech_is_written_with_times_and_drawn(recordings, capsys):
    demo.speech()
    printed = capsys.readouterr().out
    assert "left out: nobody-has-this (" in printed
    assert printed.count("tree.wav:") == 1
    assert f"{recordings / 'tones'}: oak elm\n" in printed
    first, second = re.findall(r"(\w+)\xa0([\d.]+)-([\d.]+)", printed)
    assert first == ("oak", "0.50", "0.76")  # a tone of 0.24 s, in frames of 0.02 s
    assert second[0] == "elm"
    assert (recordings / demo.FOLDER / "tones.png").stat().st_size > 5000


def test_without_recognisers_one_line_tells(recordings, capsys):
    write_manifest(demo.SPEECH, read_manifest(demo.SPEECH)[:1])
    demo.speech()
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 2
    assert lines[1].startswith("   left out: nobody-has-this (no bundle")


def test_the_recordings_are_for_the_bundles_that_ship():
    clips = read_manifest(CLIPS / "speech" / "manifest.jsonl")
    assert {clip.audio.name for clip in clips} == {path.name for path in (CLIPS / "speech").glob("*.flac")}
    assert {clip.extra["model"]: read_audio(clip.audio).sample_rate for clip in clips} == {
        "english-small": 16_000,
        "harper-valley": 8_000,
    }
    page = (CLIPS / "README.md").read_text()
    for clip in clips:
        assert f"`{clip.audio.name}`" in page
        assert read_audio(clip.audio).duration_s == pytest.approx(clip.duration, abs=0.001)
        for sentence in re.split(r"(?<=[.?]) ", clip.text):
            assert sentence in page


# --- the clips -------------------------------------------------------------------------------------------------------


def test_the_clips_are_small_and_as_the_manifest_says():
    clips = read_manifest(CLIPS / "manifest.jsonl")
    assert {clip.audio.name for clip in clips} == {path.name for path in CLIPS.glob("*.flac")}
    assert sum(path.stat().st_size for path in CLIPS.iterdir()) < 300_000
    for clip in clips:
        audio = read_audio(clip.audio)
        assert (audio.sample_rate, audio.samples.ndim) == (16_000, 1)
        assert audio.duration_s == pytest.approx(clip.duration, abs=0.001)
        assert not audio.warnings


def test_where_a_word_is_said_there_is_sound_and_its_text_has_it():
    said = {clip.id: clip.extra["words"] for clip in read_manifest(CLIPS / "manifest.jsonl")}
    assert {name: [word for word, _, _ in words] for name, words in said.items()} == {
        "computer": ["computer"],
        "two-words": ["alexa", "jarvis"],
        "no-words": [],
    }
    for clip in read_manifest(CLIPS / "manifest.jsonl"):
        samples = read_audio(clip.audio).samples
        for word, start, end in clip.extra["words"]:
            assert word in clip.text.lower()
            assert 0.25 < end - start < 1.0
            middle = samples[round(16_000 * start) : round(16_000 * end)]
            assert middle.std() > 20 * samples[:4000].std()  # before the first word is the room alone


def test_the_page_tells_of_every_clip():
    page = (CLIPS / "README.md").read_text()
    for clip in read_manifest(CLIPS / "manifest.jsonl"):
        assert f"`{clip.audio.name}`" in page
        for sentence in re.split(r"(?<=[.?]) ", clip.text):
            assert sentence in page
