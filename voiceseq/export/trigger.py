"""A wake-word detector as one ONNX graph, from raw samples to logits, with its whole state in and out.

Inputs are ``samples (n,)``, any number of them, none included, and the state; outputs are ``logits (frames, words)`` of
the frames that are complete now, and the state for the next call: the input ``x`` comes out as ``x_next``. A stream
begins with zeros of the shapes that ``start`` says. The state is

    held         samples that no frame has used up
    convolution  rows that a coming frame needs
    strided      the same of the convolution that makes one frame of several
    backbone     (layers, 1, size) of recurrent layers, or all rows that residual convolutions keep, (rows, size)
    head0, ...   (layers, 1, size) of each trained head
    alpha        forward sums of the spellings (`core.spotting`) as plain probabilities, 64 bits
    recent       what the phones said of the last frames

Differences to the network in torch, each of which gives the same numbers: the Fourier transform is a matrix product;
forward sums are probabilities and not their logarithms, since in 64 bits they do not run out of range; a Scan goes over
the frames for those sums alone, four operators a frame. On small chunks most time goes into the number of operators
and not into their arithmetic, which is why there are few.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from voiceseq.export.graph import Graph
from voiceseq.export.stream import STRIDED, StreamGraph, last_rows, numbers, residual, windows
from voiceseq.inference.lean import LEVEL, SPREAD, Gru, Head, LeanNetwork, Residual
from voiceseq.inference.lean_opinion import LEAST, RECENT, Opinions

Array = NDArray[np.float32]
F = np.float32
# Stands for "no path": far below what counts (LEAST for each phone), far above the numbers that slow processors down.
NOTHING = 1e-280


class TriggerGraph(StreamGraph):
    """``words``: the logits' order."""

    def __init__(self, network: LeanNetwork, quantize: bool) -> None:
        super().__init__(quantize)
        self.words = tuple(word for head in network.heads for word in head.words)
        samples = self.graph.input("samples", (None,))
        front = network.front

        def body(graph: Graph, held: str, frames: str, count: str) -> str:
            return self._network(graph, held, frames, count, network)

        logits = self._if_frames_are_complete(samples, front.features, front.convolutions[-1], len(self.words), body)
        self._finish("logits", logits, (None, len(self.words)))

    def _network(self, graph: Graph, held: str, frames: str, count: str, network: LeanNetwork) -> str:
        """``frames`` of the spectrogram and ``count`` of the network are complete."""
        front, every = network.front, numbers(graph, frames)
        x = self._features(graph, held, every, frames, front.features, LEVEL)
        scale = 1 / SPREAD  # of the spectrogram, which goes into the first convolution's weights
        every_one = numbers(graph, count)
        for layer in front.convolutions[:-1]:
            x, scale = self._convolution(graph, x, "convolution", layer, every, scale), 1.0
        x = self._convolution(graph, x, STRIDED, front.convolutions[-1], every_one, scale)
        if front.body is not None and front.narrow is not None:
            if isinstance(front.body, Residual):
                x = self._residual(graph, x, "backbone", front.body, every_one)
            else:
                x = self._recurrent(graph, x, "backbone", front.body)
            x = graph.add("Tanh", graph.dense(x, front.narrow[0][0], graph.constant(front.narrow[1][0])))
        return self._votes(graph, x, every_one, network)

    def _recurrent(self, graph: Graph, x: str, name: str, layers: Gru) -> str:
        """``(time, size)`` -> the same shape."""
        size = layers.cells[0][2].shape[1]
        state = self._state(name, [len(layers.cells), 1, size])
        x = graph.add("Unsqueeze", x, graph.constant([1]))  # the batch
        last = []
        one = len(layers.cells) == 1
        for number, h in enumerate([state] if one else graph.several("Split", len(layers.cells), state, axis=0)):
            settings = {"hidden_size": size, "linear_before_reset": 1}
            y, h = graph.several("GRU", 2, x, *gru_weights(graph, layers.cells[number]), "", h, **settings)
            y = graph.add("Squeeze", y, graph.constant([1]))
            x = graph.add("Add", graph.norm(y, *(term[0] for term in layers.norms[number])), x) if layers.norms else y
            last.append(h)
        self._next[name] = last[0] if one else graph.add("Concat", *last, axis=0)
        return graph.add("Squeeze", x, graph.constant([1]))

    def _residual(self, graph: Graph, x: str, name: str, layers: Residual, every: str) -> str:
        """``(time, size)`` -> the same shape."""
        x, self._next[name] = residual(graph, x, layers, every, self._state(name, [sum(layers.contexts), layers.size]))
        return x

    # --- what is said of the words -----------------------------------------------------------------------------------

    def _votes(self, graph: Graph, frames: str, numbers: str, network: LeanNetwork) -> str:
        """``(time, words)``: the sum of what each head and the phones say."""
        heads = [head for head in network.heads if head.output[0].any()]  # a head of phones has nothing else to say
        bias, opinions = np.zeros(len(self.words), F), network.opinions
        for head in heads:
            bias[self._columns(head.words)] += head.output[1][0]
        if opinions is not None:
            bias[self._columns(opinions.words)] += opinions.slope * F(LEAST) + opinions.offset
        total = graph.constant(bias)
        for number, head in enumerate(heads):
            weight = np.zeros((head.output[0].shape[1], len(self.words)), F)
            weight[:, self._columns(head.words)] = head.output[0][0]
            total = graph.dense(self._head(graph, frames, f"head{number}", head), weight, total)
        if opinions is None or network.phones is None:
            return total
        weight = np.zeros((len(opinions.words), len(self.words)), F)
        weight[np.arange(len(opinions.words)), self._columns(opinions.words)] = opinions.slope
        best = self._opinion(graph, frames, numbers, network.phones, opinions)
        return graph.add("Gemm", best, graph.constant(weight), total)

    def _columns(self, words: Sequence[str]) -> list[int]:
        return [self.words.index(word) for word in words]

    def _head(self, graph: Graph, frames: str, name: str, head: Head) -> str:
        x = graph.dense(frames, head.input[0][0], graph.constant(head.input[1][0]))
        x = graph.add("Relu", graph.norm(x, head.norm[0][0], head.norm[1][0]))
        return self._recurrent(graph, x, name, Gru(head.cells))

    def _opinion(self, graph: Graph, frames: str, numbers: str, phones: tuple[Array, Array], opinions: Opinions) -> str:
        """``(time, words)``: the best score of the last frames, less ``LEAST``: its state, too, begins with zeros."""
        symbols = graph.add("Softmax", graph.dense(frames, phones[0][0], graph.constant(phones[1][0])), axis=-1)
        scores = self._best_spelling(graph, self._forward_sums(graph, symbols, opinions), opinions)
        above = graph.add("Relu", graph.add("Sub", scores, graph.constant(LEAST, F)))
        recent = self._state("recent", [RECENT - 1, len(opinions.words)])
        seen = graph.add("Concat", recent, above, axis=0)
        self._next["recent"] = last_rows(graph, seen, RECENT - 1)
        return graph.add("ReduceMax", windows(graph, seen, numbers, RECENT, 1), axes=[1], keepdims=0)

    def _forward_sums(self, graph: Graph, symbols: str, opinions: Opinions) -> str:
        """``(time, states)``: alpha[t, s] = p[t, s] * (alpha[t-1, s] + alpha[t-1, s-1] + alpha[t-1, s-2])."""
        labels, sources = paths(opinions)
        emitted = graph.add("Gather", graph.add("Cast", symbols, to=TensorProto.DOUBLE), graph.constant(labels), axis=1)
        alpha = self._state("alpha", [len(labels)], dtype=np.float64)
        body, size = graph.inner(), [len(labels)]
        before, now = body.input("before", size, np.float64), body.input("now", size, np.float64)
        known = body.add("Concat", before, graph.constant([NOTHING, 1.0]), axis=0)
        came = body.add(
            "ReduceSum", body.add("Gather", known, graph.constant(sources)), graph.constant([0]), keepdims=0
        )
        after = body.output("after", body.add("Mul", came, now), size, np.float64)
        body.output("kept", after, size, np.float64)
        settings = {"body": body.proto("frame"), "num_scan_inputs": 1}
        self._next["alpha"], sums = graph.several("Scan", 2, alpha, emitted, **settings)
        return sums

    def _best_spelling(self, graph: Graph, sums: str, opinions: Opinions) -> str:
        """``(time, states)`` -> ``(time, words)``, the mean log-probability of a phone."""
        bounds = [*opinions.firsts, len(opinions.last)]
        most = int(np.diff(bounds).max())
        ends = np.cumsum(opinions.last + 1) - 1
        # As many spellings for each word, the last one being repeated.
        table = np.array([np.arange(first, first + most).clip(max=end - 1) for first, end in pairwise(bounds)])
        log = graph.add("Log", graph.add("Gather", sums, graph.constant(ends[table]), axis=1))
        scores = graph.add("Cast", log, to=TensorProto.FLOAT)
        mean = graph.add("Div", scores, graph.constant(opinions.count[table], F))
        return graph.add("ReduceMax", mean, axes=[2], keepdims=0)


