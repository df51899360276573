"""The recurrent networks against torch's own, against numpy loops, and against themselves (fast, chunked, padded)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from voiceseq.core.cells import CELLS
from voiceseq.core.recurrent import Recurrent
from voiceseq.errors import InputError

TORCH = {
    "rnn_tanh": lambda *a, **k: nn.RNN(*a, nonlinearity="tanh", **k),
    "rnn_relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
FUSED = list(TORCH)
LENGTHS = torch.tensor([5, 11, 1, 8])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def tensors(state) -> list[Tensor]:
    """The tensors of a nested state, in order."""
    return [state] if isinstance(state, Tensor) else [t for part in state for t in tensors(part)]


def close(a, b, atol=1e-6):
    torch.testing.assert_close(tensors(a), tensors(b), atol=atol, rtol=atol)


def copy(target: nn.Module, source: nn.Module) -> None:
    with torch.no_grad():
        for a, b in zip(target.parameters(), source.parameters(), strict=True):
            a.copy_(b)


def flat_state(ours) -> Tensor:
    """Our state in torch's order: (h or h, c) each (layers * directions, batch, hidden)."""
    parts = [tensors(part) for part in ours]
    return torch.stack([torch.stack(p) for p in parts], 1)


def gradients(module: nn.Module, frames: Tensor, scalar) -> list[Tensor]:
    return list(torch.autograd.grad(scalar, [*module.parameters(), frames]))


def score(outputs: Tensor, state) -> Tensor:
    """A scalar that depends on every output and every state with different weights."""
    values = [outputs, *tensors(state)]
    return sum((v * torch.linspace(-1, 2, v[0].numel()).view(v[0].shape).to(v)).sum() for v in values)


# --- against torch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", FUSED)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (3, False), (1, True), (2, True)])
def test_equals_torch_under_copied_weights(cell, fast, layers, bidirectional):
    theirs = TORCH[cell](5, 7, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    ours = Recurrent(5, 7, cell, layers, bidirectional, fast=fast)
    copy(ours, theirs)
    frames = torch.randn(4, 11, 5)
    outputs, state = ours(frames)
    expected, final = theirs(frames)
    close(outputs, expected)
    close(flat_state(state), torch.stack(tensors(final)))


@pytest.mark.parametrize("cell", FUSED)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_equals_torch_on_packed_sequences(cell, fast, bidirectional):
    theirs = TORCH[cell](5, 7, num_layers=2, bidirectional=bidirectional, batch_first=True)
    ours = Recurrent(5, 7, cell, 2, bidirectional, fast=fast)
    copy(ours, theirs)
    frames = torch.randn(4, 11, 5, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(frames, LENGTHS, batch_first=True, enforce_sorted=False)
    packed, final = theirs(packed)
    expected = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]
    outputs, state = ours(frames, lengths=LENGTHS)
    close(outputs, expected)
    close(flat_state(state), torch.stack(tensors(final)))
    ours_grad = gradients(ours, frames, score(outputs, flat_state(state).transpose(0, 2)))
    theirs_grad = gradients(theirs, frames, score(expected, torch.stack(tensors(final)).transpose(0, 2)))
    size = max(g.abs().max() for g in theirs_grad)
    close([g / size for g in ours_grad], [g / size for g in theirs_grad])


@pytest.mark.parametrize("cell", FUSED)
def test_step_equals_torch_cell(cell):
    kind = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn_tanh": nn.RNNCell}.get(cell)
    theirs = kind(5, 7) if kind else nn.RNNCell(5, 7, nonlinearity="relu")
    ours = Recurrent(5, 7, cell)
    copy(ours, theirs)
    x = torch.randn(3, 5)
    state, expected = None, None
    for _ in range(3):
        output, state = ours.step(x, state)
        expected = theirs(x, expected)
        close(tensors(state), tensors(expected))
        close(output, tensors(expected)[0])


# --- against the equations written down again ---------------------------------------------------------------------


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def numpy_gru_simple(cell, frames):
    w, u = cell["weight_ih"], cell["weight_hh"]
    b = cell["bias_ih"] + cell["bias_hh"]
    n = u.shape[1]
    h, outputs = np.zeros(n), []
    for x in frames:
        gate = sigmoid(w[:n] @ x + u[:n] @ h + b[:n])
        proposal = np.tanh(w[n:] @ x + u[n:] @ h + b[n:])
        h = np.array([g * p + (1 - g) * old for g, p, old in zip(gate, proposal, h, strict=True)])
        outputs.append(h)
    return np.array(outputs), [h]


def numpy_lstm_peephole(cell, frames):
    w, u, p = cell["weight_ih"], cell["weight_hh"], cell["weight_peephole"]
    b = cell["bias_ih"] + cell["bias_hh"]
    n = u.shape[1]
    h, c, outputs = np.zeros(n), np.zeros(n), []
    for x in frames:
        row = [w[k * n : (k + 1) * n] @ x + u[k * n : (k + 1) * n] @ h + b[k * n : (k + 1) * n] for k in range(4)]
        i = sigmoid(row[0] + np.diag(p[0]) @ c)
        f = sigmoid(row[1] + np.diag(p[1]) @ c)
        c = f * c + i * np.tanh(row[2])
        h = sigmoid(row[3] + np.diag(p[2]) @ c) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), [h, c]


