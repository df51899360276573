"""Wake words in a stream of sound.

    detector = voiceseq.load("alexa")                      # or several at once: voiceseq.load(["alexa", "computer"])
    stream = detector.stream(sample_rate=48_000)           # one per listener; it owns all state, resampling included
    for event in stream.feed(samples): ...                 # Event(word, time, score), time counted in samples
    stream.finish(); stream.reset()                        # the rest; exactly a new stream
    times, scores = detector.scores(waveform, 48_000)      # per frame, before smoothing and threshold

Any cut of the sound gives the same scores and events, to the last bit. Torch is needed only for networks that
`voiceseq.inference.lean` does not know; a detector in an .onnx file (`voiceseq.inference.onnx`) needs no numba either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voiceseq.audio.resample import StreamResampler
from voiceseq.bundles import Bundle, load_bundle
from voiceseq.bundles.reading import build
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.arrays import read_arrays
from voiceseq.inference.events import Decider, Decision, Event, check_threshold

__all__ = ["Decision", "Detector", "Event", "Stream"]

Scores = NDArray[np.float64]
KIND = "trigger"
LOUDEST = 1e4  # full scale is 1; what is beyond this, NaN and infinity are no sound
CHANNELS = 64  # more than that are (frames, channels) the wrong way round
PIECE = 1 << 17  # samples that are worked on at a time, so that a long recording needs little memory


class TorchNetwork:
    """Any trigger network on torch, with the face of `LeanNetwork`."""

    def __init__(self, network: Any) -> None:
        config = network.config.backbone or network.config
        self.network, self.words = network.eval(), tuple(network.words)
        self.sample_rate, self.window = config.features.sample_rate, config.features.window
        self.hop = round(network.frame_s * self.sample_rate)

    def start(self) -> list[Any]:
        return [None]

    def advance(self, samples: NDArray[np.float32], state: list[Any]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            logits, state[0] = self.network(torch.from_numpy(np.array(samples))[None], state[0])
        return np.ascontiguousarray(logits[0].numpy())


class Detector:
    """One or several words; ``words``, ``thresholds`` and the columns of all scores are in the same order.

    Raises InputError for words that come twice, and networks whose frames do not fall together.
    """

    def __init__(self, networks: Sequence[Any], decisions: Mapping[str, Decision]) -> None:
        if not networks:
            raise InputError("a detector without networks was asked for; at least one was wanted")
        self.networks = list(networks)
        self.words = tuple(word for network in self.networks for word in network.words)
        if twice := sorted({word for word in self.words if self.words.count(word) > 1}):
            raise InputError(f"the word {twice[0]!r} came twice; each was wanted once: leave one of its bundles out")
        if missing := [word for word in self.words if word not in decisions]:
            raise InputError(f"the word {missing[0]!r} has no decision; give its threshold")
        self.decisions = {word: decisions[word] for word in self.words}
        clocks = {(one.sample_rate, one.window, one.hop) for one in self.networks}
        if len(clocks) > 1:
            raise InputError("these bundles cut sound into different frames; open each of them by itself")
        self.sample_rate, self.window, self.hop = clocks.pop()

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError when weights, config and decisions do not belong together."""
        return cls([_network(bundle)], read_decisions(bundle.config["words"], bundle.decoding, str(bundle.path)))

    @classmethod
    def from_network(cls, network: Any, decisions: Mapping[str, Decision]) -> Self:
        """Of a `TriggerNetwork` in memory, as it is now."""
        from voiceseq.bundles.writing import plain
        from voiceseq.inference import lean

        config = plain(network.config, "config")
        if not lean.supports(config):
            return cls([TorchNetwork(network)], decisions)
        arrays = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
        return cls([lean.LeanNetwork.of(config, arrays)], decisions)

    @classmethod
    def of(cls, bundles: Iterable[Bundle | Detector | str | Path]) -> Self:
        """Several at once; those with the same backbone share one pass through it, their heads run as one.

        Raises BundleError for what is no detector, InputError for a word that comes twice.
        """
        networks: dict[str, Any] = {}
        decisions: dict[str, Decision] = {}
        for number, one in enumerate(bundles):
            if isinstance(one, str | Path):
                one = _opened(one)
            detector = cls.from_bundle(one) if isinstance(one, Bundle) else one
            decisions |= detector.decisions
            for place, network in enumerate(detector.networks):
                key = getattr(network, "fingerprint", f"{number}.{place}")
                networks[key] = networks[key].join(network) if key in networks else network
        return cls(list(networks.values()), decisions)

    @property
    def frame_s(self) -> float:
        """Seconds from one frame to the next."""
        return float(self.hop / self.sample_rate)

    @property
    def thresholds(self) -> Scores:
        """``(words,)``, a copy."""
        return np.array([decision.threshold for decision in self.decisions.values()])

    def threshold(self, word: str) -> float:
        """Raises InputError for a word that this detector does not know."""
        self._known(word)
        return self.decisions[word].threshold

    def with_thresholds(self, thresholds: float | Mapping[str, float]) -> Self:
        """The same detector with another threshold for all words, or for some. Raises InputError."""
        if not isinstance(thresholds, Mapping):
            thresholds = dict.fromkeys(self.words, thresholds)
        changed = dict(self.decisions)
        for word, value in thresholds.items():
            self._known(word)
            changed[word] = dataclasses.replace(changed[word], threshold=float(value))
        return type(self)(self.networks, changed)

    def stream(self, sample_rate: int = 16_000) -> Stream:
        """A new listener for sound at ``sample_rate``. Raises InputError for a rate that cannot be."""
        return Stream(self, sample_rate)

    def scores(self, waveform: ArrayLike, sample_rate: int = 16_000) -> tuple[Scores, Scores]:
        """``times (frames,)``, the end of each frame in seconds, and ``scores (frames, words)``, probabilities.

        Takes what `Stream.feed` takes, and raises InputError as it does.
        """
        scores = self._hear(waveform, sample_rate)[1]
        return self.times(np.arange(len(scores))), scores

    def detect(self, waveform: ArrayLike, sample_rate: int = 16_000) -> list[Event]:
        """The events of a whole recording: exactly those of a stream of it."""
        return self._hear(waveform, sample_rate)[0]

    def times(self, frames: Any) -> Any:
        """Seconds of audio up to the end of a frame (or array of frames)."""
        return (frames * self.hop + self.window) / self.sample_rate

    def _hear(self, waveform: ArrayLike, sample_rate: int) -> tuple[list[Event], Scores]:
        stream = self.stream(sample_rate)
        events, scores = stream.feed(waveform), stream.scores
        events += stream.finish()
        return events, np.concatenate((scores, stream.scores))

    def _known(self, word: str) -> None:
        if word not in self.words:
            raise InputError(f"there is no word {word!r} here; it listens for {', '.join(self.words)}")


