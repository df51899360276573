"""Recordings of wake words: what is said, who says it, and which people train, tune and test.

Rows of any manifest that name a ``word`` (or a ``label``, as the public collections do). The same people say several of
the words, so the split is over people, not over clips or words: ``group`` where a row has one (a looser cluster of
voices), else ``speaker``.
"""

import hashlib
import re
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.errors import InputError

Part = Literal["train", "dev", "test"]

TEST_SHARE, DEV_SHARE = 0.2, 0.2
# Of a few names, the one under which each of six words with 24 to 39 voices splits evenly; chosen by counts of clips.
SPLIT = "voiceseq wakewords 1"

CORPORA = ("librispeech", "commonvoice", "speechocean762", "harpervalley")
UNHEARD = "commonvoice_untranscribed"  # nothing is ever trained on it
HELD_OUT_SHARE = 0.22  # of the training speakers, as in conf/data/phones.yaml
# what stands around the words of a transcript
MARKS = string.punctuation + "\u2026\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u00bf\u00a1\u3002\uff0c\uff01\uff1f"


def spoken_word(clip: Clip) -> str | None:
    """The word that a clip was recorded for, in lower case with single spaces; None where no word is named."""
    named = clip.extra.get("word", clip.extra.get("label"))
    return plain_phrase(named) if isinstance(named, str) and named.strip() else None


def plain_phrase(text: str) -> str:
    """Lower case, words apart by single spaces: ``Smart_Mirror`` and ``Smart-mirror!`` are ``smart mirror``."""
    words = (word.strip(MARKS) for word in re.split(r"[\s_\-]+", text.lower()))
    return " ".join(word for word in words if word)


def person(clip: Clip) -> str:
    """Who speaks: the ``group``, else the speaker, else the clip itself stands for a person of its own."""
    group = clip.extra.get("group")
    return group if isinstance(group, str) and group else clip.speaker or clip.id


def part_of(name: str) -> Part:
    """The part that a person belongs to, by the name alone: about 60 % train, 20 % dev, 20 % test."""
    digest = hashlib.sha256(f"{SPLIT}:{name}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if place < TEST_SHARE else "dev" if place < TEST_SHARE + DEV_SHARE else "train"


def split_people(clips: Iterable[Clip]) -> dict[Part, list[Clip]]:
    """The clips of each part; nobody is in two of them, whatever the words and however many manifests are joined."""
    parts: dict[Part, list[Clip]] = {part: [] for part in get_args(Part)}
    for clip in clips:
        parts[part_of(person(clip))].append(clip)
    return parts


def holds_phrase(text: str | None, phrase: str) -> bool:
    """Whether a transcript has the words of the phrase in a row, alone or with an ending (computers, alexa's)."""
    words = r"\s+".join(re.escape(word) for word in plain_phrase(phrase).split())
    return bool(text and words and re.search(rf"\b{words}('?e?s)?\b", plain_phrase(text)))


def without_phrases(clips: Iterable[Clip], phrases: Sequence[str]) -> list[Clip]:
    """The clips in whose transcript none of the phrases is said; those without a transcript stay."""
    return [clip for clip in clips if not any(holds_phrase(clip.text, phrase) for phrase in phrases)]


def unheard_speech(folder: str | Path, share: float = HELD_OUT_SHARE) -> list[Clip]:
    """About eight hours of speech that no training hears, from the speech corpora in ``folder``.

    The held-out speakers of what is trained on, the corpora's dev speakers (a training run may have been *stopped* by
    them, not taught) and the untranscribed clips. Raises InputError where none of the corpora is there.
    """
    folder = Path(folder)
    clips: list[Clip] = []
    for corpus in CORPORA:
        for part in ("train", "extra", "dev"):
            path = folder / corpus / f"manifest-{part}.jsonl"
            if path.is_file():
                found = read_manifest(path)
                clips += [clip for clip in found if part == "dev" or held_out(clip.speaker, share)]
    if (path := folder / UNHEARD / "manifest.jsonl").is_file():
        clips += read_manifest(path)
    if not clips:
        raise InputError(f"{folder} holds none of {', '.join((*CORPORA, UNHEARD))}; give the folder of the corpora")
    return clips
