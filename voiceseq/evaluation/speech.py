"""How well a recogniser hears: word and character errors with intervals, by speaker and group, what it confuses, and
whether its confidences mean what they say.

Both sides of every comparison go through ``text.normalise`` in the same way.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.audio.files import read_clip
from voiceseq.core.distance import align
from voiceseq.core.prefix import Fusion, score_strings
from voiceseq.core.search import Scorers
from voiceseq.datasets.manifest import Clip
from voiceseq.errors import InputError, VoiceseqError
from voiceseq.evaluation.metrics import Errors, bootstrap, count_errors
from voiceseq.evaluation.search_errors import analyse_search
from voiceseq.inference.recogniser import CTC_DECODERS, AcousticRecogniser
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Samples
from voiceseq.inference.transcriber import Transcriber
from voiceseq.inference.whisper import WhisperRecogniser
from voiceseq.text.normalise import normalise

MOST = 20  # confused words that are listed
BINS = 10  # of the reliability curve
UNKNOWN = "(not given)"

Progress = Callable[[str, float], None]
Row = dict[str, Any]
Models = tuple[Fusion | None, Scorers]  # what a search adds to CTC


@dataclass(frozen=True)
class Heard:
    """A clip, what was said in it, what was heard; ``reference`` and ``text`` are normalised."""

    clip: Clip
    reference: str
    text: str
    best: Hypothesis

    @cached_property
    def words(self) -> Errors:
        return count_errors(self.reference.split(), self.text.split())

    @cached_property
    def characters(self) -> Errors:
        return count_errors(self.reference, self.text)

    @property
    def speaker(self) -> str:
        """Who says it; a clip without a speaker stands for itself."""
        return self.clip.speaker or self.clip.id


@dataclass(frozen=True)
class Hearing:
    """All that was heard, what could not be (``{"id", "why"}``), and the processor seconds that it took."""

    heard: list[Heard]
    failed: list[Row]
    seconds: float
    cpu_s: float


def plain(text: str) -> str:
    """What a recogniser wrote, normalised; a word in another script stays as it is, so that it counts as wrong."""
    try:
        return normalise(text)
    except InputError:
        return " ".join(" ".join(map(_plain_word, text.split())).split())


def _plain_word(word: str) -> str:
    try:
        return normalise(word)
    except InputError:
        return word.casefold()


# --- hearing ---------------------------------------------------------------------------------------------------------


def hear(
    transcriber: Transcriber,
    clips: Sequence[Clip],
    decoding: Decoding,
    batch_seconds: float = 60.0,
    show: Progress = lambda what, seconds: None,
) -> Hearing:
    """Every clip that has a text, recognised in batches of about equal lengths; answers in the order of the clips.

    A clip that is longer than the recogniser hears at once is transcribed by itself. One that cannot be read, or has
    no text or one that cannot be normalised, is passed over and told in ``failed``. Raises InputError when nothing is
    left.
    """
    found: dict[str, Heard] = {}
    failed: list[Row] = []
    cpu_s = 0.0
    for batch in _batches(clips, batch_seconds):
        ready = [(clip, *one) for clip in batch if (one := _read(clip, failed)) is not None]
        began = time.process_time()
        answers = _answers(transcriber, [samples for _, _, samples in ready], decoding)
        cpu_s += time.process_time() - began
        for (clip, reference, _), best in zip(ready, answers, strict=True):
            found[clip.id] = Heard(clip, reference, plain(best.text), best)
        show("recognised", sum(clip.duration for clip, _, _ in ready))
    if not found:
        why = f" ({failed[0]['id']}: {failed[0]['why']})" if failed else ""
        raise InputError(f"none of {len(clips)} clips could be evaluated{why}; rows with text and audio were wanted")
    heard = [found[clip.id] for clip in clips if clip.id in found]
    return Hearing(heard, failed, sum(one.clip.duration for one in heard), cpu_s)


def _answers(transcriber: Transcriber, pieces: Sequence[Samples], decoding: Decoding) -> list[Hypothesis]:
    """The best hypothesis of each piece."""
    longest = transcriber.recogniser.longest_s * SAMPLE_RATE
    if all(len(piece) <= longest for piece in pieces):
        found = transcriber.recogniser.recognise(pieces, decoding) if pieces else []
        return [hypotheses[0] if hypotheses else Hypothesis("", 0.0, ()) for hypotheses in found]
    transcripts = [transcriber.transcribe(piece, SAMPLE_RATE, **asdict(decoding)) for piece in pieces]
    return [Hypothesis(one.text, 0.0, one.words) for one in transcripts]


def _batches(clips: Sequence[Clip], seconds: float) -> list[list[Clip]]:
    batches: list[list[Clip]] = [[]]
    for clip in sorted(clips, key=lambda clip: (clip.duration, clip.id)):
        if batches[-1] and clip.duration * (len(batches[-1]) + 1) > seconds:
            batches.append([])
        batches[-1].append(clip)
    return batches


def _read(clip: Clip, failed: list[Row]) -> tuple[str, Samples] | None:
    """The reference and the samples, or None after noting what is wrong."""
    try:
        if clip.text is None:
            raise InputError("the row has no text")
        return normalise(clip.text), read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE)
    except VoiceseqError as error:
        failed.append({"id": clip.id, "why": str(error)})
        return None


# --- the report ------------------------------------------------------------------------------------------------------


def speech_report(hearing: Hearing, groups: Sequence[str] = (), seen: Iterable[str] | None = None) -> Row:
    """Everything that can be counted without hearing again; ``seen`` are the texts of the training."""
    heard = hearing.heard
    report: Row = {
        "all": error_row(heard),
        "edits": {"words": _edits(one.words for one in heard), "characters": _edits(one.characters for one in heard)},
        "confused": confused_words(heard),
        "calibration": calibration(heard),
        "speakers": group_rows(heard, lambda one: one.speaker),
        "groups": {name: group_rows(heard, partial(group_of, name=name)) for name in groups},
        "seconds": hearing.seconds,
        "cpu_s_per_s": hearing.cpu_s / max(hearing.seconds, 1e-9),
        "failed": hearing.failed,
    }
    if seen is not None:
        known = {plain(text) for text in seen}
        report["seen"] = error_row([one for one in heard if one.reference in known])
        report["unseen"] = error_row([one for one in heard if one.reference not in known])
    return report


def error_row(heard: Sequence[Heard]) -> Row:
    """Utterances, speakers, words, edits; WER and CER with 95 % intervals; the share of wrong sentences."""
    row: Row = {"utterances": len(heard), "speakers": len({one.speaker for one in heard})}
    edits = _edits(one.words for one in heard)
    row["words"] = edits.pop("reference")
    row |= edits
    row |= {"wer": rate_interval(heard, "words"), "cer": rate_interval(heard, "characters")}
    row["wrong_sentences"] = sum(one.text != one.reference for one in heard) / len(heard) if heard else None
    return row


def rate_interval(heard: Sequence[Heard], unit: str) -> Row | None:
    """The error rate of ``words`` or ``characters`` with its interval; None where nothing was said.

    Whole speakers are drawn; the utterances where there is but one speaker.
    """
    several = len({one.speaker for one in heard}) > 1
    drawn: dict[str, Errors] = {}
    for one in heard:
        name = one.speaker if several else one.clip.id
        drawn[name] = drawn.get(name, Errors(0, 0, 0, 0)) + getattr(one, unit)
    if not sum(errors.reference for errors in drawn.values()):
        return None
    found = bootstrap({name: [errors] for name, errors in drawn.items()}, _rate)
    return {"rate": found.estimate, "low": found.low, "high": found.high}


def _rate(errors: Sequence[Errors]) -> float:
    """Over speakers who may, in a draw, have said nothing at all."""
    return sum(one.total for one in errors) / max(1, sum(one.reference for one in errors))


def _edits(errors: Iterable[Errors]) -> Row:
    total = sum(errors, Errors(0, 0, 0, 0))
    counts = {name: getattr(total, name) for name in ("substitutions", "insertions", "deletions", "reference")}
    return counts | {"right": total.reference - total.substitutions - total.deletions}


def group_of(one: Heard, name: str) -> str:
    """The clip's value of a manifest field."""
    value = one.clip.speaker if name == "speaker" else one.clip.extra.get(name)
    return UNKNOWN if value is None else str(value)


