"""Causal convolution and subsampling against plain loops, in chunks, padded, and causal."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from voiceseq.core.convolution import CausalConvolution, ResidualConvolutions, Subsample, strided_lengths
from voiceseq.errors import InputError

SETTINGS = [
    {"kernel": 3},
    {"kernel": 3, "stride": 2},
    {"kernel": 5, "stride": 3, "dilation": 2, "groups": 2},
    {"kernel": 3, "dilation": 4},
    {"kernel": 4, "stride": 3, "dilation": 2},
    {"kernel": 1, "stride": 4},
    {"kernel": 2, "stride": 5, "bias": False},
    {"kernel": 1},
]
FACTORS = [2, 4, 8]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def convolution(**settings):
    return CausalConvolution(4, 6, **settings).double()


def subsample(factor, features=13):
    return Subsample(features, 5, factor, channels=3).double()


def modules():
    return [(convolution(**s), 4, s.get("stride", 1)) for s in SETTINGS] + [(subsample(f), 13, f) for f in FACTORS]


def frames(batch, time, features):
    return torch.randn(batch, time, features, dtype=torch.double)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def in_chunks(module, x, sizes):
    """The outputs of a stream that comes in chunks of these sizes."""
    state, outputs = None, []
    for chunk in x.split(sizes, 1):
        y, state = module(chunk, state)
        outputs.append(y)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("settings", SETTINGS)
def test_convolution_equals_a_plain_loop(settings):
    module = convolution(**settings)
    kernel, stride = settings["kernel"], settings.get("stride", 1)
    dilation, groups = settings.get("dilation", 1), settings.get("groups", 1)
    x = frames(2, 14, 4)
    y = module(x)[0].detach().numpy()
    weight = module.convolution.weight.detach().numpy()
    bias = module.convolution.bias
    assert y.shape == (2, -(-14 // stride), 6)
    for row, t, out in np.ndindex(*y.shape):
        total = 0.0 if bias is None else bias[out].item()
        for i in range(4 // groups):
            source = out // (6 // groups) * (4 // groups) + i
            for k in range(kernel):
                at = t * stride - (kernel - 1 - k) * dilation
                total += weight[out, i, k] * x[row, at, source].item() if at >= 0 else 0.0
        assert abs(y[row, t, out] - total) < 1e-12


@pytest.mark.parametrize("factor", FACTORS)
def test_subsample_equals_padded_convolutions(factor):
    module = subsample(factor)
    x = frames(2, 37, 13)
    y = x[:, None]
    for halving in module.halvings:
        y = nn.functional.pad(y, (1, 1, 2, 0))
        y = nn.functional.conv2d(y, *halving.convolution.parameters(), stride=2, groups=y.shape[1])
        if y.shape[1] == 3 and halving is not module.halvings[0]:
            y = torch.einsum("oi,bitf->botf", halving.mix.weight[:, :, 0, 0], y) + halving.mix.bias[:, None, None]
        y = y.clamp(min=0)
    y = torch.stack([module.linear(frame.reshape(2, -1)) for frame in y.unbind(2)], 1)
    close(module(x)[0], y)


@pytest.mark.parametrize("which", range(len(modules())))
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_chunked_equals_whole(which, size):
    module, features, _ = modules()[which]
    x = frames(2, 103, features)
    whole, final = module(x)
    state, outputs = None, []
    for chunk in x.split(size, 1):
        y, state = module(chunk, state)
        assert y.shape[0] == 2
        assert y.shape[2] == whole.shape[2]
        outputs.append(y)
    close(torch.cat(outputs, 1), whole)
    close(state, final)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_cut_of_any_convolution(data):
    kernel, stride, dilation = (data.draw(st.integers(1, top)) for top in (5, 6, 3))
    module = CausalConvolution(2, 3, kernel, stride, dilation).double()
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    x = frames(2, sum(sizes), 2)
    whole = module(x)[0]
    assert whole.shape[1] == strided_lengths(sum(sizes), stride) == -(-sum(sizes) // stride)
    close(in_chunks(module, x, sizes), whole)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_cut_of_any_subsampling(data):
    module = subsample(data.draw(st.sampled_from(FACTORS)), data.draw(st.integers(1, 9)))
    sizes = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    x = frames(1, sum(sizes), module.features)
    close(in_chunks(module, x, sizes), module(x)[0])


def test_a_chunk_too_short_for_an_output_gives_none():
    module = subsample(8)
    y, state = module(frames(2, 1, 13))
    assert y.shape == (2, 1, 5)  # the first output stands at the first frame
    for _ in range(7):
        y, state = module(frames(2, 1, 13), state)
        assert y.shape == (2, 0, 5)
    assert module(frames(2, 1, 13), state)[0].shape == (2, 1, 5)


@pytest.mark.parametrize("which", range(len(modules())))
def test_padded_equals_alone(which):
    module, features, stride = modules()[which]
    x = frames(4, 23, features).requires_grad_()
    lengths = torch.tensor([23, 9, 1, 16])
    y = module(x, lengths=lengths)[0]
    counts = module.output_lengths(lengths)
    assert counts.tolist() == [-(-n // stride) for n in lengths.tolist()]
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        close(y[row : row + 1, :count], module(x[row : row + 1, :length])[0])
        assert not y[row, count:].any()
    (grad,) = torch.autograd.grad((y**2).sum(), x)
    assert not any(grad[row, length:].any() for row, length in enumerate(lengths))


@pytest.mark.parametrize("which", range(len(modules())))
def test_rows_may_end_within_a_later_chunk(which):
    module, features, _ = modules()[which]
    x, lengths = frames(4, 23, features), torch.tensor([16, 3, 1, 9])
    first, state = module(x[:, :7])
    y, _ = module(x[:, 7:], state, lengths)
    counts = module.output_lengths(lengths, state)
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        alone = module(x[row : row + 1, : 7 + length])[0]
        close(torch.cat((first[row], y[row, :count])), alone[0])
        assert not y[row, count:].any()


@pytest.mark.parametrize("which", range(len(modules())))
def test_an_output_sees_its_left_context_and_no_future(which):
    module, features, stride = modules()[which]
    x = frames(1, 61, features).requires_grad_()
    t = 40 // stride
    (grad,) = torch.autograd.grad(module(x)[0][0, t].sum(), x)
    seen = grad[0].abs().sum(-1).nonzero().flatten()
    assert seen.max() == t * stride
    assert seen.min() == t * stride - module.left_context


@pytest.mark.parametrize("make", [lambda: convolution(kernel=3, stride=2, dilation=2), lambda: subsample(4, 5)])
def test_gradients_by_finite_differences_through_a_state(make):
    module = make()
    x = frames(2, 9, 4 if isinstance(module, CausalConvolution) else 5).requires_grad_()
    names = [name for name, _ in module.named_parameters()]

    def run(x, *parameters):
        values = dict(zip(names, parameters, strict=True))
        y, state = torch.func.functional_call(module, values, (x[:, :4],))
        return y, torch.func.functional_call(module, values, (x[:, 4:], state))[0]

    assert torch.autograd.gradcheck(run, (x, *module.parameters()))


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(len(modules())))
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: (x[..., 1:],), r"\(2, 9, \d+\).*was wanted"),
        (lambda x: (x[:, :0],), "at least one row and one frame"),
        (lambda x: (x * float("nan"),), "NaN"),
        (lambda x: (x, None, torch.tensor([9, 10])), r"lengths\[1\] is 10"),
        (lambda x: (x, None, torch.tensor([0, 9])), r"lengths\[0\] is 0"),
        (lambda x: (x, ()), "the state has shapes"),
        (lambda x: (x, (x[:1, :0],) * 2), "the state has shapes"),
    ],
)
def test_bad_input(which, change, message):
    module, features, _ = modules()[which]
    with pytest.raises(InputError, match=message):
        module(*change(frames(2, 9, features)))


@pytest.mark.parametrize("bad", [(2, 3, 4), (2, 0, 4), (1, 2, 4), (2, 2, 5), (2, 2)])
def test_a_state_of_another_shape(bad):
    module = convolution(kernel=3, stride=2)
    with pytest.raises(InputError, match=r"the state has shapes.*up to 2"):
        module(frames(2, 9, 4), (torch.zeros(bad, dtype=torch.double),))


def test_bad_settings():
    for options in ({"kernel": 0}, {"kernel": 3, "stride": 0}, {"kernel": 3, "dilation": 0}):
        with pytest.raises(InputError, match="is 0; at least 1"):
            CausalConvolution(4, 6, **options)
    with pytest.raises(InputError, match="groups is 3"):
        CausalConvolution(4, 6, 3, groups=3)
    with pytest.raises(InputError, match="the factor is 3; one of 2, 4, 8"):
        Subsample(80, 256, 3)
    with pytest.raises(InputError, match="features is 0"):
        Subsample(0, 256)


def test_another_dtype():
    for network in (CausalConvolution(3, 4, 2), Subsample(3, 4)):
        frames = torch.zeros(2, 6, 3)
        with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
            network(frames.double())
        _, state = network(frames)
        with pytest.raises(InputError, match=r"the state has dtype torch.float64; torch.float32 was wanted"):
            network(frames, tuple(context.double() for context in state))
        with pytest.raises(InputError, match=r"the state holds .* NaN or infinite values; start anew with state=None"):
            network(frames, tuple(context * torch.nan for context in state))
        with torch.autocast("cpu", torch.bfloat16):
            _, state = network(frames)
            network(frames, state)


def residual() -> ResidualConvolutions:
    return ResidualConvolutions(4, 5, kernel=3, cycle=3, dropout=0.5).double().eval()


def test_a_residual_stack_is_its_equation():
    module, x = residual(), frames(2, 40, 4)
    y = x
    for layer, dilation in enumerate((1, 2, 4, 1, 2)):
        convolution = module.layers[layer].convolution
        padded = nn.functional.pad(y.transpose(1, 2), (2 * dilation, 0))
        heard = nn.functional.conv1d(padded, convolution.weight, convolution.bias, dilation=dilation).transpose(1, 2)
        y = y + module.norms[layer](heard).relu()
    close(module(x)[0], module.last(y))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8))
@settings(max_examples=20, deadline=None)
def test_a_residual_stack_is_the_same_in_any_chunks_and_padded(sizes):
    module, x = residual(), frames(2, sum(sizes), 4)
    close(in_chunks(module, x, sizes), module(x)[0])
    lengths = torch.tensor([sum(sizes), max(1, sum(sizes) // 2)])
    ragged = module(x, lengths=lengths)[0]
    close(ragged[1:, : lengths[1]], module(x[1:, : lengths[1]])[0])
    assert (ragged[1, lengths[1] :] == 0).all()


def test_a_residual_stack_looks_back_so_far_and_no_further():
    module, x = residual(), frames(1, 60, 4)
    assert module.left_context == 2 * (1 + 2 + 4 + 1 + 2)
    for frame, heard in ((59 - module.left_context, True), (58 - module.left_context, False)):
        other = x.clone()
        other[0, frame] += 100.0
        assert torch.equal(module(other)[0][0, -1], module(x)[0][0, -1]) is not heard
