"""Hours without the word: which clips are negatives, of which kind, and how they are joined to streams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from voiceseq.audio.files import read_clip
from voiceseq.datasets.corpora.wakewords import holds_phrase, plain_phrase, spoken_word
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import InputError
from voiceseq.evaluation.conditions import RATE, Samples

KINDS = ("speech", "noise", "music", "words")
WORDS = "words"  # single words, recorded like the positives: a class of its own, never part of a rate an hour
OTHER_NAMES = {"environment": "noise", "household": "noise"}
STREAM_S, PAUSE_S = 300.0, 0.25


@dataclass(frozen=True)
class Stream:
    """Clips of one kind, one after the other with short pauses, heard as one recording."""

    kind: str
    clips: tuple[Clip, ...]

    @property
    def hours(self) -> float:
        """Of the clips alone; the pauses do not count."""
        return sum(clip.duration for clip in self.clips) / 3600

    @property
    def starts_s(self) -> list[float]:
        return [0.0, *accumulate(clip.duration + PAUSE_S for clip in self.clips)][:-1]

    def read(self) -> Samples:
        """All of it: ``(n,)`` at ``RATE``."""
        samples = np.zeros(round(sum(clip.duration + PAUSE_S for clip in self.clips) * RATE) + 1, np.float32)
        for clip, start in zip(self.clips, self.starts_s, strict=True):
            part = read_clip(clip.audio, clip.offset, clip.duration, RATE)
            first = round(start * RATE)
            samples[first : first + len(part)] = part[: len(samples) - first]
        return samples

    def clip_at(self, time_s: float) -> tuple[Clip, float]:
        """The clip that is heard at this time, or was heard last, and the seconds since its start."""
        place = max(0, int(np.searchsorted(self.starts_s, time_s, side="right")) - 1)
        return self.clips[place], time_s - self.starts_s[place]


def streams(kind: str, clips: Iterable[Clip], longest_s: float = STREAM_S) -> Iterator[Stream]:
    """The clips in their order, in streams of at least ``longest_s`` (the last is shorter)."""
    waiting: list[Clip] = []
    for clip in clips:
        waiting.append(clip)
        if sum(one.duration for one in waiting) >= longest_s:
            yield Stream(kind, tuple(waiting))
            waiting = []
    if waiting:
        yield Stream(kind, tuple(waiting))


def kind_of(clip: Clip) -> str:
    """The kind that a negative's row names, "words" for a single labelled word, else speech. InputError otherwise."""
    named = clip.extra.get("kind")
    if named is None:
        return WORDS if spoken_word(clip) is not None else "speech"
    kind = OTHER_NAMES.get(str(named), str(named))
    if kind not in KINDS:
        raise InputError(f"{clip.id}: the kind {named!r} came; {', '.join((*KINDS, *OTHER_NAMES))} were wanted")
    return kind


def sort_rows(
    words: Sequence[str], rows: Iterable[Clip], negatives: Iterable[Clip]
) -> tuple[list[tuple[str, Clip]], dict[str, list[Clip]]]:
    """Positives as (word, clip), and negatives by kind.

    A row of ``rows`` is a positive where its ``word``, ``label`` or whole ``text`` is one of the detector's words; else
    it is a negative, as the rows of ``negatives`` are. Where a transcript or label has a word in it, the row is no
    negative and is left out.
    """
    spelt = {plain_phrase(word): word for word in words}
    positives: list[tuple[str, Clip]] = []
    others: dict[str, list[Clip]] = {}
    for clip, may_be_positive in [*((clip, True) for clip in rows), *((clip, False) for clip in negatives)]:
        said = spoken_word(clip) if "kind" not in clip.extra else None
        said = said or plain_phrase(clip.text or "")
        if may_be_positive and said in spelt:
            positives.append((spelt[said], clip))
        elif not any(holds_phrase(said, word) for word in words):
            others.setdefault(kind_of(clip), []).append(clip)
    return positives, others


def hours_by_kind(parts: Mapping[str, Sequence[Clip]]) -> dict[str, float]:
    return {kind: sum(clip.duration for clip in clips) / 3600 for kind, clips in parts.items()}
