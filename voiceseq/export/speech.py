"""A recogniser of speech as one ONNX file that checks itself before it is written.

    report = export_speech("harper-valley", "harper-valley.onnx", quantize="int8")

A causal or chunked network becomes a graph of a stream, another one a graph of whole utterances (`export.acoustic`); of
a Whisper, the ear with its CTC head. What searches over the log-probabilities (beam, language model, attention decoder)
is no part of it. The graph must give what torch gives: in 32 bits the same probabilities within 1e-4, chunk by chunk;
with 8 bits a word error rate within 0.3 points, on the clips that ship or on a manifest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq import __version__
from voiceseq.audio.files import read_clip
from voiceseq.bundles import Bundle, load_bundle
from voiceseq.core.distance import edit_distance
from voiceseq.datasets.manifest import read_manifest
from voiceseq.errors import BundleError, MissingDependencyError
from voiceseq.export.onnx import CHUNKS, LIMIT, check_quantisation, sealed, shipped_folder, write_file
from voiceseq.inference.onnx import FORMAT, UNSEALED
from voiceseq.inference.onnx_speech import KINDS, OnnxSpeech
from voiceseq.inference.transcriber import Transcriber
from voiceseq.text.normalise import normalise
from voiceseq.text.vocabulary import Vocabulary

Array = NDArray[np.float32]
POINTS = 0.3  # of word error rate that 8 bits may cost


@dataclass(frozen=True)
class SpeechReport:
    """``difference``: the largest to torch of a probability (or of a feature, where there is no CTC head), of all
    ``clips``; ``wer`` and ``torch_wer`` in percent, by CTC's best path, None without a head."""

    path: Path
    bytes: int
    weights: str
    hears: str
    compared: str
    difference: float
    clips: int
    wer: float | None
    torch_wer: float | None


def export_speech(
    name: str | Path, target: str | Path, quantize: str | None = None, manifest: Path | None = None
) -> SpeechReport:
    """Write the graph of a recogniser.

    Raises:
        BundleError: a bundle that cannot be exported (says which part of it), or a graph that differs from torch.
        ConfigError: an unknown kind of quantisation.
        InputError: a manifest that cannot be read.
        MissingDependencyError: onnx or onnxruntime is not installed.
    """
    check_quantisation(quantize)
    bundle = load_bundle(name)
    if bundle.kind not in KINDS:
        raise BundleError(f"{bundle.path} is a {bundle.kind!r}; a recogniser of speech was wanted")
    heard = _Hearing(bundle)
    data = heard.write(quantize)
    clips = list(_clips(manifest))
    report = compare(OnnxSpeech(data), heard, clips, quantize)
    path = write_file(Path(target).expanduser(), data)
    return SpeechReport(path, len(data), quantize or "float32", *report)


