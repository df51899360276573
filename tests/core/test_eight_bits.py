"""Linear layers in 8 bits: near the exact ones, each row by itself, everywhere in a network."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from voiceseq.core import eight_bits
from voiceseq.core.eight_bits import MANY, EightBitLinear, counts_fast, round_rows, to_eight_bits
from voiceseq.core.transformer import TransformerConfig, TransformerDecoder
from voiceseq.errors import InputError


def test_rounding_is_within_half_a_step_of_each_row() -> None:
    torch.manual_seed(1)
    weight = torch.randn(7, 50) * torch.logspace(-3, 2, 7)[:, None]
    weight[3] = 0.0
    whole, scale = round_rows(weight)
    assert whole.dtype == torch.int8
    assert ((whole * scale[:, None] - weight).abs() <= scale[:, None] / 2 * 1.001).all()
    assert whole.abs().amax(1).tolist() == [127, 127, 127, 0, 127, 127, 127]
    with pytest.raises(InputError, match="rows, columns"):
        round_rows(torch.zeros(3))


@pytest.mark.parametrize("rows", [1, 3, 8, 33])
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_near_the_exact_layer(rows: int, bias: bool) -> None:
    torch.manual_seed(2)
    exact = nn.Linear(64, 96, bias=bias)
    frames = torch.randn(2, rows, 64)
    found, wanted = EightBitLinear(exact.weight, exact.bias)(frames), exact(frames)
    assert found.shape == wanted.shape
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() < 0.02 * wanted.abs().max()
    assert functional.cosine_similarity(found.flatten(), wanted.flatten(), 0) > 0.9999


def test_rows_do_not_see_each_other() -> None:
    torch.manual_seed(3)
    layer = EightBitLinear(torch.randn(40, 32))
    frames = torch.randn(9, 32)
    frames[4] *= 1000
    together = layer(frames)
    for row in range(9):
        assert torch.allclose(together[row], layer(frames[row : row + 1])[0], rtol=1e-2)


def test_without_the_kernel_it_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    layer, frames = EightBitLinear(torch.randn(24, 32), torch.randn(24)), torch.randn(5, 32)
    fast = layer(frames)
    monkeypatch.delattr(eight_bits.torch, "_weight_int8pack_mm")
    assert torch.allclose(layer(frames), fast, rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(not counts_fast(), reason="this processor does not multiply whole numbers")
def test_many_rows_are_counted_exactly() -> None:
    torch.manual_seed(6)
    layer = EightBitLinear(torch.randn(40, 32), torch.randn(40))
    frames = torch.randn(3 * MANY, 32)
    frames[4] *= 1000
    together = layer(frames)
    steps, sizes = round_rows(frames)
    exact = (steps.long() @ layer.whole.long().T).double() * sizes[:, None] * layer.scale + layer.bias
    assert torch.allclose(together.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(together[: 2 * MANY], layer(frames[: 2 * MANY]))  # to the bit: others change nothing


def test_where_nothing_counts_fast_many_rows_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    layer, frames = EightBitLinear(torch.randn(24, 32)), torch.randn(3 * MANY, 32)
    fast = layer(frames)
    monkeypatch.setattr(eight_bits, "counts_fast", lambda: False)
    slow = layer(frames)
    assert (slow - fast).abs().max() < 0.02 * fast.abs().max()
    assert torch.allclose(slow[:3], layer(frames[:3]), rtol=1e-2, atol=1e-2)


def test_a_whole_decoder_changes_little() -> None:
    torch.manual_seed(5)
    decoder = TransformerDecoder(TransformerConfig(size=32, heads=2, layers=2, feed_forward=64, dropout=0.0), 32).eval()
    frames, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    with torch.no_grad():
        exact, _ = decoder(frames, memory)
        found, _ = to_eight_bits(decoder)(frames, memory)
    assert not any(isinstance(module, nn.Linear) for module in decoder.modules())
    assert sum(isinstance(module, EightBitLinear) for module in decoder.modules()) == 2 * 8
    assert functional.cosine_similarity(found.flatten(), exact.flatten(), 0) > 0.999
