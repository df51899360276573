"""A trigger network without torch: the same frames as `voiceseq.models.trigger`, made for a stream that never ends.

    network = LeanNetwork.of(config, arrays)      # the config as plain JSON, the weights as numpy arrays
    state = network.start()
    logits = network.advance(samples, state)      # (frames, words); the state moves on in place

It knows the detectors that ship: log-mel features, the phone backbone with residual convolutions or GRU layers (or the
plain front), GRU heads. Heads of one shape on one front are run together.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import BundleError
from voiceseq.inference import kernels
from voiceseq.inference.lean_opinion import SLOPE, Opinions, Share

Array = NDArray[np.float32]
Settings = Mapping[str, Any]
F = np.float32
# As in `voiceseq.models.backbone` and `voiceseq.models.trigger`, which cannot be imported without torch.
LEVEL, SPREAD = -6.0, 4.0
PLAIN_KERNEL, PLAIN_STRIDE = 5, 3


def supports(config: Settings) -> bool:
    """Whether a trigger's config describes a network that is known here."""
    backbone = config.get("backbone")
    features = (backbone or config).get("features", {})
    known = not backbone or (
        backbone.get("cell") in ("gru", "convolution") and backbone.get("stride", 0) <= backbone.get("kernel", 0)
    )
    return known and config.get("head", {}).get("kind") in ("gru", "phones") and features.get("kind") == "log_mel"


class Weights:
    """The tensors of a network, taken one by one in the shape that is wanted; kernels must never meet another."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], name: str) -> None:
        self.arrays, self.name, self.taken = arrays, name, set[str]()

    def take(self, key: str, *shape: int) -> Array:
        """Raises BundleError where the tensor is missing, of another shape, or not finite."""
        came = self.arrays[key].shape if key in self.arrays else None
        if came != shape:
            raise BundleError(f"{self.name}: the weight {key} is {came or 'missing'}; shape {shape} was wanted")
        values = np.ascontiguousarray(self.arrays[key], F)
        if not np.isfinite(values).all():
            raise BundleError(f"{self.name}: the weight {key} holds NaN or infinity: get the bundle again")
        self.taken.add(key)
        return values

    def pair(self, key: str, size: int) -> tuple[Array, Array]:
        """Gain and bias of a layer norm, ``(1, size)`` each."""
        return self.take(f"{key}.weight", size)[None], self.take(f"{key}.bias", size)[None]

    def linear(self, key: str, inputs: int, outputs: int) -> tuple[Array, Array]:
        """``(1, inputs, outputs)`` and ``(1, outputs)``."""
        weight = self.take(f"{key}.weight", outputs, inputs)
        return np.ascontiguousarray(weight.T)[None], self.take(f"{key}.bias", outputs)[None]

    def recurrent(self, key: str, inputs: int, size: int) -> tuple[Array, Array, Array, Array]:
        """Input and recurrent weight and bias of a GRU cell, as ``linear`` gives them."""
        pairs = []
        for kind, width in (("ih", inputs), ("hh", size)):
            weight = self.take(f"{key}.weight_{kind}", 3 * size, width)
            pairs += [np.ascontiguousarray(weight.T)[None], self.take(f"{key}.bias_{kind}", 3 * size)[None]]
        return pairs[0], pairs[1], pairs[2], pairs[3]

    def finish(self) -> None:
        """Raises BundleError for tensors that nobody wanted."""
        if left := sorted(self.arrays.keys() - self.taken):
            raise BundleError(f"{self.name}: the weight {left[0]} is not the network's: they do not belong together")


class LogMel:
    """``samples (n,)`` -> ``(frames, mels)``, shifted and scaled as the convolutions want it. State: samples left."""

    def __init__(self, config: Settings) -> None:
        self.rate, self.window, self.hop, self.fft = (config[key] for key in ("sample_rate", "window", "hop", "fft"))
        self.mels, self.floor = config["mels"], F(config["floor"])
        if not (0 < self.hop <= self.window <= self.fft and self.mels > 0 and self.rate > 0):
            raise ValueError("0 < hop <= window <= fft was wanted of the features")
        self.weighting = np.hanning(self.window + 1)[:-1].astype(F)
        filters = mel_filters(config)
        self.filters = filters.astype(F)
        heard = [np.flatnonzero(band) for band in filters]
        self.bands = np.array([(bins[0], bins[-1] + 1) for bins in heard])

    def start(self) -> list[Array]:
        return [np.zeros(0, F)]

    def advance(self, samples: Array, state: list[Array]) -> Array:
        held = np.concatenate((state[0], samples))
        count = max(0, len(held) - self.window + self.hop) // self.hop
        state[0] = held[count * self.hop :].copy()  # a view would keep the whole piece alive
        frames = np.empty((count, self.mels), F)
        if count:
            padded = np.empty((count, self.fft), F)
            kernels.weigh(held, self.hop, self.weighting, count, padded)
            spectrum = np.fft.rfft(padded)
            kernels.log_mel(spectrum, self.bands, self.filters, self.floor, F(LEVEL), F(SPREAD), frames)
        return frames


def mel_filters(config: Settings) -> NDArray[np.float64]:
    """``(mels, fft // 2 + 1)``, the triangles of `voiceseq.audio.features`."""
    rate, slaney = config["sample_rate"], config["mel_scale"] == "slaney"
    high_hz = rate / 2 if config["high_hz"] is None else config["high_hz"]
    ends = hz_to_mel(np.array([config["low_hz"], high_hz], float), slaney)
    edges = mel_to_hz(np.linspace(ends[0], ends[1], config["mels"] + 2), slaney)
    bins = np.arange(config["fft"] // 2 + 1) * rate / config["fft"]
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    filters = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clip(0)
    return filters * 2 / (high - low) if config["equal_area"] else filters


def hz_to_mel(hz: NDArray[np.float64], slaney: bool) -> NDArray[np.float64]:
    if not slaney:
        return 2595 * np.log10(1 + hz / 700)
    return np.where(hz < 1000, hz * 3 / 200, 15 + 27 * np.log(hz.clip(1000) / 1000) / np.log(6.4))


def mel_to_hz(mel: NDArray[np.float64], slaney: bool) -> NDArray[np.float64]:
    if not slaney:
        return 700 * (10 ** (mel / 2595) - 1)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) / 27 * np.log(6.4)))


