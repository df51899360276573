"""Attention against the lecture's numbers, plain loops and torch's own module."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from voiceseq.core.attention import (
    AdditiveAttention,
    DotAttention,
    LocationAwareAttention,
    MultiHeadAttention,
    QueryAttention,
    ScaledDotAttention,
)
from voiceseq.core.masks import causal_mask, chunk_mask, lengths_mask
from voiceseq.core.positions import RelativePositions, RotaryPositions
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(7)


def single_query_kinds() -> dict[str, QueryAttention]:
    torch.manual_seed(1)
    kinds = {
        "dot": DotAttention(4),
        "scaled": ScaledDotAttention(4),
        "additive": AdditiveAttention(4, 4, 6),
        "location": LocationAwareAttention(4, 4, 6, filters=3, kernel=5),
    }
    return {name: kind.double() for name, kind in kinds.items()}


SINGLE = tuple(single_query_kinds())


def multi_head(kind: str, size: int = 8, heads: int = 2) -> MultiHeadAttention:
    torch.manual_seed(2)
    positions = {
        "none": None,
        "rotary": RotaryPositions(size // heads),
        "relative": RelativePositions(size // heads, max_distance=3),
    }[kind]
    attention = MultiHeadAttention(size, heads, positions=positions).double()
    for parameter in attention.parameters():  # the zero biases would hide mistakes
        nn.init.normal_(parameter, std=0.5)
    return attention


def copied_from_torch(theirs: nn.MultiheadAttention, key_size: int | None = None) -> MultiHeadAttention:
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, key_size).to(theirs.out_proj.weight.dtype)
    size = theirs.embed_dim
    with torch.no_grad():
        if theirs.in_proj_weight is None:
            ours.query.weight.copy_(theirs.q_proj_weight)
            ours.key_value.weight.copy_(torch.cat((theirs.k_proj_weight, theirs.v_proj_weight)))
        else:
            ours.query.weight.copy_(theirs.in_proj_weight[:size])
            ours.key_value.weight.copy_(theirs.in_proj_weight[size:])
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
        ours.query.bias.copy_(theirs.in_proj_bias[:size])
        ours.key_value.bias.copy_(theirs.in_proj_bias[size:])
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    return ours


# ---- one query ----------------------------------------------------------------------------------------------------


def test_lecture_example() -> None:
    keys = torch.eye(4)[[0, 1, 0]]
    value_map = torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0]])
    query_map = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, -1]])
    query = query_map @ torch.tensor([1.0, -1, 0])
    assert query.tolist() == [-1, 1, 0, 1]
    context, weights = ScaledDotAttention(4)(query[None], keys[None], (keys @ value_map.T)[None])
    low, high = math.exp(-0.5), math.exp(0.5)
    torch.testing.assert_close(context[0], torch.tensor([2 * low, high]) / (2 * low + high))
    torch.testing.assert_close(weights[0], torch.tensor([low, high, low]) / (2 * low + high))


def by_hand(kind: str, attention: QueryAttention, query: Tensor, keys: Tensor, previous: Tensor) -> list[float]:
    """The scores of one row, key by key."""
    scores = []
    for time, key in enumerate(keys):
        if kind in ("dot", "scaled"):
            scores.append(float(query @ key) / (2.0 if kind == "scaled" else 1.0))
            continue
        inner = attention.query.weight @ query + attention.query.bias + attention.key.weight @ key
        if kind == "location":
            half = attention.convolution.kernel_size[0] // 2
            around = [previous[t] if 0 <= t < len(keys) else 0.0 for t in range(time - half, time + half + 1)]
            features = attention.convolution.weight[:, 0] @ torch.tensor(around, dtype=torch.float64)
            inner = inner + attention.location.weight @ features
        scores.append(float((attention.score.weight[0] @ inner.tanh()).detach()))
    return scores


@pytest.mark.parametrize("kind", SINGLE)
def test_equations_by_hand(kind: str) -> None:
    attention = single_query_kinds()[kind]
    query, keys, values = torch.randn(4).double(), torch.randn(5, 4).double(), torch.randn(5, 3).double()
    previous = torch.rand(5).double()
    scores = by_hand(kind, attention, query, keys, previous)
    exponents = [math.exp(score) for score in scores]
    context, weights = attention(query[None], keys[None], values[None], previous=previous[None])
    expected = torch.tensor(exponents).double() / sum(exponents)
    torch.testing.assert_close(weights[0], expected)
    torch.testing.assert_close(context[0], sum(w * v for w, v in zip(expected, values, strict=True)))


@pytest.mark.parametrize("kind", SINGLE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_weights_are_a_distribution_on_the_valid_and_padded_is_alone(kind: str, data: st.DataObject) -> None:
    attention = single_query_kinds()[kind]
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    batch, time = len(lengths), int(lengths.max()) + data.draw(st.integers(0, 4))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    query, keys, values = (torch.randn(batch, *shape).double() for shape in ((4,), (time, 4), (time, 3)))
    mask = lengths_mask(lengths, time)
    previous = torch.rand(batch, time).double() * mask
    context, weights = attention(query, keys, values, mask, previous)
    torch.testing.assert_close(weights.sum(1), torch.ones(batch).double())
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    for row, length in enumerate(lengths.tolist()):
        part = slice(row, row + 1), slice(0, length)
        alone, alone_weights = attention(query[row : row + 1], keys[part], values[part], previous=previous[part])
        torch.testing.assert_close(context[row], alone[0])
        torch.testing.assert_close(weights[row, :length], alone_weights[0])


@pytest.mark.parametrize("kind", SINGLE)
def test_a_row_with_no_valid_key_gives_zeros_and_finite_gradients(kind: str) -> None:
    attention = single_query_kinds()[kind]
    query = torch.randn(2, 4).double().requires_grad_()
    keys, values = torch.randn(2, 5, 4).double().requires_grad_(), torch.randn(2, 5, 3).double()
    context, weights = attention(query, keys, values, torch.tensor([[True] * 5, [False] * 5]))
    assert not context[1].any()
    assert not weights[1].any()
    context.sum().backward()
    assert query.grad.isfinite().all()
    assert keys.grad.isfinite().all()


@pytest.mark.parametrize("kind", SINGLE)
def test_prepared_once_is_the_same(kind: str) -> None:
    attention = single_query_kinds()[kind]
    keys, values = torch.randn(2, 6, 4).double(), torch.randn(2, 6, 3).double()
    prepared, previous, previous_prepared = attention.prepare(keys), None, None
    for query in torch.randn(4, 2, 4).double():
        context, previous = attention(query, keys, values, previous=previous)
        again, previous_prepared = attention.attend(query, prepared, values, previous=previous_prepared)
        torch.testing.assert_close(context, again)


def test_location_awareness_looks_where_it_looked() -> None:
    attention = single_query_kinds()["location"]
    query, keys, values = torch.randn(1, 4).double(), torch.randn(1, 9, 4).double(), torch.randn(1, 9, 3).double()
    nowhere, first = attention(query, keys, values)
    there, _ = attention(query, keys, values, previous=first)
    assert not torch.allclose(nowhere, there)
    zeros, _ = attention(query, keys, values, previous=torch.zeros(1, 9).double())
    torch.testing.assert_close(nowhere, zeros)


@pytest.mark.parametrize("kind", SINGLE)
def test_gradients_of_one_query(kind: str) -> None:
    attention = single_query_kinds()[kind]
    query, keys, values, previous = (
        torch.randn(2, *shape).double().requires_grad_() for shape in ((4,), (3, 4), (3, 2), (3,))
    )
    mask = lengths_mask(torch.tensor([3, 2]), 3)
    assert torch.autograd.gradcheck(lambda q, k, v, p: attention(q, k, v, mask, p), (query, keys, values, previous))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.randn(2, 5)}, r"query has shape \(2, 5\); \(2, 4\) was wanted"),
        ({"keys": torch.randn(2, 6)}, r"keys has shape \(2, 6\)"),
        ({"keys": torch.randn(2, 0, 4)}, "at least one row and one frame"),
        ({"keys": torch.full((2, 6, 4), torch.nan)}, "keys holds 48 NaN"),
        ({"values": torch.full((2, 6, 3), torch.inf)}, "values holds 36 NaN or infinite"),
        ({"values": torch.randn(2, 5, 3)}, r"values has shape \(2, 5, 3\); \(2, 6, 3\) was wanted"),
        ({"mask": torch.ones(2, 5, dtype=torch.bool)}, r"mask has shape \(2, 5\); \(2, 6\) was wanted"),
        ({"mask": torch.ones(2, 6)}, "mask has dtype torch.float32; torch.bool was wanted"),
        ({"previous": torch.ones(2, 5)}, r"previous has shape \(2, 5\)"),
    ],
)
def test_one_query_refuses(change: dict[str, Tensor], message: str) -> None:
    good = {"query": torch.randn(2, 4), "keys": torch.randn(2, 6, 4), "values": torch.randn(2, 6, 3)}
    with pytest.raises(InputError, match=message):
        AdditiveAttention(4, 4, 5)(**{**good, **change})


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match="kernel is 4; an odd number"):
        LocationAwareAttention(4, 4, 5, kernel=4)


# ---- many heads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_is_torchs(need_weights: bool) -> None:
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    ours = copied_from_torch(theirs)
    frames = torch.randn(3, 7, 12).double()
    mask = lengths_mask(torch.tensor([7, 4, 1]), 7)
    expected, expected_weights = theirs(frames, frames, frames, key_padding_mask=~mask, average_attn_weights=False)
    output, weights, _ = ours(frames, frames, frames, mask[:, None], need_weights=need_weights)
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights)
    else:
        assert weights is None


@pytest.mark.parametrize("key_size", [12, 5])
def test_cross_attention_is_torchs(key_size: int) -> None:
    theirs = nn.MultiheadAttention(12, 3, kdim=key_size, vdim=key_size, batch_first=True).double()
    ours = copied_from_torch(theirs, key_size)
    query, key, value = torch.randn(2, 4, 12).double(), *torch.randn(2, 2, 6, key_size).double()
    mask = causal_mask(6)[2:]
    padding = lengths_mask(torch.tensor([6, 4]), 6)
    expected, _ = theirs(query, key, value, key_padding_mask=~padding, attn_mask=~mask)
    torch.testing.assert_close(ours(query, key, value, mask & padding[:, None])[0], expected)


def test_gradients_are_torchs() -> None:
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    ours = copied_from_torch(theirs)
    frames, weight = torch.randn(2, 5, 12).double(), torch.randn(2, 5, 12).double()
    (theirs(frames, frames, frames)[0] * weight).sum().backward()
    (ours(frames, frames, frames)[0] * weight).sum().backward()
    grad = torch.cat((ours.query.weight.grad, ours.key_value.weight.grad))
    torch.testing.assert_close(grad, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.output.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
def test_heads_by_hand(kind: str) -> None:
    """Two heads of four features, query by query and key by key."""
    attention, frames = multi_head(kind), torch.randn(5, 8).double()
    queries = frames @ attention.query.weight.T + attention.query.bias
    keys, values = (frames @ attention.key_value.weight.T + attention.key_value.bias).split(8, -1)
    contexts = torch.zeros(5, 8).double()
    for head in (slice(0, 4), slice(4, 8)):
        for at in range(5):
            scores = torch.zeros(5).double()
            for other in range(5):
                query, key = queries[at, head], keys[other, head]
                if kind == "rotary":
                    rates = torch.tensor([1.0, 0.01]).double()
                    turns = torch.polar(torch.ones(2).double(), rates * (other - at))
                    key = torch.view_as_real(torch.complex(key[:2], key[2:]) * turns).T.flatten()
                if kind == "relative":
                    key = key + attention.relative.table[max(-3, min(3, other - at)) + 3]
                scores[other] = query @ key / 2.0
            contexts[at, head] = scores.softmax(0) @ values[:, head]
    expected = contexts @ attention.output.weight.T + attention.output.bias
    torch.testing.assert_close(attention(frames[None], frames[None], frames[None])[0][0], expected)


@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_readable_is_fast(kind: str, dtype: torch.dtype) -> None:
    attention = multi_head(kind).to(dtype)
    frames = torch.randn(2, 9, 8, dtype=dtype)
    padding = lengths_mask(torch.tensor([9, 5]), 9)[:, None]
    for mask in (None, causal_mask(9), padding, padding & chunk_mask(9, 2, 1, 1), (torch.rand(2, 2, 9, 9) > 0.5)):
        fast, _, _ = attention(frames, frames, frames, mask)
        readable, weights, _ = attention(frames, frames, frames, mask, need_weights=True)
        torch.testing.assert_close(fast, readable, atol=2e-6, rtol=1e-6)
        if mask is not None:
            assert (
                weights[~(mask if mask.dim() == 4 else mask.view(-1, 1, *mask.shape[-2:])).expand_as(weights)] == 0
            ).all()
        sums = weights.sum(-1)
        assert ((sums - 1).abs().lt(1e-5) | sums.eq(0)).all()


@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_query_that_may_look_nowhere_gets_nothing(kind: str, need_weights: bool) -> None:
    attention = multi_head(kind)
    frames = torch.randn(2, 5, 8).double().requires_grad_()
    mask = torch.ones(2, 5, 5, dtype=torch.bool)
    mask[0, 2] = False
    mask[1] = False
    output, _, _ = attention(frames, frames, frames, mask, need_weights=need_weights)
    torch.testing.assert_close(output[0, 2], attention.output.bias)
    torch.testing.assert_close(output[1], attention.output.bias.expand(5, 8))
    output.square().sum().backward()
    assert frames.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_cached_is_uncached(kind: str, size: int) -> None:
    attention = multi_head(kind)
    frames = torch.randn(2, 23, 8).double()
    whole, _, _ = attention(frames, frames, frames, causal_mask(23))
    cache, pieces = None, []
    for piece in frames.split(size, 1):
        seen = piece.shape[1] + (0 if cache is None else cache[0].shape[2])
        mask = causal_mask(seen)[-piece.shape[1] :]
        output, _, cache = attention(piece, piece, piece, mask, cache)
        pieces.append(output)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)


@pytest.mark.parametrize("kind", ["rotary", "relative"])
def test_only_distances_matter(kind: str) -> None:
    attention = multi_head(kind)
    frames = torch.randn(2, 6, 8).double()
    positions = torch.arange(6).expand(2, 6)
    here, weights, _ = attention(frames, frames, frames, positions=positions, need_weights=True)
    far, far_weights, _ = attention(frames, frames, frames, positions=positions + 1000, need_weights=True)
    torch.testing.assert_close(weights, far_weights)
    torch.testing.assert_close(here, far)
    stretched, _, _ = attention(frames, frames, frames, positions=positions * 2)
    assert not torch.allclose(here, stretched)


@pytest.mark.parametrize("kind", ["none", "rotary", "relative"])
def test_gradients_of_many_heads(kind: str) -> None:
    attention = multi_head(kind, size=4)
    query, memory = torch.randn(2, 3, 4).double().requires_grad_(), torch.randn(2, 3, 4).double().requires_grad_()
    mask = lengths_mask(torch.tensor([3, 2]), 3)[:, None] & causal_mask(3)
    names = [name for name, _ in attention.named_parameters()]

    def run(query: Tensor, memory: Tensor, *parameters: Tensor) -> Tensor:
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(attention, values, (query, memory, memory, mask))[0]

    assert torch.autograd.gradcheck(run, (query, memory, *attention.parameters()))


def test_dropout_falls_on_the_weights_in_training_alone() -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    frames = torch.randn(2, 5, 8)
    assert not torch.equal(attention(frames, frames, frames)[0], attention(frames, frames, frames)[0])
    attention.eval()
    assert torch.equal(attention(frames, frames, frames)[0], attention(frames, frames, frames)[0])


@pytest.mark.parametrize(
    ("shapes", "mask", "message"),
    [
        (((2, 5, 7), (2, 5, 8), (2, 5, 8)), None, r"query has shape \(2, 5, 7\); \(batch, queries, 8\) was wanted"),
        (((2, 8), (2, 5, 8), (2, 5, 8)), None, r"query has shape \(2, 8\)"),
        (((2, 5, 8), (3, 5, 8), (3, 5, 8)), None, r"key has shape \(3, 5, 8\); \(2, keys, 8\) was wanted"),
        (((2, 5, 8), (2, 5, 8), (2, 4, 8)), None, r"value has shape \(2, 4, 8\); \(2, 5, 8\) was wanted"),
        (((2, 5, 8),) * 3, torch.ones(2, 5, dtype=torch.bool), r"mask has shape \(2, 5\); \(5, 5\)"),
        (((2, 5, 8),) * 3, torch.ones(2, 5, 1, dtype=torch.bool), r"mask has shape \(2, 5, 1\)"),
        (((2, 5, 8),) * 3, torch.ones(5, dtype=torch.bool), r"mask has shape \(5,\)"),
        (((2, 5, 8),) * 3, torch.zeros(5, 5), "mask has dtype torch.float32; torch.bool was wanted"),
    ],
)
def test_many_heads_refuse(shapes: tuple[tuple[int, ...], ...], mask: Tensor | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MultiHeadAttention(8, 2)(*(torch.randn(shape) for shape in shapes), mask)


def test_heads_divide_the_size() -> None:
    with pytest.raises(ConfigError, match="3 heads do not divide size 8"):
        MultiHeadAttention(8, 3)


@pytest.mark.parametrize("kind", sorted(single_query_kinds()))
def test_a_query_that_is_not_finite_is_refused(kind: str) -> None:
    attention = single_query_kinds()[kind].float()
    query, keys = torch.randn(2, attention.query_size), torch.randn(2, 6, attention.key_size)
    bad = query.clone()
    bad[1, 0] = torch.nan
    with pytest.raises(InputError, match="query holds 1 NaN"):
        attention(bad, keys, keys)
    with pytest.raises(InputError, match="previous holds 12 NaN"):
        attention(query, keys, keys, previous=torch.full((2, 6), torch.inf))
    with pytest.raises(InputError, match=r"query has dtype torch.float64; torch.float32 was wanted"):
        attention(query.double(), keys, keys)
    with pytest.raises(InputError, match=r"values has dtype torch.float64; torch.float32 was wanted"):
        attention(query, keys, keys.double())


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_bad_value_does_not_vanish_in_many_heads(name: str, bad: float, need_weights: bool) -> None:
    given_values = {part: torch.randn(2, 5, 8) for part in ("query", "key", "value")}
    given_values[name][0, 4, 1] = bad
    with pytest.raises(InputError, match=f"{name} holds 1 NaN or infinite"):
        MultiHeadAttention(8, 2)(**given_values, mask=causal_mask(5), need_weights=need_weights)
    frames = given_values[name]
    with pytest.raises(InputError, match="query holds 1 NaN or infinite"):
        MultiHeadAttention(8, 2)(frames, frames, frames)


CACHE = torch.randn(2, 2, 3, 4)
NONE = torch.randn(2, 0, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": NONE, "value": NONE}, "at least one key was wanted"),
        ({"cache": (CACHE, CACHE[:, :, :2])}, r"the cache has shapes .*as many keys and values were"),
        ({"cache": (CACHE[:1], CACHE[:1])}, r"the cache has shapes"),
        ({"cache": (CACHE[:, :1], CACHE[:, :1])}, r"the cache has shapes"),
        ({"cache": (CACHE[..., :3], CACHE[..., :3])}, r"the cache has shapes"),
        ({"cache": CACHE[0]}, "the cache has shapes"),
        ({"cache": (CACHE.double(), CACHE.double())}, "cache has dtype torch.float64; torch.float32 was wanted"),
        ({"positions": torch.arange(5)}, r"positions has shape \(5,\); \(1 or 2, 5\) was wanted"),
        ({"positions": torch.arange(4)[None]}, r"positions has shape \(1, 4\); \(1 or 2, 5\)"),
        ({"positions": torch.zeros(3, 5).long()}, r"positions has shape \(3, 5\)"),
        ({"positions": torch.zeros(1, 5)}, "positions has dtype torch.float32; whole numbers"),
        ({"cache": (CACHE, CACHE), "positions": torch.arange(5)[None]}, r"\(1, 5\); \(1 or 2, 8\) was wanted"),
        ({"query": torch.randn(2, 5, 8).double()}, "query has dtype torch.float64; torch.float32 was wanted"),
        ({"value": torch.randn(2, 5, 8).double()}, "value has dtype torch.float64; torch.float32 was wanted"),
    ],
)
def test_many_heads_refuse_caches_and_positions(change: dict[str, Any], message: str) -> None:
    frames = torch.randn(2, 5, 8)
    with pytest.raises(InputError, match=message):
        multi_head("rotary").float()(**({"query": frames, "key": frames, "value": frames} | change))


@pytest.mark.parametrize("kind", ["rotary", "relative"])
def test_queries_stand_at_the_last_keys(kind: str) -> None:
    frames = torch.randn(2, 5, 8).double()
    with pytest.raises(InputError, match="5 queries came for 4 keys"):
        multi_head(kind).double()(frames, frames[:, :4], frames[:, :4])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_size": 0}, "key_size is 0; at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0; 0 <= dropout < 1"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"positions": RotaryPositions(8)}, "positions of 8 features came; 4 were wanted"),
        ({"positions": RelativePositions(2, 3)}, "positions of 2 features came; 4 were wanted"),
    ],
)
def test_settings_of_many_heads_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MultiHeadAttention(8, 2, **settings)


def test_sizes_of_one_query_that_cannot_be() -> None:
    for make in (lambda: DotAttention(0), lambda: AdditiveAttention(4, 4, 0), lambda: AdditiveAttention(4, 0, 4)):
        with pytest.raises(InputError, match="is 0; at least 1 was wanted"):
            make()
    with pytest.raises(InputError, match="filters is 0; at least 1"):
        LocationAwareAttention(4, 4, 5, filters=0)


def test_autocast_attends() -> None:
    frames = torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        output, _, cache = MultiHeadAttention(8, 2)(frames, frames, frames)
        MultiHeadAttention(8, 2)(frames, frames, frames, cache=cache)
    assert output.isfinite().all()
