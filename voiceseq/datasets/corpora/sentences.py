"""Readers of text with answers: a label a line (SST-2, IMDb), a tag a word (WNUT-17, CoNLL-U), sentences in a row.

All files are UTF-8, plain or gzipped; what is not as it should be is named with its line.
"""

import re
from typing import NamedTuple, TypeVar

from voiceseq.errors import InputError
from voiceseq.text.files import read_text
from voiceseq.text.words import split_words

Item = TypeVar("Item")
BREAK = re.compile(r"<br\s*/?>")
STOP = re.compile(r"(?<= [.!?]) (?=\S)")  # of a text whose marks stand alone
COLUMNS = {"form": 1, "lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "deprel": 7}  # of CoNLL-U


class Labelled(NamedTuple):
    """A text and its class."""

    words: list[str]
    label: str


class Tagged(NamedTuple):
    """A sentence with a tag for each word."""

    words: list[str]
    tags: list[str]


def read_labelled(path: str) -> list[Labelled]:
    """Lines ``label<TAB>text``; the text is cut into words, ``<br />`` left out. InputError names a bad line."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), 1):  # not splitlines: reviews hold U+0085
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        words = split_words(BREAK.sub(" ", text))
        if not tab or not words or len(label.split()) != 1:
            raise InputError(f"{path}, line {number}: {line[:40]!r} came; label<TAB>text was wanted")
        rows.append(Labelled(words, label.strip()))
    return _some(rows, path)


def read_tagged(path: str, column: str = "upos") -> list[Tagged]:
    """Sentences between blank lines: ``word<TAB>tag``, or CoNLL-U (``.conllu``), of which ``column`` is the tag.

    Two columns, ``xpos+deprel``, make one tag, ``NN|nsubj``; subtypes (``nsubj:pass``) are left out, and so are
    contractions ("2-3") and empty words ("2.1"). InputError names a bad line.
    """
    if not set(column.split("+")) <= set(COLUMNS):
        raise InputError(f"column is {column!r}; one of {', '.join(COLUMNS)} was wanted, or some with + between")
    universal = ".conllu" in path
    places = [COLUMNS[name] for name in column.split("+")] if universal else [1]
    rows: list[Tagged] = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_text(path).split("\n"), ""], 1):
        cells = line.rstrip("\r").split("\t")
        if not line.strip():
            if words:
                rows.append(Tagged(words, tags))
            words, tags = [], []
        elif universal and (line.startswith("#") or not cells[0].isdigit()):
            continue
        elif len(cells) < (8 if universal else 2) or not all(
            cells[place].strip() for place in (int(universal), *places)
        ):
            wanted = "8 columns or more" if universal else "word<TAB>tag"
            raise InputError(f"{path}, line {number}: {line[:40]!r} came; {wanted} was wanted")
        else:
            words.append(cells[int(universal)])
            tags.append("|".join(_tag(cells[place].strip(), universal) for place in places))
    return _some(rows, path)


def _tag(cell: str, universal: bool) -> str:
    return cell.partition(":")[0] or cell if universal else cell


def read_paragraphs(path: str) -> list[list[list[str]]]:
    """WikiText: paragraphs of sentences of words. Headings are left out; ``1 @,@ 000`` is one word again."""
    paragraphs = []
    for line in read_text(path).split("\n"):
        line = line.strip()
        if not line or line.startswith("= "):
            continue
        line = re.sub(r" @([.,])@ ", r"\1", line).replace(" @-@ ", " - ")
        paragraphs.append([sentence.split() for sentence in STOP.split(line)])
    return _some(paragraphs, path)


def _some(rows: list[Item], path: str) -> list[Item]:
    if not rows:
        raise InputError(f"{path} holds no sentence; is it the right file?")
    return rows