class Convolution:
    """Causal convolution, layer norm, ReLU: ``(time, inputs)`` -> ``(time', outputs)``. State: the frames kept."""

    def __init__(
        self, weights: Weights, key: str, norm: str, inputs: int, outputs: int, kernel: int, stride: int = 1
    ) -> None:
        self.inputs, self.outputs, self.kernel, self.stride = inputs, outputs, kernel, stride
        weight = weights.take(f"{key}.convolution.weight", outputs, inputs, kernel)
        self.weight = np.ascontiguousarray(weight.transpose(2, 1, 0)).reshape(1, kernel * inputs, outputs)
        self.bias = weights.take(f"{key}.convolution.bias", outputs)[None]
        self.gain, self.shift = weights.pair(norm, outputs)

    def start(self) -> list[Array]:
        return [np.zeros((self.kernel - 1, self.inputs), F)]

    def advance(self, frames: Array, state: list[Array]) -> Array:
        held = np.concatenate((state[0], frames))
        count = max(0, len(held) - self.kernel + self.stride) // self.stride
        state[0] = held[count * self.stride :].copy()
        out = np.empty((count, 1, self.outputs), F)
        kernels.dense(held.ravel(), self.stride * self.inputs, self.weight, self.bias, out)
        kernels.normalise(out, self.gain, self.shift, True)
        return out[:, 0]


