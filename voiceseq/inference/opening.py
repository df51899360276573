"""What every inference class checks at its door: the vocabularies of its bundle, the texts of its caller."""

from collections.abc import Callable, Iterable
from typing import Any

from voiceseq.bundles import Bundle
from voiceseq.errors import BundleError, InputError
from voiceseq.text.vocabulary import Vocabulary


def open_vocabulary(
    bundle: Bundle, name: str, size: int, check: Callable[[Vocabulary], Any] = lambda vocabulary: None
) -> Vocabulary:
    """A vocabulary of the bundle with as many symbols as the network has; ``check`` raises InputError if it lacks some.

    Raises BundleError when it is missing, garbled or another network's.
    """
    file = f"{bundle.path}: vocabularies/{name}.json"
    if name not in bundle.vocabularies:
        raise BundleError(f"{bundle.path} holds no vocabulary {name!r}; a {bundle.kind} wants one: get it again")
    try:
        vocabulary = Vocabulary.from_json(bundle.vocabularies[name])
        check(vocabulary)
    except InputError as error:
        raise BundleError(f"{file}: {error}") from error
    if len(vocabulary) != size:
        raise BundleError(
            f"{file} holds {len(vocabulary)} symbols; the network has {size}: they do not belong together"
        )
    return vocabulary


def check_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list. Raises InputError for one bare text and for what is no text."""
    if isinstance(texts, str | bytes):
        raise InputError(f"one text came, {texts[:40]!r}; give a list of texts: [text]")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"text {number} is a {type(text).__name__}; give a list of texts")
    return listed