class Stream:
    """One listener. ``feed`` sound as it comes, ``finish`` for the rest, ``reset`` to begin again exactly like new.

    Attributes:
        scores: ``(frames, words)``, the probabilities of the frames that the last call completed.
        thresholds: ``(words,)``; may be changed while listening. ``reset`` keeps them.
        replaced: how many samples were NaN, infinite or beyond all sound, and became silence.
    """

    def __init__(self, detector: Detector, sample_rate: int) -> None:
        self.detector, self.sample_rate = detector, sample_rate
        same = sample_rate == detector.sample_rate
        self._resampler = None if same else StreamResampler(sample_rate, detector.sample_rate)
        self._decider = Decider(list(detector.decisions.values()), detector.frame_s)
        self.reset()

    def reset(self) -> None:
        """Forget all sound."""
        if self._resampler:
            self._resampler.reset()
        self._decider.reset()
        self._states = [network.start() for network in self.detector.networks]
        self._finished = False
        self.replaced, self.samples = 0, 0
        self.scores: Scores = np.zeros((0, len(self.detector.words)))

    @property
    def time(self) -> float:
        """Seconds of audio fed so far."""
        return self.samples / self.sample_rate

    @property
    def thresholds(self) -> Scores:
        return self._decider.thresholds

    @thresholds.setter
    def thresholds(self, values: ArrayLike) -> None:
        given = np.array(values, dtype=float)
        if given.shape != (len(self.detector.words),):
            raise InputError(f"thresholds have shape {given.shape}; one a word, {len(self.detector.words)}, was wanted")
        for value in given.tolist():
            check_threshold(value)
        self._decider.thresholds = given

    def feed(self, samples: ArrayLike) -> list[Event]:
        """The next samples, and what fired in them, in the order of time.

        Args:
            samples: ``(frames,)`` or ``(channels, frames)``, whose mean is heard; floating point with full scale 1, or
                integers of 8, 16 or 32 bits. Any number of them, none included.

        Raises:
            InputError: another shape or type, or a stream that is finished.
        """
        if self._finished:
            raise InputError("this stream is finished; call reset() before another one is fed")
        sound, replaced = clean(np.asarray(samples))
        self.replaced += replaced
        self.samples += len(sound)
        return self._hear(self._resampler.feed(sound) if self._resampler else sound)

    def finish(self) -> list[Event]:
        """The end of the sound: what the resampler still held. A second call gives nothing."""
        if self._finished:
            return []
        self._finished = True
        return self._hear(self._resampler.finish() if self._resampler else np.zeros(0, np.float32))

    def _hear(self, samples: NDArray[np.float32]) -> list[Event]:
        long = len(samples) > PIECE
        pieces = np.split(samples, range(PIECE, len(samples), PIECE)) if long else [samples]
        parts = [self._advance(piece) for piece in pieces]
        self.scores = np.concatenate(parts) if long else parts[0]
        words, times = self.detector.words, self.detector.times
        return [Event(words[word], times(frame), score) for frame, word, score in self._decider.feed(self.scores)]

    def _advance(self, samples: NDArray[np.float32]) -> Scores:
        both = zip(self.detector.networks, self._states, strict=True)
        logits = [network.advance(samples, state) for network, state in both]
        joined = logits[0] if len(logits) == 1 else np.concatenate(logits, 1)
        return probabilities(joined)