@pytest.mark.parametrize(("name", "loop"), [("gru_simple", numpy_gru_simple), ("lstm_peephole", numpy_lstm_peephole)])
def test_cells_without_a_torch_twin_equal_a_numpy_loop(name, loop):
    network = Recurrent(4, 6, name).double()
    frames = torch.randn(2, 9, 4, dtype=torch.double)
    outputs, state = network(frames)
    weights = {k: v.detach().numpy() for k, v in network.cells[0].named_parameters()}
    for row in range(2):
        expected, final = loop(weights, frames[row].numpy())
        np.testing.assert_allclose(outputs[row].detach().numpy(), expected, atol=1e-12)
        np.testing.assert_allclose([t[row].detach().numpy() for t in tensors(state)], final, atol=1e-12)


@pytest.mark.parametrize("fast", [True, False])
def test_the_lectures_relu_rnn(fast):
    network = Recurrent(2, 3, "rnn_relu", fast=fast)
    cell = network.cells[0]
    with torch.no_grad():
        cell.weight_ih.copy_(torch.tensor([[1.0, 0], [0, 1], [-1, 0]]))
        cell.weight_hh.copy_(torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))
        cell.bias_ih.zero_()
        cell.bias_hh.zero_()
    x, h = torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0, 0]])
    for output, (new,) in (network.step(x, (h,)), (network(x[None], (h,)))):
        assert new.tolist() == [[1, 0, 0]]
        assert output.flatten() @ torch.tensor([1.0, 0, -1]) == 1


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("fast", [True, False])
def test_gradients_through_time_by_finite_differences(cell, fast):
    network = Recurrent(2, 3, cell, layers=2, fast=fast).double()
    frames = torch.randn(2, 5, 2, dtype=torch.double, requires_grad=True)
    names = [name for name, _ in network.named_parameters()]

    def run(frames, *parameters):
        values = dict(zip(names, parameters, strict=True))
        outputs, state = torch.func.functional_call(network, values, (frames, None, torch.tensor([5, 3])))
        return (outputs, *tensors(state))

    assert torch.autograd.gradcheck(run, (frames, *network.parameters()))


# --- against itself -----------------------------------------------------------------------------------------------

STACKS = [
    {"layers": 1},
    {"layers": 3, "layer_norm": True, "residual": True},
    {"layers": 2, "bidirectional": True, "layer_norm": True, "residual": True},
]


@pytest.mark.parametrize("cell", FUSED)
@pytest.mark.parametrize("settings", STACKS)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float, 1e-6), (torch.double, 1e-12)])
def test_fast_equals_readable(cell, settings, lengths, dtype, atol):
    if dtype == torch.float:  # the norm of a nearly constant frame magnifies float's rounding; double proves it
        settings = settings | {"layer_norm": False}
    fast = Recurrent(6, 6, cell, **settings).to(dtype)
    readable = Recurrent(6, 6, cell, **settings, fast=False).to(dtype)
    copy(readable, fast)
    frames = torch.randn(4, 11, 6, dtype=dtype, requires_grad=True)
    a, b = fast(frames, lengths=lengths), readable(frames, lengths=lengths)
    close(a, b, atol)
    fast_grad, readable_grad = gradients(fast, frames, score(*a)), gradients(readable, frames, score(*b))
    size = max(g.abs().max() for g in fast_grad)
    close([g / size for g in fast_grad], [g / size for g in readable_grad], atol)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("size", [1, 3, 7, 50])