class Gru:
    """GRU layers of several groups: ``(time, groups, size)`` -> the same shape. State: ``(groups, size)`` a layer.

    ``cells`` come layer by layer; ``norms`` (the backbone's) stand for a layer norm and a residual after each layer.
    """

    def __init__(self, cells: Sequence[tuple[Array, ...]], norms: Sequence[tuple[Array, Array]] = ()) -> None:
        self.cells, self.norms = cells, norms

    def start(self) -> list[Array]:
        return [np.zeros(recurrent.shape[:2], F) for _, _, recurrent, _ in self.cells]

    def advance(self, x: Array, state: list[Array]) -> Array:
        for layer, (weight, bias, recurrent, recurrent_bias) in enumerate(self.cells):
            out, projected = np.empty_like(x), np.empty((*x.shape[:2], weight.shape[2]), F)
            kernels.dense(x.ravel(), x[0].size, weight, bias, projected)
            kernels.gru(projected, recurrent, recurrent_bias, state[layer], out)
            if self.norms:
                kernels.normalise(out, *self.norms[layer], False)
                out += x
            x = out
        return x


class Residual:
    """Residual convolutions (`voiceseq.core.convolution`): ``(time, 1, size)`` -> the same shape. State: rows kept."""

    def __init__(self, weights: Weights, key: str, size: int, layers: int, kernel: int, cycle: int) -> None:
        self.size, self.kernel = size, kernel
        self.dilations = np.array([2 ** (layer % cycle) for layer in range(layers)])
        names = [f"{key}.layers.{layer}.convolution" for layer in range(layers)]
        taken = [weights.take(f"{name}.weight", size, size, kernel).transpose(2, 1, 0) for name in names]
        self.weight = np.ascontiguousarray(np.stack(taken))
        self.bias = np.stack([weights.take(f"{name}.bias", size) for name in names])
        pairs = [weights.pair(f"{key}.norms.{layer}", size) for layer in range(layers)]
        self.gain, self.shift = (np.concatenate(part) for part in zip(*pairs, strict=True))
        self.last = weights.pair(f"{key}.last", size)

    @property
    def contexts(self) -> list[int]:
        """How many rows each layer keeps."""
        return [(self.kernel - 1) * int(dilation) for dilation in self.dilations]

    def start(self) -> list[Array]:
        return [np.zeros((sum(self.contexts), self.size), F)]

    def advance(self, x: Array, state: list[Array]) -> Array:
        out = x[:, 0].copy()
        kernels.residual(out, state[0], self.dilations, self.weight, self.bias, self.gain, self.shift)
        out = out[:, None]
        kernels.normalise(out, *self.last, False)
        return out


class Front:
    """Samples to frames: features, convolutions, and the body and bottleneck of a backbone if it has one.

    ``fingerprint`` is equal for equal networks: what listens to them needs to be computed once.
    """

    def __init__(self, config: Settings, weights: Weights) -> None:
        backbone = config["backbone"]
        self.features = LogMel((backbone or config)["features"])
        stages = backbone_stages(backbone, weights) if backbone else plain_stages(config, weights)
        self.convolutions, self.body, self.narrow = stages
        self.size = self.convolutions[-1].outputs if self.narrow is None else self.narrow[1].shape[1]
        self.stride = self.convolutions[-1].stride
        digest = hashlib.sha256(json.dumps([backbone or config["features"]], sort_keys=True).encode())
        for key in sorted(weights.taken):
            digest.update(key.encode() + weights.arrays[key].astype(F).tobytes())
        self.fingerprint = digest.hexdigest()

    def start(self) -> list[list[Array]]:
        body = self.body.start() if self.body else []
        return [self.features.start(), *(one.start() for one in self.convolutions), body]

    def advance(self, samples: Array, state: list[list[Array]]) -> Array:
        """``(n,)`` -> ``(frames, size)``."""
        x = self.features.advance(samples, state[0])
        for convolution, kept in zip(self.convolutions, state[1:-1], strict=True):
            x = convolution.advance(x, kept)
        if self.body is None or self.narrow is None or not len(x):
            return x[:, : self.size] if len(x) else np.zeros((0, self.size), F)
        x = self.body.advance(x[:, None], state[-1])
        out = np.empty((len(x), 1, self.size), F)
        kernels.dense(x.ravel(), x.shape[2], *self.narrow, out)
        kernels.squash(out.ravel())
        return out[:, 0]


Stages = tuple[list[Convolution], Gru | Residual | None, tuple[Array, Array] | None]


