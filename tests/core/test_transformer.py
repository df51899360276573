"""Transformers against torch's own layers; padded = alone, cut = whole, cached = uncached."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from voiceseq.core.attention import MultiHeadAttention
from voiceseq.core.masks import causal_mask, chunk_mask
from voiceseq.core.transformer import (
    POSITIONS,
    DecoderBlock,
    EncoderBlock,
    TransformerConfig,
    TransformerDecoder,
    TransformerEncoder,
)
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(7)


def config(**changes: Any) -> TransformerConfig:
    small = {
        "size": 8,
        "heads": 2,
        "layers": 2,
        "feed_forward": 12,
        "dropout": 0.0,
        "max_length": 60,
        "max_distance": 4,
    }
    return TransformerConfig(**{**small, **changes})


def shaken(module: nn.Module) -> nn.Module:
    """In double precision, with no parameter at the zeros or ones that hide mistakes."""
    generator = torch.Generator().manual_seed(5)
    for parameter in module.double().parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator).double() * 0.3)
    return module


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    size = theirs.embed_dim
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key_value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, ours.key_value.bias)))
    assert theirs.in_proj_weight.shape == (3 * size, size)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_block(ours: EncoderBlock | DecoderBlock, theirs: nn.Module) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    norms = [ours.around_attention, ours.around_feed_forward]
    if isinstance(ours, DecoderBlock):
        copy_attention(ours.memory_attention, theirs.multihead_attn)
        norms.insert(1, ours.around_memory)
    for number, around in enumerate(norms, 1):
        getattr(theirs, f"norm{number}").load_state_dict(around.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward[0].state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward[3].state_dict())


# ---- against torch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_is_torchs(norm: str, activation: str, causal: bool) -> None:
    ours = shaken(TransformerEncoder(config(norm=norm, activation=activation, positions="none")))
    layers = []
    for block in ours.blocks:
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
        ).double()
        copy_block(block, layer)
        layers.append(layer)
    frames, lengths = torch.randn(3, 6, 8).double(), torch.tensor([6, 4, 1])
    mask = causal_mask(6) if causal else None
    expected = frames
    valid = torch.arange(6) < lengths[:, None]
    for layer in layers:
        expected = layer(expected, src_mask=None if mask is None else ~mask, src_key_padding_mask=~valid)
    if norm == "pre":
        expected = torch.nn.functional.layer_norm(expected, (8,), ours.norm.weight, ours.norm.bias)
    outputs = ours(frames, lengths, mask)
    torch.testing.assert_close(outputs[valid], expected[valid])
    assert (outputs[~valid] == 0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_is_torchs(norm: str) -> None:
    ours = shaken(TransformerDecoder(config(norm=norm, activation="relu", positions="none", layers=1), memory_size=8))
    theirs = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm == "pre").double()
    copy_block(ours.blocks[0], theirs)
    frames, memory = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    lengths, memory_lengths = torch.tensor([5, 3]), torch.tensor([4, 7])
    valid = torch.arange(5) < lengths[:, None]
    expected = theirs(
        frames, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~(torch.arange(7) < memory_lengths[:, None])
    )
    expected = ours.norm(expected)
    outputs, _ = ours(frames, memory, memory_lengths, lengths=lengths)
    torch.testing.assert_close(outputs[valid], expected[valid])
    assert (outputs[~valid] == 0).all()


def test_a_block_with_gradients_is_torchs() -> None:
    ours = shaken(EncoderBlock(config(activation="gelu", positions="none")))
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True).double()
    copy_block(ours, theirs)
    frames, weight = torch.randn(2, 5, 8).double(), torch.randn(2, 5, 8).double()
    for module in (ours, theirs):
        (module(frames) * weight).sum().backward()
    torch.testing.assert_close(ours.feed_forward[0].weight.grad, theirs.linear1.weight.grad)
    torch.testing.assert_close(ours.around_attention.norm.weight.grad, theirs.norm1.weight.grad)


# ---- padded = alone, cut = whole ----------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("chunked", [False, True])
def test_encoder_padded_is_alone(positions: str, norm: str, chunked: bool) -> None:
    encoder = shaken(TransformerEncoder(config(positions=positions, norm=norm)))
    frames, lengths = torch.randn(3, 9, 8).double(), torch.tensor([9, 5, 1])
    mask = chunk_mask(9, 2, 1, 1) if chunked else None
    together = encoder(frames, lengths, mask)
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(frames[row : row + 1, :length], mask=None if mask is None else mask[:length, :length])
        torch.testing.assert_close(together[row, :length], alone[0])
        assert not together[row, length:].any()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_cached_decoding_is_teacher_forcing(positions: str, norm: str, with_memory: bool, size: int) -> None:
    decoder = shaken(TransformerDecoder(config(positions=positions, norm=norm), 5 if with_memory else None))
    frames = torch.randn(2, 53, 8).double()
    memory = (torch.randn(2, 6, 5).double(), torch.tensor([6, 2])) if with_memory else ()
    whole, whole_state = decoder(frames, *memory)
    state, pieces = None, []
    for piece in frames.split(size, 1):
        output, state = decoder(piece, *(memory if state is None else ()), state=state)
        pieces.append(output)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    for kept, expected in zip(tensors(state), tensors(whole_state), strict=True):
        torch.testing.assert_close(kept, expected)


@pytest.mark.parametrize("positions", POSITIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rows_go_on_from_their_own_last_frame(positions: str, data: st.DataObject) -> None:
    """Pieces of different lengths, some empty: each row is as if it were alone and whole."""
    decoder = shaken(TransformerDecoder(config(positions=positions), memory_size=8))
    memory, memory_lengths = torch.randn(2, 4, 8).double(), torch.tensor([4, 2])
    first = data.draw(st.tuples(*[st.integers(1, 5)] * 2))
    plan = [first, *data.draw(st.lists(st.tuples(*[st.integers(0, 5)] * 2), max_size=3))]
    rows, outputs, state = ([], []), ([], []), None
    for lengths in plan:
        piece = torch.randn(2, max(1, *lengths), 8).double()
        read = (memory, memory_lengths) if state is None else (None, None)
        output, state = decoder(piece, *read, state, torch.tensor(lengths))
        for row, length in enumerate(lengths):
            rows[row].append(piece[row, :length])
            outputs[row].append(output[row, :length])
            assert not output[row, length:].any()
    for row in range(2):
        alone, _ = decoder(torch.cat(rows[row])[None], memory[row : row + 1], memory_lengths[row : row + 1])
        torch.testing.assert_close(torch.cat(outputs[row]), alone[0])


def tensors(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [found for part in state for found in tensors(part)]


def select(state: Any, index: Tensor) -> Any:
    return state.index_select(0, index) if isinstance(state, Tensor) else tuple(select(part, index) for part in state)


def test_state_rows_can_be_chosen_and_an_old_state_used_again() -> None:
    decoder = shaken(TransformerDecoder(config(), memory_size=8))
    frames, memory = torch.randn(3, 6, 8).double(), torch.randn(3, 4, 8).double()
    _, state = decoder(frames[:, :4], memory)
    one, _ = decoder(frames[:, 4:5], state=state)
    decoder(torch.randn(3, 2, 8).double(), state=state)  # another branch must leave the state as it was
    again, _ = decoder(frames[:, 4:5], state=state)
    torch.testing.assert_close(one, again)
    index = torch.tensor([2, 0, 2, 2])
    chosen, _ = decoder(frames[index, 4:5], state=select(state, index))
    torch.testing.assert_close(chosen, one[index])


def test_decoder_does_not_see_the_future() -> None:
    decoder = shaken(TransformerDecoder(config()))
    frames = torch.randn(1, 6, 8).double()
    changed = frames.clone()
    changed[:, 4:] = torch.randn(1, 2, 8).double()
    before, after = decoder(frames)[0], decoder(changed)[0]
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_memory_is_projected_once() -> None:
    decoder = shaken(TransformerDecoder(config(), memory_size=8))
    _, state = decoder(torch.randn(1, 1, 8).double(), torch.randn(1, 4, 8).double())
    _, later = decoder(torch.randn(1, 1, 8).double(), state=state)
    assert all(a is b for a, b in zip(tensors(state[2:]), tensors(later[2:]), strict=True))


def test_memory_weights_are_those_that_were_used() -> None:
    decoder = shaken(TransformerDecoder(config(), memory_size=8))
    frames, memory = torch.randn(2, 5, 8).double(), torch.randn(2, 6, 8).double()
    lengths, memory_lengths = torch.tensor([5, 2]), torch.tensor([4, 6])
    weights = decoder.memory_weights(frames, memory, memory_lengths, lengths)
    assert weights.shape == (2, 2, 2, 5, 6)
    valid = (torch.arange(5) < lengths[:, None])[:, None, None].expand(2, 2, 2, 5)
    torch.testing.assert_close(weights.sum(-1), valid.double())
    assert not weights[0, ..., 4:].any()

    # with every value but one's the same, the attention's output says how much weight that one had
    block, seen = decoder.blocks[1], {}
    original = block.memory_attention.attend

    def watch(query: Tensor, cache: Any, mask: Tensor, **options: Any) -> Any:
        keys, values = cache
        marked = torch.zeros_like(values)
        marked[:, :, 2] = 1.0
        block.memory_attention.output, kept = nn.Identity(), block.memory_attention.output
        seen["share"] = original(query, (keys, marked), mask)[0]
        block.memory_attention.output = kept
        return original(query, cache, mask, **options)

    block.memory_attention.attend = watch
    decoder(frames, memory, memory_lengths, lengths=lengths)
    share = seen["share"].unflatten(-1, (2, 4))[0, ..., 0].T
    torch.testing.assert_close(weights[0, 1, :, :, 2], share)


# ---- gradients, dropout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "positions"), [("pre", "rotary"), ("post", "relative"), ("pre", "learned")])
def test_gradients_by_finite_differences(norm: str, positions: str) -> None:
    tiny = config(size=4, feed_forward=4, layers=1, norm=norm, positions=positions, max_length=3, max_distance=1)
    encoder, decoder = shaken(TransformerEncoder(tiny)), shaken(TransformerDecoder(tiny, memory_size=4))
    source, frames = (torch.randn(2, 3, 4).double().requires_grad_() for _ in range(2))
    lengths = torch.tensor([3, 2])
    parts = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    names = [name for name, _ in parts.named_parameters()]

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = parts

        def forward(self, source: Tensor, frames: Tensor) -> Tensor:
            memory = self.parts["encoder"](source, lengths)
            first, state = self.parts["decoder"](frames[:, :2], memory, lengths)
            second, _ = self.parts["decoder"](frames[:, 2:], state=state)
            return torch.cat((first, second), 1)

    def run(source: Tensor, frames: Tensor, *parameters: Tensor) -> Tensor:
        values = {f"parts.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(both, values, (source, frames))

    both = Both()
    assert torch.autograd.gradcheck(run, (source, frames, *parts.parameters()), fast_mode=True)


def test_dropout_in_training_alone() -> None:
    encoder = TransformerEncoder(config(dropout=0.5))
    frames = torch.randn(1, 5, 8)
    assert not torch.equal(encoder(frames), encoder(frames))
    encoder.eval()
    assert torch.equal(encoder(frames), encoder(frames))


# ---- bad input ----------------------------------------------------------------------------------------------------


def test_all_mistakes_of_a_config_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig(
            size=10, heads=4, layers=0, dropout=1.5, norm="before", positions="absolute", activation="tan"
        )
    message = str(caught.value)
    for part in (
        "4 heads do not divide size 10",
        "layers is 0; at least 1",
        "0 <= dropout < 1",
        "norm is 'before'; one of pre, post",
        "positions is 'absolute'; one of sinusoidal, learned, rotary, relative, none",
        "activation is 'tan'; one of relu, gelu, silu",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("frames", "lengths", "mask", "message"),
    [
        (torch.randn(2, 5), None, None, r"frames has shape \(2, 5\); \(batch, time, 8\) was wanted"),
        (torch.randn(2, 5, 7), None, None, r"frames has shape \(2, 5, 7\)"),
        (torch.randn(2, 0, 8), None, None, "at least one row and one frame"),
        (torch.full((2, 5, 8), torch.nan), None, None, "frames holds 80 NaN"),
        (torch.randn(2, 5, 8), torch.tensor([5, 0]), None, r"lengths\[1\] is 0"),
        (torch.randn(2, 5, 8), torch.tensor([5, 6]), None, r"lengths\[1\] is 6 but the batch has only 5"),
        (torch.randn(2, 5, 8), None, causal_mask(4), r"mask has shape \(4, 4\)"),
        (torch.randn(2, 5, 8), None, causal_mask(5).float(), "mask has dtype torch.float32"),
    ],
)
def test_encoder_refuses(frames: Tensor, lengths: Tensor | None, mask: Tensor | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TransformerEncoder(config())(frames, lengths, mask)


def test_decoder_refuses() -> None:
    frames, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    alone, looking = TransformerDecoder(config()), TransformerDecoder(config(), memory_size=8)
    with pytest.raises(InputError, match="no memory came; this decoder wants one at the start"):
        looking(frames)
    with pytest.raises(InputError, match=r"a memory of shape \(2, 4, 8\) came; this decoder wants none"):
        alone(frames, memory)
    with pytest.raises(InputError, match="memory has 1 rows and frames 2"):
        looking(frames, memory[:1])
    with pytest.raises(InputError, match=r"memory has shape \(2, 4, 7\)"):
        looking(frames, memory[..., :7])
    with pytest.raises(InputError, match=r"lengths\[0\] is 0"):
        alone(frames, lengths=torch.tensor([0, 3]))
    with pytest.raises(InputError, match=r"lengths\[0\] is 4"):
        alone(frames, state=alone(frames)[1], lengths=torch.tensor([4, 3]))
    with pytest.raises(InputError, match="only 60 are learned"):
        TransformerDecoder(config(positions="learned"))(torch.randn(1, 61, 8))


def test_frames_of_another_dtype_or_kind() -> None:
    frames = torch.randn(2, 3, 8)
    for network in (TransformerEncoder(config()), TransformerDecoder(config())):
        with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
            network(frames.double())
        with pytest.raises(InputError, match="frames is a list; a tensor was wanted"):
            network(frames.tolist())
        with torch.autocast("cpu", torch.bfloat16):
            network(frames)
        network.double()(frames.double())
    with pytest.raises(InputError, match=r"memory has dtype torch.float64; torch.float32 was wanted"):
        TransformerDecoder(config(), memory_size=8)(frames, frames.double())


@pytest.mark.parametrize("with_memory", [False, True])
def test_decoder_refuses_a_state_that_is_not_its_own(with_memory: bool) -> None:
    memory_size = 8 if with_memory else None
    decoder = TransformerDecoder(config(), memory_size).eval()
    frames = torch.randn(2, 3, 8)
    memory = torch.randn(2, 4, 8) if with_memory else None
    _, state = decoder(frames, memory)
    wrong = {
        "another batch": select(state, torch.tensor([0])),
        "less deep": (state[0], state[1][:1], *state[2:]),
        "deeper": (state[0], state[1] * 2, *state[2:]),
        "other heads": TransformerDecoder(config(heads=1), memory_size).eval()(frames, memory)[1],
        "cut positions": (state[0][:, :2], *state[1:]),
        "no tuple": [*state],
        "no caches": state[:1],
    }
    if with_memory:
        wrong["no memory in it"] = state[:2]
        wrong["another memory's depth"] = (*state[:2], state[2][:1], state[3])
        wrong["another mask"] = (*state[:3], state[3][:1])
    else:
        wrong["a memory in it"] = TransformerDecoder(config(), 8).eval()(frames, torch.randn(2, 4, 8))[1]
    for bad in wrong.values():
        with pytest.raises(InputError, match=r"the state .* was wanted: pass on what the last call returned"):
            decoder(frames, state=bad)
    with pytest.raises(InputError, match=r"the state has dtype torch.float64; torch.float32 was wanted"):
        decoder(frames, state=double_floats(state))


def double_floats(state: Any) -> Any:
    if isinstance(state, tuple):
        return tuple(double_floats(part) for part in state)
    return state.double() if state.is_floating_point() else state


def test_decoder_reads_its_memory_once() -> None:
    decoder = TransformerDecoder(config(), memory_size=8)
    frames, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    _, state = decoder(frames, memory)
    with pytest.raises(InputError, match="a memory came again with a running state"):
        decoder(frames, memory, state=state)
    with pytest.raises(InputError, match="a memory came again with a running state"):
        decoder(frames, memory_lengths=torch.tensor([4, 4]), state=state)
    with pytest.raises(InputError, match="memory_lengths came without a memory"):
        TransformerDecoder(config())(frames, memory_lengths=torch.tensor([4, 4]))


def test_decoder_refuses_negative_lengths() -> None:
    decoder = TransformerDecoder(config())
    frames = torch.randn(2, 3, 8)
    with pytest.raises(InputError, match=r"lengths\[1\] is -1"):
        decoder(frames, state=decoder(frames)[1], lengths=torch.tensor([3, -1]))


def test_frames_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks inside do not check again what the stack has checked."""
    looked = []

    def watch(values: Tensor, name: str = "frames", *_: str) -> None:
        looked.append(name)

    for module in ("masks", "attention", "transformer"):
        monkeypatch.setattr(f"voiceseq.core.{module}.check_finite", watch, raising=False)
    frames = torch.randn(2, 3, 8)
    TransformerEncoder(config(layers=3))(frames)
    assert looked == ["frames"]
    TransformerDecoder(config(layers=3), 8)(frames, frames)
    assert looked == ["frames", "frames", "memory"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_memory_has_features(size: int) -> None:
    with pytest.raises(ConfigError, match=f"key_size is {size}"):
        TransformerDecoder(config(), memory_size=size)
