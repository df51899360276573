"""What graphs of a stream share: a state that goes in and comes out, frames of sound, causal convolutions.

Inputs are ``samples (n,)``, any number of them, none included, and the state; the input ``x`` of the state comes out as
``x_next``. A stream begins with zeros of the shapes that ``start`` says. Of the state, this file makes

    held         samples that no frame has used up
    convolution  rows that a coming frame needs
    strided      the same of the convolution that makes one frame of several

The Fourier transform is a matrix product. On small chunks most time goes into the number of operators and not into
their arithmetic, which is why there are few.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from voiceseq.export.graph import Graph, Shape
from voiceseq.inference.lean import Convolution, LogMel, Residual

Array = NDArray[np.float32]
F = np.float32
END = np.iinfo(np.int64).max
STRIDED = "strided"


class StreamGraph:
    """``start``: name of each part of the state -> its shape at the start of a stream."""

    def __init__(self, quantize: bool) -> None:
        self.graph = Graph(quantize)
        self.start: dict[str, list[int]] = {}
        self._shapes: dict[str, tuple[Shape, type]] = {}
        self._next: dict[str, str] = {}

    def _finish(self, name: str, value: str, shape: Shape) -> None:
        """The outputs of the whole graph: what it is for, then the state."""
        self.graph.output(name, value, shape)
        for part in self.start:
            self.graph.output(f"{part}_next", self._next[part], *self._shapes[part])

    def _state(self, name: str, start: Sequence[int], shape: Shape | None = None, dtype: type = np.float32) -> str:
        self.start[name], self._shapes[name] = list(start), (shape or start, dtype)
        return self.graph.input(name, shape or start, dtype)

    def _if(self, label: str, condition: str, width: int, body: Callable[[Graph], str], kept: Mapping[str, str]) -> str:
        """What ``body`` makes, ``(frames, width)``, or no frames: recurrent layers cannot run over none at all.

        The state that belongs to it stays as it is, or as ``kept`` says, where the condition does not hold.
        """
        graph, then, otherwise, shape = self.graph, self.graph.inner(), self.graph.inner(), (None, width)
        settled = set(self._next)
        then.output(f"{label}_then", body(then), shape)
        otherwise.output(f"{label}_else", graph.constant(np.zeros((0, width), F)), shape)
        names = [name for name in self.start if name not in settled]
        for name in names:
            then.output(f"{name}_then", self._next[name], *self._shapes[name])
            otherwise.output(f"{name}_else", kept.get(name, name), *self._shapes[name])
        branches = {"then_branch": then.proto(f"{label}_some"), "else_branch": otherwise.proto(f"{label}_none")}
        value, *after = graph.several("If", 1 + len(names), condition, **branches)
        self._next |= dict(zip(names, after, strict=True))
        return value

    def _if_frames_are_complete(
        self,
        samples: str,
        features: LogMel,
        last: Convolution,
        width: int,
        body: Callable[[Graph, str, str, str], str],
        label: str = "logits",
    ) -> str:
        """``body(graph, held, frames, count)``: so many frames of the spectrogram and of the network are complete."""
        graph = self.graph
        held = graph.add("Concat", self._state("held", [0], [None]), samples, axis=0)
        frames, count = ready(graph, held, self._context(last, STRIDED), features, last)
        some = graph.add("Greater", count, graph.constant([0]))
        return self._if(label, some, width, lambda inner: body(inner, held, frames, count), {"held": held})

    def _features(self, graph: Graph, held: str, every: str, count: str, features: LogMel, level: float = 0.0) -> str:
        """Samples ``(n,)`` -> log-mel less ``level``, ``(frames, mels)``; the rest of the samples waits."""
        used = graph.add("Mul", count, graph.constant([features.hop]))
        self._next["held"] = graph.add("Slice", held, used, graph.constant([END]))
        return log_mel(graph, held, every, used, features, level)

    def _context(self, layer: Convolution, name: str) -> str:
        """The rows that a convolution keeps. A strided one begins with more zeros than it keeps rows later."""
        free = layer.kernel - 1 if layer.stride == 1 else None
        return self._state(name, [layer.kernel - 1, layer.inputs], [free, layer.inputs])

    def _convolution(self, graph: Graph, x: str, name: str, layer: Convolution, numbers: str, scale: float) -> str:
        """``(time, inputs)`` -> ``(time', outputs)``, with the rows before it from the state."""
        before = name if name in self.start else self._context(layer, name)
        held = graph.add("Concat", before, x, axis=0)
        self._next[name] = last_rows(graph, held, layer.kernel - layer.stride)
        return convolved(graph, held, numbers, layer, scale)


def log_mel(graph: Graph, held: str, every: str, used: str, features: LogMel, level: float = 0.0) -> str:
    """The frames with the numbers ``every``, ``(frames, mels)`` less ``level``; ``used``: their number times hop."""
    window, hop = features.window, features.hop
    # A frame is some blocks in a row, and the next one begins some blocks later: blocks are copied faster.
    block = math.gcd(window, hop)
    end = graph.add("Add", used, graph.constant([window - hop]))
    blocks = graph.add("Reshape", graph.add("Slice", held, graph.constant([0]), end), graph.constant([-1, block]))
    frames = windows(graph, blocks, every, window // block, hop // block)
    waves, filters = fourier(graph, features)
    spectrum = graph.add("MatMul", graph.add("Reshape", frames, graph.constant([-1, window])), waves)
    scale = math.exp(-level)  # log(scale * energy) = log(energy) - level
    power = graph.add("Mul", spectrum, spectrum)
    energy = graph.add("MatMul", power, graph.constant(scale * filters, F))
    return graph.add("Log", graph.add("Max", energy, graph.constant(scale * features.floor, F)))


def convolved(graph: Graph, held: str, every: str, layer: Convolution, scale: float = 1.0) -> str:
    """Rows side by side times one matrix, layer norm, ReLU; ``scale`` is that of the inputs."""
    rows = windows(graph, held, every, layer.kernel, layer.stride)
    flat = graph.add("Reshape", rows, graph.constant([-1, layer.kernel * layer.inputs]))
    y = graph.dense(flat, scale * layer.weight[0], graph.constant(layer.bias[0]))
    return graph.add("Relu", graph.norm(y, layer.gain[0], layer.shift[0]))


def residual(graph: Graph, x: str, layers: Residual, every: str, state: str) -> tuple[str, str]:
    """Residual convolutions over ``x (time, size)``, whose rows are numbered ``every``: the outputs, the next state."""
    rows = layers.contexts
    kept = graph.several("Split", len(rows), state, graph.constant(rows), axis=0) if len(rows) > 1 else [state]
    last = []
    for number, context in enumerate(kept):
        held = graph.add("Concat", context, x, axis=0)
        last.append(last_rows(graph, held, rows[number]))
        seen = windows(graph, held, every, layers.kernel, 1, int(layers.dilations[number]))
        flat = graph.add("Reshape", seen, graph.constant([-1, layers.kernel * layers.size]))
        weight = layers.weight[number].reshape(-1, layers.size)
        y = graph.dense(flat, weight, graph.constant(layers.bias[number]))
        x = graph.add("Add", x, graph.add("Relu", graph.norm(y, layers.gain[number], layers.shift[number])))
    after = graph.add("Concat", *last, axis=0) if len(last) > 1 else last[0]
    return graph.norm(x, *(term[0] for term in layers.last)), after


def ready(graph: Graph, held: str, rows: str, features: LogMel, last: Convolution) -> tuple[str, str]:
    """How many frames of the spectrogram are used by the frames of the network that are complete, and how many these
    are (none where that is 0 or less), each ``(1,)``. ``rows`` are what the last convolution kept.
    """
    kept = graph.add("Shape", rows, start=0, end=1)
    lacking = graph.add("Sub", kept, graph.constant([last.kernel - last.stride]))  # 0 but for the start
    there = graph.add("Add", graph.add("Shape", held), graph.add("Mul", lacking, graph.constant([features.hop])))
    beyond = graph.add("Sub", there, graph.constant([features.window - features.hop]))
    count = graph.add("Div", beyond, graph.constant([features.hop * last.stride]))
    return graph.add("Sub", graph.add("Mul", count, graph.constant([last.stride])), lacking), count


def numbers(graph: Graph, count: str) -> str:
    """0, 1, ... ``(count, 1)``."""
    row = graph.add("Range", graph.constant(0), graph.add("Squeeze", count), graph.constant(1))
    return graph.add("Unsqueeze", row, graph.constant([1]))


def windows(graph: Graph, x: str, every: str, size: int, hop: int, dilation: int = 1) -> str:
    """``(rows, ...)`` -> ``(windows, size, ...)``: window n begins with row n * hop and has every so many rows."""
    first = every if hop == 1 else graph.add("Mul", every, graph.constant(hop))
    return graph.add("Gather", x, graph.add("Add", first, graph.constant(dilation * np.arange(size))))


def last_rows(graph: Graph, x: str, count: int) -> str:
    """The last rows."""
    first = -count if count else END
    return graph.add("Slice", x, graph.constant([first]), graph.constant([END]), graph.constant([0]))


def fourier(graph: Graph, features: LogMel) -> tuple[str, Array]:
    """Cosines and sines ``(window, 2 * bins)`` with the window in them, of the bins that a filter hears, and the Mel
    filters ``(2 * bins, mels)`` that add up the squares of both.

    The waves are laid out when the file is opened, from one period of each: else they would be a fifth of the file.
    """
    bins = np.flatnonzero(features.filters.any(0))
    turns = graph.add("Mul", graph.constant(np.arange(features.window)[:, None]), graph.constant(bins))
    steps = graph.add("Mod", turns, graph.constant(features.fft))
    period = 2 * np.pi / features.fft * np.arange(features.fft)
    both = [graph.add("Gather", graph.constant(wave(period), F), steps) for wave in (np.cos, np.sin)]
    waves = graph.add("Mul", graph.add("Concat", *both, axis=1), graph.constant(features.weighting[:, None]))
    return waves, np.tile(features.filters[:, bins].T, (2, 1))
