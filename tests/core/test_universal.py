"""The universal transformer: its recursion by hand, halting that sums to one, ponder cost and its gradient."""

import pytest
import torch
from torch import Tensor, nn

from voiceseq.core.masks import causal_mask
from voiceseq.core.positions import SinusoidalPositions
from voiceseq.core.transformer import POSITIONS, TransformerConfig
from voiceseq.core.universal import UniversalEncoder
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(5)


def universal(layers: int = 5, threshold: float = 0.9, bias: float = -0.5, **changes: object) -> UniversalEncoder:
    config = TransformerConfig(size=8, heads=2, layers=layers, feed_forward=12, dropout=0.0, **changes)  # type: ignore[arg-type]
    torch.manual_seed(11)
    encoder = UniversalEncoder(config, threshold).double()
    nn.init.normal_(encoder.halt.weight, std=0.6)
    nn.init.normal_(encoder.depths)
    nn.init.constant_(encoder.halt.bias, bias)
    return encoder


def by_hand(encoder: UniversalEncoder, frames: Tensor) -> tuple[Tensor, list[float], list[int]]:
    """One utterance ``(time, size)``, halting frame by frame."""
    positions = torch.arange(len(frames))[None]
    state, time, steps = frames.clone(), len(frames), encoder.config.layers
    sums, totals, counts = torch.zeros_like(frames), [0.0] * time, [0] * time
    costs, running = [0.0] * time, [True] * time
    for step in range(steps):
        inputs = SinusoidalPositions(8)(state[None] + encoder.depths[step], positions)
        new = encoder.block(inputs)[0]
        for t in range(time):
            if not running[t]:
                continue
            state = torch.cat((state[:t], new[t : t + 1], state[t + 1 :]))
            p = float(torch.sigmoid(encoder.halt.weight[0] @ new[t] + encoder.halt.bias[0]).detach())
            counts[t] += 1
            if totals[t] + p >= encoder.threshold or step == steps - 1:
                p, running[t] = 1 - totals[t], False
                costs[t] = counts[t] + p
            sums[t] += p * new[t].detach()
            totals[t] += p
    return encoder.norm(sums), costs, counts


def test_recursion_by_hand() -> None:
    encoder = universal()
    frames = torch.randn(2, 9, 8).double()
    result = encoder(frames)
    all_counts = set()
    for row in range(2):
        outputs, costs, counts = by_hand(encoder, frames[row])
        torch.testing.assert_close(result.outputs[row], outputs)
        torch.testing.assert_close(result.ponder[row], torch.tensor(costs).double())
        assert (result.halting[row] > 0).sum(-1).tolist() == counts
        all_counts.update(counts)
    assert len(all_counts) >= 2  # frames do decide differently, or this test proves little


@pytest.mark.parametrize("bias", [-9.0, -0.5, 9.0])
def test_halting_is_a_distribution(bias: float) -> None:
    lengths = torch.tensor([7, 3])
    result = universal(bias=bias)(torch.randn(2, 7, 8).double(), lengths)
    valid = torch.arange(7) < lengths[:, None]
    assert result.halting.shape == (2, 7, 5)
    torch.testing.assert_close(result.halting.sum(-1), valid.double())
    assert (result.halting >= 0).all()
    steps = (result.halting > 0).sum(-1)[valid]
    remainder = result.ponder[valid] - steps
    assert ((remainder > 0) & (remainder <= 1)).all()
    if bias == 9.0:
        assert (steps == 1).all()
    if bias == -9.0:
        assert (steps == 5).all()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padded_is_alone(positions: str, norm: str) -> None:
    encoder = universal(positions=positions, norm=norm)
    frames, lengths = torch.randn(3, 8, 8).double(), torch.tensor([8, 5, 1])
    together = encoder(frames, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(frames[row : row + 1, :length])
        for padded, own in zip(together, alone, strict=True):
            torch.testing.assert_close(padded[row, :length], own[0])
            assert not padded[row, length:].any()


def test_a_mask_is_kept() -> None:
    encoder = universal()
    frames = torch.randn(1, 6, 8).double()
    changed = frames.clone()
    changed[:, 4:] = torch.randn(1, 2, 8)
    for mask, same in ((causal_mask(6), True), (None, False)):
        before, after = encoder(frames, mask=mask), encoder(changed, mask=mask)
        assert torch.allclose(before.outputs[:, :4], after.outputs[:, :4]) == same


def test_gradients_of_outputs_and_ponder_cost() -> None:
    encoder = universal(layers=3)
    names = [name for name, _ in encoder.named_parameters()]
    frames = torch.randn(2, 3, 8).double().requires_grad_()

    def run(frames: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(names, parameters, strict=True))
        result = torch.func.functional_call(encoder, values, (frames, torch.tensor([3, 2])))
        return result.outputs, result.ponder

    assert torch.autograd.gradcheck(run, (frames, *encoder.parameters()), fast_mode=True)


def test_less_pondering_lowers_the_cost() -> None:
    encoder = universal(bias=-2.0)
    frames = torch.randn(4, 6, 8).double()
    optimiser = torch.optim.SGD(encoder.halt.parameters(), lr=0.5)
    first = float(encoder(frames).ponder.mean().detach())
    for _ in range(30):
        optimiser.zero_grad()
        encoder(frames).ponder.mean().backward()
        optimiser.step()
    assert float(encoder(frames).ponder.mean().detach()) < first - 0.5


def test_refuses() -> None:
    with pytest.raises(ConfigError, match=r"threshold is 1\.0; 0 < threshold < 1"):
        universal(threshold=1.0)
    with pytest.raises(InputError, match=r"frames has shape \(2, 7\)"):
        universal()(torch.randn(2, 7).double())
    with pytest.raises(InputError, match=r"mask has shape \(3, 3\)"):
        universal()(torch.randn(2, 7, 8).double(), mask=causal_mask(3))
    with pytest.raises(InputError, match="frames holds 112 NaN"):
        universal()(torch.full((2, 7, 8), torch.nan).double())


def test_another_dtype() -> None:
    encoder = UniversalEncoder(TransformerConfig(8, 2, 2, 8))
    with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
        encoder(torch.zeros(2, 3, 8).double())
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(torch.zeros(2, 3, 8)).outputs.isfinite().all()
