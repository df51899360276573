"""Causal convolution over time, a stack of them, and the front blocks that make a spectrogram 4 or 8 times shorter.

Output t of a causal convolution with stride s stands at frame ``t * s`` and sees nothing after it: n frames give
``ceil(n / s)`` outputs, and no output waits for the future. Before the first frame there are zeros. The state is the
explicit left context: the last frames that a coming output will need, together with those that no output has used yet,
so that the cut into chunks does not matter; a chunk too short for an output gives ``(batch, 0, feature)``.

Ragged rows: outputs past a row's own are zero. The state that comes back continues the rows that are full; a row that
is shorter than its chunk has ended there.
"""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.masks import (
    START_ANEW,
    check_dtype,
    check_finite,
    check_frames,
    check_sizes,
    parameter_dtype,
    zero_padding,
)
from voiceseq.errors import InputError

Lengths = TypeVar("Lengths", int, Tensor)
State = tuple[Tensor, ...]
"""One left context ``(batch, frames, ...)`` per convolution."""

# How often each factor halves the time.
FACTORS = {2: 1, 4: 2, 8: 3}


def strided_lengths(lengths: Lengths, stride: int) -> Lengths:
    """How many outputs a causal convolution has for a number (or tensor) of frames: ``ceil(lengths / stride)``."""
    return (lengths + stride - 1) // stride


