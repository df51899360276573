"""`voiceseq evaluate` on a tiny detector with random weights: files, tables and mistakes, as a user meets them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import voiceseq
from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.files import write_audio
from voiceseq.cli import main
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork

RATE = 16_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = TriggerConfig(("luna", "smart mirror"), None, HeadConfig(size=8), FeatureConfig(mels=20), channels=8)
    network = TriggerNetwork(config)
    decision = {"threshold": 0.5, "smoothing": 2, "patience": 1, "refractory_s": 1.0}
    return voiceseq.save_bundle(
        tmp_path_factory.mktemp("bundle") / "tiny",
        kind="trigger",
        config=config,
        weights=network.state_dict(),
        decoding=dict.fromkeys(config.words, decision),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)

    def clip(name: str, seconds: float, text: str | None = None, speaker: str | None = None, **extra: object) -> Clip:
        samples = 0.1 * rng.standard_normal(round(seconds * RATE)) * np.hanning(round(seconds * RATE))
        write_audio(folder / f"{name}.wav", samples.astype(np.float32), RATE)
        return Clip(name, folder / f"{name}.wav", seconds, 0.0, text, speaker, extra)

    words = [
        clip(f"{word}-{number}", 1.5, speaker=f"p{number}", label=word, word_start=0.4, word_end=1.0)
        for word in ("luna", "Smart_Mirror", "other")
        for number in range(4)
    ]
    write_manifest(folder / "words.jsonl", words)
    write_manifest(folder / "speech.jsonl", [clip(f"talk-{number}", 5.0, "some words") for number in range(4)])
    write_manifest(folder / "music.jsonl", [clip("song", 8.0)])
    write_manifest(folder / "noise.jsonl", [clip("hum", 8.0, kind="environment")])
    return folder


def test_everything_at_once(bundle: Path, data: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "a" / "report"
    words = ["evaluate", str(bundle), "--manifest", str(data / "words.jsonl"), "--out", str(out)]
    words += ["--negatives", str(data / "speech.jsonl"), "--negatives", f"music={data / 'music.jsonl'}"]
    words += ["--negatives", str(data / "noise.jsonl"), "--noise", str(data / "noise.jsonl")]
    words += ["--conditions", "clean,10db,0db,room,telephone,running"]
    assert main.main(words) == 0
    shown = capsys.readouterr()
    assert "optimistic" in shown.out
    assert re.search(r"smart mirror +own, 0\.500", shown.out)
    report = json.loads((out / "report.json").read_text())
    assert (report["kind"], set(report["words"])) == ("trigger", {"luna", "smart mirror"})
    assert set(report["hours"]) == {"words", "speech", "music", "noise"}
    for found in report["words"].values():
        assert found["own_threshold"]["reading"].startswith("at the bundle's own threshold")
        assert "optimistic" in found["operating_curve"]["reading"]
        assert list(found["own_threshold"]["conditions"]) == ["clean", "10db", "0db", "room", "telephone", "running"]
        assert found["own_threshold"]["conditions"]["running"]["utterances"] == 4
        assert [point["wanted_per_hour"] for point in found["operating_curve"]["points"]] == [0.1, 0.5, 1.0]
    assert report["plots"] == ["det.png", "scores.png", "delay.png", "people.png"]
    assert all((out / name).is_file() for name in report["plots"])
    assert all((out / "alarms" / row["file"]).is_file() for row in report["alarms"])


def test_the_same_again_and_as_json(bundle: Path, data: Path, capsys) -> None:
    words = ["evaluate", str(bundle), "--manifest", str(data / "words.jsonl"), "--conditions", "0db,room", "--json"]
    assert main.main(words) == 0
    first = capsys.readouterr().out
    assert main.main(words) == 0
    assert capsys.readouterr().out == first
    report = json.loads(first)
    assert "operating_curve" not in report["words"]["luna"]  # nothing to count false alarms on
    assert list(report["words"]["luna"]["own_threshold"]["conditions"]) == ["0db", "room"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--conditions", "clean,underwater"], 2, "no condition 'underwater'"),
        (["--conditions", " , "], 2, "--conditions is empty"),
        (["--conditions", "running"], 2, "give --negatives"),
        (["--negatives", "nowhere.jsonl"], 1, "nowhere.jsonl"),
        (["--manifest", "DATA/music.jsonl"], 1, "no clip says luna or smart mirror"),
        (["--out", "DATA/words.jsonl/x"], 1, "cannot be made"),
        (["--part", "everybody"], 2, "--part"),
    ],
)
def test_mistakes_get_a_clear_line(bundle: Path, data: Path, words: list[str], code: int, said: str, capsys) -> None:
    words = [word.replace("DATA", str(data)) for word in words]
    assert main.main(["evaluate", str(bundle), "--manifest", str(data / "words.jsonl"), *words]) == code
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_kind_that_has_no_measure_is_named(data: Path, capsys) -> None:
    assert main.main(["evaluate", "backbone", "--manifest", str(data / "words.jsonl")]) == 1
    assert "evaluate measures trigger" in capsys.readouterr().err
