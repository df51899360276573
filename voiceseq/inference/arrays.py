"""The weights of a bundle as numpy arrays, without torch."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.bundles import Bundle
from voiceseq.errors import BundleError

FILE = "weights.safetensors"
FLOATS: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


def read_arrays(bundle: Bundle) -> dict[str, NDArray[np.float32]]:
    """Name -> float32 array, whatever floating point type is stored. Raises BundleError for what cannot be read."""
    data = bundle.read(FILE)
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = {name: entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
        arrays = {name: _array(data[start:], entry) for name, entry in header.items()}
        return arrays | {name: arrays[twin] for name, twin in bundle.storage.get("tied", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{bundle.path}: {FILE} cannot be read ({error!r}): get the bundle again") from error


def _array(data: bytes, entry: dict[str, Any]) -> NDArray[np.float32]:
    first, end = entry["data_offsets"]
    if entry["dtype"] == "BF16":  # the upper half of a float32
        halves = np.frombuffer(data[first:end], "<u2").astype("<u4") << 16
        return halves.view(np.float32).reshape(entry["shape"])
    return np.frombuffer(data[first:end], FLOATS[entry["dtype"]]).reshape(entry["shape"]).astype(np.float32)
