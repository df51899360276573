"""What a recogniser trains on, what its loss counts, how it is measured, and that it learns."""

import dataclasses
import gzip
import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from places import ROOT

from voiceseq.audio.augment import AugmentConfig, Masks
from voiceseq.audio.features import FeatureConfig
from voiceseq.audio.files import write_audio
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.core.ctc import frames_needed
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import Decoding
from voiceseq.models.acoustic import AcousticConfig, AcousticOutput
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.recognition import RecognitionData, RecognitionTask
from voiceseq.training.config import compose_config
from voiceseq.training.run import start_from

TINY = AcousticConfig(channels=12, size=24, layers=1, dropout=0.0, heads=2, decoder_size=16)


def write_clips(folder: Path, rows: list[tuple[str, float]], waves: list[np.ndarray] | None = None) -> Path:
    """A manifest of (text, seconds), said by noise or by the given waves."""
    chance = np.random.default_rng(1)
    clips = []
    for number, (text, seconds) in enumerate(rows):
        wave = 0.1 * chance.standard_normal(round(16_000 * seconds)) if waves is None else waves[number]
        path = write_audio(folder / f"{number}.wav", wave.astype(np.float32), 16_000)
        clips.append(Clip(f"c{number}", path, len(wave) / 16_000, text=text, speaker=f"s{number}"))
    write_manifest(folder / "m.jsonl", clips)
    return folder


def make_data(folder: Path, **settings: Any) -> RecognitionData:
    return RecognitionData(str(folder), ["m.jsonl"], ["m.jsonl"], **{"batch_s": 30.0, "hard_from": 0} | settings)


def make_task(data: RecognitionData, model: AcousticConfig = TINY, **settings: Any) -> RecognitionTask:
    torch.manual_seed(1)
    task = RecognitionTask(model, OptimiserConfig(learning_rate=0.01), data, **settings)
    task.logged = {}  # type: ignore[assignment]
    task.log = lambda name, value, **_: task.logged.update({name: float(value)})  # type: ignore
    return task


def test_what_cannot_be_said_in_time_or_spelt_is_left_out_and_named(tmp_path: Path) -> None:
    rows = [("hello", 0.1 + 0.01 * number) for number in range(30)]
    rows += [("мир", 1.0), ("", 1.0), ("!?", 1.0), ("Good, 2 of them!", 1.0)]
    with pytest.warns(UserWarning, match=r"clips were left out \(c0, c1, c2, ...\): a text that a-z cannot spell"):
        data = make_data(write_clips(tmp_path, rows))
    kept = {item.clip.id for item in data.batches.spoken}
    assert data.texts[-1] == "good two of them"
    assert not kept & {"c30", "c31", "c32"}
    assert 5 < len(kept) < 30
    task = make_task(data).eval()
    for batch in data.batches.whole():
        lengths = task.network(batch.samples, batch.lengths).lengths
        assert bool((frames_needed(batch.targets, batch.target_lengths) <= lengths).all())
        assert float(task.loss(batch)[0].detach()) > 0


def test_a_clip_that_augmentation_made_too_short_is_counted_and_not_zeroed(tmp_path: Path) -> None:
    data = make_data(write_clips(tmp_path, [("hello there", 0.8), ("yes", 0.8)]))
    batch = next(iter(data.batches.whole()))
    short = batch._replace(lengths=torch.where(batch.target_lengths > 5, 3000, batch.lengths))
    task = make_task(data)
    loss, count, _ = task.train().loss(short)
    alone = batch.target_lengths < 5
    wanted = task.loss(batch._replace(**{name: getattr(batch, name)[alone] for name in batch._fields[:4]}))[0]
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-4)
    assert count == 2
    task.loss(short)
    assert task.logged["train/too short"] == 1
    with pytest.raises(InputError, match="1 of 2 targets are longer"):
        task.eval().loss(short)


def test_the_command_for_own_speech_in_the_docs_trains(tmp_path: Path) -> None:
    """As a shell cuts it, with the user's own folder and nothing of anybody else's."""
    page = (ROOT / "docs" / "recognition.md").read_text()
    command = re.search(r"^voiceseq train (.*data\.folder=\.(?:.*\\\n)*.*)$", page, re.MULTILINE)
    assert command
    words = [word.replace("my.jsonl", "m.jsonl").replace("dev.jsonl", "m.jsonl") for word in shlex.split(command[1])]
    write_clips(tmp_path, [("hello there", 2.0), ("yes", 2.0), ("no", 2.0)])
    small = [f"data.folder={tmp_path}", "data.level=character", "data.hard_from=0", "data.hard_share=1"]
    config = compose_config([word for word in words if word != "\n"] + small)
    data = instantiate(config.data, _convert_="all")
    assert data.sources == [{"name": "my recordings", "licence": "mine"}]
    assert data.batches(0).augmented