def gru_weights(graph: Graph, cell: tuple[Array, ...]) -> list[str]:
    """Input weight, recurrent weight and both biases as ONNX's GRU wants them: update, reset, candidate."""
    weight, bias, recurrent, recurrent_bias = (one[0] for one in cell)
    size = recurrent.shape[0]
    order = np.r_[size : 2 * size, 0:size, 2 * size : 3 * size]
    matrices = [graph.matrix(one.T[order][None], 2) for one in (weight, recurrent)]
    return [*matrices, graph.constant(np.concatenate((bias[order], recurrent_bias[order]))[None])]


def paths(opinions: Opinions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All spellings' states in a row: the symbol of each ``(states,)``, and where its paths come from ``(3, states)``.

    A path comes from the state itself, the one before and, over a blank between different phones, the one before that.
    Behind the states stand two more values: nothing (where no path comes from) and 1 (where a spelling is entered).
    """
    total = int((opinions.last + 1).sum())
    labels: list[int] = []
    sources: list[tuple[int, int, int]] = []
    for row, shut, last in zip(opinions.labels, opinions.shut, opinions.last, strict=True):
        for state in range(last + 1):
            here = len(labels)
            sources.append((here, here - 1 if state else total + 1, total if shut[state] else here - 2))
            labels.append(row[state])
    return np.array(labels), np.array(sources).T
