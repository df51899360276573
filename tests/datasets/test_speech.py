from collections import Counter

import numpy as np
import pytest
import torch

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.speech import SpeechBatches, Spoken
from voiceseq.errors import InputError


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
            assert torch.allclose(wave[:length], torch.tensor(number / 100))
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
    def noisy(wave: np.ndarray, generator: torch.Generator) -> np.ndarray:
        return wave + torch.rand(1, generator=generator).numpy()

    batches = SpeechBatches(spoken, 16_000, 1.0, 3, noisy)
    assert batches(0).samples.equal(SpeechBatches(spoken, 16_000, 1.0, 3, noisy)(0).samples)
    assert not batches.load([0], 0).samples.equal(batches.load([0], 1).samples)
    assert float(batches.load([0, 1]).samples[0, 0]) != pytest.approx(0.01)


def test_impossible_batches_are_refused(spoken: list[Spoken]) -> None:
    with pytest.raises(InputError, match="does not fit"):
        SpeechBatches(spoken, 16_000, 0.1, 1)
    with pytest.raises(InputError, match="no clips"):
        SpeechBatches([], 16_000, 1.0, 1)
