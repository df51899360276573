"""What every wake word stands on: clips heard in the middle of a stream, streams kept apart for thresholds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_ground import RATE, make_ground, stream

from voiceseq.bundles import load_bundle
from voiceseq.datasets.bank import weights_sha256, write_bank
from voiceseq.datasets.frame_codec import dequantise, quantise
from voiceseq.datasets.synthesis import TriggerClip
from voiceseq.wakeword.ground import LEAD_S, Ground


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_ground(tmp_path_factory.mktemp("ground"))


@pytest.mark.parametrize("rows", [1, 2, 32])
def test_clips_are_heard_one_after_the_other(paths: tuple[str, str], rows: int) -> None:
    """The frames of a clip are those of the end of one long recording: silence, the clips before, the clip."""
    ground, rng = Ground(*paths), np.random.default_rng(1)
    clips = [rng.normal(0, 0.1, round(seconds * RATE)).astype(np.float32) for seconds in (0.7, 3.1, 0.5, 1.0)]
    found = ground.hear((TriggerClip(clip, ((0, 0.3),)) for clip in clips), rows)
    before, levels = np.zeros(round(LEAD_S / 0.03) * 480, np.float32), ground.bank.config.levels
    for clip, one in zip(clips, found, strict=True):
        with torch.inference_mode():
            output, _ = ground.network(torch.from_numpy(np.concatenate((before, clip)))[None])
        frames = output.bottleneck[0, round(LEAD_S / 0.03) :].numpy()
        wanted = dequantise(quantise(frames, levels), levels)
        assert one.frames.shape == wanted.shape
        assert np.abs(one.frames - wanted).max() < 2.1 / (levels - 1)  # a rounding may fall to the other side
        assert (np.abs(one.frames - wanted) > 1e-2).mean() < 0.01
        assert one.ends == ((0, 0.3),)
        before = np.concatenate((before, clip))[-len(before) :]


def test_thresholds_are_set_on_noises_that_trained_nothing(paths: tuple[str, str], tmp_path: Path) -> None:
    backbone, _ = paths
    bundle, network = load_bundle(backbone), Ground(*paths).network
    streams = [stream(network, number) for number in range(20)]
    named = [one if one.kind == "speech" else replace(one, source=f"noise {n % 5}") for n, one in enumerate(streams)]
    bank = write_bank(
        named,
        weights_sha256(bundle),
        tmp_path / "bank",
        frame_s=network.frame_s,
        licences={"made": "CC0"} | {f"noise {n}": "CC0" for n in range(5)},
    )
    train, dev = Ground(backbone, str(bank)).streams(["hello"])
    sources = [{one.source for one in part if one.kind == "noise"} for part in (train, dev)]
    assert not sources[0] & sources[1]
    assert [len(found) for found in sources] == [3, 2]
    for part in (train, dev):
        assert {one.kind for one in part} == {"speech", "noise"}
