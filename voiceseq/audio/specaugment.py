"""SpecAugment: bands of time and of frequency are masked in the features of a batch (Park et al. 2019)."""

import torch
from torch import Tensor

from voiceseq.audio.augment import Masks
from voiceseq.core.masks import check_frames, lengths_mask


class SpecAugment:
    """``(batch, time, mels)`` features with masks in them, as ``config`` says."""

    def __init__(self, config: Masks) -> None:
        self.config = config

    def __call__(self, features: Tensor, lengths: Tensor | None, generator: torch.Generator) -> Tensor:
        """New features of the same shape; masks lie within each row's length, the padding stays as it is.

        What a row gets depends on the generator, its place in the batch and its length, not on the padding.

        Raises:
            InputError: another shape, NaN, lengths that do not fit.
        """
        c = self.config
        lengths = check_frames(features, lengths).cpu()
        batch, time, mels = features.shape
        on = torch.rand(batch, generator=generator) < c.probability
        longest = (c.time_share * lengths).long()
        masked = _bands(lengths, longest, time, c.time_masks, c.time_frames, generator)[..., None]
        whole = torch.full((batch,), mels)
        masked = masked | _bands(whole, whole, mels, c.frequency_masks, c.frequency_bands, generator)[:, None]
        valid = lengths_mask(lengths, time)[..., None]
        masked = (masked & on[:, None, None] & valid).to(features.device)
        return torch.where(masked, self._fill(features, valid.to(features.device)), features)

    def _fill(self, features: Tensor, valid: Tensor) -> Tensor:
        if self.config.fill == "zero":
            return features.new_zeros(())
        count = valid.sum((1, 2), keepdim=True) * features.shape[2]
        return features.masked_fill(~valid, 0).sum((1, 2), keepdim=True) / count


def _bands(
    lengths: Tensor, longest: Tensor, size: int, count: int, widths: tuple[int, int], generator: torch.Generator
) -> Tensor:
    """``(batch, size)``, True in ``count`` bands a row, each of a width within ``widths`` (at most ``longest[b]``)."""
    width_draw, start_draw = torch.rand(2, len(lengths), count, generator=generator)
    most = longest.clamp(max=widths[1])[:, None]
    least = most.clamp(max=widths[0])
    width = least + (width_draw * (most - least + 1)).long()
    start = (start_draw * (lengths[:, None] - width + 1)).long()
    place = torch.arange(size)
    return ((place >= start[..., None]) & (place < (start + width)[..., None])).any(1)
