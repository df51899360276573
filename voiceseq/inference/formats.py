"""Transcripts as files: plain text, subtitles, a table, JSON."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from voiceseq.inference.speech import Word
from voiceseq.inference.transcripts import Segment, Transcript

LINE, LINES = 42, 2  # characters of a line of subtitles, and lines
CUE_S = 7.0  # the longest that one text stands
GAP_S = 1.0  # a pause of this length ends it
BRIEF_S = 0.05  # no text stands for less


@dataclass(frozen=True)
class Cue:
    """A text that stands on the screen from ``start`` to ``end``; lines are parted by newlines."""

    start: float
    end: float
    text: str


def to_txt(transcript: Transcript) -> str:
    """A line a segment."""
    return "".join(f"{_flat(segment.text)}\n" for segment in transcript.segments)


def to_srt(transcript: Transcript) -> str:
    cues = enumerate(make_cues(transcript), 1)
    return "\n".join(f"{n}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n{cue.text}\n" for n, cue in cues)


def to_vtt(transcript: Transcript) -> str:
    cues = [f"{clock(cue.start)} --> {clock(cue.end)}\n{_escaped(cue.text)}\n" for cue in make_cues(transcript)]
    return "\n".join(["WEBVTT\n", *cues])


def to_tsv(transcript: Transcript) -> str:
    """A row a segment; start and end in milliseconds."""
    rows = [(round(1000 * one.start), round(1000 * one.end), _flat(one.text)) for one in transcript.segments]
    return "".join(f"{start}\t{end}\t{text}\n" for start, end, text in [("start", "end", "text"), *rows])


def to_json(transcript: Transcript) -> str:
    """One line; names of files that are not UTF-8 come out as JSON escapes."""
    line = json.dumps(transcript.to_json(), ensure_ascii=False) + "\n"
    return line.encode(errors="backslashreplace").decode()


FORMATS: dict[str, Callable[[Transcript], str]] = {
    "txt": to_txt,
    "srt": to_srt,
    "vtt": to_vtt,
    "tsv": to_tsv,
    "json": to_json,
}


def make_cues(transcript: Transcript) -> Iterator[Cue]:
    """Subtitles of at most two lines and seven seconds, broken where somebody pauses; none is over before it began."""
    for segment in transcript.segments:
        for words in _groups(segment):
            start = words[0].start
            yield Cue(start, max(words[-1].end, start + BRIEF_S), _wrapped([_flat(word.word) for word in words]))


def _groups(segment: Segment) -> Iterator[list[Word]]:
    """The words that stand together; a segment without words is one."""
    group: list[Word] = []
    for word in segment.words or (Word(segment.text, segment.start, segment.end, segment.confidence),):
        if group and not _fits(group, word):
            yield group
            group = []
        group.append(word)
    yield group


def _fits(group: list[Word], word: Word) -> bool:
    lines = _wrapped([one.word for one in (*group, word)]).count("\n") + 1
    return lines <= LINES and word.end - group[0].start <= CUE_S and word.start - group[-1].end < GAP_S


def _wrapped(words: list[str]) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def clock(seconds: float, point: str = ".") -> str:
    """``00:01:02.345``"""
    whole, milliseconds = divmod(round(1000 * max(0.0, seconds)), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
