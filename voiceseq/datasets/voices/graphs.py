"""Neural voices as ONNX graphs, opened up: the noise comes in from outside (so that a seed decides it), the speaker's
vector may be any blend, and the durations of the phonemes come out."""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import InputError, MissingDependencyError

Array = NDArray[Any]


def need(module: str) -> Any:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"neural voices need {module}: pip install 'voiceseq[voices]'") from error


def read_graph(path: Path) -> Any:
    try:
        return need("onnx").load(str(path))
    except MissingDependencyError:
        raise
    except Exception as error:  # protobuf has many names for a damaged file
        raise InputError(f"{path} is not a model that can be read ({type(error).__name__}): get it again") from error


def session(model: Any) -> Any:
    """An onnxruntime session on one thread: clips are short, and several processes share the machine."""
    ort = need("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def initializer(model: Any, name: str) -> Array | None:
    found = [tensor for tensor in model.graph.initializer if tensor.name == name]
    return need("onnx").numpy_helper.to_array(found[0]) if found else None


def noise_from_outside(model: Any) -> list[str]:
    """Let every RandomNormalLike ``(batch, channels, time)`` read an input instead; returns the inputs' names.

    How much is wanted shows only inside the graph: what is given too long is cut, what is given too short is repeated.
    """
    helper, proto = need("onnx").helper, need("onnx").TensorProto
    constants = {"vs_start": ([], [0]), "vs_step": ([], [1]), "vs_time": ([], [2]), "vs_starts": ([3], [0, 0, 0])}
    names = list[str]()
    for node in [node for node in model.graph.node if node.op_type == "RandomNormalLike"]:
        name = f"noise_{len(names)}"
        names.append(name)
        model.graph.input.append(helper.make_tensor_value_info(name, proto.FLOAT, [1, None, None]))
        steps = [
            ("Shape", [node.input[0]], "shape", {}),
            ("Gather", [f"{name}_shape", "vs_time"], "wanted", {}),
            ("Range", ["vs_start", f"{name}_wanted", "vs_step"], "places", {}),
            ("Shape", [name], "supply", {}),
            ("Gather", [f"{name}_supply", "vs_time"], "given", {}),
            ("Mod", [f"{name}_places", f"{name}_given"], "repeated", {}),
            ("Gather", [name, f"{name}_repeated"], "long", {"axis": 2}),
        ]
        made = [helper.make_node(op, reads, [f"{name}_{gives}"], **extra) for op, reads, gives, extra in steps]
        made.append(helper.make_node("Slice", [f"{name}_long", "vs_starts", f"{name}_shape"], list(node.output)))
        place = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        for offset, new in enumerate(made):
            model.graph.node.insert(place + offset, new)
    if names:
        for key, (dims, values) in constants.items():
            model.graph.initializer.append(helper.make_tensor(key, proto.INT64, dims, values))
    return names


def vector_from_outside(model: Any, number: str) -> Array | None:
    """Take out the lookup of a speaker's number: its table is returned, its result becomes the input ``vector``."""
    helper, proto = need("onnx").helper, need("onnx").TensorProto
    given = next((one for one in model.graph.input if one.name == number), None)
    if given is None:  # one speaker alone; its weights may go by any name, that of the number too
        return None
    lookups = [node for node in model.graph.node if node.op_type == "Gather" and number in node.input]
    (lookup,) = lookups
    table = initializer(model, lookup.input[0])
    assert table is not None
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name == lookup.output[0]:
                node.input[i] = "vector"
    model.graph.node.remove(lookup)
    model.graph.input.remove(given)
    model.graph.input.append(helper.make_tensor_value_info("vector", proto.FLOAT, [1, table.shape[1]]))
    return table


def show_output(model: Any, *op_types: str) -> str | None:
    """Make the result of a chain of operations (each read by the next) an output too; None where there is none."""
    outputs = {node.output[0]: node.op_type for node in model.graph.node}
    for node in model.graph.node:
        chain = [node.op_type, *(outputs.get(name, "") for name in node.input[:1])]
        if chain[: len(op_types)] == list(op_types):
            model.graph.output.append(need("onnx").helper.make_empty_tensor_value_info(node.output[0]))
            return str(node.output[0])
    return None


def spherical(a: Array, b: Array, share: float) -> Array:
    """A vector between two, on the arc and not the chord: blends keep the length that voices have."""
    size_a, size_b = np.linalg.norm(a), np.linalg.norm(b)
    angle = np.arccos(np.clip(np.dot(a.ravel(), b.ravel()) / (size_a * size_b), -1.0, 1.0))
    if angle < 1e-4:
        return np.asarray(a + share * (b - a), dtype=np.float32)
    towards = (np.sin((1 - share) * angle) * a / size_a + np.sin(share * angle) * b / size_b) / np.sin(angle)
    return np.asarray(towards * ((1 - share) * size_a + share * size_b), dtype=np.float32)


def stamp(path: Path) -> tuple[str, int, int]:
    """What tells one version of a file from another, to keep opened models by."""
    status = os.stat(path)
    return str(path), status.st_mtime_ns, status.st_size
