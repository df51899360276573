"""Recognisers of speech as ONNX graphs: from raw samples to CTC's log-probabilities.

``StreamingSpeech`` (causal and chunked encoders) goes over a stream with its state in and out, as the detector's graph
does: ``samples (n,)`` of any number give ``log_probs (frames, symbols)`` of the frames that are ready. An encoder of
chunks waits for the rest of its chunk, one that answers late for as many frames; ``last`` is 1 at the end of the sound
and gives what waits. ``WholeSpeech``
takes a whole utterance at once and gives also the encoder's ``frames``, for a decoder. Of the state, beside what
`voiceseq.export.stream` keeps,

    level           (mels,) sum of the frames heard, 64 bits, less what the network believes before it heard any
    heard           (1,) their number, 64 bits
    rows            of residual convolutions, (rows, size)
    h0, c0, ...     (1, 1, size) of each recurrent layer; c with an LSTM alone
    owed            (1,) frames heard of those that a late encoder waits for before its first answer, 64 bits
    waiting         frames of a chunk that is not complete
    keys0, ...      keys, values and the convolution's last rows of each block
"""

from dataclasses import asdict
from typing import Any

import numpy as np
from onnx import TensorProto

from voiceseq.errors import BundleError
from voiceseq.export.graph import Graph
from voiceseq.export.layers import Chunks, Past, activation, array, linear, pairs, recurrent, stack
from voiceseq.export.stream import END, STRIDED, StreamGraph, convolved, log_mel, numbers, residual
from voiceseq.inference.lean import Convolution, LogMel, Residual, Weights
from voiceseq.models.acoustic import LEVEL, PRIOR, SPREAD, AcousticNetwork
from voiceseq.models.encoders import (
    AttentionEncoder,
    ChunkedEncoder,
    ConvolutionEncoder,
    PyramidEncoder,
    RecurrentEncoder,
)
from voiceseq.models.whisper import DYNAMIC_RANGE, HOP, MEL_FLOOR, SAMPLE_RATE, STRIDE, WhisperHearing
from voiceseq.models.whisper_stream import WhisperStream

F = np.float32
LOG_PROBS = "log_probs"


class _Front:
    """Features and convolutions of a network. Raises BundleError that names the part which has no place in a graph."""

    def __init__(self, network: AcousticNetwork) -> None:
        config = network.config
        if config.features.kind != "log_mel":
            raise BundleError(f"the kind of features is {config.features.kind!r}; log_mel was wanted")
        if config.stride > config.kernel:
            raise BundleError(f"the stride of the convolutions is {config.stride}; at most the kernel was wanted")
        arrays = {name: array(tensor) for name, tensor in network.state_dict().items()}
        weights, mels, kernel = Weights(arrays, "the network"), config.features.mels, config.kernel
        self.features = LogMel(asdict(config.features))
        self.first = Convolution(weights, "first", "norms.0", mels, config.channels, kernel)
        self.second = Convolution(weights, "second", "norms.1", config.channels, config.size, kernel, config.stride)


class WholeSpeech:
    """An utterance at once, at least a window long."""

    start: dict[str, list[int]] = {}  # noqa: RUF012

    def __init__(self, network: AcousticNetwork, quantize: bool) -> None:
        self.graph = graph = Graph(quantize)
        front = _Front(network)
        samples = graph.input("samples", (None,))
        beyond = graph.add("Sub", graph.add("Shape", samples), graph.constant([front.features.window]))
        count = graph.add("Add", graph.add("Div", beyond, graph.constant([front.features.hop])), graph.constant([1]))
        used = graph.add("Mul", count, graph.constant([front.features.hop]))
        x = log_mel(graph, samples, numbers(graph, count), used, front.features)
        x = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[0], keepdims=1))
        for layer, scale in ((front.first, 1 / SPREAD), (front.second, 1.0)):
            last = graph.add("Sub", count, graph.constant([1]))
            count = graph.add("Add", graph.add("Div", last, graph.constant([layer.stride])), graph.constant([1]))
            zeros = graph.constant(np.zeros((layer.kernel - 1, layer.inputs), F))
            x = convolved(graph, graph.add("Concat", zeros, x, axis=0), numbers(graph, count), layer, scale)
        _outputs(graph, whole_encoder(graph, x, network.encoder), network.output)


