"""Piper voices (VITS): any ``.onnx`` with its ``.onnx.json``, one speaker or many; without the piper-tts package."""

import functools
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.datasets.voices import graphs
from voiceseq.datasets.voices.phonemes import pronounce, spell
from voiceseq.datasets.voices.voice import Manner, Samples, Span, Speech, Voice

# Licences of the recordings behind a voice, from its makers' cards; what is not here says so and does not ship.
FREE = {
    "libritts_r": "CC BY 4.0",
    "libritts": "CC BY 4.0",
    "vctk": "CC BY 4.0",
    "ljspeech": "public domain",
    "joe": "CC0",
}
# A phoneme that a voice never met stands near one that it did.
NEAREST = {
    "ɒ": "ɑ",
    "ʉ": "u",
    "a": "æ",
    "r": "ɹ",
    "ɾ": "t",
    "ʔ": "t",
    "ɚ": "ə",
    "ɐ": "ə",
    "ᵻ": "ɪ",
    "g": "ɡ",
    "ɫ": "l",
    "x": "k",
    "ʍ": "w",
}
FRAMES_A_PHONEME = 20  # noise laid ready for each id at pace 1: three times what voices take


class Piper:
    name, kind, timed, blends = "piper", "neural", True, True
    licence = "the voice's own"
    install = (
        "pip install 'voiceseq[voices]' piper-tts; "
        "python -m piper.download_voices en_US-libritts_r-medium --download-dir FOLDER"
    )

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        configs = [path for folder in folders for path in configs_in(folder)] + packaged_configs()
        return [voice for path in dict.fromkeys(configs) for voice in voices_of(path)]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        assert voice.path is not None
        model = opened(graphs.stamp(voice.path))
        accent = manner.accent or model.accent
        said = pronounce(pieces, accent, manner.rules)
        return model.say(said, model.vector(voice, manner), manner)


def configs_in(folder: Path) -> list[Path]:
    """Configurations in a folder and below it; ``folder`` may be a model file too."""
    if folder.suffix == ".onnx":
        beside = Path(f"{folder}.json")
        return [beside] if beside.is_file() else []
    return [path for path in sorted(folder.rglob("*.onnx.json")) if path.with_suffix("").is_file()]


def packaged_configs() -> list[Path]:
    """Voices that were installed as Python packages (their names hold "piper")."""
    found = []
    for package in metadata.distributions():
        if "piper" in (package.metadata["Name"] or "").lower():
            names = (file for file in package.files or () if file.name.endswith(".onnx.json"))
            found += [Path(str(package.locate_file(name))) for name in names]
    return [path for path in found if path.is_file() and path.with_suffix("").is_file()]


def voices_of(config: Path) -> list[Voice]:
    """All speakers of one model; nothing for another language or a file that is no Piper configuration."""
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
        accent = str(settings["espeak"]["voice"])
        count = int(settings.get("num_speakers", 1))
        speakers = settings.get("speaker_id_map") or {}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not accent.startswith("en"):
        return []
    name = config.name.removesuffix(".onnx.json")
    licence = next((FREE[part] for part in name.split("-") if part in FREE), "")
    names = [str(key) for key, _ in sorted(speakers.items(), key=lambda item: item[1])] if count > 1 else [""]
    return [
        Voice("piper", name, speaker, accent, licence or "see its card", bool(licence), config.with_suffix(""))
        for speaker in names
    ]


@functools.lru_cache(maxsize=2)
def opened(stamp: tuple[str, int, int]) -> "PiperModel":
    return PiperModel(Path(stamp[0]))


class PiperModel:
    """One model: phonemes and a speaker's vector in, samples and the phonemes' durations out."""

    def __init__(self, path: Path) -> None:
        settings = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
        self.sample_rate = int(settings["audio"]["sample_rate"])
        self.accent = str(settings["espeak"]["voice"])
        self.speakers: dict[str, int] = settings.get("speaker_id_map") or {}
        model = graphs.read_graph(path)
        self.table = graphs.vector_from_outside(model, "sid")
        self.noises = graphs.noise_from_outside(model)
        self.durations = graphs.show_output(model, "Ceil")
        known = known_symbols(model, settings["phoneme_id_map"])
        pad = known["_"]  # one after each symbol
        self.begin, self.end = [*known["^"], *pad], known["$"]
        near = {symbol: known[other] for symbol, other in NEAREST.items() if symbol not in known and other in known}
        self.symbols = {symbol: [*ids, *pad] for symbol, ids in {**near, **known}.items()}
        self.session = graphs.session(model)

    def vector(self, voice: Voice, manner: Manner) -> Samples | None:
        """The speaker's row of the table ``(1, size)``, blended with another speaker's where the manner says so."""
        if self.table is None:
            return None
        row = self.table[self.speakers[voice.speaker]]
        if manner.other is not None:
            row = graphs.spherical(row, self.table[self.speakers[manner.other.speaker]], manner.share)
        return np.asarray(row, dtype=np.float32)[None]

    def say(self, pieces: Sequence[str], vector: Samples | None, manner: Manner) -> Speech:
        spelt, places = spell(pieces, self.symbols)
        ids = np.array([*self.begin, *spelt, *self.end])
        places = [(start + len(self.begin), end + len(self.begin)) for start, end in places]
        scales = np.array([manner.noise, 1 / manner.speed, manner.rhythm], dtype=np.float32)
        feeds: dict[str, Any] = {"input": ids[None], "input_lengths": np.array([len(ids)]), "scales": scales}
        if vector is not None:
            feeds["vector"] = vector
        outputs = self.session.run(None, {**feeds, **self.noise(len(ids), manner)})
        samples = np.asarray(outputs[0], dtype=np.float32).reshape(-1)
        spans = (
            None if self.durations is None else spans_of(outputs[1].reshape(-1), places, len(samples), self.sample_rate)
        )
        return Speech(samples, self.sample_rate, spans)

    def noise(self, phonemes: int, manner: Manner) -> dict[str, Samples]:
        """More than the model will read: (2, phonemes) for the durations, (192, frames) for the sound.

        Drawn time by time, so that the same seed begins alike whatever the length.
        """
        frames = int(FRAMES_A_PHONEME * phonemes / manner.speed) + 50
        seeds = [[manner.seed, place] for place in range(len(self.noises))]
        drawn = [np.random.default_rng(seed).standard_normal((frames, 192), dtype=np.float32) for seed in seeds]
        return {name: values.T[None] for name, values in zip(self.noises, drawn, strict=True)}


def known_symbols(model: Any, symbols: dict[str, list[int]]) -> dict[str, list[int]]:
    """The symbols that the voice met in training: the others' embeddings have shrunk to next to nothing."""
    table = graphs.initializer(model, "enc_p.emb.weight")
    if table is None:
        return symbols
    sizes = np.linalg.norm(table, axis=1)
    usual = np.median([sizes[symbols[letter][0]] for letter in "tnslmkd"])
    return {symbol: ids for symbol, ids in symbols.items() if sizes[ids[0]] > 0.3 * usual}


def spans_of(frames: np.ndarray, places: list[tuple[int, int]], length: int, sample_rate: int) -> tuple[Span, ...]:
    """Seconds at which each piece begins and ends, from the durations ``(ids,)`` in frames of any length."""
    edges = np.concatenate([[0.0], np.cumsum(frames)]) * (length / frames.sum() / sample_rate)
    return tuple((float(edges[start]), float(edges[end])) for start, end in places)
