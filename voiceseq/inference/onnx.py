"""A wake-word detector from one .onnx file: numpy and onnxruntime, without torch and numba.

    detector = voiceseq.load("alexa.onnx")       # written by: voiceseq bundle export alexa --format onnx

What is in the graph, and how to run it without voiceseq, is on the page docs/embedding.md. Its metadata say the rest:
words, decisions, rate, the shapes of the state. Any cut of the sound gives the same events, and scores that differ by
less than 1e-4: the sums inside onnxruntime depend on how many frames there are.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import BundleError, MissingDependencyError
from voiceseq.inference.detector import KIND, Detector, read_decisions

if TYPE_CHECKING:
    from voiceseq.inference.onnx_speech import OnnxSpeech

FORMAT = 1  # of graph and metadata; a file of a higher one is a newer voiceseq's
UNSEALED = "0" * 64  # stands for the sha256 while the file's own is taken
SEAL = re.compile(rb'sha256\x12\x42"([0-9a-f]{64})"')  # an entry of the metadata: its key, and 66 bytes of JSON
NEXT = "_next"


def open_graph(path: str | Path) -> "Detector | OnnxSpeech":
    """What a file holds, ready for use: wake words, or a recogniser of speech. Raises as ``open_detector``."""
    from voiceseq.inference.onnx_speech import KINDS, OnnxSpeech

    model = Path(path).expanduser()
    check_seal(model, str(model))
    if read_facts(open_session(model, str(model)), str(model))["kind"] in KINDS:
        return OnnxSpeech(model)
    return open_detector(path)


def open_detector(path: str | Path) -> Detector:
    """Raises BundleError for what voiceseq did not write or what was changed since, MissingDependencyError."""
    network = OnnxNetwork(Path(path).expanduser())
    return Detector([network], read_decisions(network.words, network.facts["decisions"], str(path)))


class OnnxNetwork:
    """A file, or its bytes, with the face of `voiceseq.inference.lean.LeanNetwork`. ``facts``: its metadata."""

    def __init__(self, model: Path | bytes) -> None:
        name = str(model) if isinstance(model, Path) else "the graph"
        check_seal(model, name)
        self.session = open_session(model, name)
        self.facts = read_facts(self.session, name)
        if self.facts["kind"] != KIND:
            raise BundleError(f"{name} is a {self.facts['kind']!r}; a wake-word detector ({KIND!r}) was wanted")
        try:
            self.words = tuple(str(word) for word in self.facts["words"])
            self.sample_rate, self.window, self.hop = (int(self.facts[key]) for key in ("sample_rate", "window", "hop"))
            types = {one.name: np.float64 if "double" in one.type else np.float32 for one in self.session.get_inputs()}
            self._start = {key: np.zeros(shape, types[key]) for key, shape in self.facts["start"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BundleError(f"{name}: its metadata do not describe its graph ({error!r}): export it again") from error
        self._outputs = ["logits", *(key + NEXT for key in self._start)]

    def start(self) -> dict[str, NDArray[Any]]:
        """The state of a new stream: zeros."""
        return dict(self._start)

    def advance(self, samples: NDArray[np.float32], state: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """``(n,)`` -> logits ``(frames, words)`` of the frames that are complete now; ``state`` moves on in place."""
        logits, *after = self.session.run(self._outputs, {"samples": samples, **state})
        state.update(zip(self._start, after, strict=True))
        return np.asarray(logits)


def check_seal(model: Path | bytes, name: str) -> None:
    """Raises BundleError for what voiceseq did not write, or what was changed since."""
    try:
        data = model.read_bytes() if isinstance(model, Path) else model
    except OSError as error:
        raise BundleError(f"{name} cannot be read: {error.strerror}; a detector as .onnx was wanted") from error
    place = SEAL.search(data)
    if place is None:
        raise BundleError(f"{name} is not voiceseq's; one by `voiceseq bundle export NAME --format onnx` was wanted")
    digest = hashlib.sha256(memoryview(data)[: place.start(1)])
    digest.update(UNSEALED.encode())
    digest.update(memoryview(data)[place.end(1) :])
    if digest.hexdigest().encode() != place[1]:
        raise BundleError(f"{name} was changed after it was written (sha256): get it again")


def open_session(model: Path | bytes, name: str) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"{name} needs onnxruntime ({error}): pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # chunks are small: a second thread would only wait
    options.enable_mem_pattern = False  # no two chunks are alike
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each, and no parent of them
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BundleError(f"{name} cannot be opened by onnxruntime {onnxruntime.__version__}: {said}") from error


def read_facts(session: Any, name: str) -> dict[str, Any]:
    """The metadata. Raises BundleError for a file of a newer voiceseq."""
    facts = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    if facts["format"] > FORMAT:
        raise BundleError(
            f"{name} is of format {facts['format']}, this voiceseq reads {FORMAT}: pip install -U voiceseq"
        )
    return facts
