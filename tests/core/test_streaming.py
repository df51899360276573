"""The stream = the whole utterance under ``chunk_mask``, for every cut; bounded state; the look-ahead that it says."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voiceseq.core.conformer import ConformerConfig, ConformerEncoder
from voiceseq.core.masks import chunk_mask
from voiceseq.core.streaming import StreamingEncoder
from voiceseq.core.transformer import POSITIONS, TransformerConfig, TransformerEncoder
from voiceseq.errors import ConfigError, InputError

SHAPES = [(1, 0, 0), (4, 2, 0), (4, 1, 3), (3, 2, 7), (5, 0, 5), (1, 5, 2)]
"""(chunk, left_chunks, lookahead): look-ahead shorter than, equal to and longer than a chunk."""


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(4)


def streaming(kind: str, shape: tuple[int, int, int] = (4, 1, 3), **changes: Any) -> StreamingEncoder:
    small = {
        "size": 8,
        "heads": 2,
        "layers": 3,
        "feed_forward": 12,
        "dropout": 0.0,
        "max_length": 70,
        "max_distance": 5,
    }
    generator = torch.Generator().manual_seed(6)
    if kind == "conformer":
        encoder = ConformerEncoder(ConformerConfig(**{**small, "kernel": 4, "causal": True, **changes})).double()
    else:
        encoder = TransformerEncoder(TransformerConfig(**{**small, **changes})).double()
    for parameter in encoder.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator).double() * 0.2)
    return StreamingEncoder(encoder, *shape)


def run(stream: StreamingEncoder, frames: Tensor, sizes: list[int], lengths: Tensor | None = None) -> Tensor:
    """Feed pieces of the given sizes (the last one takes the rest), then flush."""
    state, outputs, at = None, [], 0
    for size in [*sizes, frames.shape[1]]:
        piece = frames[:, at : at + size]
        if piece.shape[1]:
            own = None if lengths is None else (lengths - at).clamp(0, piece.shape[1])
            output, state = stream(piece, state, own)
            outputs.append(output)
        at += size
    return torch.cat([*outputs, stream.flush(state)], 1)


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_any_cut_is_the_whole(kind: str, shape: tuple[int, int, int], size: int) -> None:
    stream = streaming(kind, shape)
    frames = torch.randn(2, 61, 8).double()
    chunk, left, lookahead = shape
    whole = stream.encoder(frames, mask=chunk_mask(61, chunk, left, lookahead))
    torch.testing.assert_close(run(stream, frames, [size] * (61 // size)), whole)
    torch.testing.assert_close(stream.whole(frames), whole)


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_every_kind_of_positions(kind: str, positions: str) -> None:
    stream = streaming(kind, positions=positions)
    frames = torch.randn(2, 30, 8).double()
    torch.testing.assert_close(run(stream, frames, [7] * 5), stream.whole(frames))


def test_post_norm_streams_too() -> None:
    stream = streaming("transformer", norm="post")
    frames = torch.randn(2, 30, 8).double()
    torch.testing.assert_close(run(stream, frames, [7] * 5), stream.whole(frames))


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_cuts_of_a_padded_batch(kind: str, data: st.DataObject) -> None:
    """Rows that end at different times: each is as if it were alone, and zeros come after its end."""
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 6)))
    stream = streaming(kind, shape, layers=2)
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)))
    time = int(lengths.max())
    sizes = [data.draw(st.integers(1, 25))]
    sizes += data.draw(st.lists(st.integers(0, 9), max_size=6))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    frames = torch.randn(len(lengths), time, 8).double()
    outputs = run(stream, frames, sizes, lengths)
    torch.testing.assert_close(outputs, stream.whole(frames, lengths))
    for row, length in enumerate(lengths.tolist()):
        alone = run(stream, frames[row : row + 1, :length], [2] * length)
        torch.testing.assert_close(outputs[row, :length], alone[0])
        assert not outputs[row, length:].any()


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
@pytest.mark.parametrize("shape", SHAPES)
def test_lookahead_is_what_is_waited_for(kind: str, shape: tuple[int, int, int]) -> None:
    stream = streaming(kind, shape)
    state, answered, longest = None, 0, 0
    for came, frame in enumerate(torch.randn(60, 1, 1, 8).double(), 1):
        output, state = stream(frame, state)
        for _ in range(output.shape[1]):
            longest = max(longest, came - 1 - answered)
            answered += 1
        assert came - answered <= stream.lookahead
    assert longest == stream.lookahead
    assert answered + stream.flush(state).shape[1] == 60


@pytest.mark.parametrize("shape", [(4, 2, 0), (4, 1, 3), (3, 2, 7)])
def test_an_answer_depends_on_no_frame_beyond_the_lookahead(shape: tuple[int, int, int]) -> None:
    stream = streaming("transformer", shape)
    frames = torch.randn(1, 60, 8).double().requires_grad_()
    chunk = shape[0]
    first = 20 // chunk * chunk
    (used,) = torch.autograd.grad(stream.whole(frames)[0, first].sum(), frames)
    seen = used[0].abs().sum(-1).nonzero()[:, 0]
    assert int(seen.max()) == first + stream.lookahead
    assert int(seen.min()) == max(0, first - 3 * shape[1] * chunk)  # three blocks, each looking left_chunks back


def numbers(state: Any) -> int:
    return state.numel() if isinstance(state, Tensor) else sum(numbers(part) for part in state)


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
def test_state_does_not_grow(kind: str) -> None:
    stream = streaming(kind, (4, 2, 3), positions="rotary")
    state, sizes = None, []
    with torch.no_grad():
        for _ in range(60):
            _, state = stream(torch.randn(1, 4, 8).double(), state)
            sizes.append(numbers(state))
    assert max(sizes[10:]) == sizes[10]
    assert sizes[-1] == sizes[10]


def test_state_is_batch_first_and_old_ones_can_be_used_again() -> None:
    stream = streaming("conformer")
    frames = torch.randn(3, 20, 8).double()

    def select(state: Any) -> Any:
        return state[[2, 0]] if isinstance(state, Tensor) else tuple(select(part) for part in state)

    _, state = stream(frames[:, :9])
    together, _ = stream(frames[:, 9:], state)
    stream(torch.randn(3, 5, 8).double(), state)
    chosen, _ = stream(frames[[2, 0], 9:], select(state))
    torch.testing.assert_close(chosen, together[[2, 0]])


def test_gradients_flow_through_the_stream() -> None:
    stream = streaming("conformer", (2, 1, 1), size=4, layers=1, feed_forward=4)
    frames = torch.randn(1, 5, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda frames: run(stream, frames, [2, 1]), (frames,))


def test_a_running_stream_can_be_exported() -> None:
    class Step(torch.nn.Module):
        def __init__(self, stream: StreamingEncoder) -> None:
            super().__init__()
            self.stream = stream

        def forward(self, frames: Tensor, state: Any) -> Any:
            return self.stream(frames, state)

    stream = streaming("conformer", (2, 1, 1), layers=2).eval()
    pieces, state = torch.randn(12, 1, 2, 8).double(), None
    for piece in pieces[:8]:
        _, state = stream(piece, state)
    exported = torch.export.export(Step(stream), (pieces[8], state)).module()
    same = state
    for piece in pieces[8:]:
        expected, state = stream(piece, state)
        output, same = exported(piece, same)
        torch.testing.assert_close(output, expected)


def test_settings_that_cannot_be() -> None:
    encoder = TransformerEncoder(TransformerConfig(8, 2, 1, 8))
    with pytest.raises(ConfigError, match="chunk is 0; at least 1"):
        StreamingEncoder(encoder, 0, 1)
    with pytest.raises(ConfigError, match="left_chunks is -1; at least 0"):
        StreamingEncoder(encoder, 2, -1)
    with pytest.raises(ConfigError, match="lookahead is -2; at least 0"):
        StreamingEncoder(encoder, 2, 1, -2)
    with pytest.raises(ConfigError, match="build it with causal=True"):
        StreamingEncoder(ConformerEncoder(ConformerConfig(8, 2, 1, 8)), 2, 1)


def test_refuses() -> None:
    stream = streaming("transformer")
    frames = torch.randn(2, 5, 8).double()
    _, state = stream(frames, lengths=torch.tensor([5, 3]))
    with pytest.raises(InputError, match="row 1 goes on after its end at frame 3; give it length 0"):
        stream(frames, state)
    with pytest.raises(InputError, match=r"lengths\[0\] is 6 but the batch has only 5"):
        stream(frames, state, torch.tensor([6, 0]))
    with pytest.raises(InputError, match=r"lengths\[1\] is 0"):
        stream(frames, lengths=torch.tensor([5, 0]))
    with pytest.raises(InputError, match=r"frames has shape \(2, 5, 7\)"):
        stream(frames[..., :7])
    with pytest.raises(InputError, match="frames holds 80 NaN"):
        stream(frames * torch.nan, state)
    with pytest.raises(InputError, match="position 70 was reached but only 70 are learned"):
        streaming("transformer", positions="learned")(torch.randn(1, 71, 8).double())


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
def test_refuses_a_state_that_is_not_its_own(kind: str) -> None:
    stream = streaming(kind)
    frames = torch.randn(2, 5, 8).double()
    _, state = stream(frames)
    seen, blocks = state
    _, one_row = stream(frames[:1])
    wrong = {
        "another batch": one_row,
        "less deep": (seen, blocks[:1]),
        "deeper": (seen, blocks + blocks[:1]),
        "rows that do not agree": (seen[:1], blocks),
        "a block of another batch": (seen, (blocks[0], *one_row[1][1:])),
        "no tuple": [*state],
        "other heads": streaming(kind, heads=1)(frames)[1],
        "half a block": (seen, tuple(block[:3] for block in blocks)),
    }
    for bad in wrong.values():
        with pytest.raises(InputError, match=r"the state .* was wanted: pass on what the last call returned"):
            stream(frames, bad)
    with pytest.raises(InputError, match=r"lengths\[0\] is -1"):
        stream(frames, state, torch.tensor([-1, 5]))
    with pytest.raises(InputError, match=r"frames has dtype torch.float32; torch.float64 was wanted"):
        stream(frames.float(), state)
    with pytest.raises(InputError, match=r"the state has dtype torch.float64; torch.float32 was wanted"):
        stream.float()(frames.float(), state)


def test_flush_wants_a_stream_that_has_begun() -> None:
    stream = streaming("transformer")
    with pytest.raises(InputError, match="no state came; flush wants what the last call returned"):
        stream.flush(None)
    _, (seen, blocks) = stream(torch.randn(2, 5, 8).double())
    with pytest.raises(InputError, match=r"the state .* was wanted"):
        stream.flush((seen, blocks[:1]))
