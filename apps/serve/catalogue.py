"""What is served: bundles by the name that clients call them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from voiceseq.bundles import Bundle, load_bundle, shipped_bundles
from voiceseq.errors import BundleError, InputError

WAKE, SPEECH = "trigger", ("recogniser", "whisper")
TEXT = {"translator": "translate", "tagger": "tag", "language-model": "generate", "transducer": "dates"}
# the bundle that each command takes where none is named
USUAL = {"translate": "fra-eng", "tag": "wnut17", "generate": "shakespeare", "dates": "dates"}
# What applications ask for when they were written for OpenAI's own service.
ALIASES = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")
DEFAULT = "english-small"


@dataclass(frozen=True)
class Model:
    """A bundle to be served; ``words`` of a detector, ``task`` of a model of text, neither of a recogniser."""

    name: str
    path: str
    words: tuple[str, ...] = ()
    description: str = ""
    licence: str = ""
    version: str = ""
    task: str = ""

    @property
    def wake(self) -> bool:
        return bool(self.words)

    @property
    def kind(self) -> Literal["wake word", "text", "speech"]:
        return "wake word" if self.words else "text" if self.task else "speech"


@dataclass(frozen=True)
class Catalogue:
    """Raises InputError where two models have one name, or there is none."""

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        names = [one.name for one in self.models]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"two models are called {twice[0]!r}; rename one of their folders")
        if not names:
            raise InputError("nothing to serve: name bundles of wake words, of speech or of text with --model")

    @property
    def wake(self) -> tuple[Model, ...]:
        return tuple(one for one in self.models if one.wake)

    @property
    def speech(self) -> tuple[Model, ...]:
        return tuple(one for one in self.models if one.kind == "speech")

    @property
    def texts(self) -> tuple[Model, ...]:
        return tuple(one for one in self.models if one.kind == "text")

    def detectors(self, names: Sequence[str]) -> list[Model]:
        """The wake-word models of these names; without names every word once, those of single words first.

        Raises InputError for a name that is not served, and for a word that two of them have.
        """
        if not names:
            return _covering(sorted(self.wake, key=lambda one: len(one.words)))
        chosen = [self._named(name, self.wake, "wake-word model") for name in dict.fromkeys(names)]
        words = [word for one in chosen for word in one.words]
        if twice := [word for word in words if words.count(word) > 1]:
            raise InputError(f"{twice[0]!r} is a word of two of these models: leave one out")
        return chosen

    def recogniser(self, name: str | None) -> Model:
        """By name; OpenAI's own names, and none, mean the default. Raises InputError."""
        if not self.speech:
            raise InputError("no recogniser of speech is served here; start the server with --model BUNDLE")
        if name is None or (name in ALIASES and name not in {one.name for one in self.speech}):
            return next((one for one in self.speech if one.name == DEFAULT), self.speech[0])
        return self._named(name, self.speech, "recogniser of speech")

    def for_task(self, task: str, name: str | None) -> Model:
        """What does a task of text: the model of this name, or the usual one. Raises InputError with what lacks."""
        able = [one for one in self.texts if one.task == task]
        if name is not None:
            return self._named(name, able, f"model for {task!r}")
        if not able:
            raise InputError(
                f"no bundle for {task!r} is served here: `voiceseq {task}` takes {USUAL[task]!r}; install it, or start "
                "the server with --model BUNDLE"
            )
        return next((one for one in able if one.name == USUAL[task]), able[0])

    @staticmethod
    def _named(name: str, models: Sequence[Model], what: str) -> Model:
        for one in models:
            if one.name == name:
                return one
        listed = ", ".join(one.name for one in models) or "none"
        raise InputError(f"there is no {what} {name!r}; served are: {listed}")


def _covering(models: Iterable[Model]) -> list[Model]:
    chosen: list[Model] = []
    heard: set[str] = set()
    for one in models:
        if not heard & set(one.words):
            chosen.append(one)
            heard |= set(one.words)
    return chosen


def open_catalogue(names: Sequence[str | Path] = ()) -> Catalogue:
    """These bundles, or all that ship and can be served. Raises BundleError for another kind and for a damaged one."""
    if names:
        return Catalogue(tuple(_model(Path(name).name, load_bundle(name)) for name in names))
    found = [(name, load_bundle(path)) for name, path in shipped_bundles().items()]
    return Catalogue(tuple(_model(name, one) for name, one in found if one.kind in (WAKE, *SPEECH, *TEXT)))


def _model(name: str, bundle: Bundle) -> Model:
    if bundle.kind not in (WAKE, *SPEECH, *TEXT):
        kinds = ", ".join((WAKE, *SPEECH, *TEXT))
        raise BundleError(f"{bundle.path} is a {bundle.kind!r}; wake words, speech or text ({kinds}) were wanted")
    words = tuple(map(str, bundle.config.get("words", ()))) if bundle.kind == WAKE else ()
    if bundle.kind == WAKE and not words:
        raise BundleError(f"{bundle.path}: its config names no words")
    task = TEXT.get(bundle.kind, "")
    what = f"wake word: {', '.join(words)}" if words else f"text: {task}" if task else "speech to text"
    name = bundle.name or name.removesuffix(".zip")
    return Model(name, str(bundle.path), words, what, bundle.licence or "", bundle.voiceseq_version, task)
