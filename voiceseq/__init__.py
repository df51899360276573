"""voiceseq: wake words, transcription and sequence models on your own machine.

    model = voiceseq.load("shakespeare")     # a shipped name, a folder or a .zip

Everything is imported when first asked for, so ``import voiceseq`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voiceseq.bundles import Bundle as Bundle
    from voiceseq.bundles import export_bundle as export_bundle
    from voiceseq.bundles import load_bundle as load_bundle
    from voiceseq.bundles import save_bundle as save_bundle
    from voiceseq.bundles import shipped_bundles as shipped_bundles
    from voiceseq.bundles import verify_bundle as verify_bundle
    from voiceseq.errors import AudioError as AudioError
    from voiceseq.errors import BundleError as BundleError
    from voiceseq.errors import ConfigError as ConfigError
    from voiceseq.errors import DeviceError as DeviceError
    from voiceseq.errors import InputError as InputError
    from voiceseq.errors import MissingDependencyError as MissingDependencyError
    from voiceseq.errors import VoiceseqError as VoiceseqError

__version__ = "0.3.0"

# What opens a bundle of each kind; the class has a classmethod from_bundle(bundle).
KINDS = {
    "backbone": "voiceseq.inference.phones:PhoneRecogniser",
    "bidirectional-lm": "voiceseq.inference.masked:ContextModel",
    "classifier": "voiceseq.inference.classifier:Classifier",
    "captioner": "voiceseq.inference.captioner:Captioner",
    "composer": "voiceseq.inference.composer:Composer",
    "embeddings": "voiceseq.inference.embeddings:WordEmbeddings",
    "forecaster": "voiceseq.inference.forecaster:Forecaster",
    "frame-classifier": "voiceseq.inference.captioner:FrameClassifier",
    "language-model": "voiceseq.inference.language:LanguageModel",
    "letters": "voiceseq.inference.letters:LettersToSounds",
    "masked-lm": "voiceseq.inference.masked:MaskedModel",
    "names": "voiceseq.inference.names:NameWriter",
    "pronouncer": "voiceseq.inference.pronounce:Pronouncer",
    "recogniser": "voiceseq.inference.transcriber:Transcriber",
    "tagger": "voiceseq.inference.tagger:Tagger",
    "transducer": "voiceseq.inference.transduce:Transducer",
    "translator": "voiceseq.inference.translator:Translator",
    "trigger": "voiceseq.inference.detector:Detector",
    "whisper": "voiceseq.inference.transcriber:Transcriber",
}

_BUNDLES = ("Bundle", "export_bundle", "load_bundle", "save_bundle", "shipped_bundles", "verify_bundle")
_ERRORS = (
    *("AudioError", "BundleError", "ConfigError", "DeviceError"),
    *("InputError", "MissingDependencyError", "VoiceseqError"),
)
_HOMES = dict.fromkeys(_BUNDLES, "voiceseq.bundles") | dict.fromkeys(_ERRORS, "voiceseq.errors")
_HOMES |= dict.fromkeys(("Detector", "Event"), "voiceseq.inference.detector")
_HOMES |= dict.fromkeys(("Segment", "Transcriber", "Transcript"), "voiceseq.inference.transcriber")

_CLASSES = ("Detector", "Event", "Segment", "Transcriber", "Transcript")

__all__ = ["KINDS", "__version__", "load", *_BUNDLES, *_CLASSES, *_ERRORS]


def load(name_or_path: str | Path | Sequence[str | Path]) -> Any:
    """Open a bundle and return the object that uses it: a shipped name, a folder or a ``.zip``.

    A list of wake words' bundles gives one detector of all their words. An ``.onnx`` file gives a detector or a
    recogniser, without torch.
    Raises BundleError when there is no such bundle, or it is damaged, foreign, or of a kind that this version lacks.
    """
    from voiceseq.bundles import load_bundle
    from voiceseq.errors import BundleError

    if isinstance(name_or_path, list | tuple):
        return __getattr__("Detector").of(name_or_path)
    if str(name_or_path).endswith(".onnx"):
        return importlib.import_module("voiceseq.inference.onnx").open_graph(name_or_path)
    bundle = load_bundle(cast("str | Path", name_or_path))
    if bundle.kind not in KINDS:
        raise BundleError(
            f"{bundle.path} is a {bundle.kind!r}; voiceseq {__version__} opens {', '.join(sorted(KINDS))}: "
            "update with pip install -U voiceseq"
        )
    module, _, name = KINDS[bundle.kind].partition(":")
    return getattr(importlib.import_module(module), name).from_bundle(bundle)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'voiceseq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
