"""Deep recurrent networks over padded batches: one class for every cell, readable or on torch's fused kernels.

    network = Recurrent(80, 256, cell="gru", layers=2)
    outputs, state = network(frames, lengths=lengths)      # aligned many-to-many
    outputs, state = network(chunk, state)                 # ... or a stream, in chunks of any size
    output, state = network.step(frame, state)             # ... or frame by frame

The other shapes (many-to-one, one-to-many, encoder-decoder) are in ``shapes.py``, the equations in ``cells.py``.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.cells import CELLS, CellState, fast_stack
from voiceseq.core.masks import (
    START_ANEW,
    check_dtype,
    check_finite,
    check_frames,
    check_sizes,
    check_state,
    lengths_mask,
    nest_tensors,
    parameter_dtype,
    reverse_by_length,
)
from voiceseq.errors import InputError

State = tuple[CellState, ...]
"""One cell state per layer and direction (layer 0 forward, layer 0 backward, layer 1 forward, ...), batch-first."""


class Recurrent(nn.Module):
    """A stack of recurrent layers, ``(batch, time, input_size)`` -> ``(batch, time, output_size)``.

    After each layer come the layer norm, the dropout (not after the last layer) and the residual (where the sizes
    match), as far as they are asked for. ``fast=False`` runs the equations of ``cells.py`` instead of torch's kernels;
    ``gru_simple`` and ``lstm_peephole`` always do. The cells' parameters come in the order of
    ``torch.nn.{RNN,GRU,LSTM}.parameters()``.

    Args:
        cell: ``rnn_tanh``, ``rnn_relu``, ``gru_simple``, ``gru``, ``lstm`` or ``lstm_peephole``.

    Raises:
        InputError: an unknown cell, or a size, number of layers or dropout out of its range.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: str = "lstm",
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        layer_norm: bool = False,
        residual: bool = False,
        fast: bool = True,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise InputError(f"there is no cell {cell!r}; choose from {', '.join(CELLS)}")
        check_sizes(input_size=input_size, hidden_size=hidden_size, layers=layers)
        if not 0.0 <= dropout < 1.0:
            raise InputError(f"dropout is {dropout}; 0 <= dropout < 1 was wanted")
        self.input_size, self.hidden_size, self.layers = input_size, hidden_size, layers
        self.bidirectional, self.dropout, self.residual = bidirectional, dropout, residual
        self.directions = 2 if bidirectional else 1
        self.output_size = hidden_size * self.directions
        self.fast = fast and CELLS[cell].fused
        self.state_tensors = CELLS[cell].state_tensors
        sizes = [input_size] + [self.output_size] * (layers - 1)
        self.cells = nn.ModuleList(CELLS[cell](size, hidden_size) for size in sizes for _ in range(self.directions))
        self.norms = nn.ModuleList(nn.LayerNorm(self.output_size) for _ in sizes) if layer_norm else None

    def forward(
        self, frames: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """All frames at once, or the next chunk of a stream.

        Args:
            frames: ``(batch, time, input_size)``.
            state: what the call on the previous chunk returned; None at the start.
            lengths: ``(batch,)``; None means that every row is full.

        Returns:
            Outputs ``(batch, time, output_size)``, zero in the padding, and each row's state at its own last frame.

        Raises:
            InputError: a wrong shape or dtype, no frames, lengths longer than the data, NaN; a state of another shape
                or dtype or with NaN in it, or any state for a bidirectional network, which cannot know its future.
        """
        checked = check_frames(frames, lengths, self.input_size, dtype=parameter_dtype(self))
        mask = None
        if lengths is not None:
            lengths, mask = checked, lengths_mask(checked, frames.shape[1])
            # Whatever lies in the padding must not overflow on its way through the kernels.
            frames = frames.masked_fill(~mask[..., None], 0.0)
        if state is None:
            state = self.zero_state(frames)
        else:
            self._check_state(state, frames.shape[0])
            # One NaN here and a gated network is deaf for ever.
            check_finite(torch.cat(nest_tensors(state)), "the state", START_ANEW)
        between = self.norms is not None or self.residual or (self.dropout and self.training)
        if self.fast and mask is None and not between:
            outputs, states = self._stack(0, len(self.cells), frames, state)
            return outputs, tuple(states)
        states = []
        for layer in range(self.layers):
            outputs, new = self._layer(layer, frames, state, lengths, mask)
            frames = self._finish_layer(layer, frames, outputs)
            states += new
        return frames if mask is None else frames.masked_fill(~mask[..., None], 0.0), tuple(states)

    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One frame ``x (batch, input_size)``: the output ``(batch, output_size)`` and the next state.

        It looks at no data: a NaN in ``x`` is the caller's business, and stays in the state for ever.

        Raises:
            InputError: a wrong shape or dtype of x or state, or the network is bidirectional.
        """
        if self.bidirectional:
            raise InputError("a bidirectional network has no step: it needs the whole sequence; call it on all frames")
        if state is None:
            state = self.zero_state(x)
        if not self._fits(x, state):
            self._check_step(x, state)
        states = []
        cell: Any
        for layer, cell in enumerate(self.cells):
            output, new = (cell.fast_step if self.fast else cell.step)(x, state[layer])
            x = self._finish_layer(layer, x, output)
            states.append(new)
        return x, tuple(states)

    def zero_state(self, x: Tensor) -> State:
        """The state before the first frame, for as many rows as ``x (batch, ...)`` has."""
        cells: Iterable[Any] = self.cells
        return tuple(cell.zero_state(x) for cell in cells)

    def _fits(self, x: Tensor, state: State) -> bool:
        """Whether all shapes and dtypes are as usual; where not, ``_check_step`` takes its time (autocast may help)."""
        first: Any = self.cells[0]
        shape, dtype = (x.shape[0], self.hidden_size), first.weight_ih.dtype
        if x.shape[1:] != (self.input_size,) or x.dtype != dtype or len(state) != self.layers:
            return False
        tensors = state if self.state_tensors == 1 else [tensor for part in state for tensor in part]
        return all(h.shape == shape and h.dtype == dtype for h in tensors)

    def _check_step(self, x: Tensor, state: State) -> None:
        if x.dim() != 2 or x.shape[1] != self.input_size:
            raise InputError(f"x has shape {tuple(x.shape)}; (batch, {self.input_size}) was wanted")
        check_dtype(x, parameter_dtype(self), "x")
        self._check_state(state, x.shape[0])

    def _layer(
        self, layer: int, frames: Tensor, state: State, lengths: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, list[CellState]]:
        """One layer, both directions: outputs ``(batch, time, output_size)`` and the state of each direction."""
        first = layer * self.directions
        if self.bidirectional and self.fast and mask is None:
            return self._stack(first, first + 2, frames, state)
        outputs, new = self._run(first, frames, state, mask)
        if not self.bidirectional:
            return outputs, [new]
        backward, new_backward = self._run(first + 1, _reverse(frames, lengths), state, mask)
        return torch.cat((outputs, _reverse(backward, lengths)), -1), [new, new_backward]

    def _stack(self, first: int, end: int, frames: Tensor, state: State) -> tuple[Tensor, list[CellState]]:
        cells: Any = self.cells[first:end]
        return fast_stack(list(cells), frames, state[first:end], self.bidirectional)

    def _run(self, index: int, frames: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, CellState]:
        cell: Any = self.cells[index]
        return (cell.fast_loop if self.fast else cell.loop)(frames, state[index], mask)

    def _finish_layer(self, layer: int, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Layer norm, dropout and residual, for whole sequences and single frames alike."""
        if self.norms is not None:
            outputs = self.norms[layer](outputs)
        if self.dropout and self.training and layer < self.layers - 1:
            outputs = functional.dropout(outputs, self.dropout)
        return outputs + inputs if self.residual and outputs.shape == inputs.shape else outputs

    def _check_state(self, state: State, batch: int) -> None:
        if self.bidirectional:
            raise InputError("a state was given to a bidirectional network; it takes whole sequences: leave state out")
        one = (batch, self.hidden_size)
        check_state(state, ((one, one) if self.state_tensors == 2 else one,) * self.layers, parameter_dtype(self))


def _reverse(frames: Tensor, lengths: Tensor | None) -> Tensor:
    return frames.flip(1) if lengths is None else reverse_by_length(frames, lengths)