@pytest.mark.parametrize(("dtype", "atol", "norm"), [(torch.float, 1e-6, False), (torch.double, 1e-12, True)])
def test_chunked_equals_whole(cell, fast, size, dtype, atol, norm):
    network = Recurrent(4, 6, cell, layers=2, layer_norm=norm, residual=True, fast=fast).to(dtype)
    frames = torch.randn(2, 53, 4, dtype=dtype)
    whole, final = network(frames)
    state, chunks = None, []
    for chunk in frames.split(size, 1):
        y, state = network(chunk, state)
        chunks.append(y)
    close(torch.cat(chunks, 1), whole, atol)
    close(state, final, atol)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("fast", [True, False])
def test_step_by_step_equals_whole(cell, fast):
    network = Recurrent(4, 6, cell, layers=3, layer_norm=True, residual=True, fast=fast).double()
    frames = torch.randn(2, 9, 4, dtype=torch.double)
    whole, final = network(frames)
    state, steps = None, []
    for x in frames.unbind(1):
        y, state = network.step(x, state)
        steps.append(y)
    close(torch.stack(steps, 1), whole, atol=1e-12)
    close(state, final, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("settings", STACKS)
def test_padded_equals_alone(cell, fast, settings):
    network = Recurrent(6, 6, cell, **settings, fast=fast).double()
    frames = torch.randn(4, 11, 6, dtype=torch.double)
    for row, length in enumerate(LENGTHS):
        frames[row, length:] = 1e300  # whatever lies in the padding
    frames.requires_grad_()
    outputs, state = network(frames, lengths=LENGTHS)
    padded = gradients(network, frames, score(outputs, state))
    summed = [torch.zeros_like(g) for g in padded[:-1]]
    for row, length in enumerate(LENGTHS):
        alone = frames[row : row + 1, :length].detach().requires_grad_()
        y, s = network(alone)
        close(outputs[row : row + 1, :length], y, atol=1e-12)
        assert not outputs[row, length:].any()
        close([t[row : row + 1] for t in tensors(state)], s, atol=1e-12)
        full = nn.functional.pad(y, (0, 0, 0, 11 - int(length)))
        *weights, inputs = gradients(network, alone, score(full, s))
        close(padded[-1][row : row + 1, :length], inputs, atol=1e-10)
        assert not padded[-1][row, length:].any()
        summed = [a + b for a, b in zip(summed, weights, strict=True)]
    close(padded[:-1], summed, atol=1e-10)


@pytest.mark.parametrize("fast", [True, False])
def test_a_relu_network_that_would_overflow_in_the_padding(fast):
    network = Recurrent(1, 1, "rnn_relu", fast=fast)
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), (1.0, 2.0, 0.0, 0.0), strict=True):
            parameter.fill_(value)
    frames = torch.zeros(2, 300, 1)
    frames[0, 0] = 1.0  # doubles at each frame: 2**299 is infinite in float
    outputs, (h,) = network(frames, lengths=torch.tensor([3, 300]))
    assert outputs[0].flatten().tolist() == [1.0, 2.0, 4.0] + [0.0] * 297
    assert h.flatten().tolist() == [4.0, 0.0]
    grad = torch.autograd.grad(outputs.sum(), network.cells[0].weight_hh)[0]
    assert grad.item() == 1 + 4  # d(1 + w + w**2) / dw at w = 2


@pytest.mark.parametrize("cell", CELLS)
def test_padded_chunk_continues_a_state(cell):
    network = Recurrent(4, 6, cell)
    frames = torch.randn(4, 17, 4)
    _, state = network(frames[:, :6])
    outputs, final = network(frames[:, 6:], state, LENGTHS)
    for row, length in enumerate(LENGTHS):
        y, s = network(frames[row : row + 1, : 6 + length])
        close(outputs[row : row + 1, :length], y[:, 6:])
        close([t[row : row + 1] for t in tensors(final)], s)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sizes_padded_equal_alone_and_chunked_equal_whole(data):
    cell = data.draw(st.sampled_from(list(CELLS)))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    inputs, hidden, layers = (data.draw(st.integers(1, top)) for top in (4, 5, 3))
    network = Recurrent(inputs, hidden, cell, layers, residual=True, fast=data.draw(st.booleans()))
    frames = torch.randn(len(lengths), max(lengths) + data.draw(st.integers(0, 3)), inputs)
    outputs, state = network(frames, lengths=torch.tensor(lengths))
    for row, length in enumerate(lengths):
        cut = data.draw(st.integers(0, length - 1))
        middle = network(frames[row : row + 1, :cut])[1] if cut else None
        y, s = network(frames[row : row + 1, cut:length], middle)
        close(outputs[row : row + 1, cut:length], y)
        close([t[row : row + 1] for t in tensors(state)], s)
        assert not outputs[row, length:].any()


