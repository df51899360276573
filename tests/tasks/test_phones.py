"""What the phone task trains on: only clips that CTC can spell, and the rest is told."""

from pathlib import Path

import numpy as np
import pytest

from voiceseq.audio.files import write_audio
from voiceseq.core.ctc import ctc_forward, frames_needed
from voiceseq.datasets.manifest import Clip, write_manifest
from voiceseq.models.backbone import BackboneConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.phones import PhoneData, PhoneTask


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    """Clips of every length around the shortest that "moon moon" fits into: whatever is kept can be trained on."""
    wave = 0.1 * np.random.default_rng(1).standard_normal(16_000)
    clips = []
    for number in range(40):
        path = write_audio(tmp_path / f"{number}.wav", wave[: 1600 + 160 * number], 16_000)
        clips.append(
            Clip(str(number), path, (1600 + 160 * number) / 16_000, text="mama" if number % 2 else "moon moon")
        )
    clips.append(Clip("odd", clips[-1].audio, clips[-1].duration, text="unheard"))
    write_manifest(tmp_path / "m.jsonl", clips)
    (tmp_path / "d.dict").write_text("moon M UW1 N\nmama M M M AA1\n")
    with pytest.warns(UserWarning, match="clips were left out"):
        data = PhoneData(str(tmp_path), ["m.jsonl"], ["m.jsonl"], [str(tmp_path / "d.dict")], batch_s=2.0)
    kept = data.batches.spoken
    assert 10 < len(kept) < 40
    task = PhoneTask(BackboneConfig(channels=4, size=8, layers=1, bottleneck=4), OptimiserConfig(), data)
    for batch in data.batches.whole():
        output, _ = task.network(batch.samples, lengths=batch.lengths)
        assert bool((frames_needed(batch.targets, batch.target_lengths) <= output.lengths).all())
        assert float(task.loss(batch)[0].detach()) > 0


def test_nothing_is_said_in_what_is_given_as_silence(tmp_path: Path) -> None:
    rng, clips = np.random.default_rng(1), []
    for number in range(12):
        path = write_audio(tmp_path / f"{number}.wav", 0.1 * rng.standard_normal(9600), 16_000)
        clips.append(Clip(str(number), path, 0.6, text="moon"))
    write_manifest(tmp_path / "m.jsonl", clips)
    (tmp_path / "d.dict").write_text("moon M UW1 N\n")
    manifest, dictionary = ["m.jsonl"], [str(tmp_path / "d.dict")]
    data = PhoneData(str(tmp_path), manifest, manifest, dictionary, 2.5, 3, silences=manifest, silence_s=0.3)
    assert sum(not one.target for one in data.batches.spoken) == 24  # each recording as two silences
    task = PhoneTask(BackboneConfig(channels=4, size=8, layers=1, bottleneck=4), OptimiserConfig(), data).eval()
    for batch in data.batches.whole():
        silent = (batch.target_lengths == 0).nonzero().flatten().tolist()
        log_probs = task.network(batch.samples, lengths=batch.lengths)[0].logits.log_softmax(-1)
        frames = task.network.features.output_lengths(batch.lengths)
        wanted = []
        for row, target in enumerate(batch.targets):
            count = -(-int(frames[row]) // 3)
            if row in silent:
                wanted.append(-3 * float(log_probs[row, :count, 0].mean()))
            else:
                likely = ctc_forward(log_probs[row : row + 1, :count], target[None, :3])
                wanted.append(-float(likely) / 3)
        assert float(task.loss(batch)[0].detach()) == pytest.approx(np.mean(wanted), rel=1e-4)
