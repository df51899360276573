"""The recurrent cells, each with its equations to read and, where torch has one, its fused kernel.

A cell's state is its hidden vector ``h (batch, hidden)``; an LSTM's is ``(h, c)``. The parameters have torch's names,
shapes and gate order (``weight_ih``, ``weight_hh``, ``bias_ih``, ``bias_hh``), so that weights can be copied.
In the equations ``wx`` stands for ``W_ih x + b_ih``, which one product makes for all frames of a sequence at once, and
``self.recur(h)`` for ``W_hh h + b_hh``.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

CellState = Any
"""``h``, or ``(h, c)`` for the LSTMs: tensors ``(batch, hidden)``."""

# A gate pushed by this much is exactly 0 or 1, in half precision too (its largest number is 65504).
PUSH = 1e4


class Cell(nn.Module):
    """What the cells share: parameters, projections and the calls of the fused kernels (for cells that have one)."""

    gates: ClassVar[int]
    state_tensors: ClassVar[int] = 1
    fused: ClassVar[bool] = True
    padding_push: ClassVar[tuple[float, ...]] = ()
    kernel: ClassVar[Any] = None
    step_kernel: ClassVar[Any] = None

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = nn.Parameter(torch.empty(self.gates * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(self.gates * hidden_size))
        self.bias_hh = nn.Parameter(torch.empty(self.gates * hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1/sqrt(hidden), as torch does it."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)

    def zero_state(self, x: Tensor) -> CellState:
        """The state before the first frame, for as many rows as ``x (batch, ...)`` has."""
        return x.new_zeros(x.shape[0], self.hidden_size)

    def project(self, x: Tensor) -> Tensor:
        """``(..., input)`` -> ``wx (..., gates * hidden)``."""
        return functional.linear(x, self.weight_ih, self.bias_ih)

    def recur(self, h: Tensor) -> Tensor:
        """``(batch, hidden)`` -> ``(batch, gates * hidden)``."""
        return functional.linear(h, self.weight_hh, self.bias_hh)

    def equations(self, wx: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One frame: the projected input and the state give the output ``(batch, hidden)`` and the next state."""
        raise NotImplementedError

    def step(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One frame ``x (batch, input)`` by the equations: output ``(batch, hidden)`` and the next state."""
        return self.equations(self.project(x), state)

    def fast_step(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """The same frame by torch's kernel."""
        h = self.step_kernel(x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h, h

    def loop(self, frames: Tensor, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
        """All frames ``(batch, time, input)`` by the equations; a row's state stops where its mask does."""
        outputs = []
        for t, wx in enumerate(self.project(frames).unbind(1)):
            output, new = self.equations(wx, state)
            state = new if mask is None else self.choose(mask[:, t, None], new, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def choose(self, mask: Tensor, new: CellState, old: CellState) -> CellState:
        """The new state where ``mask (batch, 1)`` is True, the old one elsewhere."""
        return torch.where(mask, new, old)

    def fast_loop(self, frames: Tensor, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
        """The same frames by torch's kernel, which runs on into the padding: the last valid output is the state."""
        frames, weights = self.padded_inputs(frames, mask)
        outputs, h = self.kernel(frames, state[None], weights, True, 1, 0.0, self.training, False, True)
        return outputs, h[0] if mask is None else last_valid(outputs, mask)

    def padded_inputs(self, frames: Tensor, mask: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """The kernel's frames and weights, with one more input that is 1 in the padding and pushes the gates there."""
        weights = self.kernel_weights()
        if mask is not None and self.padding_push:
            push = frames.new_tensor(self.padding_push).repeat_interleave(self.hidden_size)
            frames = torch.cat((frames, (~mask)[..., None].to(frames.dtype)), -1)
            weights[0] = torch.cat((self.weight_ih, push[:, None]), 1)
        return frames, weights

    def kernel_weights(self) -> list[Tensor]:
        return [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]


def fast_stack(
    cells: Sequence["Cell"], frames: Tensor, state: Sequence[CellState], bidirectional: bool
) -> tuple[Tensor, list[CellState]]:
    """Several layers (and both directions of each) over full rows in one call of torch's kernel: the least copying.

    ``cells`` and ``state`` come layer by layer, forward before backward; so do the states that are returned.
    """
    first, given = cells[0], list[Any](state)
    weights = [weight for cell in cells for weight in cell.kernel_weights()]
    layers = len(cells) // (2 if bidirectional else 1)
    one = first.state_tensors == 1
    start = torch.stack(given) if one else tuple(torch.stack(part) for part in zip(*given, strict=True))
    outputs, *final = first.kernel(frames, start, weights, True, layers, 0.0, first.training, bidirectional, True)
    parts = [[tensor[index] for index in range(len(cells))] for tensor in final]
    return outputs, parts[0] if one else list(zip(*parts, strict=True))


def last_valid(outputs: Tensor, mask: Tensor) -> Tensor:
    """``(batch, time, hidden)`` -> ``(batch, hidden)``: each row at the last frame of its ``mask (batch, time)``."""
    last = mask.sum(1) - 1
    return outputs.gather(1, last[:, None, None].expand(-1, 1, outputs.shape[-1])).squeeze(1)


class TanhRNN(Cell):
    """``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``."""

    gates = 1
    kernel = staticmethod(torch.rnn_tanh)
    step_kernel = staticmethod(torch.rnn_tanh_cell)

    def equations(self, wx: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(wx + self.recur(h))
        return h, h


class ReluRNN(Cell):
    """``h' = relu(W_ih x + b_ih + W_hh h + b_hh)``."""

    gates = 1
    padding_push = (-PUSH,)  # to zero: what grows without bound could overflow in the padding and spoil the gradients
    kernel = staticmethod(torch.rnn_relu)
    step_kernel = staticmethod(torch.rnn_relu_cell)

    def equations(self, wx: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(wx + self.recur(h))
        return h, h


class SimpleGRU(Cell):
    """The lecture's simplified GRU: one update gate, no reset gate. Gate order: update, candidate."""

    gates = 2
    fused = False

    def equations(self, wx: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        update, candidate = (wx + self.recur(h)).chunk(2, -1)
        update = torch.sigmoid(update)
        candidate = torch.tanh(candidate)
        h = update * candidate + (1 - update) * h
        return h, h


class GRU(Cell):
    """The full GRU as torch has it: the reset gate acts on ``W_hh h + b_hh``, and an update gate of 1 *keeps* h.

    Gate order: reset, update, candidate.
    """

    gates = 3
    kernel = staticmethod(torch.gru)
    step_kernel = staticmethod(torch.gru_cell)

    def equations(self, wx: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        reset_x, update_x, candidate_x = wx.chunk(3, -1)
        reset_h, update_h, candidate_h = self.recur(h).chunk(3, -1)
        reset = torch.sigmoid(reset_x + reset_h)
        update = torch.sigmoid(update_x + update_h)
        candidate = torch.tanh(candidate_x + reset * candidate_h)
        h = (1 - update) * candidate + update * h
        return h, h


class LSTM(Cell):
    """The LSTM as torch has it. Gate order: input, forget, candidate, output."""

    gates = 4
    state_tensors = 2
    # The kernel gives c at the very end alone; closed input gates and open forget gates hold it through the padding.
    padding_push = (-PUSH, PUSH, 0.0, 0.0)
    kernel = staticmethod(torch.lstm)

    def zero_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        zeros = x.new_zeros(x.shape[0], self.hidden_size)
        return zeros, zeros

    def choose(self, mask: Tensor, new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.where(mask, new[0], old[0]), torch.where(mask, new[1], old[1])

    def equations(self, wx: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        enter, forget, candidate, leave = (wx + self.recur(h)).chunk(4, -1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(candidate)
        h = torch.sigmoid(leave) * torch.tanh(c)
        return h, (h, c)

    def fast_step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = torch.lstm_cell(x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h, (h, c)

    def fast_loop(
        self, frames: Tensor, state: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        frames, weights = self.padded_inputs(frames, mask)
        start = (state[0][None], state[1][None])
        outputs, h, c = torch.lstm(frames, start, weights, True, 1, 0.0, self.training, False, True)
        return outputs, (h[0] if mask is None else last_valid(outputs, mask), c[0])


class PeepholeLSTM(LSTM):
    """An LSTM whose gates also see the cell: input and forget gate the old c, the output gate the new one.

    ``weight_peephole (3, hidden)`` holds the diagonals for the input, forget and output gate.
    """

    fused = False

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.weight_peephole = nn.Parameter(torch.empty(3, hidden_size))
        self.reset_parameters()

    def equations(self, wx: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        enter_c, forget_c, leave_c = self.weight_peephole.unbind()
        enter, forget, candidate, leave = (wx + self.recur(h)).chunk(4, -1)
        enter = torch.sigmoid(enter + enter_c * c)
        forget = torch.sigmoid(forget + forget_c * c)
        c = forget * c + enter * torch.tanh(candidate)
        h = torch.sigmoid(leave + leave_c * c) * torch.tanh(c)
        return h, (h, c)


CELLS: dict[str, type[Cell]] = {
    "rnn_tanh": TanhRNN,
    "rnn_relu": ReluRNN,
    "gru_simple": SimpleGRU,
    "gru": GRU,
    "lstm": LSTM,
    "lstm_peephole": PeepholeLSTM,
}