def whole_encoder(graph: Graph, x: str, encoder: Any) -> str:
    """Raises BundleError for an encoder that has no place in a graph."""
    if isinstance(encoder, RecurrentEncoder):
        return recurrent(graph, x, encoder.recurrent)[0]
    if isinstance(encoder, ConvolutionEncoder):
        layers = lean_residual(encoder)
        start = graph.constant(np.zeros((sum(layers.contexts), layers.size), F))
        x, _ = residual(graph, x, layers, numbers(graph, graph.add("Shape", x, start=0, end=1)), start)
        above = encoder.above
        return x if above is None else recurrent(graph, pairs(graph, x, layers.size), above.recurrent)[0]
    if isinstance(encoder, PyramidEncoder):
        x, _ = recurrent(graph, x, encoder.layers[0])  # type: ignore[arg-type]
        for layer in encoder.layers[1:]:
            x, _ = recurrent(graph, pairs(graph, x, encoder.outputs), layer)  # type: ignore[arg-type]
        return x
    if isinstance(encoder, AttentionEncoder):
        return stack(graph, x, encoder.stack)
    raise BundleError(f"the encoder {type(encoder).__name__} has no place in a graph yet")


def lean_residual(encoder: ConvolutionEncoder) -> Residual:
    """Its convolutions as graphs take them."""
    stack = encoder.convolutions
    arrays = {f"stack.{name}": array(tensor) for name, tensor in stack.state_dict().items()}
    sizes = stack.size, len(stack.layers), stack.kernel, stack.cycle
    return Residual(Weights(arrays, "the network"), "stack", *sizes)


def _outputs(graph: Graph, x: str, output: Any) -> None:
    graph.output("frames", x, (None, None))
    if output is not None:
        logits = linear(graph, "frames", output)
        graph.output(LOG_PROBS, graph.add("LogSoftmax", logits, axis=-1), (None, output.out_features))