def probabilities(logits: NDArray[np.float32]) -> Scores:
    """The same shape in 64 bits, where the step from 0.99999999 to 1 can still be told."""
    with np.errstate(over="ignore"):  # what is certainly not the word
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))))


def clean(samples: NDArray[Any]) -> tuple[NDArray[np.float32], int]:
    """One channel of float32 with silence for what is no sound, and how many samples that were. Raises InputError."""
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and not 0 < samples.shape[0] <= CHANNELS):
        turn = ": give samples.T" if samples.ndim == 2 and samples.size else ""
        raise InputError(f"samples have shape {samples.shape}; (frames,) or (channels, frames) was wanted{turn}")
    sound, replaced = _as_float(samples), 0
    if samples.dtype.kind == "f" and sound.size and not np.abs(sound).max() <= LOUDEST:  # NaN is not at most anything
        bad = ~(np.abs(sound) <= LOUDEST)
        sound, replaced = np.where(bad, np.float32(0), sound), int(bad.sum())
    return (sound if sound.ndim == 1 else sound.mean(0, dtype=np.float32)), replaced


def _as_float(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Full scale is 1; 8 bits without a sign have their middle at 128, as in wav files."""
    kind, size = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and then silence
            return samples.astype(np.float32, copy=False)
    if kind == "i" and size <= 4:
        return samples.astype(np.float32) * np.float32(0.5 ** (8 * size - 1))
    if kind == "u" and size == 1:
        return (samples.astype(np.float32) - np.float32(128)) / np.float32(128)
    if not samples.size:
        return samples.astype(np.float32)
    raise InputError(f"samples have dtype {samples.dtype}; float32 (full scale 1) or int16 was wanted: convert them")


def _opened(name_or_path: str | Path) -> Bundle | Detector:
    if str(name_or_path).endswith(".onnx"):
        from voiceseq.inference.onnx import open_detector

        return open_detector(name_or_path)
    return load_bundle(name_or_path)


def _network(bundle: Bundle) -> Any:
    from voiceseq.inference import lean

    if bundle.kind != KIND:
        raise BundleError(f"{bundle.path} is a {bundle.kind!r}; a wake-word detector ({KIND!r}) was wanted")
    try:
        known = lean.supports(bundle.config)
    except (AttributeError, TypeError) as error:
        raise BundleError(f"{bundle.path}: its config does not describe a {KIND} ({error})") from error
    if known:
        return lean.LeanNetwork.of(bundle.config, read_arrays(bundle), str(bundle.path))
    from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

    return TorchNetwork(bundle.network(TriggerNetwork, TriggerConfig))


def read_decisions(words: Sequence[str], decoding: Mapping[str, Any], name: str) -> dict[str, Decision]:
    """One decision a word, from plain JSON. Raises BundleError where they do not belong together."""
    if wrong := sorted(set(words) ^ decoding.keys()):
        raise BundleError(f"{name}: decoding and words differ in {wrong[0]!r}; one decision a word was wanted")
    return {word: build(Decision, decoding[word], f"{name}: decoding.{word}") for word in words}