def group_rows(heard: Sequence[Heard], key: Callable[[Heard], str]) -> list[Row]:
    """A row for each value of ``key``, the worst WER first."""
    groups: dict[str, list[Heard]] = {}
    for one in heard:
        groups.setdefault(key(one), []).append(one)
    rows = [{"name": name, **error_row(members)} for name, members in sorted(groups.items())]
    return sorted(rows, key=lambda row: -row["wer"]["rate"] if row["wer"] else 0.0)


def confused_words(heard: Sequence[Heard]) -> Row:
    """The commonest confusions, lost words and words from nowhere."""
    counts: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in ("substitute", "delete", "insert")}
    for one in heard:
        for edit in align(one.reference.split(), one.text.split()):
            if edit.operation != "equal":
                counts[edit.operation][edit.reference, edit.hypothesis] += 1
    said = Counter(word for one in heard for word in one.reference.split())
    return {
        "substituted": [
            {"said": pair[0], "heard": pair[1], "count": count, "of": said[pair[0]]}
            for pair, count in counts["substitute"].most_common(MOST)
        ],
        "deleted": [
            {"said": pair[0], "count": count, "of": said[pair[0]]} for pair, count in counts["delete"].most_common(MOST)
        ],
        "inserted": [{"heard": pair[1], "count": count} for pair, count in counts["insert"].most_common(MOST)],
    }