def plain_stages(config: Settings, weights: Weights) -> Stages:
    mels, channels = config["features"]["mels"], config["channels"]
    settings = ("front.convolution", "front.norm", mels, channels, PLAIN_KERNEL, PLAIN_STRIDE)
    return [Convolution(weights, *settings)], None, None


def backbone_stages(config: Settings, weights: Weights) -> Stages:
    top, channels, size, kernel = "front.backbone", config["channels"], config["size"], config["kernel"]
    mels, narrow, layers = config["features"]["mels"], config["bottleneck"], range(config["layers"])
    convolutions = [
        Convolution(weights, f"{top}.first", f"{top}.norms.0", mels, channels, kernel),
        Convolution(weights, f"{top}.second", f"{top}.norms.1", channels, size, kernel, config["stride"]),
    ]
    weights.linear(f"{top}.output", narrow, config["symbols"])  # the phones, which a trigger does not need
    bottleneck = weights.linear(f"{top}.bottleneck.0", size, narrow)
    if config["cell"] == "convolution":
        settings = size, config["layers"], config["span"], config["cycle"]
        return convolutions, Residual(weights, f"{top}.convolutions", *settings), bottleneck
    cells = [weights.recurrent(f"{top}.recurrent.cells.{layer}", size, size) for layer in layers]
    norms = [weights.pair(f"{top}.recurrent.norms.{layer}", size) for layer in layers]
    return convolutions, Gru(cells, norms), bottleneck


@dataclass(frozen=True)
class Head:
    """One network's words on a front's frames: input layer, GRU, output layer."""

    words: tuple[str, ...]
    input: tuple[Array, Array]
    norm: tuple[Array, Array]
    cells: list[tuple[Array, ...]]
    output: tuple[Array, Array]
    opinion: list[Share] = field(default_factory=list)

    @classmethod
    def of(cls, config: Settings, inputs: int, weights: Weights) -> Self:
        words, size = tuple(config["words"]), config["head"]["size"]
        if config["head"]["kind"] == "phones":
            level = weights.take("head.level", len(words))
            return cls.silent(words, inputs, shares(config, SLOPE, [-SLOPE * float(one) for one in level]))
        return cls(
            words,
            weights.linear("head.input.0", inputs, size),
            weights.pair("head.input.1", size),
            [weights.recurrent(f"head.body.cells.{layer}", size, size) for layer in range(config["head"]["layers"])],
            weights.linear("head.output", size, len(words)),
            shares(config, config["head"].get("opinion", 0.0), [0.0] * len(words)),
        )

    @classmethod
    def silent(cls, words: tuple[str, ...], inputs: int, opinion: list[Share]) -> Self:
        """A head that says nothing of its own."""
        flat = np.zeros((1, 1), F)
        cell = (np.zeros((1, 1, 3), F), np.zeros((1, 3), F), np.zeros((1, 1, 3), F), np.zeros((1, 3), F))
        output = np.zeros((1, 1, len(words)), F), np.zeros((1, len(words)), F)
        return cls(words, (np.zeros((1, inputs, 1), F), flat), (flat, flat), [cell], output, opinion)

    @property
    def shape(self) -> tuple[int, int]:
        return self.input[1].shape[1], len(self.cells)