class _Hearing:
    """A recogniser's network in torch, and what its graph is to say of itself."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        recogniser: Any = Transcriber.from_bundle(bundle).recogniser
        self.network, self.language = recogniser.network.eval(), recogniser.language
        self.whisper = bundle.kind == "whisper"
        head = self.network.ctc if self.whisper else self.network.output
        self.vocabulary: Vocabulary | None = None
        if head is not None:
            self.vocabulary = recogniser.letters if self.whisper else recogniser.vocabulary
        self.streams = not self.whisper and self.network.encoder.causal

    @property
    def hears(self) -> str:
        return "a stream" if self.streams else "whole utterances"

    def write(self, quantize: str | None) -> bytes:
        """Raises BundleError that names the part which has no place in a graph."""
        try:
            from voiceseq.export.acoustic import speech_graph
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"export to ONNX needs onnx ({error}): pip install 'voiceseq[onnx]'"
            ) from error
        try:
            made = speech_graph(self.network, quantize is not None)
        except BundleError as error:
            raise BundleError(f"{self.bundle.path} cannot become ONNX: {error}") from error
        return sealed(made.graph, self.bundle.kind, self._facts(quantize, made.start))

    def _facts(self, quantize: str | None, start: dict[str, list[int]]) -> dict[str, Any]:
        network, bundle = self.network, self.bundle
        facts: dict[str, Any] = {"kind": bundle.kind, "format": FORMAT, "version": __version__, "sha256": UNSEALED}
        facts |= {"name": bundle.name or bundle.path.stem, "licence": bundle.licence or ""}
        facts |= {"weights": quantize or "float32", "language": self.language, "start": start}
        facts |= _sizes(network)
        if self.vocabulary is not None:
            known = self.vocabulary
            facts["vocabulary"] = {"level": known.level, "symbols": list(known.symbols)}
            facts["vocabulary"] |= {"silent": sorted(known.special_ids), "blank": known.special("blank")}
        return facts

    @torch.no_grad()
    def torch_says(self, samples: Array) -> Array:
        """Probabilities ``(time, symbols)``, or features ``(time, size)`` where there is no head."""
        sound = torch.from_numpy(samples)[None]
        if self.whisper:
            frames, _ = self.network.listen(sound)
            return _numpy(frames if self.network.ctc is None else self.network.ctc(frames).softmax(-1))
        if not self.streams:
            return _numpy(self.network(sound).logits.softmax(-1))
        logits, state = self.network.advance(sound)
        rest = self.network.flush(state)
        return _numpy((logits if rest is None else torch.cat((logits, rest), 1)).softmax(-1))


def _sizes(network: Any) -> dict[str, Any]:
    from voiceseq.models.whisper import FRAME_S, HOP, SAMPLE_RATE, STRIDE, WhisperHearing

    if isinstance(network, WhisperHearing):
        longest = network.hearing.audio_positions * HOP * STRIDE
        return {"sample_rate": SAMPLE_RATE, "frame_s": FRAME_S, "shortest": HOP * STRIDE, "longest": longest}
    rate = network.config.features.sample_rate
    return {"sample_rate": rate, "frame_s": network.frame_s, "shortest": network.shortest, "longest": 60 * rate}


def _numpy(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor[0].numpy())


def graph_says(graph: OnnxSpeech, samples: Array) -> Array:
    """What ``_Hearing.torch_says`` says; a stream chunk by chunk."""
    if not graph.streams:
        return np.exp(graph.log_probs(samples)) if "vocabulary" in graph.facts else graph.frames(samples)
    stream, parts, at, number = graph.stream(), [], 0, 0
    while at < len(samples):
        size = CHUNKS[number % len(CHUNKS)]
        parts.append(stream.feed(samples[at : at + size]))
        at, number = at + size, number + 1
    return np.exp(np.concatenate((*parts, stream.finish())))


def compare(
    graph: OnnxSpeech, heard: _Hearing, clips: Sequence[tuple[str, str, Array]], quantize: str | None
) -> tuple[str, str, float, int, float | None, float | None]:
    """The last fields of a report. Raises BundleError where the graph does not do what torch does."""
    worst, words, wrong, torch_wrong = 0.0, 0, 0, 0
    spelt = heard.vocabulary is not None
    for name, text, samples in clips:
        ours, theirs = graph_says(graph, samples), heard.torch_says(samples)
        difference = float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else np.inf
        if quantize is None and not difference <= LIMIT:
            raise BundleError(f"the graph differs from torch by {difference:.2g} in {name}; {LIMIT:g} was wanted")
        worst = max(worst, difference)
        if spelt:
            wanted = normalise(text).split()
            words += len(wanted)
            wrong += edit_distance(wanted, graph.text(ours).split())
            torch_wrong += edit_distance(wanted, graph.text(theirs).split())
    rates = (100 * wrong / max(1, words), 100 * torch_wrong / max(1, words)) if spelt else (None, None)
    if spelt and rates[0] > rates[1] + POINTS:  # type: ignore[operator]
        raise BundleError(
            f"the graph's word error rate is {rates[0]:.2f} %, torch's {rates[1]:.2f} %; at most {POINTS} points more "
            "were wanted"
        )
    return heard.hears, "probability" if spelt else "feature", worst, len(clips), *rates


def _clips(manifest: Path | None) -> Iterator[tuple[str, str, Array]]:
    """Name, text and samples."""
    for clip in read_manifest(manifest or shipped_folder() / "manifest.jsonl"):
        yield clip.id, clip.text or "", read_clip(clip.audio, clip.offset, clip.duration, 16_000)
