"""Teaching Whisper: what the data spells, that the loss falls and is that of the texts, and what becomes a bundle."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from voiceseq.audio.files import write_audio
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import ConfigError
from voiceseq.inference.speech import Decoding
from voiceseq.inference.whisper import WhisperRecogniser, WhisperSettings
from voiceseq.models.whisper import WhisperConfig, WhisperNetwork
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.whisper import WhisperData, WhisperTask, cut, thinned
from voiceseq.text.pieces import Pieces

SYMBOLS = (*(bytes([number]) for number in range(256)), b" l", b" lo", b" h", b" hi")
PIECES = Pieces(SYMBOLS, {"end": 260, "start": 261, "no_speech": 262, "no_timestamps": 263}, 264)
MODEL = WhisperConfig(
    symbols=264,
    tail_s=0.1,
    size=32,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    audio_positions=150,
    text_positions=30,
)
TONES = {"low": 200.0, "high": 1500.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tones called low and high, noise, and a bundle with the vocabulary."""
    rows, quiet = [], []
    chance = np.random.default_rng(1)
    for number in range(12):
        name = ("low", "high")[number % 2]
        seconds = 1.0 + 0.05 * number
        tone = 0.3 * np.sin(2 * np.pi * TONES[name] * np.arange(round(16_000 * seconds)) / 16_000)
        write_audio(tmp_path / f"{number}.wav", tone.astype(np.float32), 16_000)
        rows.append({"id": f"t{number}", "audio": f"{number}.wav", "duration": seconds, "text": name, "speaker": "a"})
    write_audio(tmp_path / "noise.wav", chance.normal(size=48_000).astype(np.float32) * 0.1, 16_000)
    quiet.append({"id": "n", "audio": "noise.wav", "duration": 3.0})
    rows.append({"id": "fast", "audio": "0.wav", "duration": 1.0, "text": "far too much to be said in one second " * 2})
    rows.append({"id": "greek", "audio": "0.wav", "duration": 1.0, "text": "αβγ"})
    rows.append({"id": "empty", "audio": "0.wav", "duration": 1.0, "text": "..."})
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "dev").mkdir()
    dev = [row | {"audio": f"../{row['audio']}"} for row in rows[:4]]
    (tmp_path / "dev" / "manifest.jsonl").write_text("\n".join(map(json.dumps, dev)))
    (tmp_path / "noise.jsonl").write_text("\n".join(map(json.dumps, quiet)))
    weights = WhisperNetwork(MODEL).state_dict()
    save_bundle(
        tmp_path / "start", kind="whisper", config=MODEL, weights=weights, vocabularies={"pieces": PIECES.to_json()}
    )
    return tmp_path


@pytest.fixture
def data(folder: Path) -> WhisperData:
    with pytest.warns(UserWarning, match=r"3 clips were left out \(fast, greek, empty\)"):
        return WhisperData(
            str(folder / "start"), str(folder), ["train.jsonl"], ["dev/manifest.jsonl"], batch_s=20.0,
            silences=["noise.jsonl"], silence_s=1.0,
        )  # fmt: skip


def test_clips_are_spelt_in_pieces_and_noise_is_silence(data: WhisperData) -> None:
    spelt = {item.clip.id: item.target for item in data.batches.spoken}
    assert PIECES.decode(spelt["t0"]) == " low"
    assert spelt["t1"] == (*PIECES.encode(" high"), 260)
    assert [spelt[f"n-{number}"] for number in range(3)] == [(260,)] * 3
    assert len(spelt) == 12 + 3
    assert list(data.held_out) == ["dev"]


def test_recordings_are_cut_whole_and_dev_sets_are_thinned(data: WhisperData) -> None:
    parts = cut(Clip("x", Path("x.wav"), 10.0, 2.0), 3.0)
    assert [part.offset for part in parts] == pytest.approx([2.0, 2.0 + 10 / 3, 2.0 + 20 / 3])
    assert sum(part.duration for part in parts) == pytest.approx(10.0)
    assert len(cut(Clip("x", Path("x.wav"), 0.4), 3.0)) == 1
    assert len(thinned(data.batches.spoken, 1e9)) == 15
    assert 0 < len(thinned(data.batches.spoken, 5.0)) < 8


