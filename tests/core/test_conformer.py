"""The conformer: its convolution by hand, padded = alone in training mode too, gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voiceseq.core.conformer import ConformerBlock, ConformerConfig, ConformerConvolution, ConformerEncoder
from voiceseq.core.masks import causal_mask
from voiceseq.core.transformer import POSITIONS
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(3)


def config(**changes: Any) -> ConformerConfig:
    small = {"size": 8, "heads": 2, "layers": 2, "feed_forward": 12, "dropout": 0.0, "kernel": 5, "max_length": 60}
    return ConformerConfig(**{**small, **changes})


def by_hand(convolution: ConformerConvolution, frames: Tensor) -> Tensor:
    """``(time, size)``, frame by frame, feature by feature."""
    first, gate = convolution.widen(frames).chunk(2, -1)
    gated = first / (1 + (-gate).exp())
    time, size = frames.shape
    before = convolution.kernel - 1 if convolution.causal else convolution.kernel // 2
    outputs = []
    for t in range(time):
        filtered = convolution.depthwise.bias.clone()
        for k in range(convolution.kernel):
            if 0 <= t + k - before < time:
                filtered = filtered + convolution.depthwise.weight[:, 0, k] * gated[t + k - before]
        spread = (filtered - filtered.mean()).square().mean()
        normed = (filtered - filtered.mean()) / (spread + 1e-5).sqrt() * convolution.norm.weight + convolution.norm.bias
        outputs.append(convolution.mix.weight @ (normed / (1 + (-normed).exp())) + convolution.mix.bias)
    assert size == outputs[0].shape[0]
    return torch.stack(outputs)


@pytest.mark.parametrize(("kernel", "causal"), [(1, False), (5, False), (1, True), (4, True), (5, True)])
@pytest.mark.parametrize("time", [1, 3, 9])
def test_convolution_by_hand(kernel: int, causal: bool, time: int) -> None:
    convolution = ConformerConvolution(6, kernel, causal).double()
    nn.init.normal_(convolution.norm.weight)
    nn.init.normal_(convolution.norm.bias)
    frames = torch.randn(2, time, 6).double()
    outputs, _ = convolution(frames)
    for row in range(2):
        torch.testing.assert_close(outputs[row], by_hand(convolution, frames[row]))


@pytest.mark.parametrize("kernel", [1, 4, 5])
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_causal_convolution_in_pieces_is_whole(kernel: int, size: int) -> None:
    convolution = ConformerConvolution(6, kernel, causal=True).double()
    frames = torch.randn(2, 53, 6).double()
    whole, last = convolution(frames)
    context, pieces = None, []
    for piece in frames.split(size, 1):
        output, context = convolution(piece, context=context)
        pieces.append(output)
        assert context.shape == (2, kernel - 1, 6)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    torch.testing.assert_close(context, last)


def test_a_convolution_that_sees_the_future_cannot_go_on() -> None:
    convolution = ConformerConvolution(6, 5, causal=False)
    with pytest.raises(InputError, match="sees the future: build it with causal=True"):
        convolution(torch.randn(1, 3, 6), context=torch.zeros(1, 4, 6))


def test_block_is_its_equation() -> None:
    block = ConformerBlock(config(positions="none")).double()
    frames = torch.randn(2, 7, 8).double()
    mask = causal_mask(7)
    x = frames + 0.5 * block.first(block.around_first.norm(frames))
    normed = block.around_attention.norm(x)
    x = x + block.attention(normed, normed, normed, mask)[0]
    x = x + block.convolution(block.around_convolution.norm(x))[0]
    x = x + 0.5 * block.second(block.around_second.norm(x))
    torch.testing.assert_close(block(frames, mask), block.norm(x))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_padded_is_alone(positions: str, causal: bool, training: bool) -> None:
    encoder = ConformerEncoder(config(positions=positions, causal=causal)).double().train(training)
    frames, lengths = torch.randn(3, 9, 8).double(), torch.tensor([9, 4, 1])
    together = encoder(frames, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(frames[row : row + 1, :length])
        torch.testing.assert_close(together[row, :length], alone[0])
        assert not together[row, length:].any()


def test_causal_does_not_see_the_future_and_the_other_does() -> None:
    frames = torch.randn(1, 9, 8).double()
    changed = frames.clone()
    changed[:, 5:] = torch.randn(1, 4, 8)
    for causal in (True, False):
        encoder = ConformerEncoder(config(causal=causal)).double()
        before, after = encoder(frames, mask=causal_mask(9)), encoder(changed, mask=causal_mask(9))
        assert torch.allclose(before[:, :5], after[:, :5]) == causal


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(causal: bool) -> None:
    encoder = ConformerEncoder(
        config(size=4, feed_forward=4, layers=1, kernel=3, causal=causal, max_distance=1)
    ).double()
    names = [name for name, _ in encoder.named_parameters()]
    frames = torch.randn(2, 3, 4).double().requires_grad_()
    lengths = torch.tensor([3, 2])

    def run(frames: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (frames, lengths))

    assert torch.autograd.gradcheck(run, (frames, *encoder.parameters()), fast_mode=True)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="kernel is 4; an odd one was wanted"):
        ConformerConfig(kernel=4)
    with pytest.raises(ConfigError, match=r"3 heads do not divide size 8.*positions is 'x'.*kernel is 0; at least 1"):
        ConformerConfig(size=8, heads=3, positions="x", kernel=0)
    with pytest.raises(ConfigError, match="kernel is 2; an odd one"):
        ConformerConvolution(4, 2, causal=False)
    assert ConformerConfig(kernel=4, causal=True).kernel == 4


def test_refuses() -> None:
    encoder = ConformerEncoder(config())
    with pytest.raises(InputError, match=r"frames has shape \(2, 5, 7\); \(batch, time, 8\) was wanted"):
        encoder(torch.randn(2, 5, 7))
    spoilt = torch.randn(1, 3, 8)
    spoilt[0, 1, 2] = torch.nan
    with pytest.raises(InputError, match="frames holds 1 NaN"):
        encoder(spoilt)
    with pytest.raises(InputError, match=r"lengths\[0\] is 0"):
        encoder(torch.randn(1, 3, 8), torch.tensor([0]))
