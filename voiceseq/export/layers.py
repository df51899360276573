"""Layers of the core as nodes of a graph: each takes torch's module and frames ``(time, features)``, one recording.

What a layer cannot be written as raises BundleError with the layer's name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from voiceseq.core.attention import MultiHeadAttention
from voiceseq.core.conformer import ConformerBlock, ConformerConvolution
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.transformer import AttentionBlock, Encoder, EncoderBlock, FeedForward, Residual
from voiceseq.errors import BundleError
from voiceseq.export.graph import Graph
from voiceseq.export.stream import END, last_rows, numbers, windows

F = np.float32
NEVER = -1e30  # a score that softmax makes nothing of
# Torch's gates in the order of ONNX: LSTM i f g o -> i o f g; GRU r z n -> z r n.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "TanhRNN": (0,), "ReluRNN": (0,)}
OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {"LSTM": ("LSTM", {}), "GRU": ("GRU", {"linear_before_reset": 1})}
OPERATORS |= {"TanhRNN": ("RNN", {"activations": ["Tanh"]}), "ReluRNN": ("RNN", {"activations": ["Relu"]})}


def array(tensor: Any) -> NDArray[Any]:
    return np.asarray(tensor.detach().float().numpy(), F)


def linear(graph: Graph, x: str, layer: Any) -> str:
    bias = graph.constant(np.zeros(layer.out_features, F) if layer.bias is None else array(layer.bias))
    return graph.dense(x, array(layer.weight).T, bias)


def norm(graph: Graph, x: str, layer: Any) -> str:
    """A layer norm, or nothing."""
    return graph.norm(x, array(layer.weight), array(layer.bias)) if hasattr(layer, "weight") else x


def activation(graph: Graph, x: str, name: str) -> str:
    """``ReLU``, ``SiLU`` or ``GELU`` (the exact one: opset 17 has no operator for it)."""
    if name == "ReLU":
        return graph.add("Relu", x)
    if name == "SiLU":
        return graph.add("Mul", x, graph.add("Sigmoid", x))
    turned = graph.add("Erf", graph.add("Mul", x, graph.constant(math.sqrt(0.5), F)))
    half = graph.add("Mul", x, graph.constant(0.5, F))
    return graph.add("Mul", half, graph.add("Add", turned, graph.constant(1.0, F)))


# --- recurrent -------------------------------------------------------------------------------------------------------


def recurrent(graph: Graph, x: str, network: Recurrent, states: Sequence[Sequence[str]] = ()) -> tuple[str, list[Any]]:
    """``(time, inputs)`` -> ``(time, outputs)``, and the states after it; ``states``: of each layer, ``(1, 1, size)``.

    At least one frame is wanted. Raises BundleError for a cell that ONNX does not have.
    """
    after = []
    size = network.input_size
    for layer in range(network.layers):
        cells = list(network.cells[layer * network.directions : (layer + 1) * network.directions])
        y, last = _cells(graph, x, cells, states[layer] if states else ())
        if network.norms is not None:
            y = norm(graph, y, network.norms[layer])
        x = graph.add("Add", y, x) if network.residual and size == network.output_size else y
        size = network.output_size
        after.append(last)
    return x, after


def _cells(graph: Graph, x: str, cells: Sequence[Any], state: Sequence[str]) -> tuple[str, list[str]]:
    """One layer, both directions if there are two cells."""
    kind = type(cells[0]).__name__
    if kind not in OPERATORS:
        raise BundleError(f"the cell {kind} has no operator in ONNX; lstm, gru, rnn_tanh or rnn_relu was wanted")
    operator, settings = OPERATORS[kind]
    weights = [_gates(array(getattr(cell, name)), kind) for name in ("weight_ih", "weight_hh") for cell in cells]
    biases = [
        np.concatenate([_gates(array(getattr(cell, name)), kind) for name in ("bias_ih", "bias_hh")]) for cell in cells
    ]
    count, size = len(cells), cells[0].hidden_size
    matrices = [graph.matrix(np.stack(weights[at : at + count]), 2) for at in (0, count)]
    settings = dict(settings) | {"hidden_size": size, "direction": "bidirectional" if count == 2 else "forward"}
    if count == 2 and "activations" in settings:
        settings["activations"] = settings["activations"] * 2
    given = [graph.add("Unsqueeze", x, graph.constant([1])), *matrices, graph.constant(np.stack(biases))]
    if state:
        given += ["", *state]
    y, *last = graph.several(operator, 3 if kind == "LSTM" else 2, *given, **settings)
    return graph.add("Reshape", y, graph.constant([-1, count * size])), last


def _gates(values: NDArray[Any], kind: str) -> NDArray[Any]:
    parts = np.split(values, len(GATES[kind]))
    return np.concatenate([parts[gate] for gate in GATES[kind]])


def pairs(graph: Graph, x: str, width: int) -> str:
    """``(time, width)`` -> ``(ceil(time / 2), 2 * width)``: neighbours side by side, zeros beside an odd one."""
    odd = graph.add("Mod", graph.add("Shape", x, start=0, end=1), graph.constant([2]))
    row = graph.add("Slice", graph.constant(np.zeros((1, width), F)), graph.constant([0]), odd, graph.constant([0]))
    return graph.add("Reshape", graph.add("Concat", x, row, axis=0), graph.constant([-1, 2 * width]))


# --- attention -------------------------------------------------------------------------------------------------------


@dataclass
class Past:
    """What a block of a stream remembers: names of ``keys`` and ``values (head, time, head size)`` and the context of
    its convolution ``(kernel - 1, size)``; ``after`` gets the names of what it remembers next."""

    keys: str
    values: str
    context: str
    after: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True)
class Chunks:
    """A query sees its own chunk and ``left`` before it."""

    size: int
    left: int


def stack(
    graph: Graph, x: str, encoder: Encoder, chunks: Chunks | None = None, pasts: Sequence[Past] | None = None
) -> str:
    """A transformer or conformer: ``(time, size)`` -> the same shape. Raises BundleError for what it cannot be."""
    table = type(encoder.positions.table).__name__
    if table == "SinusoidalPositions":
        x = graph.add("Add", x, sinusoids(graph, x, encoder.size))
    elif table != "NoneType":
        raise BundleError(f"the encoder's positions ({table}) have no place in a graph; sinusoidal ones were wanted")
    for number, block in enumerate(encoder.blocks):
        x = _block(graph, x, block, chunks, None if pasts is None else pasts[number])  # type: ignore[arg-type]
    return norm(graph, x, encoder.norm)


def sinusoids(graph: Graph, x: str, size: int) -> str:
    """``(time, size)``; the angle in 64 bits and within one turn, where sine and cosine of 32 are exact."""
    rates = 10_000.0 ** (-np.arange(0, size, 2) / size) / (2 * np.pi)
    time = graph.add("Cast", numbers(graph, graph.add("Shape", x, start=0, end=1)), to=TensorProto.DOUBLE)
    turns = graph.add("Mul", time, graph.constant(rates[None]))
    part = graph.add("Cast", graph.add("Sub", turns, graph.add("Floor", turns)), to=TensorProto.FLOAT)
    phase = graph.add("Unsqueeze", graph.add("Mul", part, graph.constant(2 * np.pi, F)), graph.constant([2]))
    both = graph.add("Concat", graph.add("Sin", phase), graph.add("Cos", phase), axis=2)
    return graph.add("Reshape", both, graph.constant([-1, size]))


def _block(graph: Graph, x: str, block: AttentionBlock, chunks: Chunks | None, past: Past | None) -> str:
    if isinstance(block, ConformerBlock):
        x = _around(graph, x, block.around_first, lambda y: _halved(graph, feed_forward(graph, y, block.first)))
    attend = block.attention
    x = _around(graph, x, block.around_attention, lambda y: attention(graph, y, attend, chunks, past))
    if isinstance(block, EncoderBlock):
        return _around(graph, x, block.around_feed_forward, lambda y: feed_forward(graph, y, block.feed_forward))
    assert isinstance(block, ConformerBlock)
    around, convolution = block.around_convolution, block.convolution
    x = _around(graph, x, around, lambda y: conformer_convolution(graph, y, convolution, past))
    x = _around(graph, x, block.around_second, lambda y: _halved(graph, feed_forward(graph, y, block.second)))
    return norm(graph, x, block.norm)


def _around(graph: Graph, x: str, residual: Residual, layer: Any) -> str:
    y = graph.add("Add", x, layer(norm(graph, x, residual.norm) if residual.pre else x))
    return y if residual.pre else norm(graph, y, residual.norm)


def _halved(graph: Graph, x: str) -> str:
    return graph.add("Mul", x, graph.constant(0.5, F))


def feed_forward(graph: Graph, x: str, layer: FeedForward) -> str:
    first, between, _, second = layer
    return linear(graph, activation(graph, linear(graph, x, first), type(between).__name__), second)


def attention(graph: Graph, x: str, layer: MultiHeadAttention, chunks: Chunks | None, past: Past | None) -> str:
    """Self-attention. Raises BundleError for rotary positions."""
    if layer.rotary is not None:
        raise BundleError("rotary positions have no place in a graph yet")
    size, head = layer.size, layer.size // layer.heads
    weight, bias = array(layer.key_value.weight), array(layer.key_value.bias)
    queries = _heads(graph, linear(graph, x, layer.query), layer.heads, head)
    both = [graph.dense(x, weight[at : at + size].T, graph.constant(bias[at : at + size])) for at in (0, size)]
    keys, values = (_heads(graph, one, layer.heads, head) for one in both)
    if past is not None:
        assert chunks is not None
        keys = graph.add("Concat", past.keys, keys, axis=1)
        values = graph.add("Concat", past.values, values, axis=1)
        kept = -chunks.left * chunks.size or END
        cut = (graph.constant([kept]), graph.constant([END]), graph.constant([1]))
        past.after = graph.add("Slice", keys, *cut), graph.add("Slice", values, *cut), past.after[2]
    scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=[0, 2, 1]))
    here, there = _places(graph, queries, keys)
    if layer.relative is not None:
        scores = graph.add("Add", scores, _relative(graph, queries, scores, here, there, layer.relative))
    scores = graph.add("Mul", scores, graph.constant(head**-0.5, F))
    if chunks is not None:
        scores = graph.add("Add", scores, _seen(graph, here, there, chunks))
    context = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    flat = graph.add("Reshape", graph.add("Transpose", context, perm=[1, 0, 2]), graph.constant([-1, size]))
    return linear(graph, flat, layer.output)


def _heads(graph: Graph, x: str, heads: int, size: int) -> str:
    """``(time, heads * size)`` -> ``(heads, time, size)``."""
    return graph.add("Transpose", graph.add("Reshape", x, graph.constant([-1, heads, size])), perm=[1, 0, 2])


def _places(graph: Graph, queries: str, keys: str) -> tuple[str, str]:
    """Where queries ``(time, 1)`` and keys ``(1, time)`` stand, the first key at 0; the queries are the last ones."""
    count, all_keys = (graph.add("Shape", one, start=1, end=2) for one in (queries, keys))
    there = graph.add("Transpose", numbers(graph, all_keys), perm=[1, 0])
    return graph.add("Add", numbers(graph, count), graph.add("Sub", all_keys, count)), there


def _relative(graph: Graph, queries: str, scores: str, here: str, there: str, layer: Any) -> str:
    most = layer.max_distance
    by_distance = graph.add("MatMul", queries, graph.constant(array(layer.table).T))
    distance = graph.add("Clip", graph.add("Sub", there, here), graph.constant(-most), graph.constant(most))
    place = graph.add("Add", distance, graph.constant(most))
    return graph.add("GatherElements", by_distance, graph.add("Expand", place, graph.add("Shape", scores)), axis=2)


def _seen(graph: Graph, here: str, there: str, chunks: Chunks) -> str:
    """0 where a query sees a key and NEVER elsewhere; the first key begins a chunk."""
    size = graph.constant(chunks.size)
    behind = graph.add("Sub", graph.add("Div", here, size), graph.add("Div", there, size))
    before = graph.add("GreaterOrEqual", behind, graph.constant(0))
    near = graph.add("LessOrEqual", behind, graph.constant(chunks.left))
    return graph.add("Where", graph.add("And", before, near), graph.constant(0.0, F), graph.constant(NEVER, F))


def conformer_convolution(graph: Graph, x: str, layer: ConformerConvolution, past: Past | None) -> str:
    size, kernel = layer.norm.normalized_shape[0], layer.kernel
    weight, bias = array(layer.widen.weight), array(layer.widen.bias)
    half, gate = (graph.dense(x, weight[at : at + size].T, graph.constant(bias[at : at + size])) for at in (0, size))
    gated = graph.add("Mul", half, graph.add("Sigmoid", gate))
    before = kernel - 1 if layer.causal else kernel // 2
    first = past.context if past is not None else graph.constant(np.zeros((before, size), F))
    rows = [first, gated] if layer.causal else [first, gated, graph.constant(np.zeros((kernel // 2, size), F))]
    held = graph.add("Concat", *rows, axis=0)
    if past is not None:
        past.after = *past.after[:2], last_rows(graph, held, kernel - 1)
    every = numbers(graph, graph.add("Shape", gated, start=0, end=1))
    weighed = graph.add(
        "Mul", windows(graph, held, every, kernel, 1), graph.constant(array(layer.depthwise.weight)[:, 0].T)
    )
    summed = graph.add("ReduceSum", weighed, graph.constant([1]), keepdims=0)
    filtered = graph.add("Add", summed, graph.constant(array(layer.depthwise.bias)))
    return linear(graph, activation(graph, norm(graph, filtered, layer.norm), "SiLU"), layer.mix)