class StreamingSpeech(StreamGraph):
    """A causal or a chunked encoder."""

    def __init__(self, network: AcousticNetwork, quantize: bool) -> None:
        super().__init__(quantize)
        self.network, front = network, _Front(network)
        samples, symbols = self.graph.input("samples", (None,)), network.config.symbols
        encoder = network.encoder
        chunked = isinstance(encoder, ChunkedEncoder)
        if not chunked and not (isinstance(encoder, RecurrentEncoder | ConvolutionEncoder) and encoder.causal):
            raise BundleError(f"the encoder {type(encoder).__name__} has no place in a graph of a stream")

        waits = chunked or encoder.lookahead > 0

        def body(graph: Graph, held: str, frames: str, count: str) -> str:
            x = self._front(graph, held, frames, count, front)
            if isinstance(encoder, ConvolutionEncoder):
                x = self._convolutions(graph, x, count, lean_residual(encoder))
            return x if waits else self._spoken(graph, self._recurrent(graph, x))

        width = network.config.size if waits else symbols
        value = self._if_frames_are_complete(samples, front.features, front.second, width, body, "front")
        if waits:
            value = self._chunks(value) if chunked else self._late(value)
        self._finish(LOG_PROBS, value, (None, symbols))

    def _front(self, graph: Graph, held: str, frames: str, count: str, front: _Front) -> str:
        every = numbers(graph, frames)
        x = self._features(graph, held, every, frames, front.features)
        x = self._level(graph, x, every, frames, front.features.mels)
        x = self._convolution(graph, x, "convolution", front.first, every, 1 / SPREAD)
        return self._convolution(graph, x, STRIDED, front.second, numbers(graph, count), 1.0)

    def _level(self, graph: Graph, x: str, every: str, frames: str, mels: int) -> str:
        """``models.acoustic.running_level``; the prior is in the graph, so that the state begins with zeros."""
        level = self._state("level", [mels], dtype=np.float64)
        heard = self._state("heard", [1], dtype=np.float64)
        double = graph.add("Cast", x, to=TensorProto.DOUBLE)
        sums = graph.add("Add", graph.add("CumSum", double, graph.constant(0)), level)
        after = graph.add("Slice", sums, graph.constant([-1]), graph.constant([END]), graph.constant([0]))
        self._next["level"] = graph.add("Squeeze", after, graph.constant([0]))
        count = graph.add("Cast", frames, to=TensorProto.DOUBLE)
        self._next["heard"] = graph.add("Add", heard, count)
        so_far = graph.add("Add", graph.add("Cast", every, to=TensorProto.DOUBLE), heard)
        believed = graph.add("Add", so_far, graph.constant(PRIOR + 1.0))
        mean = graph.add("Div", graph.add("Add", sums, graph.constant(PRIOR * LEVEL)), believed)
        return graph.add("Sub", x, graph.add("Cast", mean, to=TensorProto.FLOAT))

    def _convolutions(self, graph: Graph, x: str, count: str, layers: Residual) -> str:
        rows = self._state("rows", [sum(layers.contexts), layers.size])
        x, self._next["rows"] = residual(graph, x, layers, numbers(graph, count), rows)
        return x

    def _recurrent(self, graph: Graph, x: str) -> str:
        encoder: Any = self.network.encoder
        if isinstance(encoder, ConvolutionEncoder):
            encoder = encoder.above
        if encoder is None:
            return x
        network = encoder.recurrent
        names = [[f"{kind}{layer}" for kind in "hc"[: network.state_tensors]] for layer in range(network.layers)]
        states = [[self._state(name, [1, 1, network.hidden_size]) for name in row] for row in names]
        x, after = recurrent(graph, x, network, states)
        for row, values in zip(names, after, strict=True):
            self._next |= dict(zip(row, values, strict=True))
        return x

    def _late(self, came: str) -> str:
        """Zeros after the end of the sound, and no answer until so many frames were heard as the encoder is late."""
        graph, late = self.graph, self.network.encoder.lookahead
        last = graph.input("last", (1,), np.int64)
        zeros = _rows(graph, graph.constant(np.zeros((1, self.network.config.size), F)), graph.constant([0]), last)
        x = graph.add("Concat", came, graph.add("Tile", zeros, graph.constant([late, 1])), axis=0)
        there = graph.add("Shape", x, start=0, end=1)

        def body(inner: Graph) -> str:
            heard = inner.add("Cast", self._state("owed", [1], dtype=np.float64), to=TensorProto.INT64)
            so_far = inner.add("Min", inner.add("Add", heard, there), inner.constant([late]))
            self._next["owed"] = inner.add("Cast", so_far, to=TensorProto.DOUBLE)
            skipped = inner.add("Sub", inner.constant([late]), heard)
            return self._spoken(inner, _rows(inner, self._recurrent(inner, x), skipped, inner.constant([END])))

        some = graph.add("Greater", there, graph.constant([0]))
        return self._if("spoken", some, self.network.config.symbols, body, {})

    def _chunks(self, came: str) -> str:
        """The frames wait until their chunk is complete, or until the sound is over."""
        graph, size = self.graph, self.network.config.size
        streaming: Any = self.network.encoder.stack
        chunks = Chunks(streaming.chunk, streaming.left_chunks)
        last = graph.input("last", (1,), np.int64)
        waiting = graph.add("Concat", self._state("waiting", [0, size], [None, size]), came, axis=0)
        there = graph.add("Shape", waiting, start=0, end=1)
        rest = graph.add("Mod", there, graph.constant([chunks.size]))
        held_back = graph.add("Mul", rest, graph.add("Sub", graph.constant([1]), last))
        ready = graph.add("Sub", there, held_back)
        self._next["waiting"] = _rows(graph, waiting, ready, graph.constant([END]))
        encoder = streaming.encoder

        def body(inner: Graph) -> str:
            pasts = [self._past(number, block, chunks) for number, block in enumerate(encoder.blocks)]
            x = stack(inner, _rows(inner, waiting, graph.constant([0]), ready), encoder, chunks, pasts)
            for number, past in enumerate(pasts):
                self._next |= dict(zip(_names(number), past.after, strict=True))
            return self._spoken(inner, x)

        some = graph.add("Greater", ready, graph.constant([0]))
        return self._if("spoken", some, self.network.config.symbols, body, {})

    def _past(self, number: int, block: Any, chunks: Chunks) -> Past:
        heads, size = block.attention.heads, block.attention.size // block.attention.heads
        keys, values, context = _names(number)
        for name in (keys, values):
            self._state(name, [heads, 0, size], [heads, None, size])
        kernel = block.convolution.kernel
        self._state(context, [kernel - 1, block.attention.size])
        return Past(keys, values, context)

    def _spoken(self, graph: Graph, x: str) -> str:
        return graph.add("LogSoftmax", linear(graph, x, self.network.output), axis=-1)


