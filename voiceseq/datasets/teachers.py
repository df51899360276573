"""What bigger models heard: a teacher's frames of every clip, made once and kept in one file.

The teacher is Google's speech embedding (Apache-2.0) as ONNX files, ``melspectrogram.onnx`` and
``embedding_model.onnx`` in one folder. It gives 96 numbers every 80 ms, each from the 775 ms before.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.files import read_clip
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import ConfigError

Frames = NDArray[np.float32]
SAMPLE_RATE = 16_000
WINDOW_S, HOP_S = 0.775, 0.08
LEAD_S = 0.6  # of silence before a clip, so that its first words are taught too
SIZE = 96


class SpeechEmbedding:
    """``frames (n, 96)`` of 16 kHz samples; frame k ends at ``WINDOW_S + k * HOP_S - LEAD_S`` seconds of the clip."""

    def __init__(self, folder: str | Path) -> None:
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = onnx.load(str(Path(folder) / "embedding_model.onnx"))
        _make_convolutional(onnx, model)
        self._mel = onnxruntime.InferenceSession(str(Path(folder) / "melspectrogram.onnx"), options)
        self._embed = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def __call__(self, samples: Frames) -> Frames:
        lead = np.zeros(int(LEAD_S * SAMPLE_RATE), np.float32)
        scaled = np.concatenate([lead, samples])[None] * 32768
        mels = self._mel.run(None, {"input": scaled})[0].reshape(1, -1, 32, 1) / 10 + 2
        if mels.shape[1] < 76:
            return np.zeros((0, SIZE), np.float32)
        found: Frames = self._embed.run(None, {"input_1": mels})[0]
        return found.reshape(-1, SIZE)


def _make_convolutional(onnx: Any, model: Any) -> None:
    """Its two Reshapes fix the window at 76 frames; as Transposes they let any length through."""
    for node in model.graph.node:
        if node.op_type == "Reshape":
            first = node.input[0] == model.graph.input[0].name
            node.op_type = "Transpose"
            del node.input[1:]
            node.attribute.append(onnx.helper.make_attribute("perm", [0, 3, 1, 2] if first else [0, 2, 3, 1]))
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[1].ClearField("dim_value")
        value.type.tensor_type.shape.dim[1].dim_param = "time"


class Lessons:
    """The teacher's frames of many clips in one array; numbers have mean 0 and deviation 1 over all of them."""

    def __init__(self, frames: NDArray[np.float16], places: dict[str, tuple[int, int]]) -> None:
        self._frames, self._places = frames, places

    def __contains__(self, clip: str) -> bool:
        return clip in self._places

    def __getitem__(self, clip: str) -> tuple[Frames, Frames]:
        """``times (n,)`` in seconds of the clip at which each frame's window ends, and ``frames (n, 96)``.

        None at all of a clip that it never heard: noise, in which nothing is said, has no lessons.
        """
        start, count = self._places.get(clip, (0, 0))
        times = WINDOW_S - LEAD_S + HOP_S * np.arange(count, dtype=np.float32)
        return times, self._frames[start : start + count].astype(np.float32)


def learn_lessons(clips: Sequence[Clip], teacher: str | Path, cache: str | Path) -> Lessons:
    """The lessons of these clips: read from ``cache`` (an ``.npz``), or made and written there.

    Raises ConfigError for an id that comes twice, whose clips would be taught each other's lessons, and for a cache
    that lacks some of the clips.
    """
    cache = Path(cache)
    times = Counter(clip.id for clip in clips)
    if len(times) < len(clips):
        twice = times.most_common(1)[0][0]
        raise ConfigError(
            f"{len(clips)} clips came with {len(times)} ids ({twice!r} comes twice); lessons are kept by id: give each "
            "clip one of its own"
        )
    if cache.exists():
        with np.load(cache, allow_pickle=False) as stored:
            places = {name: (int(a), int(b)) for name, a, b in json.loads(str(stored["places"]))}
            missing = sum(clip.id not in places for clip in clips)
            if missing:
                raise ConfigError(f"{cache} has no lessons for {missing} clips: it is of other data; delete it")
            return Lessons(stored["frames"], places)
    embed = SpeechEmbedding(teacher)
    found, places, total = [], {}, 0
    for clip in clips:
        frames = embed(read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE))
        places[clip.id] = (total, len(frames))
        total += len(frames)
        found.append(frames)
    whole = np.concatenate(found)
    whole = ((whole - whole.mean(0)) / whole.std(0)).astype(np.float16)
    cache.parent.mkdir(parents=True, exist_ok=True)
    np.savez(cache, frames=whole, places=json.dumps([(name, *place) for name, place in places.items()]))
    return Lessons(whole, places)
