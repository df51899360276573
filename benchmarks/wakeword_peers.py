"""Other wake-word engines on streams of samples: run by ``benchmarks/wakeword.py`` inside the peers' own environment.

    python wakeword_peers.py PEER JOB.json        # prints {"events": [[stream, seconds, word], ...], "cpu_s": ...}

JOB.json: {"words": [...], "streams": [[file.pcm, word or null], ...]} with 16 kHz mono 16-bit samples; a stream of
a word that the peer does not know is passed over. numpy and the peer, no voiceseq.
``cpu_s`` is the processor time of this process over all streams, without loading models or files.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

RATE, REST_S = 16_000, 1.0  # an engine that gives scores only rests so long after it has fired

Heard = Iterator[tuple[int, str]]  # sample at which it fired, and the word


def rested(heard: Heard) -> Heard:
    """One event an utterance, for engines that leave this to their users."""
    last: dict[str, int] = {}
    for sample, word in heard:
        if sample - last.get(word, -RATE * 1000) >= REST_S * RATE:
            last[word] = sample
            yield sample, word


class Porcupine:
    """Porcupine 1.9.5 with its own keyword files."""

    sensitivity = 0.5

    def __init__(self, words: list[str]) -> None:
        import pvporcupine

        self.words = [word for word in words if word in pvporcupine.KEYWORDS]
        self.make = lambda: pvporcupine.create(keywords=self.words, sensitivities=[self.sensitivity] * len(self.words))

    def listen(self, samples: np.ndarray) -> Heard:
        engine = self.make()
        size = engine.frame_length
        for start in range(0, len(samples) - size + 1, size):
            found = engine.process(samples[start : start + size].tolist())
            if found >= 0:
                yield start + size, self.words[found]
        engine.delete()


class Porcupine8(Porcupine):
    """The same, more sensitive."""

    sensitivity = 0.8


class OpenWakeWord:
    """openWakeWord 0.5.1, ONNX models, at its usual threshold of 0.5."""

    threshold = 0.5

    def __init__(self, words: list[str]) -> None:
        import openwakeword
        from openwakeword.model import Model

        folder = os.path.join(os.path.dirname(openwakeword.__file__), "resources", "models")
        self.words = [word for word in words if os.path.exists(os.path.join(folder, f"{word}_v0.1.onnx"))]
        paths = [os.path.join(folder, f"{word}_v0.1.onnx") for word in self.words]
        self.model = Model(wakeword_models=paths, inference_framework="onnx", ncpu=1) if paths else None

    def listen(self, samples: np.ndarray) -> Heard:
        self.model.reset()
        yield from rested(self.scored(samples))

    def scored(self, samples: np.ndarray) -> Heard:
        for start in range(0, len(samples) - 1279, 1280):
            for name, score in self.model.predict(samples[start : start + 1280]).items():
                if score >= self.threshold:
                    yield start + 1280, name.removesuffix("_v0.1")


class MicroWakeWord:
    """microWakeWord through pymicro-wakeword 2.5.0, at the models' own cutoffs."""

    def __init__(self, words: list[str]) -> None:
        from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model

        known = {model.value: model for model in Model}
        self.words = [word for word in words if word in known]
        self.engines = {word: MicroWakeWord.from_builtin(known[word]) for word in self.words}
        self.features = MicroWakeWordFeatures

    def listen(self, samples: np.ndarray) -> Heard:
        for engine in self.engines.values():
            engine.reset()
        yield from rested(self.scored(samples))

    def scored(self, samples: np.ndarray) -> Heard:
        features = self.features()
        for start in range(0, len(samples), 160):
            for frame in features.process_streaming(samples[start : start + 160].tobytes()):
                for word, engine in self.engines.items():
                    if engine.process_streaming(frame):
                        yield start + 160, word


class PocketSphinx:
    """PocketSphinx 5.1.1 in keyword mode, every word at the threshold 1e-10; words that its dictionary has."""

    def __init__(self, words: list[str]) -> None:
        from pocketsphinx import Config, Decoder, get_model_path

        folder = os.path.join(get_model_path(), "en-us")
        dictionary = os.path.join(folder, "cmudict-en-us.dict")
        with open(dictionary) as lines:
            known = {line.split()[0] for line in lines if line.strip()}
        self.words = [word for word in words if all(part in known for part in word.split())]
        with tempfile.NamedTemporaryFile("w", suffix=".list", delete=False) as listed:
            listed.writelines(f"{word} /1e-10/\n" for word in self.words)
        if self.words:
            hmm = os.path.join(folder, "en-us")
            self.decoder = Decoder(Config(hmm=hmm, dict=dictionary, kws=listed.name, loglevel="FATAL"))
        os.unlink(listed.name)

    def listen(self, samples: np.ndarray) -> Heard:
        self.decoder.start_utt()
        for start in range(0, len(samples), 1280):
            self.decoder.process_raw(samples[start : start + 1280].tobytes(), False, False)
            if self.decoder.hyp() is not None:
                words = {segment.word.strip() for segment in self.decoder.seg()}
                yield from ((start + 1280, word) for word in self.words if word in words)
                self.decoder.end_utt()
                self.decoder.start_utt()
        self.decoder.end_utt()


PEERS = {
    "porcupine": Porcupine,
    "porcupine-0.8": Porcupine8,
    "openwakeword": OpenWakeWord,
    "microwakeword": MicroWakeWord,
    "pocketsphinx": PocketSphinx,
}


def main() -> int:
    name, path = sys.argv[1:]
    with open(path) as file:
        job = json.load(file)
    engine = PEERS[name](job["words"])
    events, cpu_s, seconds = [], 0.0, 0.0
    for stream, word in job["streams"] if engine.words else []:
        if word is not None and word not in engine.words:
            continue
        samples = np.fromfile(stream, "<i2")
        began = time.process_time()
        events += [(stream, sample / RATE, word) for sample, word in engine.listen(samples)]
        cpu_s += time.process_time() - began
        seconds += len(samples) / RATE
    print(json.dumps({"words": engine.words, "events": events, "cpu_s": cpu_s, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