# --- the stack's options ------------------------------------------------------------------------------------------


def test_layer_norm_and_residual_are_what_they_say():
    network = Recurrent(6, 6, "gru", layers=2, layer_norm=True, residual=True)
    first, second = Recurrent(6, 6, "gru"), Recurrent(6, 6, "gru")
    copy(first.cells[0], network.cells[0])
    copy(second.cells[0], network.cells[1])
    frames = torch.randn(2, 5, 6)
    x = frames + nn.functional.layer_norm(first(frames)[0], (6,))
    close(network(frames)[0], x + nn.functional.layer_norm(second(x)[0], (6,)))


def test_residual_is_left_out_where_sizes_differ():
    plain, residual = Recurrent(4, 6, "gru"), Recurrent(4, 6, "gru", residual=True)
    copy(residual, plain)
    frames = torch.randn(2, 5, 4)
    assert torch.equal(plain(frames)[0], residual(frames)[0])


def test_dropout_is_between_layers_seeded_and_off_in_eval():
    frames = torch.randn(2, 5, 4)
    single = Recurrent(4, 6, "gru", dropout=0.9)
    assert torch.equal(single(frames)[0], single.eval()(frames)[0])  # none after the last layer
    deep = Recurrent(4, 6, "gru", layers=2, dropout=0.5)
    torch.manual_seed(1)
    a = deep(frames)[0]
    torch.manual_seed(1)
    assert torch.equal(a, deep(frames)[0])
    assert not torch.equal(a, deep(frames)[0])
    same = Recurrent(4, 6, "gru", layers=2)
    copy(same, deep)
    assert torch.equal(deep.eval()(frames)[0], same(frames)[0])


@pytest.mark.parametrize("cell", CELLS)
def test_parameters_start_within_one_over_root_hidden(cell):
    bound = 64**-0.5
    for parameter in Recurrent(8, 64, cell).parameters():
        assert 0.9 * bound < parameter.abs().max() <= bound


