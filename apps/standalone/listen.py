"""A wake word from an .onnx file without voiceseq: numpy and onnxruntime. `docs/embedding.md` explains it.

arecord -t raw -f S16_LE -r 16000 | python listen.py alexa.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
facts = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
types = {one.name: np.float64 if one.type == "tensor(double)" else np.float32 for one in session.get_inputs()}
state = {name: np.zeros(shape, types[name]) for name, shape in facts["start"].items()}
words, rules = facts["words"], [facts["decisions"][word] for word in facts["words"]]
frame_s = facts["hop"] / facts["sample_rate"]
recent = np.zeros((max(rule["smoothing"] for rule in rules), len(words)))  # probabilities of the last frames
frame, run, fired = 0, [0] * len(words), [None] * len(words)  # frames in a row above; the frame of an event under way

while sound := sys.stdin.buffer.read(2 * 1280):  # any number of samples
    samples = np.frombuffer(sound[: len(sound) // 2 * 2], "<i2").astype(np.float32) / 32768
    logits, *after = session.run(None, {"samples": samples, **state})
    state = dict(zip(state, after, strict=True))  # outputs: the logits, then the state in the order of "start"
    for row in 1 / (1 + np.exp(-logits.astype(float))):
        recent = np.concatenate((recent[1:], row[None]))
        for n, rule in enumerate(rules):
            score = recent[-rule["smoothing"] :, n].mean()
            if fired[n] is not None:  # the same utterance, until its time is over and the score has fallen
                if frame < fired[n] + rule["refractory_s"] / frame_s - 1e-6 or score >= rule["threshold"] / 2:
                    continue
                fired[n] = None
            run[n] = run[n] + 1 if score >= rule["threshold"] and frame * frame_s >= 0.3 else 0
            if run[n] >= rule["patience"]:
                fired[n], run[n] = frame, 0
                time = (frame * facts["hop"] + facts["window"]) / facts["sample_rate"]
                print(json.dumps({"word": words[n], "time": round(time, 3), "score": round(score, 4)}), flush=True)
        frame += 1
