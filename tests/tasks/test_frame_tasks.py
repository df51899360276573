"""The small tasks: their data is what it says, their networks learn a little of it, nothing held out is learned."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from voiceseq.datasets.corpora.chorales import LOWEST, piano_roll, read_chorales
from voiceseq.datasets.corpora.dna import frames_of, read_promoters
from voiceseq.datasets.corpora.series import read_series
from voiceseq.datasets.digits import MOVES, caption, captioned, chosen, clip, columns
from voiceseq.errors import InputError
from voiceseq.models.frames import FrameConfig
from voiceseq.models.seq2seq import Seq2SeqConfig
from voiceseq.tasks.activity import ActivityData
from voiceseq.tasks.base import OptimiserConfig, SequenceTask
from voiceseq.tasks.captions import CaptionData
from voiceseq.tasks.music import ChoraleData, ChoraleTask
from voiceseq.tasks.names import NameData, NameTask
from voiceseq.tasks.promoters import PromoterData, leave_one_out
from voiceseq.tasks.rows import ClassTask, FrameTextTask
from voiceseq.tasks.series import SeriesData, SeriesTask

OPTIMISER = OptimiserConfig()


def learns(task: SequenceTask, batches: list, rate: float = 0.02) -> bool:
    """Whether the loss of these batches falls by a tenth within some steps."""
    optimiser = torch.optim.Adam(task.network.parameters(), rate)
    losses = []
    for batch in batches:
        loss, count, _ = task.loss(batch)
        assert count > 0
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses[-1] < losses[0] - 0.1 * abs(losses[0])


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def names(tmp_path: Path) -> NameData:
    (tmp_path / "train.tsv").write_text("Anna\tf\nBob\tm\n" * 9)
    (tmp_path / "dev.tsv").write_text("Eva\tf\nTom\tm\n")
    (tmp_path / "dinos.txt").write_text("\n".join(f"Saur{chr(97 + i)}us" for i in range(26)))
    files = [str(tmp_path / name) for name in ("train.tsv", "dev.tsv")]
    return NameData(*files, {"dinosaur": str(tmp_path / "dinos.txt")}, batch=12)


def test_kinds_of_names_come_equally_often(names: NameData) -> None:
    assert names.kinds == ("f", "m", "dinosaur")
    batch = names.make(3, 0, 1)
    assert batch.source.shape == (12, 1, 3)
    assert batch.source.sum((0, 1)).tolist() == [4, 4, 4]
    held_out = {name for _, name in names.validation[" dinosaur"]}
    assert held_out
    assert not held_out & {name for _, name in names.rows["dinosaur"]}
    task = NameTask(Seq2SeqConfig(size=16, embedding=8, attention="none"), OPTIMISER, names)
    assert learns(task, [names.make(step, 0, 1) for step in range(15)])
    parts = task.parts()
    assert parts.kind == "names"
    assert parts.vocabularies["kinds"]["symbols"] == ["f", "m", "dinosaur"]


# --- digits -----------------------------------------------------------------------------------------------------------


def test_captions_and_pictures() -> None:
    assert caption([7]) == "a seven"
    assert caption([8, 1, 0]) == "an eight and a one and a zero"
    assert not set(chosen(True)) & set(chosen(False))
    image, text = captioned(1, 5)
    again, same = captioned(1, 5)
    assert (np.array_equal(image, again), text) == (True, same)
    assert image.shape[0] == 8
    assert image.shape[1] >= 8 * (text.count("and") + 1)
    frames = columns(image)
    assert frames.shape == (image.shape[1], 24)
    np.testing.assert_array_equal(frames[3], np.concatenate((image[:, 2], image[:, 3], image[:, 4])))
    np.testing.assert_array_equal(frames[0, :8], 0)


def test_captions_are_learned() -> None:
    data = CaptionData(batch=16, steps_per_epoch=1, validation=4)
    task = FrameTextTask(Seq2SeqConfig(size=16, embedding=16), OPTIMISER, data)
    assert learns(task, [data.make(0, 0, 1)] * 12)
    assert set(task.parts().vocabularies) == {"target"}
    assert task.eval().loss(data.collate(data.validation[""]))[2].keys() == {"exact"}


def test_clips_move_as_they_say() -> None:
    for number in range(30):
        frames, move = clip(3, number)
        ink = frames.reshape(len(frames), 16, 16)
        ink = np.where(ink > 0.3, ink, 0)
        centre = (ink.sum(1) * np.arange(16)).sum(1) / ink.sum((1, 2))
        gone = centre[len(centre) * 2 // 3] - centre[len(centre) // 3]
        if MOVES[move] == "turning":
            assert abs(gone) < 1.2
        else:
            assert (gone < 0) == (MOVES[move] == "left")


def test_activity_is_learned() -> None:
    data = ActivityData(batch=16, steps_per_epoch=1, validation=3)
    task = ClassTask(FrameConfig(size=16, pool="mean"), OPTIMISER, data)
    assert learns(task, [data.make(0)] * 12)
    assert task.parts().vocabularies["classes"]["symbols"] == list(MOVES)


# --- DNA --------------------------------------------------------------------------------------------------------------


def test_promoters_leave_one_out_leaves_it_out(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text(
        "".join(f"{'+-'[i % 2]}\tS{i}\t{'tataat' if i % 2 == 0 else 'gcgcgc'}{'acgt'[i % 4]}\n" for i in range(8))
    )
    rows = read_promoters(str(path))
    assert rows[1] == ("gcgcgcc", 1)
    frames = frames_of("acg")
    assert frames.shape == (3, 228)
    assert [np.flatnonzero(frame).tolist() for frame in frames] == [[0], [4 + 1], [8 + 2]]
    data = PromoterData(str(path), held_out=[2], batch=3)
    assert (len(data.rows), len(data.held_out)) == (7, 1)
    config = FrameConfig(features=228, outputs=2, size=8, pool="mean", bidirectional=True)
    assert all(leave_one_out(rows, config, steps=12, rate=0.05))
    turned = [(bases, kind if number else 1 - kind) for number, (bases, kind) in enumerate(rows)]
    assert not leave_one_out(turned, config, steps=12, rate=0.05)[0]  # its own wrong answer was not learned
    with pytest.raises(InputError, match="were wanted"):
        frames_of("acx")
    with pytest.raises(InputError, match="58 bases; at most 57"):
        frames_of("a" * 58)
    path.write_text("?\tx\n")
    with pytest.raises(InputError, match="line 1"):
        read_promoters(str(path))


# --- music ------------------------------------------------------------------------------------------------------------


def test_chorales_are_moved_and_learned(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([[[60, 64, 67], [62]], [[21], [108], []]]))
    rolls = read_chorales(str(path))
    assert [roll.shape for roll in rolls] == [(2, 88), (3, 88)]
    assert np.flatnonzero(rolls[0][0]).tolist() == [60 - LOWEST, 64 - LOWEST, 67 - LOWEST]
    data = ChoraleData(str(path), str(path), transpose=2, batch=2)
    batch = data.collate(rolls, step=4)
    assert batch.frames[0, 0].sum() == 0
    torch.testing.assert_close(batch.frames[:, 1:], batch.targets[:, :-1])
    assert batch.targets[0, 0].sum() == 3
    assert any(not torch.equal(data.collate(rolls, step=s).targets, data.collate(rolls).targets) for s in range(5))
    task = ChoraleTask(FrameConfig(size=16, pool="none"), OPTIMISER, data)
    assert learns(task, [data.make(step) for step in range(10)])
    # the loss is the mean over all steps of the sum over keys, padding left out
    network = task.network.eval()
    with torch.no_grad():
        total = 0.0
        for roll in rolls:
            one = data.collate([roll])
            logits, _ = network(one.frames)
            chances = logits.sigmoid()
            total -= float(torch.where(one.targets > 0, chances, 1 - chances).log().sum())
        assert float(task.loss(data.collate(rolls))[0]) == pytest.approx(total / 5, rel=1e-4)
    with pytest.raises(InputError, match="pitch 5"):
        piano_roll([[5]])
    path.write_text("{")
    with pytest.raises(InputError, match="no chorales"):
        read_chorales(str(path))


# --- series -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [False, True])
def test_series_are_learned_and_their_last_part_is_left_alone(tmp_path: Path, difference: bool) -> None:
    time = np.arange(300)
    values = np.sin(time * 2 * np.pi / 12) * 3 + 0.05 * time + np.random.default_rng(1).normal(0, 0.2, 300)
    path = tmp_path / "s.txt"
    path.write_text("\n".join(map(str, values)))
    data = SeriesData(str(path), 12, difference, window=24, batch=8)
    other = tmp_path / "o.txt"
    other.write_text("\n".join(map(str, np.concatenate((values[:240], values[240:] * 50)))))
    twin = SeriesData(str(other), 12, difference, window=24, batch=8)
    for step in range(40):
        torch.testing.assert_close(data.make(step).frames, twin.make(step).frames)
    torch.testing.assert_close(data.collate(data.held_out).targets, twin.collate(twin.held_out).targets)
    task = SeriesTask(FrameConfig(size=8, pool="none"), OPTIMISER, data, horizon=6)
    assert learns(task, [data.make(step) for step in range(20)])
    decoding = task.parts().decoding
    assert decoding["difference"] is difference
    assert [len(steps) for steps in decoding["widths"].values()] == [6, 6, 6]


def test_bad_series_are_said(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("1 2 x")
    with pytest.raises(InputError, match="value 3"):
        read_series(str(tmp_path / "s.txt"))
    (tmp_path / "s.txt").write_text("1 2 nan")
    with pytest.raises(InputError, match="finite"):
        read_series(str(tmp_path / "s.txt"))
    (tmp_path / "s.txt").write_text("1 2 3 4")
    with pytest.raises(InputError, match="too few"):
        SeriesData(str(tmp_path / "s.txt"), 2)
