"""Lengths and masks: how a padded batch says which of its frames are real.

Every sequence travels as ``frames (batch, time, feature)`` with ``lengths (batch,)``. A mask is ``True`` where *valid*.
The ``check_*`` functions stand at the public border of the core: they turn a wrong shape, an empty sequence or a NaN
into one ``InputError`` that names what came and what was wanted.
"""

import torch
from torch import Tensor

from voiceseq.errors import InputError


def lengths_mask(lengths: Tensor, size: int) -> Tensor:
    """``(batch, size)``, True on the first ``lengths[b]`` positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """``(size, size)``, True where key position <= query position."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def chunk_mask(
    size: int, chunk: int, left_chunks: int | None = None, lookahead: int = 0, device: torch.device | None = None
) -> Tensor:
    """``(size, size)``: a query sees its chunk, ``left_chunks`` before it (None: all), ``lookahead`` frames after."""
    if chunk < 1:
        raise InputError(f"a chunk of {chunk} frames was asked for; give chunk >= 1")
    position = torch.arange(size, device=device)
    start = position // chunk * chunk
    first = torch.zeros_like(start) if left_chunks is None else start - left_chunks * chunk
    last = start + chunk + lookahead
    return (position[None, :] >= first[:, None]) & (position[None, :] < last[:, None])


def reverse_by_length(frames: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each row of ``(batch, time, ...)`` within its own length; the padding stays where it is."""
    time = torch.arange(frames.shape[1], device=frames.device)
    index = lengths[:, None] - 1 - time
    index = torch.where(index >= 0, index, time)
    return frames.gather(1, index.view(*index.shape, *[1] * (frames.dim() - 2)).expand_as(frames))


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis on the valid entries; a row with none of them gives zeros and not NaN."""
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def masked_mean(frames: Tensor, lengths: Tensor) -> Tensor:
    """``(batch, time, feature)`` -> ``(batch, feature)``, the mean over the valid frames."""
    mask = lengths_mask(lengths, frames.shape[1])[..., None]
    return frames.masked_fill(~mask, 0.0).sum(1) / lengths[:, None].to(frames.dtype)


def _tracing() -> bool:
    """Data-dependent checks have no place in an exported or compiled graph."""
    return torch._C._is_tracing() or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()


def check_lengths(lengths: Tensor | None, batch: int, size: int, device: torch.device | None = None) -> Tensor:
    """The lengths as a long tensor ``(batch,)`` in 1..size; None means that every row is full."""
    if lengths is None:
        return torch.full((batch,), size, dtype=torch.long, device=device)
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise InputError(f"lengths has shape {tuple(lengths.shape)}; a batch of {batch} wants ({batch},)")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(f"lengths has dtype {lengths.dtype}; give whole numbers (torch.long)")
    if not _tracing() and batch:
        low, high = (int(v) for v in lengths.aminmax())
        if low < 1:
            row = int(lengths.argmin())
            raise InputError(f"lengths[{row}] is {low}; a sequence wants at least 1 frame: leave the empty ones out")
        if high > size:
            row = int(lengths.argmax())
            raise InputError(f"lengths[{row}] is {high} but the batch has only {size} frames: pad it or cut the length")
    return lengths.to(device=device, dtype=torch.long)


def check_finite(values: Tensor, name: str = "frames") -> None:
    """Raise when ``values`` holds NaN or infinity (both survive a minimum and maximum, so one pass finds them)."""
    if _tracing() or not values.numel():
        return
    if not bool(torch.isfinite(torch.stack(values.detach().aminmax())).all()):
        bad = int((~torch.isfinite(values)).sum())
        raise InputError(f"{name} holds {bad} NaN or infinite values; replace them before the network sees them")


def check_frames(
    frames: Tensor, lengths: Tensor | None = None, features: int | None = None, name: str = "frames"
) -> Tensor:
    """Check ``frames (batch, time, features)`` and return its lengths; NaN in the padding is an error too."""
    wanted = f"(batch, time, {'feature' if features is None else features})"
    if frames.dim() != 3 or (features is not None and frames.shape[-1] != features):
        raise InputError(f"{name} has shape {tuple(frames.shape)}; {wanted} was wanted")
    if not frames.is_floating_point():
        raise InputError(f"{name} has dtype {frames.dtype}; give floating point values, e.g. {name}.float()")
    if frames.shape[0] == 0 or frames.shape[1] == 0:
        raise InputError(f"{name} has shape {tuple(frames.shape)}; at least one row and one frame were wanted")
    check_finite(frames, name)
    return check_lengths(lengths, frames.shape[0], frames.shape[1], frames.device)


def check_tokens(tokens: Tensor, lengths: Tensor | None, vocabulary: int, name: str = "tokens") -> Tensor:
    """Check ``tokens (batch, time)`` of whole numbers in 0..vocabulary-1 and return its lengths."""
    if vocabulary < 1:
        raise InputError(f"the vocabulary has {vocabulary} symbols; at least 1 was wanted: build it from text first")
    if tokens.dim() != 2 or tokens.is_floating_point():
        raise InputError(f"{name} has shape {tuple(tokens.shape)}, dtype {tokens.dtype}; (batch, time) long was wanted")
    if tokens.shape[0] == 0 or tokens.shape[1] == 0:
        raise InputError(f"{name} has shape {tuple(tokens.shape)}; at least one row and one token were wanted")
    lengths = check_lengths(lengths, tokens.shape[0], tokens.shape[1], tokens.device)
    if not _tracing():
        low, high = (int(v) for v in tokens.aminmax())
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise InputError(
                f"{name} holds {wrong}; 0 to {vocabulary - 1} was wanted: is it the model's own vocabulary?"
            )
    return lengths
