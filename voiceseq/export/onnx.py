"""From bundles to one ONNX file that checks itself before it is written.

    report = export_onnx(["alexa"], "alexa.onnx", quantize="int8")
    report.difference                       # the largest one of any score to the network in torch, on real clips

Wake words can be exported, several of one backbone as one graph, and recognisers of speech (`voiceseq.export.speech`).
The file is enough: its metadata carry words, rate, decisions and the shapes of the state (`voiceseq.inference.onnx`
opens it).
"""

import hashlib
import importlib.resources
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq import __version__
from voiceseq.audio.files import read_audio
from voiceseq.bundles import Bundle, load_bundle
from voiceseq.errors import BundleError, ConfigError, MissingDependencyError
from voiceseq.inference.detector import KIND, Detector, Event, TorchNetwork, probabilities
from voiceseq.inference.lean import LeanNetwork
from voiceseq.inference.onnx import FORMAT, UNSEALED, OnnxNetwork
from voiceseq.inference.onnx_speech import KINDS as SPEECH

QUANTIZED = ("int8",)
LIMIT = 1e-4  # of a score (0 to 1), to torch, in 32 bits: logits far below zero differ more and mean the same
LATE_S = 0.1  # with quantised weights an event may come a frame or three sooner or later
CHUNKS = (1, 480, 160, 1280, 7, 4321, 960)  # in samples, again and again: some complete no frame, some many


@dataclass(frozen=True)
class Report:
    """``difference``: the largest of any score to torch, on ``clips`` with ``events`` that are the same."""

    path: Path
    bytes: int
    words: tuple[str, ...]
    weights: str
    difference: float
    clips: int
    events: int


def export_onnx(bundles: Sequence[str | Path], target: str | Path, quantize: str | None = None) -> Report:
    """Write one graph of the words of all bundles.

    Raises:
        BundleError: a bundle that cannot be exported (says which part of it), or a graph that differs from torch.
        ConfigError: an unknown kind of quantisation.
        MissingDependencyError: onnx or onnxruntime is not installed.
    """
    check_quantisation(quantize)
    opened = [load_bundle(one) for one in bundles]
    for bundle in opened:
        check_exportable(bundle)
    detector = Detector.of(opened)
    if len(detector.networks) > 1:
        raise BundleError("these bundles stand on different backbones: export each by itself")
    names, licences = ([getattr(one, key) or "" for one in opened] for key in ("name", "licence"))
    about = {"name": " ".join(names), "licence": " ".join(dict.fromkeys(licences))}
    data = write_graph(detector, quantize, about)
    difference, clips, events = compare(data, opened, detector, quantize)
    path = write_file(Path(target).expanduser(), data)
    return Report(path, len(data), detector.words, quantize or "float32", difference, clips, events)


def check_quantisation(quantize: str | None) -> None:
    if quantize is not None and quantize not in QUANTIZED:
        raise ConfigError(f"no quantisation {quantize!r}; choose from {', '.join(QUANTIZED)}")


def check_exportable(bundle: Bundle) -> None:
    """Raises BundleError that names the part which has no place in a graph yet."""
    if bundle.kind != KIND:
        kinds = ", ".join((KIND, *SPEECH))
        raise BundleError(f"{bundle.path} is a {bundle.kind!r}; of all kinds only {kinds} can become ONNX")
    config = bundle.config
    wanted: dict[str, tuple[Any, tuple[str, ...]]] = {}
    backbone = config.get("backbone")
    wanted["the kind of features"] = (backbone or config).get("features", {}).get("kind"), ("log_mel",)
    wanted["the head"] = config.get("head", {}).get("kind"), ("gru", "phones")
    if backbone:
        wanted["the cell of the backbone"] = backbone.get("cell"), ("gru", "convolution")
    for part, (came, known) in wanted.items():
        if came not in known:
            raise BundleError(f"{bundle.path} cannot become ONNX: {part} is {came!r}; {' or '.join(known)} was wanted")