def _names(number: int) -> tuple[str, str, str]:
    return f"keys{number}", f"values{number}", f"context{number}"


def _rows(graph: Graph, x: str, first: str, end: str) -> str:
    return graph.add("Slice", x, first, end, graph.constant([0]))


class WhisperSpeech:
    """Whisper's ear, with a CTC head (``output``) or without one: then the encoder's frames alone come out."""

    start: dict[str, list[int]] = {}  # noqa: RUF012

    def __init__(self, network: WhisperHearing, output: Any, quantize: bool) -> None:
        self.graph = graph = Graph(quantize)
        samples = graph.input("samples", (None,))
        x = self._mels(samples, network)
        x = graph.add("Unsqueeze", graph.add("Transpose", x, perm=[1, 0]), graph.constant([0]))
        for layer, stride in ((network.first, 1), (network.second, STRIDE)):
            weight, bias = array(layer.weight), graph.constant(array(layer.bias))
            flat = graph.matrix(weight.reshape(len(weight), -1), 1)
            kernel = graph.add("Reshape", flat, graph.constant(weight.shape))
            x = activation(graph, graph.add("Conv", x, kernel, bias, strides=[stride], pads=[1, 1]), "GELU")
        x = graph.add("Transpose", graph.add("Squeeze", x, graph.constant([0])), perm=[1, 0])
        count = graph.add("Shape", x, start=0, end=1)
        places = _rows(graph, graph.constant(array(network.positions)), graph.constant([0]), count)
        x = stack(graph, graph.add("Add", x, places), network.encoder)
        if (above := getattr(network, "above", None)) is not None:
            x = whole_encoder(graph, pairs(graph, x, network.hearing.size), above)
        _outputs(graph, x, output)

    def _mels(self, samples: str, network: WhisperHearing) -> str:
        """Silence after the recording, then ``models.whisper.LogMel``."""
        graph, config = self.graph, network.hearing
        longest, shortest = config.audio_positions * HOP * STRIDE, 2 * HOP * STRIDE
        there = graph.add("Shape", samples)
        if config.tail_s is None:
            full = graph.constant([longest])
        else:
            wanted = graph.add("Add", there, graph.constant([round(config.tail_s * SAMPLE_RATE)]))
            full = graph.add("Clip", wanted, graph.constant(shortest), graph.constant(longest))
        features = LogMel(asdict(network.features.features.config) | {"floor": MEL_FLOOR})
        half = features.window // 2
        mirrored = graph.add("Concat", graph.constant([half]), graph.constant([0]), axis=0)
        silence = graph.add("Add", graph.add("Sub", full, there), graph.constant([half]))
        ends = graph.add("Concat", graph.constant([0]), silence, axis=0)
        padded = graph.add("Pad", graph.add("Pad", samples, ends, graph.constant(0.0, F)), mirrored, mode="reflect")
        count = graph.add("Div", full, graph.constant([HOP]))
        used = graph.add("Mul", count, graph.constant([HOP]))
        levels = log_mel(graph, padded, numbers(graph, count), used, features)
        levels = graph.add("Mul", levels, graph.constant(1 / np.log(10), F))
        floor = graph.add("Sub", graph.add("ReduceMax", levels, keepdims=0), graph.constant(DYNAMIC_RANGE, F))
        raised = graph.add("Add", graph.add("Max", levels, floor), graph.constant(4.0, F))
        return graph.add("Mul", raised, graph.constant(0.25, F))


def speech_graph(network: Any, quantize: bool) -> Any:
    """The graph of an acoustic network, or of Whisper's; it has ``graph`` and ``start``. Raises BundleError."""
    if isinstance(network, WhisperHearing):
        if isinstance(network, WhisperStream):
            raise BundleError("no graph is made of Whisper's encoder on a stream; export one of whole utterances")
        output = getattr(network, "ctc", None) if hasattr(network, "embedding") else network.output
        return WhisperSpeech(network, output, quantize)
    kind = StreamingSpeech if network.encoder.causal else WholeSpeech
    return kind(network, quantize)
