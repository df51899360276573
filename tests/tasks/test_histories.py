"""Utterances that begin in the middle of streams: which states they begin with, and that a resumed run has them too."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from voiceseq.audio.files import write_audio
from voiceseq.core.masks import nest_tensors
from voiceseq.core.recurrent import Recurrent
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.errors import ConfigError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.histories import AT_ONCE, FRESH, NOISES, PIECE_S, STEPS, Histories, Memories, steady_noise
from voiceseq.tasks.phones import PhoneData, PhoneTask

SMALL = BackboneConfig(channels=4, size=8, layers=2, bottleneck=4)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of noise cost seconds; what is proven here does not depend on how long a piece is."""
    monkeypatch.setattr("voiceseq.tasks.histories.PIECE_S", 0.3)


def rows_of(state: object) -> torch.Tensor:
    return torch.cat(nest_tensors(state), 1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_what_ended_is_what_begins_again(cell: str) -> None:
    recurrent = Recurrent(3, 5, cell=cell, layers=2)
    memories = Memories(recurrent, seed=1, rows=40)
    _, state = recurrent(torch.randn(40, 6, 3))
    memories.keep(state, step=0)
    ended = {tuple(row) for row in rows_of(state).tolist()}
    begun = rows_of(memories.begin(2000, step=1))
    fresh = (begun == 0).all(1)
    assert {tuple(row) for row in begun[~fresh].tolist()} == ended
    assert abs(float(fresh.float().mean()) - FRESH) < 0.05
    recurrent(torch.randn(2000, 2, 3), memories.begin(2000, step=2))  # it is a state as the network has it


def test_newer_states_take_the_place_of_older_ones() -> None:
    recurrent = Recurrent(3, 5, cell="gru")
    memories = Memories(recurrent, seed=1, rows=16)
    for step in range(200):
        memories.keep((torch.full((4, 5), float(step)),), step)
    assert float(memories.states.min()) > 150


def test_noise_goes_on_like_one_long_recording() -> None:
    """The state of a stream is that after hearing its noise piece by piece, for as long as it stays the same noise."""
    torch.manual_seed(1)
    backbone = Backbone(BackboneConfig(symbols=5, channels=4, size=8, layers=2, bottleneck=4)).eval()
    histories = Histories(backbone, seed=3)
    visits = 3
    for step in range(visits * NOISES // AT_ONCE):
        histories.go_on(step)
    for place in (0, 13):
        sound, state = steady_noise(3, place, 0)[None], None
        for _ in range(visits):
            state = backbone(sound, (None, None, None, state))[1][-1]
        assert torch.allclose(rows_of(state)[0], histories.noise[place], atol=1e-6)
    assert PIECE_S * AT_ONCE * STEPS / NOISES >= 120  # minutes of each


def test_noises_differ_and_change_and_come_again() -> None:
    first = steady_noise(1, 4, 0)
    assert torch.equal(first, steady_noise(1, 4, 0))
    assert not torch.equal(first, steady_noise(1, 4, 1))
    levels = [float(steady_noise(1, place, 0).std()) for place in range(64)]
    assert min(levels) == 0.0  # digital silence is a history, too
    assert 0.1 < max(levels) < 1.0


def speech(folder: Path) -> PhoneData:
    rng, clips = np.random.default_rng(1), []
    for number in range(12):
        path = write_audio(folder / f"{number}.wav", 0.1 * rng.standard_normal(9600), 16_000)
        clips.append(Clip(str(number), path, 0.6, text="moon"))
    write_manifest(folder / "m.jsonl", clips)
    (folder / "d.dict").write_text("moon M UW1 N\n")
    manifest, dictionary = ["m.jsonl"], [str(folder / "d.dict")]
    return PhoneData(str(folder), manifest, manifest, dictionary, 2.5, 3, silences=manifest, silence_s=0.3)


def test_a_resumed_run_has_the_same_histories(tmp_path: Path) -> None:
    data = speech(tmp_path)
    task = PhoneTask(SMALL, OptimiserConfig(), data, streams=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, limit_val_batches=0, enable_model_summary=False, **quiet)
    trainer.fit(task, data)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    assert bool((task.histories.noise != 0).any())
    assert bool((task.histories.states != 0).any())
    later = PhoneTask(SMALL, OptimiserConfig(), data, streams=True)
    later.on_load_checkpoint(torch.load(tmp_path / "half.ckpt", weights_only=True))
    assert torch.equal(later.histories.noise, task.histories.noise)
    assert torch.equal(later.histories.states, task.histories.states)


def test_silence_is_learned_from_and_noise_before_validation(tmp_path: Path) -> None:
    data = speech(tmp_path)
    assert sum(not one.target for one in data.batches.spoken) == 24  # each recording as two silences
    task = PhoneTask(SMALL, OptimiserConfig(), data, streams=True)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    (metrics,) = trainer.validate(task, data, verbose=False)
    assert {"val/m", "val/m after noise", "val/phone error"} <= metrics.keys()


def test_a_network_may_keep_its_memory(tmp_path: Path) -> None:
    """The update gates' rows have no gradient; the others have."""
    data = speech(tmp_path)
    task = PhoneTask(SMALL, OptimiserConfig(), data, keep_memory=True)
    task.loss(next(data.batches.whole()))[0].backward()
    for weights in task.network.recurrent.cells.parameters():
        reset, update, candidate = weights.grad.chunk(3)
        assert float(update.abs().max()) == 0.0
        assert min(float(reset.abs().max()), float(candidate.abs().max())) > 0.0
    with pytest.raises(ConfigError, match=r"model\.cell is 'lstm'"):
        PhoneTask(replace(SMALL, cell="lstm"), OptimiserConfig(), data, keep_memory=True)
