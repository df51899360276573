"""A recogniser of speech from one .onnx file: numpy and onnxruntime, without torch.

    speech = voiceseq.load("harper-valley.onnx")     # written by: voiceseq bundle export harper-valley --format onnx
    speech.text(speech.log_probs(samples))           # CTC's best path

Sound is 16 kHz, one channel, full scale 1. A graph of a stream (``speech.streams``) is fed by ``speech.stream()``; one
of whole utterances takes them as they are, at least ``shortest`` and at most ``longest`` samples.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import BundleError, InputError
from voiceseq.inference.onnx import NEXT, check_seal, open_session, read_facts

KINDS = ("recogniser", "whisper")
MARK = "▁"  # stands before the beginning of a word, in subwords

Array = NDArray[np.float32]


class OnnxSpeech:
    """A file, or its bytes. ``facts``: its metadata. Raises BundleError for a file of another kind or a changed one."""

    def __init__(self, model: Path | bytes) -> None:
        self.name = str(model) if isinstance(model, Path) else "the graph"
        check_seal(model, self.name)
        self.session = open_session(model, self.name)
        self.facts = read_facts(self.session, self.name)
        if self.facts["kind"] not in KINDS:
            raise BundleError(f"{self.name} is a {self.facts['kind']!r}; a recogniser of speech was wanted")
        try:
            self.sample_rate, self.frame_s = int(self.facts["sample_rate"]), float(self.facts["frame_s"])
            self.shortest, self.longest = int(self.facts["shortest"]), int(self.facts["longest"])
            types = {one.name: np.float64 if "double" in one.type else np.float32 for one in self.session.get_inputs()}
            self.start = {key: np.zeros(shape, types[key]) for key, shape in self.facts["start"].items()}
            self.waits = "last" in types
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"{self.name}: its metadata do not describe its graph ({error!r}): export it again"
            ) from error

    @property
    def streams(self) -> bool:
        return bool(self.start)

    def stream(self) -> "OnnxSpeechStream":
        """One listener. Raises InputError for a graph of whole utterances."""
        if not self.streams:
            raise InputError(f"{self.name} takes whole utterances; a causal or chunked recogniser was wanted")
        return OnnxSpeechStream(self)

    def frames(self, samples: Array) -> Array:
        """The encoder's frames ``(time, size)`` of an utterance. Raises InputError for a graph of a stream."""
        if self.streams:
            raise InputError(f"{self.name} is of a stream, which gives log-probabilities alone")
        return np.asarray(self.session.run(["frames"], {"samples": self._checked(samples)})[0])

    def log_probs(self, samples: Array) -> Array:
        """``(time, symbols)`` of an utterance. Raises InputError for another shape, length or a missing CTC head."""
        if self.streams:
            stream = self.stream()
            return np.concatenate((stream.feed(samples), stream.finish()))
        if "vocabulary" not in self.facts:
            raise InputError(f"{self.name} has no CTC head: it gives the encoder's frames alone")
        return np.asarray(self.session.run(["log_probs"], {"samples": self._checked(samples)})[0])

    def text(self, log_probs: Array) -> str:
        """CTC's best path as words."""
        best = np.asarray(log_probs).argmax(-1)
        kept = best[np.r_[True, best[1:] != best[:-1]]] if len(best) else best
        return spell([int(token) for token in kept], self.facts["vocabulary"])

    def _checked(self, samples: Array) -> Array:
        samples = np.asarray(samples, np.float32)
        if samples.ndim != 1 or not self.shortest <= len(samples) <= self.longest:
            raise InputError(
                f"samples have shape {samples.shape}; (n,) with {self.shortest:,} to {self.longest:,} was wanted"
            )
        return np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0)


class OnnxSpeechStream:
    """``feed`` sound as it comes, ``finish`` for what waits, ``reset`` to begin again."""

    def __init__(self, speech: OnnxSpeech) -> None:
        self.speech = speech
        self._outputs = ["log_probs", *(key + NEXT for key in speech.start)]
        self.reset()

    def reset(self) -> None:
        self._state: dict[str, Any] = dict(self.speech.start)

    def feed(self, samples: Array) -> Array:
        """``(n,)``, any number of them -> log-probabilities ``(frames, symbols)`` that are ready now."""
        return self._run(np.nan_to_num(np.asarray(samples, np.float32), nan=0.0, posinf=0.0, neginf=0.0), 0)

    def finish(self) -> Array:
        """What was waiting for the rest of its chunk."""
        return self._run(np.zeros(0, np.float32), 1)

    def _run(self, samples: Array, last: int) -> Array:
        more = {"last": np.array([last])} if self.speech.waits else {}
        log_probs, *after = self.speech.session.run(self._outputs, {"samples": samples, **self._state, **more})
        self._state = dict(zip(self._state, after, strict=True))
        return np.asarray(log_probs)


def spell(tokens: list[int], vocabulary: dict[str, Any]) -> str:
    """Symbols as words with single spaces between them; blank, end and other special symbols say nothing."""
    silent = set(vocabulary["silent"])
    symbols = [vocabulary["symbols"][token] for token in tokens if token not in silent]
    joined = (" " if vocabulary["level"] == "word" else "").join(symbols)
    return " ".join(joined.replace(MARK, " ").split())