class _Window:
    """Which frames of a stream the outputs of a chunk see, and which are kept for the next chunk."""

    def __init__(self, span: int, stride: int) -> None:
        self.span, self.stride = span, stride
        # A stride longer than the span steps over frames: as context they are counted, too.
        self.context = max(span, stride) - 1

    def count(self, frames: Lengths, context: Tensor | None) -> Lengths:
        """How many outputs so many further frames complete."""
        used = 0 if context is None else self.context - context.shape[1]
        return strided_lengths(frames - used, self.stride)

    def cut(self, frames: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """``(batch, time, ...)`` and the old context -> what the convolution sees now, and the new context."""
        outputs = self.count(frames.shape[1], context)
        if context is None:
            context = frames.new_zeros(frames.shape[0], self.context, *frames.shape[2:])
        frames = torch.cat((context, frames), 1)
        first = self.context + 1 - self.span
        return frames[:, first : first + self.span + (outputs - 1) * self.stride], frames[:, outputs * self.stride :]


class CausalConvolution(nn.Module):
    """``(batch, time, inputs)`` -> ``(batch, ceil(time / stride), outputs)``, in one piece or in chunks.

    Raises:
        InputError: a setting below 1, or groups that do not divide inputs and outputs.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(inputs=inputs, outputs=outputs, kernel=kernel, stride=stride, dilation=dilation, groups=groups)
        if inputs % groups or outputs % groups:
            raise InputError(f"groups is {groups}; a divisor of inputs ({inputs}) and outputs ({outputs}) was wanted")
        self.inputs, self.stride, self.dilation = inputs, stride, dilation
        self.window = _Window((kernel - 1) * dilation + 1, stride)
        self.convolution = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups, bias=bias)

    @property
    def left_context(self) -> int:
        """How many frames before its own an output sees."""
        return self.window.span - 1

    def output_lengths(self, lengths: Tensor, state: State | None = None) -> Tensor:
        """Outputs ``(batch,)`` of whole sequences, ``ceil(lengths / stride)``, or of the chunk after ``state``."""
        return self.window.count(lengths, state[0] if state else None)

    def forward(
        self, frames: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Whole sequences, or the next chunk of a stream.

        Args:
            frames: ``(batch, time, inputs)``.
            state: what the call on the previous chunk returned; None at the start.
            lengths: ``(batch,)``, for rows that end before the others; None means that every row is full.

        Returns:
            Outputs ``(batch, time', outputs)``, zero past a row's ``output_lengths``, and the next state.

        Raises:
            InputError: a wrong shape or dtype, no frames, lengths longer than the data, NaN, in the state too.
        """
        checked = check_frames(frames, lengths, self.inputs, dtype=parameter_dtype(self))
        if state is not None:
            _check_state(state, [(self.window, (self.inputs,))], frames)
        outputs, context = self.advance(frames, state[0] if state else None)
        if lengths is not None:
            outputs = zero_padding(outputs, self.output_lengths(checked, state))
        return outputs, (context,)

    def advance(self, frames: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """The outputs of one chunk and the next left context; unchecked."""
        seen, context = self.window.cut(frames, context)
        if seen.shape[1] < self.window.span:
            return frames.new_zeros(frames.shape[0], 0, self.convolution.out_channels), context
        if self.convolution.groups > 1:
            return self.convolution(seen.transpose(1, 2)).transpose(1, 2), context
        # Frames side by side times one matrix: on a processor faster than the convolution, above all a dilated one.
        reach = seen.shape[1] - self.window.span + 1
        taps = [seen[:, start : start + reach : self.stride] for start in range(0, self.window.span, self.dilation)]
        weight = self.convolution.weight.transpose(1, 2).flatten(1)
        return functional.linear(torch.cat(taps, 2), weight, self.convolution.bias), context


class ResidualConvolutions(nn.Module):
    """Causal convolutions with a way round each: ``(batch, time, size)`` -> the same shape (as in TCN and MDTC).

    ``x + relu(norm(convolution(x)))``, the dilation doubling from layer to layer and beginning with 1 again after
    ``cycle`` of them; at the end a norm, without which such a stack hardly learns. What an output depends on ends
    ``left_context`` frames before it: unlike a recurrent state, nothing that was heard earlier can do any harm.
    """

    def __init__(self, size: int, layers: int, kernel: int = 3, cycle: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(layers=layers, cycle=cycle)
        self.size, self.kernel, self.cycle = size, kernel, cycle
        self.layers = nn.ModuleList(
            CausalConvolution(size, size, kernel, dilation=2 ** (layer % cycle)) for layer in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(layers))
        self.last = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    @property
    def left_context(self) -> int:
        """How many frames before its own an output sees."""
        return sum(layer.left_context for layer in self.layers)  # type: ignore[misc]

    def forward(
        self, frames: Tensor, state: tuple[State, ...] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Whole sequences or the next chunk of a stream; arguments, results and errors as of ``CausalConvolution``."""
        new = []
        for place, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            y, context = layer(frames, None if state is None else state[place], lengths)
            frames = frames + self.dropout(norm(y).relu())
            new.append(context)
        outputs = self.last(frames)
        return outputs if lengths is None else zero_padding(outputs, lengths), tuple(new)


class Subsample(nn.Module):
    """A front block for spectrograms: ``(batch, time, features)`` -> ``(batch, ceil(time / factor), outputs)``.

    Convolutions of 3 x 3 over time and frequency, each of stride 2 in both: two for a factor of 4, three for 8. The
    first is a full one, the others are separable (each channel by itself, then all channels at each point), which costs
    a fraction. Over time they are causal: output t sees frame ``t * factor`` and the ``left_context`` frames before it,
    never a later one. The frames after the last output's own, fewer than ``factor``, are seen by none.

    Chunks of a multiple of ``factor`` frames leave the shapes of the state as they are (for export).

    Raises:
        InputError: a factor other than 2, 4 or 8, or a size below 1.
    """

    def __init__(self, features: int, outputs: int, factor: int = 4, channels: int = 64) -> None:
        super().__init__()
        check_sizes(features=features, outputs=outputs, channels=channels)
        if factor not in FACTORS:
            raise InputError(f"the factor is {factor}; one of {', '.join(map(str, FACTORS))} was wanted")
        self.features, self.factor = features, factor
        self.halvings = nn.ModuleList()
        bands, channels_in = features, 1
        for _ in range(FACTORS[factor]):
            self.halvings.append(_Halving(channels_in, channels, bands))
            bands, channels_in = (bands + 1) // 2, channels
        self.linear = nn.Linear(channels * bands, outputs)

    @property
    def left_context(self) -> int:
        """How many frames before its own an output sees: 6 for a factor of 4, 14 for 8."""
        return 2 * (self.factor - 1)

    def output_lengths(self, lengths: Tensor, state: State | None = None) -> Tensor:
        """Outputs ``(batch,)`` of whole sequences, ``ceil(lengths / factor)``, or of the chunk after ``state``."""
        for halving, context in self._with_contexts(state):
            lengths = halving.window.count(lengths, context)
        return lengths

    def forward(
        self, frames: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Whole sequences or the next chunk of a stream; arguments, results and errors as of ``CausalConvolution``."""
        checked = check_frames(frames, lengths, self.features, dtype=parameter_dtype(self))
        if state is not None:
            _check_state(state, [(h.window, h.shape) for h, _ in self._with_contexts(None)], frames)
        x, contexts = frames[:, :, None], []
        for halving, context in self._with_contexts(state):
            x, context = halving.advance(x, context)
            contexts.append(context)
        outputs = self.linear(x.flatten(2))
        if lengths is not None:
            outputs = zero_padding(outputs, self.output_lengths(checked, state))
        return outputs, tuple(contexts)

    def _with_contexts(self, state: State | None) -> list[tuple[Any, Tensor | None]]:
        return list(zip(self.halvings, state or [None] * len(self.halvings), strict=True))


class _Halving(nn.Module):
    """``(batch, time, channels_in, bands)`` -> ``(batch, time / 2, channels, bands / 2)``, both rounded up."""

    def __init__(self, channels_in: int, channels: int, bands: int) -> None:
        super().__init__()
        self.window = _Window(3, 2)
        self.shape = (channels_in, bands)
        groups = channels_in  # the single channel of the spectrogram fans out; after that each goes by itself
        self.convolution = nn.Conv2d(channels_in, channels, 3, 2, padding=(0, 1), groups=groups)
        self.mix = nn.Identity() if groups == 1 else nn.Conv2d(channels, channels, 1)
        self.channels, self.bands = channels, (bands + 1) // 2

    def advance(self, frames: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """The outputs of one chunk and the next left context."""
        seen, context = self.window.cut(frames, context)
        if seen.shape[1] < self.window.span:
            return frames.new_zeros(frames.shape[0], 0, self.channels, self.bands), context
        x = self.mix(self.convolution(seen.transpose(1, 2)))
        return torch.relu(x).transpose(1, 2), context


def _check_state(state: State, wanted: list[tuple[_Window, tuple[int, ...]]], frames: Tensor) -> None:
    """Each context must have the batch's rows, the convolution's features and a number of frames that can be left."""
    batch = frames.shape[0]
    came = [tuple(context.shape) for context in state]
    fits = len(came) == len(wanted) and all(
        len(shape) > 2
        and (shape[0], *shape[2:]) == (batch, *inner)
        and window.context - window.stride < shape[1] <= window.context
        for shape, (window, inner) in zip(came, wanted, strict=True)
    )
    if not fits:
        shapes = [(batch, f"up to {window.context}", *inner) for window, inner in wanted]
        raise InputError(f"the state has shapes {came}; {shapes} was wanted: pass on what the last call returned")
    for context in state:
        check_dtype(context, frames.dtype, "the state")
        check_finite(context, "the state", START_ANEW)
