"""What the listening app saved, as lessons: where in a clip the word is, and how a detector does on the clips."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from voiceseq.audio.files import read_clip
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import SAMPLE_RATE, Samples, active_span
from voiceseq.inference.detector import Detector
from voiceseq.text.pronounce import Pronunciation, syllables
from voiceseq.wakeword.making import Own

DELAY_S = 0.1  # a head speaks up a little after the end of its word
PATIENCE_S = 0.3  # and may still do so this long after the key that says it missed one
ALONE = 1.6  # a recording that is not silent for up to so many lengths of a word holds little else


@dataclass(frozen=True)
class SavedClip:
    """``at``: seconds of the clip where the word was detected, or when the key was pressed; None where it is not known.

    ``missed`` clips have the word in them, the others do not.
    """

    clip: Clip
    word: str
    missed: bool
    at: float | None = None

    def samples(self) -> Samples:
        return read_clip(self.clip.audio, self.clip.offset, self.clip.duration, SAMPLE_RATE)


def own_of(saved: Sequence[SavedClip], detector: Detector, lengths_s: dict[str, float]) -> Own:
    """Missed words are recordings; false alarms are negatives as a whole, and their detected part is another word."""
    own = Own({word: [] for word in lengths_s})
    for one in saved:
        placed = replace(one.clip, extra={**one.clip.extra, **place(one, detector, lengths_s[one.word])})
        if one.missed:
            own.recordings[one.word].append(placed)
        else:
            own.negatives.append(one.clip)
            own.others.append(placed)
    return own


def place(one: SavedClip, detector: Detector, length_s: float) -> dict[str, float]:
    """``word_start`` and ``word_end``, for a word of about ``length_s``.

    A recording of little else is the word where it is not silent. In others the word ends where it was detected, or
    where the old detector, which did not wake, was nearest to waking.
    """
    samples = one.samples()
    start, end = active_span(samples)
    if not one.missed or end - start > ALONE * length_s:
        heard = one.at if one.at is not None and not one.missed else nearest(one, detector, samples)
        end = min(max(heard - DELAY_S, start + length_s / 2), end)
        start = max(start, end - length_s)
    return {"word_start": round(start, 3), "word_end": round(end, 3)}


def nearest(one: SavedClip, detector: Detector, samples: Samples) -> float:
    """When the detector's score is highest, before the key was pressed."""
    times, scores = detector.scores(samples, SAMPLE_RATE)
    until = one.clip.duration if one.at is None or not one.missed else one.at + PATIENCE_S
    column = scores[times <= until, detector.words.index(one.word)]
    return float(times[column.argmax()]) if len(column) else one.clip.duration


def length_of(said: Sequence[Pronunciation]) -> float:
    """About how long a phrase takes, in seconds: a fifth of a second a syllable and a little more."""
    return 0.2 + 0.2 * max(syllables(way) for way in said)


def judge(detector: Detector, saved: Sequence[SavedClip]) -> dict[str, dict[str, int]]:
    """How many of the false alarms fire, and how many of the missed words are heard."""
    fired = [any(event.word == one.word for event in detector.detect(one.samples(), SAMPLE_RATE)) for one in saved]
    alarms = [yes for yes, one in zip(fired, saved, strict=True) if not one.missed]
    missed = [yes for yes, one in zip(fired, saved, strict=True) if one.missed]
    return {
        "false alarms": {"clips": len(alarms), "fire": sum(alarms)},
        "missed": {"clips": len(missed), "heard": sum(missed)},
    }


def compared(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Before and after in words, a line each."""
    alarms, missed = before["false alarms"]["clips"], before["missed"]["clips"]
    lines = []
    if alarms:
        lines.append(
            f"of {alarms} false alarms {before['false alarms']['fire']} fired, now {after['false alarms']['fire']} do"
        )
    if missed:
        lines.append(
            f"of {missed} missed words {before['missed']['heard']} were heard, now {after['missed']['heard']} are"
        )
    return lines
