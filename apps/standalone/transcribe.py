"""Speech to text from an .onnx file without voiceseq: numpy and onnxruntime. `docs/embedding.md` explains it.

arecord -t raw -f S16_LE -r 16000 -d 5 | python transcribe.py harper-valley.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # chunks are small: a second thread would only wait
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
facts = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
types = {one.name: np.float64 if one.type == "tensor(double)" else np.float32 for one in session.get_inputs()}
state = {name: np.zeros(shape, types[name]) for name, shape in facts["start"].items()}  # none: whole utterances
known, tokens, before = facts["vocabulary"], [], facts["vocabulary"]["blank"]


def hear(sound: bytes, last: bool) -> None:
    global state, before  # CTC's best path: a symbol that goes on is one, and what is silent says nothing
    samples = np.frombuffer(sound[: len(sound) // 2 * 2], "<i2").astype(np.float32) / 32768
    more = {"last": np.array([int(last)])} if "last" in types else {}  # an encoder of chunks gives what waits
    names = ["log_probs", *(f"{name}_next" for name in state)]
    log_probs, *after = session.run(names, {"samples": samples, **state, **more})
    state = dict(zip(state, after, strict=True))
    for token in log_probs.argmax(-1).tolist():
        if token != before and token not in known["silent"]:
            tokens.append(known["symbols"][token])
        before = token


if state:
    while sound := sys.stdin.buffer.read(2 * 1600):  # any number of samples
        hear(sound, last=False)
    hear(b"", last=True)
else:
    hear(sys.stdin.buffer.read(2 * facts["longest"]), last=True)
print(" ".join((" " if known["level"] == "word" else "").join(tokens).replace("▁", " ").split()))
