from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from voiceseq.audio.augment import AugmentConfig, Augmenter, Gain, Speed
from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.speech import Hardening, SpeechBatches, Spoken
from voiceseq.datasets.teachers import Lessons, learn_lessons
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> list[Spoken]:
    """Twenty clips of one recording; every sample of clip i is (i + 1) / 100."""
    starts = np.cumsum([0] + [1000 + 137 * i for i in range(20)])
    wave = np.concatenate([np.full(1000 + 137 * i, (i + 1) / 100, np.float32) for i in range(20)])
    path = write_audio(tmp_path_factory.mktemp("a") / "a.wav", wave, 16_000, encoding="float")
    clips = [Clip(str(i), path, (1000 + 137 * i) / 16_000, starts[i] / 16_000) for i in range(20)]
    return [Spoken(clip, (i + 1, 1)) for i, clip in enumerate(clips)]


def test_a_pass_reads_every_clip_once_and_right(spoken: list[Spoken]) -> None:
    batches = SpeechBatches(spoken, 16_000, seconds=1.0, seed=3)
    seen: Counter[int] = Counter()
    for step in range(batches.per_pass):
        batch = batches(step)
        assert batch.samples.numel() <= 16_000
        for wave, length, target in zip(batch.samples, batch.lengths, batch.targets, strict=True):
            number = int(target[0])
            assert length == 1000 + 137 * (number - 1)
            assert torch.allclose(wave[:length], torch.tensor(number / 100), atol=1 / 32768)
            assert not wave[length:].any()
            seen[number] += 1
    assert seen == Counter(range(1, 21))


def test_batches_repeat_under_a_seed_and_differ_between_passes(spoken: list[Spoken]) -> None:
    def firsts(batches: SpeechBatches, number: int) -> list[list[int]]:
        steps = range(number * batches.per_pass, (number + 1) * batches.per_pass)
        return [batches(step).targets[:, 0].tolist() for step in steps]

    one, same, other = (SpeechBatches(spoken, 16_000, 0.5, seed) for seed in (1, 1, 2))
    assert firsts(one, 0) == firsts(same, 0) != firsts(other, 0)
    assert firsts(one, 0) != firsts(one, 1)
    assert firsts(one, 0) == firsts(same, 0)  # going back gives the same again


def test_augmentation_draws_from_seed_pass_and_clip(spoken: list[Spoken]) -> None:
    hard = Hardening(Augmenter(AugmentConfig(gain=Gain(probability=1.0, db=(-20.0, 6.0)))), share=1.0)
    batches = SpeechBatches(spoken, 16_000, 1.0, 3, hard)
    assert batches(0).augmented
    assert batches(0).samples.equal(SpeechBatches(spoken, 16_000, 1.0, 3, hard)(0).samples)
    one, other = (batches.load([0], number, augmented=True).samples for number in (0, 1))
    assert not one.equal(other)
    assert float(batches.load([0, 1], augmented=True).samples[0, 0]) != pytest.approx(0.01, rel=1e-2)
    assert float(batches.load([0, 1]).samples[0, 0]) == pytest.approx(0.01, rel=1e-2)


def test_it_starts_with_short_clips_as_they_are_and_then_half_are_hard(spoken: list[Spoken]) -> None:
    hard = Hardening(Augmenter(AugmentConfig(gain=Gain(probability=1.0, db=(3.0, 6.0)))), share=0.5, start=30)
    batches = SpeechBatches(spoken, 16_000, 0.3, 3, hard)
    early = [batches(step) for step in range(30)]
    assert not any(batch.augmented for batch in early)
    assert max(int(batch.lengths.max()) for batch in early) < 2_800  # of up to 3,603
    late = [batches(step).augmented for step in range(30, 230)]
    assert 70 < sum(late) < 130


def test_a_teachers_times_move_with_the_sound(spoken: list[Spoken]) -> None:
    """At double speed everything happens at half the time; what the teacher said stays."""
    places = {item.clip.id: (3 * row, 3) for row, item in enumerate(spoken)}
    lessons = Lessons(np.arange(20 * 3 * 4).reshape(-1, 4).astype(np.float16), places)
    hard = Hardening(Augmenter(AugmentConfig(speed=Speed(probability=1.0, factor=(2.0, 2.0)))), share=1.0)
    batches = SpeechBatches(spoken, 16_000, 1.0, 3, hard, lessons)
    plain, fast = (batches.load([5, 7], augmented=augmented).lesson for augmented in (False, True))
    assert plain is not None
    assert fast is not None
    torch.testing.assert_close(fast.times, plain.times / 2)
    torch.testing.assert_close(fast.frames, plain.frames)
    assert plain.frames[1, 2].tolist() == [92, 93, 94, 95]


def test_impossible_batches_are_refused(spoken: list[Spoken]) -> None:
    with pytest.raises(InputError, match="does not fit"):
        SpeechBatches(spoken, 16_000, 0.1, 1)
    with pytest.raises(InputError, match="no clips"):
        SpeechBatches([], 16_000, 1.0, 1)


def test_clips_of_one_id_are_not_taught_each_others_lessons(tmp_path: Path) -> None:
    clips = [Clip("1", Path("a.flac"), 1.0), Clip("1", Path("b.flac"), 2.0)]
    with pytest.raises(ConfigError, match="2 clips came with 1 ids"):
        learn_lessons(clips, tmp_path, tmp_path / "lessons.npz")
