"""The one place that imports torchaudio; everybody else says ``from voiceseq.audio.backend import torchaudio``.

The wheel on PyPI links its compiled part to CUDA libraries, so that on a machine without them a plain import fails.
Nearly all of torchaudio is Python: with a stand-in for the compiled part it imports, and the Mel spectrogram,
resampling and masking work. ``compiled`` tells whether the real part is there; without it ``forced_align`` and
``rnnt_loss`` raise, and the recursive filters are slow.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from voiceseq.errors import MissingDependencyError

__all__ = ["compiled", "torchaudio"]

EXTENSION = "torchaudio._extension"


def import_torchaudio() -> tuple[ModuleType, bool]:
    """torchaudio, and whether its compiled part works."""
    try:
        module = importlib.import_module("torchaudio")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"audio features need torchaudio ({error}): pip install torchaudio") from error
    except (OSError, RuntimeError):  # a library that is not there, or one built for another CUDA
        return import_without_extension(), False
    extension = sys.modules.get(EXTENSION)
    return module, bool(getattr(extension, "_IS_TORCHAUDIO_EXT_AVAILABLE", False))


def import_without_extension() -> ModuleType:
    """Forget the half-finished import and import again over a stand-in."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchaudio"]:
        del sys.modules[name]
    sys.modules[EXTENSION] = stand_in()
    return importlib.import_module("torchaudio")


def stand_in() -> ModuleType:
    """What torchaudio's Python asks of its compiled part, answered with no."""
    module = ModuleType(EXTENSION, "Stands in for torchaudio's compiled part, which cannot be loaded here.")
    answers: dict[str, Any] = {
        "_IS_TORCHAUDIO_EXT_AVAILABLE": False,
        "_IS_ALIGN_AVAILABLE": False,
        "_check_cuda_version": lambda: None,
        "_load_lib": lambda name: False,
        "fail_if_no_align": refuse,
    }
    vars(module).update(answers)
    return module


def refuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator of functions that cannot work without the compiled part."""

    def refused(*_: Any, **__: Any) -> None:
        raise MissingDependencyError(
            f"torchaudio.functional.{function.__name__} needs torchaudio's compiled part, which cannot be loaded here; "
            "voiceseq.core has its own alignment"
        )

    return refused


torchaudio, compiled = import_torchaudio()