def test_it_learns_and_its_bundle_writes_what_it_wrote(data: WhisperData, folder: Path) -> None:
    torch.manual_seed(1)
    task = WhisperTask(MODEL, OptimiserConfig(learning_rate=3e-3), data, ctc=0.3, smoothing=0.0)
    optimiser = task.configure_optimizers()
    losses = []
    for step in range(40):
        loss, count, _ = task.loss(data.batches(step))
        assert count > 0
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    task.eval()
    with torch.no_grad():
        batch = next(data.held_out["dev"].whole())
        written = task._write(batch)
    parts = task.parts()
    path = save_bundle(
        folder / "made", kind=parts.kind, config=parts.config, weights=task.network.state_dict(),
        vocabularies=parts.vocabularies, decoding=WhisperSettings(least_log_prob=-100.0),
    )  # fmt: skip
    ours = WhisperRecogniser.from_bundle(load_bundle(path))
    sounds = [row[:length].numpy() for row, length in zip(batch.samples, batch.lengths, strict=True)]
    assert [answer[0].text for answer in ours.recognise(sounds, Decoding())] == written
    assert set(" ".join(written).split()) <= {"low", "high"}
    assert written[0]


def test_the_loss_is_that_of_the_texts_alone(data: WhisperData) -> None:
    """Rows of a batch do not see each other: the mean over pieces, and over rows for CTC."""
    task = WhisperTask(MODEL, OptimiserConfig(), data, ctc=0.5, smoothing=0.0).eval()
    batch = data.batches.load([0, 3, 13])
    with torch.no_grad():
        loss, _, metrics = task.loss(batch)
        rows = [task.loss(data.batches.load([row]))[2] for row in (0, 3, 13)]
    weights = batch.target_lengths / batch.target_lengths.sum()
    written = sum(float(weight) * row["written"] for weight, row in zip(weights, rows, strict=True))
    heard = sum(row["heard"] for row in rows) / 3
    assert metrics["written"] == pytest.approx(written, rel=1e-4)
    assert metrics["heard"] == pytest.approx(heard, rel=1e-4)
    assert float(loss) == pytest.approx(written + 0.5 * heard, rel=1e-4)


def test_frozen_parts_stay(data: WhisperData) -> None:
    task = WhisperTask(MODEL, OptimiserConfig(), data, frozen=["first", "embedding"])
    loss, _, _ = task.loss(data.batches(0))
    loss.backward()
    assert task.network.first.weight.grad is None
    assert task.network.embedding.weight.grad is None
    assert task.network.second.weight.grad is not None
    with pytest.raises(ConfigError, match="no part 'third'; it has features, first"):
        WhisperTask(MODEL, OptimiserConfig(), data, frozen=["third"])


def test_a_new_ctc_head_learns_without_a_say_in_the_encoder(data: WhisperData, monkeypatch: pytest.MonkeyPatch) -> None:
    task = WhisperTask(MODEL, OptimiserConfig(), data, ctc_from=1)
    head, heard = task.network.characters, []

    def listening(frames: torch.Tensor) -> torch.Tensor:
        heard.append(frames.requires_grad)
        return head(frames)

    monkeypatch.setattr(task.network, "characters", listening)
    task.loss(data.batches(0))
    task.ctc_from = 0
    task.loss(data.batches(0))
    assert heard == [False, True]


def test_the_new_head_learns_faster_than_the_rest(data: WhisperData) -> None:
    task = WhisperTask(MODEL, OptimiserConfig(learning_rate=1e-3), data, frozen=["first"], head_rate=20.0)
    groups = task.configure_optimizers().param_groups
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in groups)
    assert {id(p) for p in task.network.parameters() if p.requires_grad} == set(rates)
    assert [rates[id(p)] for p in task.network.ctc.parameters()] == pytest.approx([0.02, 0.02])
    assert rates[id(task.network.second.weight)] == 1e-3
