"""A wake-word detector measured in events: words missed, false alarms an hour, how long after the word it answers.

Two readings are kept apart everywhere: what happens **at the detector's own threshold**, which was set on development
data, and the **operating curve**, whose thresholds come from the negatives of this very test and so are optimistic.
Rates an hour are over speech, noise and music; single words recorded like the positives are told apart.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.files import write_audio
from voiceseq.datasets.corpora.wakewords import person
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import InputError
from voiceseq.evaluation.conditions import BEFORE_S, RATE, Hardener, Samples, Sound
from voiceseq.evaluation.operating import (
    Alarms,
    Trace,
    alarm_rate,
    firings,
    miss_interval,
    operating_curve,
    operating_points,
    trace,
)
from voiceseq.evaluation.streams import STREAM_S, WORDS, Stream, streams
from voiceseq.inference.events import Decision

Scores = NDArray[np.floating[Any]]
Progress = Callable[[str, float], None]  # what was heard just now, how many seconds

RATES = (0.1, 0.5, 1.0)  # false alarms an hour at which misses are told
LATE_S = 1.0  # an answer later than this after the word's end is not an answer to it
OWN = "at the bundle's own threshold (set on development data)"
CURVE = "operating curve on the test itself (optimistic)"
MOST_ALARMS = 100  # of a word, kept with their seconds
HEARD_S, AFTERWARDS_S = 2.5, 0.5  # of sound before and after an alarm


class Detecting(Protocol):
    """What is asked of a detector: an ``inference.detector.Detector`` is one."""

    @property
    def words(self) -> Sequence[str]: ...
    @property
    def frame_s(self) -> float: ...
    @property
    def decisions(self) -> Mapping[str, Decision]: ...
    def scores(self, waveform: Samples, sample_rate: int) -> tuple[Scores, Scores]: ...


@dataclass(frozen=True)
class Utterance:
    """A word as a condition left it: who said it, when (seconds), and the scores ``(frames, words)`` at ``times``."""

    clip: Clip
    word: str
    start_s: float
    end_s: float
    times: Scores
    scores: Scores

    @property
    def person(self) -> str:
        return person(self.clip)


class Quiet(NamedTuple):
    """A stream without the words, and its scores ``(frames, words)`` at ``times``."""

    stream: Stream
    times: Scores
    scores: Scores


@dataclass(frozen=True)
class Hearing:
    """Everything that a detector heard once, from which all figures follow."""

    words: tuple[str, ...]
    decisions: Mapping[str, Decision]
    frame_s: float
    utterances: Mapping[str, list[Utterance]]  # by condition
    quiet: list[Quiet]


def hear(
    detector: Detecting,
    positives: Sequence[tuple[str, Clip]],
    negatives: Mapping[str, Sequence[Clip]],
    conditions: Sequence[str] = ("clean",),
    hardener: Hardener | None = None,
    progress: Progress = lambda what, seconds: None,
) -> Hearing:
    """Run a detector over the positives of every condition and over the negatives by kind, all joined to streams.

    Words are said in the middle of streams of minutes, where a detector that loses its hearing is found out.

    Raises InputError where there are no positives, ConfigError for a condition that cannot be made.
    """
    if not positives:
        raise InputError(f"no clip says {' or '.join(detector.words)}; rows want `word`, `label` or `text`")
    hardener = hardener or Hardener(speech=list(negatives.get("speech", ())))
    hardener.check(conditions)
    heard: dict[str, list[Utterance]] = {condition: [] for condition in conditions}
    for condition in conditions:
        sounds: list[tuple[str, Clip, Sound]] = []
        for number, (word, clip) in enumerate(positives, 1):
            sounds.append((word, clip, hardener(condition, clip)))
            seconds = sum(len(sound.samples) for _, _, sound in sounds) / RATE
            if seconds >= STREAM_S or number == len(positives):
                heard[condition] += _utterances(detector, sounds)
                progress(condition, seconds)
                sounds = []
    quiet = []
    for kind, clips in negatives.items():
        for stream in streams(kind, clips):
            samples = stream.read()
            quiet.append(Quiet(stream, *detector.scores(samples, RATE)))
            progress(kind, len(samples) / RATE)
    return Hearing(tuple(detector.words), dict(detector.decisions), detector.frame_s, heard, quiet)


def _utterances(detector: Detecting, sounds: Sequence[tuple[str, Clip, Sound]]) -> list[Utterance]:
    """Sounds heard one after the other as one stream; each has the frames that end in it, in times of its own."""
    starts = np.cumsum([0, *(len(sound.samples) for _, _, sound in sounds)]) / RATE
    times, scores = detector.scores(np.concatenate([sound.samples for _, _, sound in sounds]), RATE)
    cuts = np.searchsorted(times, starts)
    return [
        Utterance(clip, word, sound.start / RATE, sound.end_s, times[first:last] - start, scores[first:last])
        for (word, clip, sound), start, first, last in zip(sounds, starts[:-1], cuts[:-1], cuts[1:], strict=True)
    ]


@dataclass(frozen=True)
class Verdict:
    """What became of one utterance at one threshold: ``delay_s`` after the word's end, None where it was missed."""

    utterance: Utterance
    delay_s: float | None
    events: int


