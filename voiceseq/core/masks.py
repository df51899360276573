"""Lengths and masks: how a padded batch says which of its frames are real.

Every sequence travels as ``frames (batch, time, feature)`` with ``lengths (batch,)``. A mask is ``True`` where *valid*.
The ``check_*`` functions stand at the public border of the core: they turn a wrong shape or dtype, an empty sequence or
a NaN into one ``InputError`` that names what came and what was wanted.
"""

from numbers import Integral

import torch
from torch import Tensor, nn

from voiceseq.errors import InputError

# What to do about NaN: in what a network is given, and in what it gave.
REPLACE = "replace them before the network sees them"
DIVERGED = "the network gave them, so its training has diverged: lower the learning rate or clip the gradients"
START_ANEW = "start anew with state=None"


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
    check_sizes(chunk=chunk)
    check_sizes(0, left_chunks=0 if left_chunks is None else left_chunks, lookahead=lookahead)
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


def zero_padding(frames: Tensor, lengths: Tensor) -> Tensor:
    """``(batch, time, feature)`` with zeros after the first ``lengths[b]`` frames of row b."""
    return frames.masked_fill(~lengths_mask(lengths, frames.shape[1])[..., None], 0.0)


def tracing() -> bool:
    """Data-dependent checks have no place in an exported or compiled graph."""
    return torch._C._is_tracing() or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()


def check_sizes(least: int = 1, /, **sizes: int) -> None:
    """Raise for the first of the named settings that is no whole number of at least ``least``."""
    for name, value in sizes.items():
        if not isinstance(value, Integral):
            raise InputError(f"{name} is {value!r}; a whole number of at least {least} was wanted")
        if value < least:
            raise InputError(f"{name} is {value}; at least {least} was wanted")


def check_tensor(values: Tensor, name: str) -> None:
    """Raise for a list, an array or anything else that is no tensor."""
    if not isinstance(values, Tensor):
        raise InputError(f"{name} is a {type(values).__name__}; a tensor was wanted, e.g. torch.as_tensor({name})")


def parameter_dtype(module: nn.Module) -> torch.dtype | None:
    """The floating point type that a module computes in; None for one without such parameters."""
    return next((parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()), None)


def check_dtype(values: Tensor, wanted: torch.dtype | None, name: str = "frames") -> None:
    """Raise when ``values`` has another dtype than ``wanted`` (None: any) and autocast will not make up for it."""
    if wanted is None or values.dtype == wanted:
        return
    device = values.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if not autocast or not values.is_floating_point() or torch.float64 in (values.dtype, wanted):  # never cast
        raise InputError(f"{name} has dtype {values.dtype}; {wanted} was wanted: convert it with .to({wanted})")


def check_lengths(
    lengths: Tensor | None, batch: int, size: int, device: torch.device | None = None, least: int = 1
) -> Tensor:
    """The lengths as a long tensor ``(batch,)`` in least..size; None means that every row is full."""
    if lengths is None:
        return torch.full((batch,), size, dtype=torch.long, device=device)
    check_tensor(lengths, "lengths")
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise InputError(f"lengths has shape {tuple(lengths.shape)}; a batch of {batch} wants ({batch},)")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(f"lengths has dtype {lengths.dtype}; give whole numbers (torch.long)")
    if not tracing() and batch:
        low, high = (int(v) for v in lengths.aminmax())
        if low < least:
            row = int(lengths.argmin())
            advice = ": leave the empty ones out" if least else ""
            raise InputError(f"lengths[{row}] is {low}; a sequence wants at least {least} frame{advice}")
        if high > size:
            row = int(lengths.argmax())
            raise InputError(f"lengths[{row}] is {high} but the batch has only {size} frames: pad it or cut the length")
    return lengths.to(device=device, dtype=torch.long)


def check_finite(values: Tensor, name: str = "frames", advice: str = REPLACE) -> None:
    """Raise when ``values`` holds NaN or infinity (both survive a minimum and maximum, so one pass finds them)."""
    check_tensor(values, name)
    if tracing() or not values.numel():
        return
    if not bool(torch.isfinite(torch.stack(values.detach().aminmax())).all()):
        bad = int((~torch.isfinite(values)).sum())
        raise InputError(f"{name} holds {bad} NaN or infinite values; {advice}")