def test_a_licence_wants_the_name_of_what_it_is_for(tmp_path: Path) -> None:
    write_clips(tmp_path, [("hello there", 2.0)])
    for wrong in ("mine", "mine:", ": mine"):
        with pytest.raises(ConfigError, match=f"{wrong!r} came; 'name of the corpus: its licence' was wanted"):
            make_data(tmp_path, licences=[wrong])


def test_subwords_spell_every_text(tmp_path: Path) -> None:
    rows = [("the cab and the sea", 2.0), ("the cab's at the sea", 2.0)]
    data = make_data(write_clips(tmp_path, rows), level="subword", pieces=80)
    assert data.texts == [text for text, _ in rows]
    assert len(data.batches.spoken[0].target) < len(rows[0][0])
    assert data.vocabulary.decode(data.vocabulary.encode("zebra quiz")) == "zebra quiz"  # what was never said, too
    with pytest.raises(ConfigError, match="choose one of character, subword"):
        make_data(tmp_path, level="word")


def test_subwords_and_language_model_may_be_of_other_texts(tmp_path: Path) -> None:
    folder = write_clips(tmp_path, [("zulu quiz", 2.0), ("zulu zulu", 2.0)])
    read = [Clip(f"t{n}", folder / "0.wav", 1.0, text=text) for n, text in enumerate(["The bank!", "the bank", "мир"])]
    write_manifest(folder / "texts.jsonl", read)
    data = make_data(folder, level="subword", pieces=60, texts=["texts.jsonl"])
    assert data.texts == ["the bank", "the bank"]
    spelt = {word: len(data.vocabulary.encode(word)) for word in ("bank", "zulu")}
    assert spelt["bank"] < spelt["zulu"]
    assert len(data.batches.spoken) == 2
    assert b"bank" in gzip.decompress(make_task(data, lm_order=2).parts().files["lm.arpa.gz"])


def test_where_nothing_is_said_nothing_is_to_be_written(tmp_path: Path) -> None:
    folder = write_clips(tmp_path, [("hello there", 2.0), ("yes", 1.0)])
    sounds = [Clip(f"n{n}", folder / "0.wav", 2.0, 0.0) for n in range(6)]
    write_manifest(tmp_path / "noise.jsonl", sounds)
    data = make_data(folder, silences=["noise.jsonl"], silence_s=0.5, held_out_noise=0.4)
    quiet = [item.clip for item in data.batches.spoken if not item.target]
    assert 0 < len(quiet) < 24
    assert len(quiet) % 4 == 0  # of a sound all or nothing
    assert {(clip.offset, clip.duration) for clip in quiet} == {(part * 0.5, 0.5) for part in range(4)}
    assert sorted(data.texts) == ["hello there", "yes"]
    for decoder in ("none", "recurrent", "transformer"):
        task = make_task(data, dataclasses.replace(TINY, decoder=decoder))
        batch = data.batches.load(range(len(data.batches.spoken)))
        loss, _, _ = task.train().loss(batch)
        loss.backward()
        assert math.isfinite(float(loss.detach()))


def test_masks_come_with_the_hard_batches_in_training_alone(tmp_path: Path) -> None:
    masks = AugmentConfig(masks=Masks(probability=1.0, time_share=0.5))
    data = make_data(write_clips(tmp_path, [("hello there", 2.0)]), augment=masks, hard_from=5)
    batch, task = next(iter(data.batches.whole())), make_task(data)
    plain = task.eval()._hear(batch).logits
    assert torch.equal(task.train()._hear(batch).logits, plain)  # step 0 comes before step 5
    task.hard_from = 0
    assert not torch.allclose(task._hear(batch).logits, plain)
    assert torch.equal(task.eval()._hear(batch).logits, plain)


def test_validation_counts_words_and_letters_of_each_group(tmp_path: Path) -> None:
    """A network that says "the cob" whatever it hears, for "the cab" and "the sea": 2 of 4 words, 4 of 14 letters."""
    data = make_data(write_clips(tmp_path, [("the cab", 1.0), ("the sea", 1.0)]))
    task = make_task(data).eval()
    said = torch.tensor(data.vocabulary.encode("the cob"))
    logits = torch.full((2, 14, len(data.vocabulary)), -20.0)
    logits[:, torch.arange(0, 14, 2), said] = 0.0
    logits[:, torch.arange(1, 14, 2), 0] = 0.0
    task._hear = lambda batch: AcousticOutput(logits, logits, torch.tensor([14, 14]))  # type: ignore[method-assign]
    task.on_validation_epoch_start()
    (name, batch), *rest = list(data.val_dataloader())
    assert name == "m"
    assert not rest
    task.validation_step((name, batch), 0)
    task.on_validation_epoch_end()
    assert task.logged["val/wer"] == pytest.approx(50)
    assert task.logged[f"val/cer {name}"] == task.logged["val/cer"] == pytest.approx(100 * 4 / 14)