def write_graph(detector: Detector, quantize: str | None = None, about: Mapping[str, str] | None = None) -> bytes:
    """The file's bytes, sealed with their sha256; the detector has one `LeanNetwork`. ``about``: further metadata."""
    try:
        from voiceseq.export.trigger import TriggerGraph
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"export to ONNX needs onnx ({error}): pip install 'voiceseq[onnx]'") from error
    network = detector.networks[0]
    assert isinstance(network, LeanNetwork)
    made = TriggerGraph(network, quantize is not None)
    facts: dict[str, Any] = {"kind": KIND, "format": FORMAT, "version": __version__, "sha256": UNSEALED}
    facts |= {**(about or {}), "weights": quantize or "float32", "words": made.words}
    facts |= {"sample_rate": network.sample_rate, "window": network.window, "hop": network.hop}
    facts |= {"decisions": {word: asdict(detector.decisions[word]) for word in made.words}, "start": made.start}
    return sealed(made.graph, KIND, facts)


def sealed(graph: Any, kind: str, facts: Mapping[str, Any]) -> bytes:
    """The bytes of a graph with its metadata, one of which is the sha256 of all."""
    props = {key: json.dumps(value, ensure_ascii=False) for key, value in facts.items()}
    data: bytes = graph.model(kind, props).SerializeToString()
    return data.replace(UNSEALED.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def compare(data: bytes, bundles: Sequence[Bundle], detector: Detector, quantize: str | None) -> tuple[float, int, int]:
    """Largest difference, clips, events. Raises BundleError where the graph does not do what torch does."""
    from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

    graph = OnnxNetwork(data)
    heard = Detector([graph], detector.decisions)
    trained = Detector(
        [TorchNetwork(one.network(TriggerNetwork, TriggerConfig)) for one in bundles], detector.decisions
    )
    worst, clips, events = 0.0, 0, 0
    for name, samples in shipped_clips(graph.sample_rate):
        found = np.concatenate(list(in_chunks(graph, samples)))
        wanted = np.concatenate([network.advance(samples, network.start()) for network in trained.networks], 1)
        columns = [trained.words.index(word) for word in graph.words]
        wanted = wanted[:, columns]
        fits = found.shape == wanted.shape
        difference = float(np.abs(probabilities(found) - probabilities(wanted)).max()) if fits else np.inf
        if quantize is None and not difference <= LIMIT:
            raise BundleError(f"the graph differs from torch by {difference:.2g} in {name}; {LIMIT:g} was wanted")
        ours, theirs = (one.detect(samples, graph.sample_rate) for one in (heard, trained))
        if not same_events(ours, theirs):
            raise BundleError(f"the graph hears {shown(ours)} in {name}, torch hears {shown(theirs)}")
        worst, clips, events = max(worst, difference), clips + 1, events + len(ours)
    return worst, clips, events


def same_events(ours: Sequence[Event], theirs: Sequence[Event]) -> bool:
    """The same words, and each at the same time or nearly so."""
    if [event.word for event in ours] != [event.word for event in theirs]:
        return False
    return all(abs(one.time - other.time) <= LATE_S for one, other in zip(ours, theirs, strict=True))


def shown(events: Sequence[Event]) -> str:
    return ", ".join(f"{event.word} at {event.time:.2f} s" for event in events) or "nothing"


def shipped_clips(sample_rate: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name and samples of the clips that come with voiceseq."""
    for path in sorted(shipped_folder().glob("*.flac")):
        yield path.name, read_audio(path, sample_rate=sample_rate).samples


def shipped_folder() -> Path:
    return Path(str(importlib.resources.files("voiceseq.data"))) / "clips"


def in_chunks(graph: OnnxNetwork, samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The logits of each chunk."""
    state, at, number = graph.start(), 0, 0
    while at < len(samples):
        size = CHUNKS[number % len(CHUNKS)]
        yield graph.advance(samples[at : at + size], state)
        at, number = at + size, number + 1


def write_file(path: Path, data: bytes) -> Path:
    """Beside it and renamed: nobody ever sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BundleError(f"{path} cannot be written: {error.strerror}") from error
    return path