class Heads:
    """Heads of one shape as one batched step: ``(frames, inputs)`` -> ``(frames, words)``. State: the GRU's."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self.words = tuple(word for head in heads for word in head.words)
        self.groups, self.size = len(heads), heads[0].shape[0]
        self.input = tuple(np.concatenate(part, -1) for part in zip(*(head.input for head in heads), strict=True))
        self.norm = joined(head.norm for head in heads)
        layers = zip(*(head.cells for head in heads), strict=True)
        self.recurrent = Gru([joined(cells) for cells in layers])
        widest = max(len(head.words) for head in heads)
        self.output = joined((padded(head.output[0], widest), padded(head.output[1], widest)) for head in heads)
        self.real = np.array([place < len(head.words) for head in heads for place in range(widest)])

    def start(self) -> list[Array]:
        return self.recurrent.start()

    def advance(self, frames: Array, state: list[Array]) -> Array:
        time = len(frames)
        x = np.empty((time, 1, self.groups * self.size), F)
        kernels.dense(frames.ravel(), frames.shape[1], *self.input, x)
        x = x.reshape(time, self.groups, self.size)
        kernels.normalise(x, *self.norm, True)
        x = self.recurrent.advance(x, state)
        logits = np.empty((time, self.groups, self.output[1].shape[1]), F)
        kernels.dense(x.ravel(), self.groups * self.size, *self.output, logits)
        return logits.reshape(time, -1)[:, self.real]


def shares(config: Settings, slope: float, offsets: Sequence[float]) -> list[Share]:
    """What the phones add to each word; nothing where a config has no spellings."""
    spelt = [tuple(tuple(map(int, one)) for one in ways) for ways in config.get("spellings") or []]
    if not spelt:
        return []
    rows = zip(config["words"], spelt, offsets, strict=True)
    return [Share(str(word), ways, slope, offset) for word, ways, offset in rows]


def joined(groups: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    """The arrays ``(1, ...)`` of several groups as ``(groups, ...)``."""
    return tuple(np.concatenate(part) for part in zip(*groups, strict=True))


def padded(values: Array, width: int) -> Array:
    """``(..., n)`` -> ``(..., width)``, with zeros."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])


@dataclass
class LeanNetwork:
    """A front and the heads that listen to it; ``words`` in the order of the logits."""

    front: Front
    heads: list[Head]
    phones: tuple[Array, Array] | None = None
    words: tuple[str, ...] = ()
    batches: list[Heads] = field(default_factory=list)

    def __post_init__(self) -> None:
        said = [share for head in self.heads for share in head.opinion]
        self.opinions = Opinions(self.phones, said) if self.phones is not None and said else None
        shapes = dict.fromkeys(head.shape for head in self.heads)
        self.batches = [Heads([head for head in self.heads if head.shape == shape]) for shape in shapes]
        self.words = tuple(word for batch in self.batches for word in batch.words)
        self.places = [self.words.index(word) for word in self.opinions.words] if self.opinions else []

    @classmethod
    def of(cls, config: Settings, arrays: Mapping[str, NDArray[Any]], name: str = "the detector") -> Self:
        """From the config as plain JSON. Raises BundleError where config and weights do not belong together."""
        weights = Weights(arrays, name)
        try:
            front = Front(config, weights)
            head = Head.of(config, front.size, weights)
            phones = None
            if head.opinion:
                phones = weights.linear("head.opinion.phones", front.size, config["backbone"]["symbols"])
        except (KeyError, TypeError, ValueError, ArithmeticError, IndexError) as error:
            raise BundleError(f"{name}: the network of its config cannot be built: {error!r}") from error
        weights.finish()
        return cls(front, [head], phones)

    def join(self, other: Self) -> Self:
        """Both networks' words on one pass through the front, which must be the same."""
        phones = other.phones if self.phones is None else self.phones  # the front's own, so the same
        return type(self)(self.front, self.heads + other.heads, phones)

    @property
    def fingerprint(self) -> str:
        """Equal for networks that can be joined."""
        return self.front.fingerprint

    @property
    def sample_rate(self) -> int:
        return int(self.front.features.rate)

    @property
    def window(self) -> int:
        """Samples that the first frame needs."""
        return int(self.front.features.window)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return int(self.front.features.hop * self.front.stride)

    def start(self) -> Any:
        """The state of a new stream."""
        second = self.opinions.start() if self.opinions else []
        return self.front.start(), [batch.start() for batch in self.batches], second

    def advance(self, samples: Array, state: Any) -> Array:
        """``(n,)`` -> logits ``(frames, words)`` of the frames that are complete now; ``state`` moves on in place."""
        frames = self.front.advance(samples, state[0])
        if not len(frames):
            return np.zeros((0, len(self.words)), F)
        parts = [batch.advance(frames, kept) for batch, kept in zip(self.batches, state[1], strict=True)]
        logits = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        if self.opinions:
            logits[:, self.places] += self.opinions.advance(frames, state[2])
        return logits
