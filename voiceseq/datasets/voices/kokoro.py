"""Kokoro: a model file (``kokoro*.onnx``) and a file of voices' styles (``*voices*.npz`` or ``.bin``) in one folder."""

import functools
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voiceseq.datasets.voices import graphs
from voiceseq.datasets.voices.phonemes import pronounce, spell
from voiceseq.datasets.voices.piper import spans_of
from voiceseq.datasets.voices.voice import Manner, Samples, Speech, Voice
from voiceseq.errors import InputError, MissingDependencyError

LANGUAGES = {"a": "en-us", "b": "en-gb", "e": "es", "f": "fr", "h": "hi", "i": "it", "j": "ja", "p": "pt", "z": "zh"}
SAMPLE_RATE = 24_000
EARLY_S = 0.1  # its sound comes this much before its durations say (measured on single words, to about 40 ms)
LONGEST = 510


class Kokoro:
    name, kind, timed, blends = "kokoro", "neural", True, True
    licence = "Apache-2.0"
    install = (
        "pip install 'voiceseq[voices]' kokoro-onnx; from github.com/thewh1teagle/kokoro-onnx/releases put "
        "kokoro-v1.0.int8.onnx and voices-v1.0.bin into FOLDER"
    )

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        found = []
        for model in (path for folder in folders if folder.is_dir() for path in sorted(folder.rglob("kokoro*.onnx"))):
            styles = styles_beside(model)
            names = sorted(np.load(styles).files) if styles else []
            found += [Voice("kokoro", name, "", accent_of(name), self.licence, True, model) for name in names]
        return list({voice.name: voice for voice in reversed(found)}.values())[::-1]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        assert voice.path is not None
        model = opened(graphs.stamp(voice.path))
        accent = manner.accent or (voice.accent if voice.accent.startswith("en") else "en-us")
        said = pronounce(pieces, accent, manner.rules)
        return model.say(said, model.style(voice, manner), manner.speed)


def styles_beside(model: Path) -> Path | None:
    found = [path for pattern in ("*voices*.npz", "*voices*.bin") for path in sorted(model.parent.glob(pattern))]
    return found[0] if found else None


def accent_of(name: str) -> str:
    return LANGUAGES.get(name[:1], "en-us")


def vocabulary() -> dict[str, list[int]]:
    """Kokoro's symbols, from the kokoro-onnx package (read, not imported: it would load a second espeak)."""
    spec = importlib.util.find_spec("kokoro_onnx")
    if spec is None or spec.origin is None:
        raise MissingDependencyError("Kokoro's voices need its list of symbols: pip install kokoro-onnx")
    settings = json.loads((Path(spec.origin).parent / "config.json").read_text(encoding="utf-8"))
    return {symbol: [number] for symbol, number in settings["vocab"].items()}


@functools.lru_cache(maxsize=1)
def opened(stamp: tuple[str, int, int]) -> "KokoroModel":
    return KokoroModel(Path(stamp[0]))


class KokoroModel:
    """The one model of all its voices: symbols and a style in, samples and durations out. It draws no noise."""

    def __init__(self, path: Path) -> None:
        styles = styles_beside(path)
        if styles is None:
            raise InputError(f"no file of voices (*voices*.npz or .bin) beside {path}")
        self.styles = np.load(styles)
        self.symbols = vocabulary()
        model = graphs.read_graph(path)
        self.durations = graphs.show_output(model, "Clip", "Round")
        self.tokens = next(i.name for i in model.graph.input if i.name in ("tokens", "input_ids"))
        self.session = graphs.session(model)

    def style(self, voice: Voice, manner: Manner) -> Samples:
        """A voice's styles ``(510, 1, 256)``, one for each length of text."""
        own = self.styles[voice.name]
        if manner.other is None:
            return np.asarray(own)
        return np.asarray((1 - manner.share) * own + manner.share * self.styles[manner.other.name], dtype=np.float32)

    def say(self, pieces: Sequence[str], style: Samples, speed: float) -> Speech:
        ids, places = spell(pieces, self.symbols)
        if not 0 < len(ids) <= LONGEST:
            raise InputError(f"the text has {len(ids)} phonemes, Kokoro takes 1 to {LONGEST}: give shorter sentences")
        places = [(start + 1, end + 1) for start, end in places]
        feeds = {
            self.tokens: np.array([[0, *ids, 0]]),
            "style": np.asarray(style[min(len(ids), len(style)) - 1], dtype=np.float32).reshape(1, -1),
            "speed": np.array([np.clip(speed, 0.5, 2.0)], dtype=np.float32),
        }
        outputs = self.session.run(None, feeds)
        samples = np.asarray(outputs[0], dtype=np.float32).reshape(-1)
        if self.durations is None:
            return Speech(samples, SAMPLE_RATE)
        spans = spans_of(outputs[1].reshape(-1), places, len(samples), SAMPLE_RATE)
        return Speech(samples, SAMPLE_RATE, tuple((start - EARLY_S, end - EARLY_S) for start, end in spans))