def test_an_encoder_that_is_trained_already_waits_and_learns_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(write_clips(tmp_path, [("hello", 1.0), ("yes", 1.0)]))
    model = dataclasses.replace(TINY, encoder="whisper", decoder="transformer")
    task = make_task(data, model, head_rate=20.0, encoder_from=1)
    optimiser = task.configure_optimizers()
    names = {id(parameter): name.split(".")[0] for name, parameter in task.network.named_parameters()}
    groups = [({names[id(one)] for one in group["params"]}, group["lr"]) for group in optimiser.param_groups]
    assert [group for group in groups if group[1] == 0.2] == [({"output", "decoder"}, 0.2)]
    assert set.union(*(group for group, rate in groups if rate == 0.01)) == {"first", "second", "encoder"}
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(names)
    batch = next(iter(data.batches.whole()))
    moved = []
    for step in (0, 1):
        monkeypatch.setattr(RecognitionTask, "global_step", step)
        task.on_train_batch_start(batch, step)
        task.train().loss(batch)[0].backward()
        moved.append({names[id(one)] for one in task.network.parameters() if one.grad is not None and one.grad.any()})
    assert moved == [{"output", "decoder"}, {"output", "decoder", "first", "second", "encoder"}]


def test_a_streaming_model_begins_as_a_recurrent_phone_backbone(tmp_path: Path) -> None:
    data = make_data(write_clips(tmp_path, [("hello", 1.0)]))
    sizes = {"channels": 12, "size": 16, "layers": 3, "cell": "gru"}
    backbone = Backbone(BackboneConfig(symbols=40, **sizes))
    path = save_bundle(tmp_path / "backbone", kind="backbone", config=backbone.config, weights=backbone.state_dict())
    task = make_task(data, AcousticConfig(features=FeatureConfig(mels=40), encoder="causal", **sizes))
    count = len(task.network.state_dict())
    assert f"with {count - 2} of {count} tensors" in start_from(task, path)
    own, other = task.network.state_dict(), backbone.state_dict()
    assert torch.equal(own["first.convolution.weight"], other["first.convolution.weight"])
    assert torch.equal(own["encoder.recurrent.cells.2.weight_hh"], other["recurrent.cells.2.weight_hh"])


def test_a_wrong_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ctc_weight is 0"):
        make_task(make_data(write_clips(tmp_path, [("yes", 1.0)])), ctc_weight=0.0)


TONES = {"a": 500.0, "b": 1500.0, "c": 3000.0}


def tones(text: str) -> np.ndarray:
    """A letter is 0.15 s of a tone with 0.05 s of silence behind it."""
    time = np.arange(2400) / 16_000
    parts = [np.append(0.1 * np.sin(2 * np.pi * TONES[letter] * time), np.zeros(800)) for letter in text]
    return np.concatenate([np.zeros(800), *parts]) if parts else np.zeros(1600)


@pytest.mark.parametrize("decoder", ["none", "recurrent", "transformer"])
def test_it_learns_and_its_bundle_recognises(decoder: str, tmp_path: Path) -> None:
    texts = ["abc", "cab", "bca", "acb", "bac", "cba", "abab", "caca"]
    data = make_data(write_clips(tmp_path, [(text, 1.0) for text in texts], [tones(text) for text in texts]))
    model = AcousticConfig(
        features=FeatureConfig(mels=16), channels=16, size=24, layers=1, dropout=0.0, heads=2, decoder=decoder,
        decoder_size=24,
    )  # fmt: skip
    task = make_task(data, model, ctc_weight=0.5, label_smoothing=0.0, lm_order=2).train()
    optimiser, batch = task.configure_optimizers(), next(iter(data.batches.whole()))
    for _ in range(150 if decoder == "none" else 300):
        loss, _, metrics = task.loss(batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.5
    assert set(metrics) == (set() if decoder == "none" else {"ctc", "attention"})
    parts = task.parts()
    path = save_bundle(
        tmp_path / "bundle",
        kind=parts.kind,
        config=parts.config,
        weights=task.network.state_dict(),
        vocabularies=parts.vocabularies,
        files=parts.files,
        decoding=parts.decoding,
    )
    recogniser = AcousticRecogniser.from_bundle(load_bundle(path))
    assert recogniser.lm is not None
    assert "cab" in recogniser.lm.words
    pieces = [tones(text).astype(np.float32) for text in texts]
    for name in recogniser.decoders:
        assert [found[0].text for found in recogniser.recognise(pieces, Decoding(name))] == texts