def write_utterances(hearing: Hearing, path: Path) -> None:
    """A line of JSON an utterance: what was said, what was heard, how many words are wrong."""
    lines = []
    for one in hearing.heard:
        row = {"id": one.clip.id, "speaker": one.clip.speaker, "reference": one.reference, "heard": one.text}
        lines.append(json.dumps(row | {"errors": one.words.total, "words": one.words.reference}, ensure_ascii=False))
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}); make room or give another --out") from error


# --- confidences -----------------------------------------------------------------------------------------------------


def judged_words(heard: Iterable[Heard]) -> list[tuple[float, bool]]:
    """For each word that was heard its confidence and whether it is right."""
    judged = []
    for one in heard:
        words = [(word, given.confidence) for given in one.best.words for word in plain(given.word).split()]
        edits = align(one.reference.split(), [word for word, _ in words])
        right = [edit.operation == "equal" for edit in edits if edit.operation != "delete"]
        judged += [(confidence, is_right) for (_, confidence), is_right in zip(words, right, strict=True)]
    return judged


def calibration(heard: Iterable[Heard]) -> Row | None:
    """The reliability curve and the expected calibration error; None where no words were heard.

    A word of confidence 0.8 should be right in 80 of 100 cases. The error is the mean distance between confidence and
    share of right words over the bins, weighted by the words in them.
    """
    judged = judged_words(heard)
    if not judged:
        return None
    confidence, right = np.array([c for c, _ in judged]), np.array([r for _, r in judged], dtype=float)
    place = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
    bins = []
    for number in range(BINS):
        inside = place == number
        row: Row = {"low": number / BINS, "high": (number + 1) / BINS, "words": int(inside.sum())}
        if inside.any():
            row |= {"confidence": float(confidence[inside].mean()), "right": float(right[inside].mean())}
        bins.append(row)
    filled = [row for row in bins if row["words"]]
    error = sum(row["words"] * abs(row["confidence"] - row["right"]) for row in filled) / len(judged)
    means = {"confidence": float(confidence.mean()), "right": float(right.mean())}
    return {"words": len(judged), **means, "expected_error": float(error), "bins": bins}


# --- the search ------------------------------------------------------------------------------------------------------


def search_report(recogniser: Any, hearing: Hearing, decoding: Decoding) -> Row | None:
    """For each wrong sentence: does the model prefer the reference (the search is at fault) or what was heard?

    Both are scored by CTC, summed over all paths, and what the search adds to it (language model, hotwords); by a
    Whisper that was taught texts in small letters (it has CTC) as its search does, in clips of a piece's length. None
    where something else searched: another kind of recogniser, or a decoder of attention beside CTC.
    """
    heard_all = hearing.heard
    if isinstance(recogniser, WhisperRecogniser) and recogniser.letters is not None:
        heard_all = [one for one in heard_all if one.clip.duration <= recogniser.longest_s]
    wrong = [one for one in heard_all if one.text != one.reference]
    scored = _all_scores(recogniser, wrong, decoding)
    if scored is None:
        return None
    heard, said = [one.text for one in wrong], [one.reference for one in wrong]
    analysis = analyse_search(heard, said, lambda texts: [pair[int(texts is said)] for pair in scored])
    faults = {str(row["fault"]): {"count": row["count"], "of_wrong": row["of_wrong"]} for row in analysis.table()}
    return {"wrong": len(wrong), "of": len(heard_all), **faults}


def _all_scores(recogniser: Any, wrong: Sequence[Heard], decoding: Decoding) -> list[tuple[float, float]] | None:
    """Of what was heard and of what was said, for each clip; None where there is no telling."""
    if isinstance(recogniser, WhisperRecogniser) and recogniser.letters is not None:
        pairs = (recogniser.score_texts(_samples(one), (one.text, one.reference), decoding) for one in wrong)
        return [(heard, said) for heard, said in pairs]
    decoder = decoding.decoder or recogniser.decoders[0]
    if decoder not in CTC_DECODERS or not isinstance(recogniser, AcousticRecogniser):
        return None
    models: Models = (None, []) if decoder == "greedy" else (recogniser.fusion(decoding), recogniser.scorers(decoding))
    return [_scores(recogniser, one, models) for one in wrong]


def _samples(one: Heard) -> Samples:
    return read_clip(one.clip.audio, one.clip.offset, one.clip.duration, SAMPLE_RATE)


def _scores(recogniser: AcousticRecogniser, one: Heard, models: Models) -> tuple[float, float]:
    """Of what was heard and of what was said; minus infinity for what the vocabulary cannot spell."""
    found = recogniser.hear([_samples(one)])
    options = {"blank": recogniser.blank, "fusion": models[0], "scorers": models[1]}
    options |= {"start": recogniser.eos, "end": recogniser.eos}

    def score(text: str) -> float:
        try:
            tokens = recogniser.vocabulary.encode(text)
        except InputError:
            return float("-inf")
        strings = score_strings(found.log_probs, found.lengths, [tokens], **options)  # type: ignore[arg-type]
        return float(strings[0].score)

    return score(one.text), score(one.reference)
