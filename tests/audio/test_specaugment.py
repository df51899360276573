"""SpecAugment: masks of the widths asked for, within the lengths, filled as asked."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.augment import Masks
from voiceseq.audio.specaugment import SpecAugment
from voiceseq.errors import InputError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(batch: int, time: int, mels: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, time, mels, generator=generator(seed)) + 5


def runs(marked: torch.Tensor) -> int:
    """How many runs of True a row has."""
    padded = torch.cat((torch.zeros(1, dtype=torch.bool), marked))
    return int((padded[1:] & ~padded[:-1]).sum())


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    masks=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    widths=st.tuples(st.integers(0, 10), st.integers(0, 10)),
    share=st.floats(0, 1),
)
def test_masks_keep_to_their_ranges(seed, lengths, masks, widths, share):
    config = Masks(1.0, masks[0], (0, widths[0]), share, masks[1], (0, widths[1]), "zero")
    lengths = torch.tensor(lengths)
    x = features(len(lengths), 60, 12, seed).masked_fill(torch.arange(60)[:, None] >= lengths[:, None, None], 7.0)
    got = SpecAugment(config)(x, lengths, generator(seed))
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(got[row, length:], x[row, length:])  # the padding is left alone
        changed = (got[row, :length] != x[row, :length]) | (got[row, :length] == 0)
        assert (got[row, :length][changed] == 0).all()
        bands, frames = changed.all(0), changed.all(1)
        assert torch.equal(changed, bands | frames[:, None])
        if not bands.all() and not frames.all():
            assert runs(bands) <= masks[1]
            assert runs(frames) <= masks[0]
            assert bands.sum() <= masks[1] * widths[1]
            assert frames.sum() <= masks[0] * min(widths[0], int(share * length))


def test_least_widths_are_kept_and_every_width_and_place_is_met():
    config = Masks(1.0, 1, (2, 4), 1.0, 0, (0, 0), "zero")
    got = SpecAugment(config)(torch.ones(4000, 6, 3), None, generator())
    masked = (got == 0).all(2)
    widths = masked.sum(1)
    assert set(widths.tolist()) == {2, 3, 4}
    assert (torch.bincount(widths)[2:].float() / 4000 - 1 / 3).abs().max() < 0.05
    assert {(int(row.nonzero()[0]), int(row.sum())) for row in masked} == {
        (start, width) for width in (2, 3, 4) for start in range(6 - width + 1)
    }


def test_rows_are_masked_with_the_probability():
    config = Masks(0.3, 1, (1, 1), 1.0, 0, (0, 0), "zero")
    got = SpecAugment(config)(torch.ones(4000, 5, 2), None, generator())
    assert (got == 0).flatten(1).any(1).float().mean() == pytest.approx(0.3, abs=0.03)
    off = SpecAugment(Masks(0.0))
    x = features(2, 9, 4)
    assert torch.equal(off(x, None, generator()), x)


def test_the_mean_is_that_of_the_valid_frames():
    x = features(2, 20, 6)
    lengths = torch.tensor([20, 8])
    got = SpecAugment(Masks(1.0, 1, (3, 3), 1.0, 0, (0, 0), "mean"))(x, lengths, generator())
    for row, length in enumerate(lengths.tolist()):
        changed = (got[row] != x[row]).all(1)
        assert changed.sum() == 3
        torch.testing.assert_close(got[row][changed], x[row, :length].mean().expand(3, 6))


def test_padding_and_seed():
    augment = SpecAugment(Masks(1.0))
    x, lengths = features(3, 80, 16), torch.tensor([80, 50, 20])
    first = augment(x, lengths, generator(4))
    assert torch.equal(first, augment(x, lengths, generator(4)))
    assert not torch.equal(first, augment(x, lengths, generator(5)))
    longer = augment(torch.nn.functional.pad(x, (0, 0, 0, 33)), lengths, generator(4))
    torch.testing.assert_close(longer[:, :80], first)


def test_gradients_flow_where_nothing_is_masked():
    x = features(1, 30, 8).requires_grad_()
    got = SpecAugment(Masks(1.0, 1, (5, 5), 1.0, 0, (0, 0), "zero"))(x, None, generator())
    got.sum().backward()
    assert torch.equal(x.grad == 0, got == 0)


def test_wrong_features_are_refused():
    augment = SpecAugment(Masks(1.0))
    with pytest.raises(InputError, match="was wanted"):
        augment(torch.zeros(3, 4), None, generator())
    with pytest.raises(InputError, match="NaN"):
        augment(torch.full((1, 3, 4), torch.nan), None, generator())
    with pytest.raises(InputError, match="only 3 frames"):
        augment(torch.zeros(1, 3, 4), torch.tensor([4]), generator())