def check_frames(
    frames: Tensor,
    lengths: Tensor | None = None,
    features: int | None = None,
    name: str = "frames",
    dtype: torch.dtype | None = None,
    advice: str = REPLACE,
) -> Tensor:
    """Check ``frames (batch, time, features)`` and return its lengths; NaN in the padding is an error too.

    ``dtype`` is what the network computes in (``parameter_dtype``), ``advice`` what to do about NaN.
    """
    check_tensor(frames, name)
    wanted = f"(batch, time, {'feature' if features is None else features})"
    if frames.dim() != 3 or (features is not None and frames.shape[-1] != features):
        raise InputError(f"{name} has shape {tuple(frames.shape)}; {wanted} was wanted")
    if not frames.is_floating_point():
        raise InputError(f"{name} has dtype {frames.dtype}; give floating point values, e.g. {name}.float()")
    if frames.shape[0] == 0 or frames.shape[1] == 0:
        raise InputError(f"{name} has shape {tuple(frames.shape)}; at least one row and one frame were wanted")
    check_dtype(frames, dtype, name)
    check_finite(frames, name, advice)
    return check_lengths(lengths, frames.shape[0], frames.shape[1], frames.device)


def check_piece(
    frames: Tensor, lengths: Tensor | None, features: int, running: bool, dtype: torch.dtype | None = None
) -> Tensor:
    """``check_frames`` for a piece of a sequence: once it is ``running``, a row may have 0 new frames."""
    if lengths is None or not running:
        return check_frames(frames, lengths, features, dtype=dtype)
    check_frames(frames, None, features, dtype=dtype)
    return check_lengths(lengths, frames.shape[0], frames.shape[1], frames.device, least=0)


def nest_tensors(state: object) -> list[Tensor]:
    """The tensors of a state, in order; a state is a tensor or a tuple of states."""
    if isinstance(state, tuple):
        return [tensor for part in state for tensor in nest_tensors(part)]
    return [state] if isinstance(state, Tensor) else []


def nest_shapes(state: object) -> object:
    """The same nest with shapes in the place of tensors (and with its type's name for what should not be there)."""
    if isinstance(state, Tensor):
        return tuple(state.shape)
    return tuple(nest_shapes(part) for part in state) if isinstance(state, tuple) else type(state).__name__


def check_state(state: object, wanted: object, dtype: torch.dtype | None, name: str = "the state") -> None:
    """Check a state against its nest of shapes, where None stands for any size, and against the network's dtype."""
    if tracing():
        return
    came = nest_shapes(state)
    if not _fits(came, wanted):
        raise InputError(f"{name} has shapes {came}; {wanted} was wanted: pass on what the last call returned")
    for tensor in nest_tensors(state):
        if tensor.is_floating_point():
            check_dtype(tensor, dtype, name)


def _fits(came: object, wanted: object) -> bool:
    if isinstance(wanted, tuple):
        return isinstance(came, tuple) and len(came) == len(wanted) and all(map(_fits, came, wanted))
    return wanted is None or came == wanted


def check_tokens(tokens: Tensor, lengths: Tensor | None, vocabulary: int, name: str = "tokens") -> Tensor:
    """Check ``tokens (batch, time)`` of whole numbers in 0..vocabulary-1 and return its lengths."""
    if vocabulary < 1:
        raise InputError(f"the vocabulary has {vocabulary} symbols; at least 1 was wanted: build it from text first")
    check_tensor(tokens, name)
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InputError(f"{name} has shape {tuple(tokens.shape)}, dtype {tokens.dtype}; (batch, time) long was wanted")
    if tokens.shape[0] == 0 or tokens.shape[1] == 0:
        raise InputError(f"{name} has shape {tuple(tokens.shape)}; at least one row and one token were wanted")
    lengths = check_lengths(lengths, tokens.shape[0], tokens.shape[1], tokens.device)
    if not tracing():
        low, high = (int(v) for v in tokens.aminmax())
        if low < 0 or high >= vocabulary:
            wrong = low if low < 0 else high
            raise InputError(
                f"{name} holds {wrong}; 0 to {vocabulary - 1} was wanted: is it the model's own vocabulary?"
            )
    return lengths