@dataclass(frozen=True)
class WordHearing:
    """One word of a hearing."""

    word: str
    decision: Decision
    spoken: Mapping[str, list[tuple[Utterance, Trace]]]  # by condition
    others: list[tuple[Utterance, Trace]]  # clean positives of the detector's other words
    quiet: list[tuple[Quiet, Trace]]

    @classmethod
    def of(cls, hearing: Hearing, word: str) -> "WordHearing":
        place = hearing.words.index(word)
        decision = hearing.decisions[word]

        def traced(one: Any) -> tuple[Any, Trace]:
            return one, trace(one.scores[:, place], decision, hearing.frame_s)

        spoken = {
            condition: [traced(one) for one in found if one.word == word]
            for condition, found in hearing.utterances.items()
        }
        clean = next(iter(hearing.utterances.values()))
        others = [traced(one) for one in clean if one.word != word]
        return cls(word, decision, spoken, others, [traced(one) for one in hearing.quiet])

    def ambient(self) -> list[tuple[Quiet, Trace]]:
        """The streams whose hours count: all but single words."""
        return [one for one in self.quiet if one[0].stream.kind != WORDS]

    @property
    def hours(self) -> float:
        return sum(quiet.stream.hours for quiet, _ in self.ambient())

    def judge(self, condition: str, threshold: float) -> list[Verdict]:
        """Every utterance of a condition: it is found where the word fires from its start to 1 s after its end."""
        return [_verdict(one, heard, threshold) for one, heard in self.spoken[condition]]


def _verdict(one: Utterance, heard: Trace, threshold: float) -> Verdict:
    at = [float(one.times[frame]) for frame in firings(heard, threshold)]
    answers = [time for time in at if one.start_s <= time <= one.end_s + LATE_S]
    return Verdict(one, answers[0] - one.end_s if answers else None, len(at))


