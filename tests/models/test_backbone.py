import math

import pytest
import torch

from voiceseq.errors import ConfigError, InputError
from voiceseq.models.backbone import Backbone, BackboneConfig


def make(cell: str = "convolution", layers: int = 2) -> Backbone:
    torch.manual_seed(1)
    config = BackboneConfig(symbols=5, channels=8, cell=cell, size=12, layers=layers, bottleneck=6, cycle=2)
    return Backbone(config).double().eval()


@pytest.mark.parametrize("cell", ["convolution", "gru"])
@pytest.mark.parametrize("chunk", [160, 777, 1280, 5000])
def test_any_cut_of_the_samples_gives_the_same_frames(chunk: int, cell: str) -> None:
    backbone, samples = make(cell), 0.1 * torch.randn(2, 9000, dtype=torch.double)
    whole, _ = backbone(samples)
    state, pieces = None, []
    for piece in samples.split(chunk, 1):
        output, state = backbone(piece, state)
        pieces.append(output)
    assert whole.logits.shape == (2, 18, 5)
    torch.testing.assert_close(torch.cat([piece.logits for piece in pieces], 1), whole.logits)
    torch.testing.assert_close(torch.cat([piece.bottleneck for piece in pieces], 1), whole.bottleneck)


@pytest.mark.parametrize("cell", ["convolution", "gru"])
def test_a_recording_is_heard_the_same_alone_and_in_company(cell: str) -> None:
    backbone, samples = make(cell), 0.1 * torch.randn(3, 9000, dtype=torch.double)
    lengths = torch.tensor([9000, 4321, 2000])
    together, _ = backbone(samples, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, _ = backbone(samples[row : row + 1, :length])
        assert together.lengths[row] == alone.logits.shape[1]
        torch.testing.assert_close(together.logits[row, : together.lengths[row]], alone.logits[0])


def test_convolutions_forget_whatever_was_before() -> None:
    """An hour of noise ago, or a second ago: past their reach the frames are the same to the last bit."""
    backbone, said = make(layers=4), 0.1 * torch.randn(1, 40_000, dtype=torch.double)
    assert backbone.reach_s == pytest.approx(0.025 + 0.01 * (4 + 4 + 3 * 2 * (1 + 2 + 1 + 2)))
    frames = [
        backbone(torch.cat((level * torch.randn(1, 48_000, dtype=torch.double), said), 1))[0].logits[0, 100:]
        for level in (0.0, 1e-3, 1.0)
    ]
    late = math.ceil(backbone.reach_s / backbone.frame_s)
    assert torch.equal(frames[0][late:], frames[1][late:])
    assert torch.equal(frames[0][late:], frames[2][late:])
    assert not torch.allclose(frames[0][:5], frames[2][:5])


def test_a_frame_is_thirty_milliseconds() -> None:
    assert make().frame_s == pytest.approx(0.03)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 symbols"):
        Backbone(BackboneConfig())
    with pytest.raises(InputError):
        make()(torch.full((1, 4000), torch.nan, dtype=torch.double))
