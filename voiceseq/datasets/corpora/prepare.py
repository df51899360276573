"""From what a corpus holds to the clips that are kept, with an account of everything that is not."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from voiceseq.datasets.corpora.rows import Found, Reason, Skipped
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import AudioError, InputError, MissingDependencyError
from voiceseq.text.normalise import Digits, normalise

FAILURES: frozenset[Reason] = frozenset(
    ("missing audio", "unreadable audio", "audio cut short", "unreadable text", "broken row", "refused command")
)
EXAMPLES = 3  # shown of each reason
ROUNDING_S = 0.02  # a corpus' times may pass the end of the audio by this much; the clip then ends with the audio


@dataclass(frozen=True)
class Wanted:
    """Which clips are kept: length in seconds, and whether ``text`` is normalised, kept as it is, or not asked for."""

    min_s: float = 0.1
    max_s: float = math.inf
    text: Literal["normalise", "keep", "ignore"] = "normalise"
    digits: Digits = "words"


@dataclass
class Report:
    """What was skipped: count and first examples for each reason; ``rows`` is everything that was looked at."""

    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, skipped: Skipped) -> None:
        self.counts[skipped.reason] = self.counts.get(skipped.reason, 0) + 1
        shown = self.examples.setdefault(skipped.reason, [])
        if len(shown) < EXAMPLES:
            shown.append(f"{skipped.where} ({skipped.detail})" if skipped.detail else skipped.where)

    @property
    def failed(self) -> int:
        """Rows that could not be read, as against those that were not wanted."""
        return sum(count for reason, count in self.counts.items() if reason in FAILURES)


def select(rows: Iterable[Found | Skipped], wanted: Wanted, report: Report) -> Iterator[Clip]:
    """The clips that are wanted, their audio looked at; ``report`` is filled as they come."""
    seen: set[str] = set()
    for row in rows:
        report.rows += 1
        result = _examine(row, wanted) if isinstance(row, Found) else row
        if isinstance(result, Clip) and result.id in seen:
            result = Skipped("duplicate id", result.id, result.audio.name)
        if isinstance(result, Skipped):
            report.note(result)
        else:
            seen.add(result.id)
            yield result


def summary(clips: Sequence[Clip]) -> dict[str, Any]:
    """Rows, hours and speakers, for the report."""
    hours = sum(clip.duration for clip in clips) / 3600
    speakers = {clip.speaker for clip in clips if clip.speaker is not None}
    return {"rows": len(clips), "hours": round(hours, 4), "speakers": len(speakers)}


def split_by_speaker(clips: Sequence[Clip], shares: Mapping[str, float], seed: int) -> dict[str, list[Clip]]:
    """``shares`` of the time for each named part, the rest for ``train``; all clips of a speaker in one part.

    The speakers are drawn in an order that the seed and their names alone decide. Raises ``InputError`` where a clip
    has no speaker or there are fewer speakers than parts.
    """
    hours: dict[str, float] = {}
    for clip in clips:
        if clip.speaker is None:
            raise InputError(f"the clip {clip.id!r} has no speaker, and a split is made by speaker; name the speakers")
        hours[clip.speaker] = hours.get(clip.speaker, 0.0) + clip.duration
    if len(hours) <= len(shares):
        raise InputError(f"there are {len(hours)} speakers for {len(shares) + 1} parts; a part wants one at least")
    waiting = sorted(hours, key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode(errors="surrogatepass")).digest())
    home: dict[str, str] = {}
    for number, (part, share) in enumerate(shares.items(), 1):
        spare = len(waiting) - (len(shares) - number) - 1  # one is left for each part to come and for train
        for name in _draw(waiting, hours, share * sum(hours.values()), spare):
            home[name] = part
            waiting.remove(name)
    parts: dict[str, list[Clip]] = {part: [] for part in ("train", *shares)}
    for clip in clips:
        parts[home.get(str(clip.speaker), "train")].append(clip)
    return parts


def _draw(names: Sequence[str], hours: Mapping[str, float], target: float, most: int) -> list[str]:
    """Names in order, each where it brings the sum nearer to the target; the shortest alone where none does."""
    drawn: list[str] = []
    total = 0.0
    for name in names:
        if len(drawn) < most and abs(total + hours[name] - target) < abs(total - target):
            drawn.append(name)
            total += hours[name]
    return drawn or [min(names, key=lambda name: hours[name])]


def _examine(row: Found, wanted: Wanted) -> Clip | Skipped:
    text, extra = row.text, dict(row.extra)
    if wanted.text == "ignore":
        text = None
    elif not text or not text.strip():
        return Skipped("no text", row.id)
    elif wanted.text == "normalise":
        try:
            text = normalise(text, wanted.digits)
        except InputError as error:
            return Skipped("text cannot be normalised", row.id, str(error))
        if not text:
            return Skipped("text cannot be normalised", row.id, f"nothing is left of {row.text!r}")
        if text != row.text:
            extra.setdefault("sentence", row.text)
    try:
        length, problems = audio_length(row.audio)
    except (AudioError, MissingDependencyError, OSError, ValueError) as error:  # one bad file never stops a batch
        return Skipped("unreadable audio", row.id, str(error))
    if problems and row.duration is None and text is not None:  # the text is that of the whole
        return Skipped("audio cut short", row.id, problems[0])
    return _cut(row, text, extra, length, wanted)


def _cut(row: Found, text: str | None, extra: dict[str, Any], length: float, wanted: Wanted) -> Clip | Skipped:
    duration = length - row.offset if row.duration is None else row.duration
    if not (math.isfinite(duration) and row.offset >= 0) or row.offset + duration > length + ROUNDING_S:
        told = f"{row.offset:g} to {row.offset + duration:g} s of an audio of {length:g} s"
        return Skipped("broken row", row.id, told)
    duration = min(duration, length - row.offset)
    if duration < wanted.min_s or duration <= 0:
        return Skipped("too short", row.id, f"{duration:g} s")
    if duration > wanted.max_s:
        return Skipped("too long", row.id, f"{duration:g} s")
    offset, duration = round(row.offset, 6), round(duration, 6)
    return Clip(row.id, row.audio, duration, offset, text, row.speaker, extra)


@lru_cache(maxsize=256)  # the segments of a recording follow one another
def audio_length(path: Path) -> tuple[float, tuple[str, ...]]:
    """Seconds of audio by the file's header, or by decoding it where the header does not say; and what is missing.

    Raises ``AudioError``.
    """
    from voiceseq.audio.files import audio_info, stream_audio  # numpy and the decoders: not for --help

    info = audio_info(path)
    if info.duration_s is None:
        return sum(block.duration_s for block in stream_audio(path)), info.problems
    return info.duration_s, info.problems