class Step(nn.Module):
    """The step as a module's forward, which is what an exporter takes."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, state):
        return self.network.step(x, state)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("cell", CELLS)
def test_step_and_fast_forward_survive_tracing(cell):
    network = Recurrent(4, 6, cell, layers=2).eval()
    state = network(torch.randn(2, 3, 4))[1]
    step = torch.jit.trace(Step(network), (torch.randn(2, 4), network.zero_state(torch.zeros(2, 4))))
    x = torch.randn(2, 4)
    close(step(x, state), network.step(x, state))
    if network.fast:
        forward = torch.jit.trace(network, (torch.randn(2, 5, 4), state, torch.tensor([5, 3])))
        frames, lengths = torch.randn(2, 9, 4), torch.tensor([4, 9])  # another number of frames than traced
        close(forward(frames, state, lengths), network(frames, state, lengths))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_onnx_gives_the_same_answers(cell, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    network = Recurrent(4, 6, cell, layers=2).eval()
    state = network(torch.randn(2, 3, 4))[1]
    frames, lengths = torch.randn(2, 9, 4), torch.tensor([4, 9])
    cases = [
        (Step(network), (frames[:, 0], state), (frames[:, 1], state)),
        (network, (frames[:, :5], state, torch.tensor([5, 3])), (frames, state, lengths)),
    ]
    for number, (module, example, inputs) in enumerate(cases):
        path = str(tmp_path / f"{number}.onnx")
        axes = None if number == 0 else {"frames": {1: "time"}}
        torch.onnx.export(module, example, path, dynamo=False, input_names=["frames"], dynamic_axes=axes)
        session = runtime.InferenceSession(path)
        fed = {i.name: t.detach().numpy() for i, t in zip(session.get_inputs(), tensors(inputs), strict=True)}
        close([torch.from_numpy(o) for o in session.run(None, fed)], module(*inputs))


# --- bad input ----------------------------------------------------------------------------------------------------

FRAMES = torch.zeros(2, 5, 4)


@pytest.mark.parametrize(
    ("frames", "lengths", "message"),
    [
        (torch.zeros(2, 5, 3), None, r"\(2, 5, 3\).*\(batch, time, 4\)"),
        (torch.zeros(5, 4), None, r"\(5, 4\)"),
        (torch.zeros(2, 0, 4), None, "at least one row and one frame"),
        (torch.zeros(2, 5, 4, dtype=torch.long), None, "dtype"),
        (FRAMES, torch.tensor([5, 0]), r"lengths\[1\] is 0"),
        (FRAMES, torch.tensor([6, 5]), r"lengths\[0\] is 6"),
        (FRAMES, torch.tensor([5]), r"wants \(2,\)"),
        (FRAMES + float("nan"), None, "NaN"),
        (FRAMES + float("inf"), None, "infinite"),
    ],
)
def test_bad_frames(frames, lengths, message):
    with pytest.raises(InputError, match=message):
        Recurrent(4, 6)(frames, lengths=lengths)


H = torch.zeros(2, 6)


@pytest.mark.parametrize("state", [(H, H), ((H, H),), (H[:1], H), ((H, H), (H,)), ((H, H), (H, H[:, :5])), H, [1, 2]])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_bad_state(cell, state):
    if cell == "gru" and isinstance(state, tuple) and state[0] is H and len(state) == 2:
        state = (H, H, H)
    with pytest.raises(InputError, match=r"the state has shapes.*was wanted"):
        Recurrent(4, 6, cell, layers=2)(FRAMES, state)


def test_bidirectional_networks_cannot_stream():
    network = Recurrent(4, 6, "gru", bidirectional=True)
    with pytest.raises(InputError, match="bidirectional"):
        network.step(torch.zeros(2, 4))
    with pytest.raises(InputError, match="bidirectional"):
        network(FRAMES, (H, H))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "grru"}, "'grru'.*rnn_tanh, rnn_relu, gru_simple, gru, lstm, lstm_peephole"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"input_size": 0}, "input_size is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        Recurrent(**({"input_size": 4, "hidden_size": 6} | settings))


def test_what_is_no_tensor_or_of_another_dtype():
    network = Recurrent(4, 6, "gru")
    with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
        network(FRAMES.double())
    with pytest.raises(InputError, match=r"frames has dtype torch.float32; torch.float64 was wanted"):
        Recurrent(4, 6, "gru").double()(FRAMES)
    with pytest.raises(InputError, match="frames is a list"):
        network(FRAMES.tolist())
    with pytest.raises(InputError, match="lengths is a list"):
        network(FRAMES, lengths=[5, 4])
    with pytest.raises(InputError, match="lengths is a ndarray"):
        network(FRAMES, lengths=np.array([5, 4]))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm", "lstm_peephole"])
def test_a_state_of_another_dtype(cell, fast):
    network = Recurrent(4, 6, cell, layers=2, fast=fast)
    state = network.double()(FRAMES.double())[1]
    with pytest.raises(InputError, match=r"the state has dtype torch.float64; torch.float32 was wanted"):
        network.float()(FRAMES, state)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("cell", ["rnn_relu", "gru", "lstm"])
def test_a_state_that_is_not_finite_is_refused(cell, bad):
    """One NaN in a GRU's state makes it deaf for ever."""
    network = Recurrent(4, 6, cell, layers=2)
    _, state = network(FRAMES)
    tensors(state)[-1][1, 3] = bad  # the last tensor of the nest, its last row
    with pytest.raises(InputError, match="the state holds 1 NaN or infinite values; start anew with state=None"):
        network(FRAMES, state)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_autocast_and_its_own_state(cell):
    network = Recurrent(4, 6, cell, layers=2)
    with torch.autocast("cpu", torch.bfloat16):
        whole, _ = network(torch.ones(2, 4, 4))
        first, state = network(torch.ones(2, 2, 4))
        second, _ = network(torch.ones(2, 2, 4), state)
    close(torch.cat((first, second), 1).float(), whole.float(), atol=2e-2)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_step_checks_shapes_and_leaves_the_data_to_the_caller(cell, fast):
    network = Recurrent(4, 6, cell, layers=2, fast=fast)
    x = torch.zeros(2, 4)
    _, state = network.step(x)
    for wrong in (x[0], x[:, :3], x[:, None]):
        with pytest.raises(InputError, match=r"x has shape .*; \(batch, 4\) was wanted"):
            network.step(wrong)
    for wrong in (network.step(x[:1])[1], state[:1], (*state, state[0])):
        with pytest.raises(InputError, match=r"the state has shapes.*was wanted"):
            network.step(x, wrong)
    with pytest.raises(InputError, match=r"x has dtype torch.float64; torch.float32 was wanted"):
        network.step(x.double(), state)
    with pytest.raises(InputError, match=r"the state has dtype torch.float64; torch.float32 was wanted"):
        network.step(x, Recurrent(4, 6, cell, layers=2).double().step(x.double())[1])
    output, _ = network.step(x * torch.nan, state)
    assert output.isnan().any()
