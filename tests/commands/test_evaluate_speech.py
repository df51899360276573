"""`voiceseq evaluate` on a tiny recogniser with random weights: files, tables and mistakes, as a user meets them."""

import json
from pathlib import Path

import pytest
import torch
from echo import VOCABULARY, say

import voiceseq
from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.files import write_audio
from voiceseq.cli.main import main
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.models.acoustic import AcousticConfig, AcousticNetwork

RATE = 16_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    features = FeatureConfig(mels=20)
    config = AcousticConfig(
        len(VOCABULARY), features, channels=8, size=8, layers=1, decoder="recurrent", decoder_size=8
    )
    return voiceseq.save_bundle(
        tmp_path_factory.mktemp("bundle") / "tiny",
        kind="recogniser",
        config=config,
        weights=AcousticNetwork(config).state_dict(),
        vocabularies={"text": VOCABULARY.to_json()},
        decoding={"decoder": "greedy", "beam": 2},
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")

    def clip(number: int, text: str) -> Clip:
        path = write_audio(folder / f"{number}.wav", say(text), RATE)
        return Clip(f"c{number}", path, len(say(text)) / RATE, 0.0, text, f"p{number % 2}", {"role": "agent"})

    rows = [clip(number, text) for number, text in enumerate(["the cab", "hello sea", "a cat", "cat"])]
    write_manifest(folder / "train.jsonl", rows[:1])
    write_manifest(folder / "whole.jsonl", rows[:3])
    write_manifest(folder / "some.jsonl", rows)
    rows[3].audio.unlink()
    return folder


def test_everything_at_once(bundle: Path, data: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "report"
    words = ["evaluate", str(bundle), "--manifest", str(data / "whole.jsonl"), "--out", str(out)]
    words += ["--seen", str(data / "train.jsonl"), "--group", "role", "--group", "speaker", "--batch-seconds", "1"]
    assert main([*words, "--decoder", "beam", "--beam", "3"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "WER (95 %)",
        "unseen",
        "role: agent",
        "speaker: p1",
        "substitutions",
        "processor seconds",
        "at fault",
    ):
        assert text in shown
    report = json.loads((out / "report.json").read_text())
    assert (report["kind"], report["decoder"], report["beam"]) == ("recogniser", "beam", 3)
    assert (report["all"]["utterances"], report["seen"]["utterances"], report["unseen"]["utterances"]) == (3, 1, 2)
    assert report["search"]["of"] == 3
    assert all((out / name).is_file() for name in [*report["plots"], "utterances.jsonl"])


def test_one_bad_clip_is_told_and_the_others_are_evaluated(bundle: Path, data: Path, capsys) -> None:
    assert main(["evaluate", str(bundle), "--manifest", str(data / "some.jsonl"), "--json"]) == 1
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["all"]["utterances"] == 3
    assert [row["id"] for row in report["failed"]] == ["c3"]
    assert "voiceseq: c3: " in shown.err
    assert report["decoder"] == "greedy"
    assert main(["evaluate", str(bundle), "--manifest", str(data / "whole.jsonl"), "--decoder", "attention"]) == 0
    assert "at fault" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--group", "colour"], 2, "no row of"),
        (["--batch-seconds", "0"], 2, "above 0 were wanted"),
        (["--beam", "0", "--decoder", "beam"], 2, "above 0 were wanted"),
        (["--decoder", "magic"], 1, "no decoder 'magic'"),
        (["--lm", "gone.arpa", "--decoder", "beam"], 1, "gone.arpa"),
        (["--seen", "gone.jsonl"], 1, "gone.jsonl"),
        (["--out", "/proc/none"], 1, "cannot be made"),
    ],
)
def test_mistakes_are_a_line(bundle: Path, data: Path, words: list[str], code: int, message: str, capsys) -> None:
    assert main(["evaluate", str(bundle), "--manifest", str(data / "whole.jsonl"), *words]) == code
    shown = capsys.readouterr().err.strip()
    assert message in shown
    assert "\n" not in shown