def misses(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Share of the words missed with its interval over people, how late the others were answered, double answers."""
    verdicts = list(verdicts)
    missed: dict[str, list[bool]] = {}
    for one in verdicts:
        missed.setdefault(one.utterance.person, []).append(one.delay_s is None)
    found = miss_interval(missed)
    delays = [one.delay_s for one in verdicts if one.delay_s is not None]
    median, late = np.quantile(delays, [0.5, 0.95]).tolist() if delays else (None, None)
    return {
        "utterances": len(verdicts),
        "people": len(missed),
        "missed": sum(map(sum, missed.values())),
        "miss_rate": found.estimate,
        "low": found.low,
        "high": found.high,
        "delay_median_s": median,
        "delay_95_s": late,
        "answered_more_than_once": sum(one.events > 1 for one in verdicts),
    }


def people(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """A row a person, those with most misses first."""
    by_person: dict[str, list[Verdict]] = {}
    for one in verdicts:
        by_person.setdefault(one.utterance.person, []).append(one)
    rows = [
        {
            "person": name,
            "utterances": len(found),
            "missed": sum(one.delay_s is None for one in found),
            "missed_ids": [one.utterance.clip.id for one in found if one.delay_s is None],
        }
        for name, found in by_person.items()
    ]
    return sorted(rows, key=lambda row: (-row["missed"] / row["utterances"], -row["utterances"], row["person"]))


@dataclass(frozen=True)
class Alarm:
    """A false alarm: where it was heard, the highest score of its second, and whether the own threshold lets it by."""

    word: str
    kind: str
    clip: Clip
    time_s: float  # since the clip's start; below 0 or past its end where it is heard in the pause
    score: float
    stream: Stream
    stream_s: float
    own: bool


def notable_alarms(one: WordHearing) -> list[Alarm]:
    """Those of the own threshold or of 1 an hour, whichever are more, the highest scores first; at most 100."""
    threshold = one.decision.threshold
    if one.ambient():
        alarms = Alarms([heard for _, heard in one.ambient()])
        threshold = min(threshold, operating_points(alarms, one.hours, [1.0])[0].threshold)
    return false_alarms(one, threshold)[:MOST_ALARMS]


def false_alarms(one: WordHearing, threshold: float) -> list[Alarm]:
    """All alarms at a threshold, the highest scores first."""
    found = []
    for quiet, heard in one.quiet:
        for frame in firings(heard, threshold):
            score = float(heard.level[frame : frame + max(1, heard.refractory)].max())
            clip, since = quiet.stream.clip_at(float(quiet.times[frame]))
            own = score >= one.decision.threshold
            found.append(
                Alarm(one.word, quiet.stream.kind, clip, since, score, quiet.stream, float(quiet.times[frame]), own)
            )
    return sorted(found, key=lambda alarm: -alarm.score)


def alarms_by_kind(one: WordHearing, threshold: float) -> dict[str, dict[str, Any]]:
    """Alarms and their rate an hour, for each kind and for ``all`` that count; single words are counted by clips."""
    table: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(quiet.stream.kind for quiet, _ in one.quiet):
        part = [(quiet, heard) for quiet, heard in one.quiet if quiet.stream.kind == kind]
        count = sum(len(firings(heard, threshold)) for _, heard in part)
        table[kind] = alarm_rate(count, sum(quiet.stream.hours for quiet, _ in part))._asdict()
        if kind == WORDS:
            table[kind]["clips"] = sum(len(quiet.stream.clips) for quiet, _ in part)
    if one.others:
        fired = sum(bool(firings(heard, threshold)) for _, heard in one.others)
        table["the other words of the detector"] = {"alarms": fired, "clips": len(one.others)}
    if one.ambient():
        count = sum(row["alarms"] for kind, row in table.items() if kind != WORDS and "hours" in row)
        table["all"] = alarm_rate(count, one.hours)._asdict()
    return table


def word_report(one: WordHearing) -> dict[str, Any]:
    """The figures of one word, both readings."""
    own = one.decision.threshold
    verdicts = {condition: one.judge(condition, own) for condition in one.spoken}
    first = next(iter(verdicts))
    report: dict[str, Any] = {
        "decision": vars(one.decision),
        "own_threshold": {
            "reading": OWN,
            "threshold": own,
            "false_alarms": alarms_by_kind(one, own),
            "conditions": {condition: misses(found) for condition, found in verdicts.items()},
            "people": people(verdicts[first]),
        },
    }
    if one.ambient():
        report["operating_curve"] = curve_report(one)
    return report


def curve_report(one: WordHearing) -> dict[str, Any]:
    """Misses at the stated false-alarm rates, and the DET curve of every condition."""
    alarms, hours = Alarms([heard for _, heard in one.ambient()]), one.hours
    points = []
    for rate, point in zip(RATES, operating_points(alarms, hours, RATES), strict=True):
        conditions = {name: misses(one.judge(name, point.threshold)) for name in one.spoken}
        found = {"wanted_per_hour": rate, "threshold": point.threshold, **alarm_rate(point.alarms, hours)._asdict()}
        points.append({**found, "conditions": conditions})
    det = [
        {
            "threshold": point.threshold,
            "per_hour": point.per_hour,
            "miss_rate": {
                name: float(np.mean([verdict.delay_s is None for verdict in one.judge(name, point.threshold)]))
                for name in one.spoken
            },
        }
        for point in operating_curve(alarms, hours)
    ]
    return {"reading": CURVE, "hours": hours, "points": points, "det": det}


def wakeword_report(hearing: Hearing) -> dict[str, Any]:
    """The report of all words that were spoken: what ``report.json`` holds."""
    spoken = {one.word for one in next(iter(hearing.utterances.values()))}
    kinds: dict[str, float] = {}
    for quiet in hearing.quiet:
        kinds[quiet.stream.kind] = kinds.get(quiet.stream.kind, 0.0) + quiet.stream.hours
    return {
        "measure": "events",
        "silence_before_s": BEFORE_S,
        "answer_within_s": LATE_S,
        "hours": kinds,
        "words": {word: word_report(WordHearing.of(hearing, word)) for word in hearing.words if word in spoken},
    }


def save_alarms(alarms: Sequence[Alarm], folder: Path) -> list[dict[str, Any]]:
    """Write the seconds that set off each alarm as ``folder/WORD/KIND-NUMBER.wav``; rows that say what they are."""
    rows: list[dict[str, Any]] = []
    numbers: Counter[str] = Counter()
    by_stream: dict[int, list[Alarm]] = {}
    for alarm in alarms:
        by_stream.setdefault(id(alarm.stream), []).append(alarm)
    for found in by_stream.values():
        samples = found[0].stream.read()
        for alarm in found:
            name = f"{alarm.word.replace(' ', '-')}/{alarm.kind}"
            numbers[name] += 1
            path = folder / f"{name}-{numbers[name]:03d}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            first, last = ((alarm.stream_s + offset) * RATE for offset in (-HEARD_S, AFTERWARDS_S))
            write_audio(path, samples[max(0, round(first)) : round(last)], RATE)
            row: dict[str, Any] = {"file": path.relative_to(folder).as_posix(), "word": alarm.word, "kind": alarm.kind}
            row |= {"clip": alarm.clip.id, "time_s": round(alarm.time_s, 3), "text": alarm.clip.text}
            rows.append({**row, "score": round(alarm.score, 6), "at_own_threshold": alarm.own})
    return sorted(rows, key=lambda row: (row["word"], -row["score"]))
