"""Texts to be said: a phrase inside fluent sentences, and ordinary talk without it; the lists are in ``data/words``."""

import functools
import importlib.resources
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voiceseq.datasets.voices.voice import Sentence
from voiceseq.errors import InputError

PLACE = "{}"
TALK_BEFORE, TALK_AFTER = 0.3, 0.2  # chances that an ordinary sentence stands before or after


@functools.cache
def word_list(name: str) -> tuple[str, ...]:
    """The lines of a shipped list (``carriers``, ``sentences``, ``phrases``) without comments."""
    try:
        folder = Path(str(importlib.resources.files("voiceseq.data")))
    except ModuleNotFoundError:  # run from the source tree
        folder = Path(__file__).resolve().parents[3] / "data"
    path = folder / "words" / f"{name}.txt"
    if not path.is_file():
        raise InputError(f"no list {name!r} of words at {path}: the installation is incomplete")
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def carrier(phrase: str, template: str) -> Sentence:
    """A template with the phrase in its place. Raises ``InputError`` where there is not exactly one place."""
    if template.count(PLACE) != 1:
        raise InputError(f"{template!r} needs one {PLACE} where the phrase goes, it has {template.count(PLACE)}")
    before, after = template.split(PLACE)
    return Sentence(phrase, before.strip(), after.strip())


def carriers(phrase: str, count: int, seed: int = 0, templates: Sequence[str] | None = None) -> list[Sentence]:
    """``count`` sentences with the phrase in them: every template once before any again, some amid other talk."""
    rng = np.random.default_rng(seed)
    templates = word_list("carriers") if templates is None else templates
    talk = talk_without(phrase)
    order = [i for _ in range(-(-count // len(templates))) for i in rng.permutation(len(templates))]
    sentences = []
    for place in order[:count]:
        sentence = carrier(phrase, templates[place])
        earlier = str(rng.choice(talk)) if rng.random() < TALK_BEFORE else ""
        later = str(rng.choice(talk)) if rng.random() < TALK_AFTER else ""
        before = f"{earlier} {sentence.before}".strip()
        after = f"{ended(sentence.after)} {later}".strip() if later else sentence.after
        sentences.append(Sentence(phrase, before, after))
    return sentences


def ended(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def talk_without(phrase: str, kind: str = "sentences") -> list[str]:
    """The ordinary sentences (or short ``phrases``) that do not hold the phrase."""
    wanted = f" {plain(phrase)} "
    return [line for line in word_list(kind) if wanted not in f" {plain(line)} "]


def plain(text: str) -> str:
    """Lower-case words with single spaces, no punctuation."""
    return " ".join("".join(c if c.isalnum() or c == "'" else " " for c in text.lower()).split())
