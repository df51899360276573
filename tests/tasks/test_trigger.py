"""Wake words that are tones: what is trained on, what the losses say, and that a network learns from it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from chimes import CHIMES, make_chimes

from voiceseq.audio.augment import AugmentConfig, Masks
from voiceseq.bundles import save_bundle
from voiceseq.datasets.corpora.wakewords import part_of, person
from voiceseq.datasets.manifest import held_out
from voiceseq.datasets.synthesis import ClipSettings, TriggerBatch
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.models.trigger import HeadConfig, TriggerConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.trigger import TriggerData, TriggerTask, misses_at
from voiceseq.tasks.trigger_loss import FrameBatch, TriggerLoss

BACKBONE = BackboneConfig(symbols=5, channels=8, size=12, layers=1, bottleneck=6)
PLAIN = TriggerConfig(backbone=None, head=HeadConfig(size=24, dropout=0.0, noise=0.0, lost=0.0), channels=24)
SOURCES = {"positives": ["words.jsonl"], "speech": ["talk.jsonl"], "noises": ["noise.jsonl"]}


@pytest.fixture(scope="module")
def chimes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chimes(tmp_path_factory.mktemp("chimes"))


def make_data(chimes: Path, words: list[str], **more: object) -> TriggerData:
    return TriggerData(words, str(chimes), **(SOURCES | {"batch": 8, "validation": 16} | more))  # type: ignore[arg-type]


def make_task(data: TriggerData, model: TriggerConfig = PLAIN, **more: object) -> TriggerTask:
    torch.manual_seed(1)
    return TriggerTask(model, OptimiserConfig(learning_rate=0.01), data, **more)  # type: ignore[arg-type]


# --- data ------------------------------------------------------------------------------------------------------------


def test_nobody_is_on_both_sides(chimes: Path) -> None:
    data = make_data(chimes, ["Alexa", "smart_mirror"], held_out_share=0.2, dev_share=0.3)
    assert data.words == ("alexa", "smart mirror")
    for part, clips in (("train", data.train_clips), ("dev", data.dev_clips)):
        said = [*clips.positives.utterances, *clips.others.utterances]
        assert {part_of(person(one.clip)) for one in said} == {part}
        assert {one.word for one in clips.positives.utterances} == {0, 1}
        assert all(one.clip.extra["word"] in ("alexa", "smart mirror") for one in clips.positives.utterances)
        others = {one.clip.extra.get("word") for one in clips.others.utterances}
        assert others == {*CHIMES} - {"alexa", "smart mirror"}
        assert not any(held_out(clip.speaker, 0.2) for clip in clips._speech.clips)
        assert {held_out(clip.speaker, 0.5) for clip in clips._speech.clips} == {part == "dev"}
        assert {part_of(person(clip)) for clip in clips._noises.clips} == {part}


def test_speech_with_the_word_in_it_and_flagged_rows_are_left_out(chimes: Path) -> None:
    data = make_data(chimes, ["alexa"])
    texts = {clip.text for clip in data.train_clips._speech.clips}
    assert texts == {"something else"}  # "ask alexa now" is in the manifest, too
    count = len(data.train_clips.positives.utterances)
    assert len(make_data(chimes, ["alexa"], keep_flagged=True).train_clips.positives.utterances) == count + 1


def test_a_folder_of_recordings_will_do(chimes: Path) -> None:
    own = {"positives": ["folder"], "speech": None, "noises": None}
    data = make_data(chimes, ["bell"], **own, split=False)
    assert len(data.train_clips.positives.utterances) == len(data.dev_clips.positives.utterances) == 3
    one = data.train_clips.positives.utterances[0]
    assert (one.start_s, one.end_s) == (pytest.approx(0.3, abs=0.02), pytest.approx(0.7, abs=0.02))
    with pytest.raises(InputError, match=r"'bell' is left for (train|dev).*split=false"):
        make_data(chimes, ["bell"], **own)
    with pytest.raises(InputError, match="'nothing'"):
        make_data(chimes, ["nothing", "bell"], **own, split=False)


def test_words_are_wanted_once(chimes: Path) -> None:
    for words in ([], ["alexa", "Alexa"]):
        with pytest.raises(ConfigError, match="each once"):
            make_data(chimes, words)


def test_long_negatives_are_talk(chimes: Path) -> None:
    data = make_data(chimes, ["alexa"], negatives=["talk.jsonl"], speech=None)
    assert {clip.text for clip in data.train_clips._speech.clips} == {"something else"}
    assert all(one.clip.text is None for one in data.train_clips.others.utterances)


# --- losses ----------------------------------------------------------------------------------------------------------


def test_maxpool_by_hand() -> None:
    torch.manual_seed(1)
    logits, lengths = torch.randn(3, 40, 2), torch.tensor([40, 30, 25])
    places = [[(0, 10), (0, 30)], [(1, 28)], []]
    loss = TriggerLoss("maxpool", ignore=4, window=6, hardest=3, positive_weight=2.0)
    good, bad = [], []
    for row in range(3):
        for word in range(2):
            taken = set()
            for said, frame in places[row]:
                if said == word:
                    answer = range(frame, min(frame + 6, int(lengths[row])))
                    good.append(math.log1p(math.exp(-max(float(logits[row, t, word]) for t in answer))))
                    taken |= set(range(frame - 4, answer.stop + 4))
            rest = sorted(
                (float(logits[row, t, word]) for t in range(int(lengths[row])) if t not in taken), reverse=True
            )
            bad += [math.log1p(math.exp(score)) for score in rest[:3]]
    found = float(loss(logits, places, lengths))
    assert found == pytest.approx(2 * sum(good) / 3 + sum(bad) / len(bad), rel=1e-5)
    logits[1, 30:], logits[2, 25:] = 99.0, 99.0  # padding says nothing
    assert float(loss(logits, places, lengths)) == pytest.approx(found, rel=1e-6)


def test_smoothed_by_hand() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 30, 1)
    found = float(TriggerLoss(spread=6, edge=1, ignore=2)(logits, [[(0, 10)]]))
    target = {10: 0.5, 11: 1.0, 12: 1.0, 13: 1.0, 14: 1.0, 15: 0.5}
    total = []
    for t in range(30):
        if t in (8, 9, 16, 17):
            continue
        p = 1 / (1 + math.exp(-float(logits[0, t, 0])))
        total.append(-target.get(t, 0.0) * math.log(p) - (1 - target.get(t, 0.0)) * math.log(1 - p))
    assert found == pytest.approx(sum(total) / 26, rel=1e-5)


@pytest.mark.parametrize("kind", ["smoothed", "maxpool"])
def test_ends_past_the_clip_and_clips_without_words(kind: str) -> None:
    loss, logits = TriggerLoss(kind), torch.randn(2, 12, 1, requires_grad=True)
    for places in ([[(0, 12)], []], [[], []], [[(0, 3)], [(0, 99)]]):
        value = loss(logits, places, torch.tensor([12, 7]))
        value.backward()
        assert math.isfinite(value.item())
    assert logits.grad is not None
    assert bool((logits.grad[1, 7:] == 0).all())


def test_losses_refuse_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"kind is 'mean'.*spread is 2.*hardest is 0"):
        TriggerLoss("mean", spread=2, hardest=0)


def test_misses_by_hand() -> None:
    assert misses_at([5, 1, 3], [4, 2, 0], allowed=0) == pytest.approx(2 / 3)
    assert misses_at([5, 1, 3], [4, 2, 0], allowed=1) == pytest.approx(1 / 3)
    assert misses_at([5, 1, 3], [4, 2, 0], allowed=9) == 0


# --- the task --------------------------------------------------------------------------------------------------------


def test_samples_or_ready_frames_are_the_same_lesson(chimes: Path) -> None:
    data = make_data(chimes, ["alexa"])
    task = make_task(data, TriggerConfig(backbone=BACKBONE, head=HeadConfig(size=8))).eval()
    batch = data.train_clips(0)
    frames, _, lengths = task.network.front(batch.samples, None, batch.lengths)
    loss, count, _ = task.loss(batch)
    ready, same, _ = task.loss(FrameBatch(frames, lengths, batch.ends))
    assert count == same == 8
    torch.testing.assert_close(loss, ready)


def test_masks_fall_on_training_alone(chimes: Path) -> None:
    hard = AugmentConfig(masks=Masks(1.0, time_frames=(40, 40), time_share=1.0))
    data = make_data(chimes, ["alexa"], augment=hard)
    task, batch = make_task(data), data.train_clips(0)
    plain = make_task(make_data(chimes, ["alexa"]))
    assert not torch.allclose(task.train()._hear(batch)[0], plain.train()._hear(batch)[0])
    assert torch.equal(task.train()._hear(batch)[0], task._hear(batch)[0])  # by the step alone
    assert torch.equal(task.eval()._hear(batch)[0], plain.eval()._hear(batch)[0])


@pytest.mark.parametrize("freeze", [True, False])
def test_a_backbone_is_kept_or_tuned(chimes: Path, tmp_path: Path, freeze: bool) -> None:
    torch.manual_seed(7)
    trained = Backbone(BACKBONE)
    corpora = [{"name": "Talks", "licence": "CC0"}]
    path = save_bundle(
        tmp_path / "b", kind="backbone", config=BACKBONE, weights=trained.state_dict(), training={"data": corpora}
    )
    data = make_data(chimes, ["alexa"], licences=["Chimes: CC0"])
    task = make_task(data, TriggerConfig(head=HeadConfig(size=8)), backbone=str(path), freeze=freeze).train()
    assert task.network.config.backbone == BACKBONE
    assert task.parts().training_data == [{"name": "Chimes", "licence": "CC0"}, *corpora]
    assert task.network.front.training is not freeze
    optimiser = task.configure_optimizers()
    task.loss(data.train_clips(0))[0].backward()
    optimiser.step()
    moved = [not torch.equal(a, b) for a, b in zip(trained.parameters(), task.network.front.parameters(), strict=True)]
    assert any(moved) is not freeze
    with pytest.raises(BundleError):
        make_task(data, TriggerConfig(), backbone=str(tmp_path / "none"))


def test_backbones_that_cannot_be_used(chimes: Path, tmp_path: Path) -> None:
    data = make_data(chimes, ["alexa"])
    with pytest.raises(ConfigError, match="untrained backbone"):
        make_task(data, TriggerConfig(), freeze=True)
    save_bundle(tmp_path / "b", kind="tones", config={})
    with pytest.raises(ConfigError, match="is a tones"):
        make_task(data, TriggerConfig(), backbone=str(tmp_path / "b"))
    assert not make_task(data, backbone="nowhere", freeze=True).frozen  # a plain model has none


def test_validation_by_hand(chimes: Path) -> None:
    """Two words at frames 20 and 60 of 100; scores are set, and the count is done on paper."""
    task = make_task(make_data(chimes, ["alexa"]))
    logits = torch.full((2, 100, 1), -5.0)
    logits[0, 25] = 3.0  # heard
    logits[0, 61], logits[0, 86] = 1.0, 2.0  # heard, and an alarm: 26 frames are too late for the second word
    logits[1, 9] = 0.0  # an alarm below
    logits[1, 95:] = 9.0  # padding
    task._count(logits, [[(0, 20), (0, 60)], []], torch.tensor([100, 95]))
    assert task.hits == [[3.0, 1.0]]
    assert task.alarms == [[2.0, 0.0]]
    assert task.heard_s == pytest.approx(195 * 0.03)
    assert misses_at(task.hits[0], task.alarms[0], 0) == 0.5


def test_the_bundle_says_what_the_detector_needs(chimes: Path) -> None:
    parts = make_task(make_data(chimes, ["smart mirror", "alexa"])).parts()
    assert parts.kind == "trigger"
    assert parts.config["words"] == ("smart mirror", "alexa")
    assert parts.config["backbone"] is None
    decision = {"threshold": 0.5, "smoothing": 1, "patience": 1, "refractory_s": 1.0}
    assert parts.decoding == {"smart mirror": decision, "alexa": decision}


@pytest.mark.parametrize("kind", ["smoothed", "maxpool"])
def test_tones_are_learned(chimes: Path, kind: str) -> None:
    """One of seven tones is the word; a network of 8,000 weights finds it in clips of people it has not heard."""
    clips = ClipSettings(seconds=2.0, triggers=(0, 1), others=(0, 1), talk=0.2, broken_off=0.0, below_db=(20, 30))
    data = make_data(chimes, ["alexa"], clips=clips)
    loss = TriggerLoss(kind, positive_weight=5.0 if kind == "smoothed" else 1.0)
    task = make_task(data, loss=loss).train()
    optimiser = task.configure_optimizers()
    for step in range(60):
        optimiser.zero_grad()
        task.loss(data.train_clips(step))[0].backward()
        optimiser.step()
    task.eval()
    with torch.no_grad():
        for step in range(8):
            batch: TriggerBatch = data.dev_clips(step)
            logits, lengths = task._hear(batch)
            task._count(logits, task._places(batch.ends), lengths)
    assert len(task.hits[0]) > 20
    assert misses_at(task.hits[0], task.alarms[0], allowed=1) < 0.1
    assert np.median(task.hits[0]) > np.quantile(task.alarms[0], 0.9) + 1
