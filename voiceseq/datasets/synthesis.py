"""Training clips for wake words, put together on the fly; clip ``number`` is a function of the seed and that number.

    clips = TriggerClips(positives, others, speech, noises, ClipSettings(seconds=6), augmenter, seed=1)
    clip = clips.make(17)            # TriggerClip: samples, and where each trigger ends
    batch = clips(step)              # TriggerBatch

A clip has a background (noise or music, talk, or nothing) and utterances one after another that never overlap:
triggers, other words, stretches of talk, triggers that break off. Chance says what comes before and after a trigger:
silence, other words, running speech, or, where the recording is a whole sentence, the rest of it.

Recordings betray where they come from, by the silence of a gate or a microphone's hiss, and a detector would rather
learn that than the word. So each is cut at random round its word, brought to the same range of levels and faded into a
background that goes on under it, and other words of the same recordings get exactly the same treatment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voiceseq.audio import effects
from voiceseq.audio.augment import Augmenter
from voiceseq.datasets.batching import own_share, step_generator
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import SAMPLE_RATE, Recordings, Utterance
from voiceseq.errors import ConfigError, InputError

Samples = NDArray[np.float32]
Range = tuple[float, float]
Ends = tuple[tuple[int, float], ...]
"""``(word, end_s)`` of each trigger in a clip."""


@dataclass(frozen=True)
class ClipSettings:
    """What clips are made of. Ranges are drawn from evenly; shares and probabilities lie in 0..1.

    Args:
        triggers, others: how many of each are drawn for a clip; those that do not fit any more are left out.
        gap_s: between two utterances.
        margin_s: how much of its recording stays before and after a word; ``whole`` of them stay whole.
        fade_s: over which an utterance comes and goes.
        tail_s: at the end of a clip, where no utterance lies: a trigger's frames come after its end.
        talk: share of the others that are stretches of running speech of ``talk_s``.
        broken_off: share of the others that are triggers which stop after ``broken_share`` of the word.
        silent, babble: share of the clips with no background, or with talk as background; the rest has noise.
        below_db: how far the background is below the utterances; where there are none it has their level.
        hiss: share of the clips with white noise of ``hiss_db``, which fills what a gate or a digital silence left.
        level_db: of the utterances of a clip, below full scale, each ``vary_db`` more or less.

    Raises:
        ConfigError: all the settings that cannot be, in one message.
    """

    seconds: float = 6.0
    triggers: tuple[int, int] = (0, 2)
    others: tuple[int, int] = (0, 3)
    gap_s: Range = (0.0, 0.7)
    margin_s: Range = (0.04, 0.5)
    whole: float = 0.3
    fade_s: float = 0.02
    tail_s: float = 0.35
    talk: float = 0.4
    talk_s: Range = (0.5, 3.0)
    broken_off: float = 0.15
    broken_share: Range = (0.3, 0.7)
    silent: float = 0.15
    babble: float = 0.15
    below_db: Range = (3.0, 30.0)
    hiss: float = 0.7
    hiss_db: Range = (-80.0, -50.0)
    level_db: Range = (-40.0, -16.0)
    vary_db: float = 4.0

    def __post_init__(self) -> None:
        for one in fields(self):
            if isinstance(value := getattr(self, one.name), Sequence):  # YAML's lists
                object.__setattr__(self, one.name, tuple(value))
        if wrong := self._mistakes():
            raise ConfigError("clips: " + "; ".join(wrong))

    def _mistakes(self) -> list[str]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        ranges = {one.name for one in fields(self) if isinstance(one.default, tuple)}
        wrong = [
            f"{name} is {values[name]}; a range [low, high] was wanted"
            for name in sorted(ranges)
            if not isinstance(values[name], tuple) or len(values[name]) != 2 or values[name][0] > values[name][1]
        ]
        if wrong:
            return wrong
        lowest = {name: value[0] if name in ranges else value for name, value in values.items()}
        above = ("seconds", "triggers", "others", "gap_s", "margin_s", "fade_s", "tail_s", "talk_s", "vary_db")
        wrong = [f"{name} is {values[name]}; 0 or more was wanted" for name in above if lowest[name] < 0]
        shares = {name: values[name] for name in ("whole", "talk", "broken_off", "silent", "babble", "hiss")}
        shares |= {"broken_share": self.broken_share[0], "talk + broken_off": self.talk + self.broken_off}
        shares |= {"silent + babble": self.silent + self.babble, "broken_share's end": self.broken_share[1]}
        wrong += [f"{name} is {value}; 0 to 1 was wanted" for name, value in shares.items() if not 0 <= value <= 1]
        if self.seconds <= self.tail_s:
            wrong.append(f"seconds is {self.seconds}; more than tail_s ({self.tail_s}) was wanted")
        return wrong


@dataclass(frozen=True)
class TriggerClip:
    """``samples (n,)`` and the triggers in them, in order."""

    samples: Samples
    ends: Ends


class TriggerBatch(NamedTuple):
    """``samples (batch, n)`` with ``lengths (batch,)``, and the ``ends`` of each row's triggers."""

    samples: Tensor
    lengths: Tensor
    ends: tuple[Ends, ...]


class Piece(NamedTuple):
    """An utterance as it will be heard: its trigger (or None) ends at sample ``end``."""

    samples: Samples
    word: int | None = None
    end: int = 0


class Pool(NamedTuple):
    """Utterances and their recordings, which have the same numbers."""

    utterances: list[Utterance]
    recordings: Recordings

    @classmethod
    def of(cls, utterances: Sequence[Utterance]) -> "Pool":
        return cls(list(utterances), Recordings([one.clip for one in utterances], keep=True))


class TriggerClips:
    """``make(number)`` is one clip, ``self(step)`` the batch of a step.

    Args:
        positives, others: recordings of triggers (``word`` 0, 1, ...; each as likely) and of other words.
        speech: where stretches of talk come from; read anew each time, so there may be days of it.
        noises: noise and music.
        augmenter: what the finished clip goes through; the ends move with it.

    Raises:
        InputError: no positives, a positive without a word, or words longer than a clip.
    """

    def __init__(
        self,
        positives: Sequence[Utterance],
        others: Sequence[Utterance],
        speech: Sequence[Clip],
        noises: Sequence[Clip],
        settings: ClipSettings,
        augmenter: Augmenter | None = None,
        seed: int = 1,
        batch: int = 32,
    ) -> None:
        self.positives, self.others, self.settings = Pool.of(positives), Pool.of(others), settings
        self.augmenter, self.seed, self.batch = augmenter, seed, batch
        self.room = _samples(settings.seconds - settings.tail_s)
        self._check()
        said = [one.word for one in positives]
        self._of_word = [[n for n, word in enumerate(said) if word == one] for one in dict.fromkeys(said)]
        self._speech, self._noises = Recordings(speech, keep=False), Recordings(noises, keep=True)

    def _check(self) -> None:
        said = self.positives.utterances
        if not said or any(one.word is None for one in said):
            raise InputError("a detector learns from recordings of its word; give positives, each with its word")
        longest = max(said, key=lambda one: one.end_s - one.start_s)
        if _samples(longest.end_s - longest.start_s) > self.room:
            raise InputError(
                f"{longest.clip.id}: a word of {longest.end_s - longest.start_s:.2f} s does not fit into clips of "
                f"{self.settings.seconds} s with {self.settings.tail_s} s after it: raise seconds or mend the times"
            )

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TriggerBatch:
        """The batch of this step, or of several processes the share of one."""
        rows = own_share(list(range(self.batch)), rank, world)
        return gather_clips([self.make(step * self.batch + row) for row in rows])

    def make(self, number: int) -> TriggerClip:
        """The clip of this number."""
        rng = np.random.default_rng((self.seed, number))
        level_db = rng.uniform(*self.settings.level_db)
        placed = self._arrange(rng, self._pieces(rng, level_db))
        samples = self._background(rng, level_db, alone=not placed)
        ends = []
        for start, piece in placed:
            samples[start : start + len(piece.samples)] += piece.samples
            if piece.word is not None:
                ends.append((piece.word, start + piece.end))
        return self._augmented(samples, ends, number)

    def _augmented(self, samples: Samples, ends: list[tuple[int, int]], number: int) -> TriggerClip:
        if self.augmenter is None:
            return TriggerClip(samples, tuple((word, end / SAMPLE_RATE) for word, end in ends))
        hard = self.augmenter(samples, SAMPLE_RATE, step_generator(self.seed, number))
        return TriggerClip(hard.samples, tuple((word, hard.moved(end) / SAMPLE_RATE) for word, end in ends))

    # --- what is said ------------------------------------------------------------------------------------------------

    def _pieces(self, rng: np.random.Generator, level_db: float) -> list[Piece]:
        """Triggers first: they are the last to be left out."""
        s = self.settings
        found: list[Piece | None] = [self._trigger(rng) for _ in range(rng.integers(*s.triggers, endpoint=True))]
        found += [self._other(rng) for _ in range(rng.integers(*s.others, endpoint=True))]
        return [self._levelled(rng, piece, level_db) for piece in found if piece is not None and len(piece.samples)]

    def _trigger(self, rng: np.random.Generator) -> Piece:
        return self._cut(rng, self.positives, self._positive(rng))

    def _positive(self, rng: np.random.Generator) -> int:
        of_word = self._of_word[int(rng.integers(len(self._of_word)))]
        return of_word[int(rng.integers(len(of_word)))]

    def _other(self, rng: np.random.Generator) -> Piece | None:
        s, kind = self.settings, rng.random()
        if kind < s.broken_off:
            return self._broken_off(rng)
        if kind < s.broken_off + s.talk:
            return self._talk(rng)
        count = len(self.others.utterances)
        return self._cut(rng, self.others, int(rng.integers(count))) if count else None

    def _cut(self, rng: np.random.Generator, pool: Pool, number: int) -> Piece:
        """A word with some of what lies around it, or, where that fits and chance wants it, the whole recording."""
        s, one = self.settings, pool.utterances[number]
        start, end, size = _samples(one.start_s), _samples(one.end_s), _samples(one.clip.duration)
        before, after = (_samples(margin) for margin in rng.uniform(*s.margin_s, 2))
        if rng.random() < s.whole and size <= self.room:
            before, after = start, size - end
        first, last = max(0, start - before), min(size, end + after)
        samples = pool.recordings.part(number, first, last - first)
        return Piece(self._faded(samples), one.word, min(end - first, len(samples)))

    def _broken_off(self, rng: np.random.Generator) -> Piece:
        """The beginning of a trigger, and nothing after it."""
        s, number = self.settings, self._positive(rng)
        one = self.positives.utterances[number]
        first = max(0, _samples(one.start_s - rng.uniform(*s.margin_s)))
        last = _samples(one.start_s + rng.uniform(*s.broken_share) * (one.end_s - one.start_s))
        return Piece(self._faded(self.positives.recordings.part(number, first, last - first)))

    def _talk(self, rng: np.random.Generator) -> Piece | None:
        if not len(self._speech):
            return None
        count = min(_samples(rng.uniform(*self.settings.talk_s)), self.room)
        return Piece(self._faded(self._from_anywhere(rng, self._speech, count)))

    def _levelled(self, rng: np.random.Generator, piece: Piece, level_db: float) -> Piece:
        level_db += rng.uniform(-self.settings.vary_db, self.settings.vary_db)
        return piece._replace(samples=_at_level(piece.samples, level_db))

    def _faded(self, samples: Samples) -> Samples:
        count = min(_samples(self.settings.fade_s), len(samples) // 2)
        ramp = (np.arange(1, count + 1) / (count + 1)).astype(np.float32)
        samples = samples.copy()
        samples[:count] *= ramp
        samples[len(samples) - count :] *= ramp[::-1]
        return samples

    # --- where it is said --------------------------------------------------------------------------------------------

    def _arrange(self, rng: np.random.Generator, pieces: list[Piece]) -> list[tuple[int, Piece]]:
        """Those that fit, in any order with a gap before each, begin anywhere: ``(first sample, piece)``."""
        kept, used = [], 0
        for piece in pieces:
            gap = _samples(rng.uniform(*self.settings.gap_s))
            gap = min(gap, self.room - used - len(piece.samples))
            if gap >= 0:
                kept.append((gap, piece))
                used += gap + len(piece.samples)
        placed, at = [], int(rng.integers(self.room - used, endpoint=True))
        for place in rng.permutation(len(kept)):
            gap, piece = kept[place]
            placed.append((at + gap, piece))
            at += gap + len(piece.samples)
        return placed

    # --- what lies under it ------------------------------------------------------------------------------------------

    def _background(self, rng: np.random.Generator, level_db: float, alone: bool) -> Samples:
        s = self.settings
        size, kind = _samples(s.seconds), rng.random()
        below_db = rng.uniform(*s.below_db)
        samples = np.zeros(size, np.float32)
        source = None if kind < s.silent else self._speech if kind < s.silent + s.babble else self._noises
        if source:
            samples = _at_level(self._filled(rng, source, size), level_db - (0.0 if alone else below_db))
        if rng.random() < s.hiss:
            hiss_db = rng.uniform(*s.hiss_db)
            samples += effects.gain(rng.standard_normal(size, np.float32), hiss_db)
        return samples

    def _filled(self, rng: np.random.Generator, source: Recordings, size: int) -> Samples:
        """``size`` samples of one recording after the other, each from anywhere in it."""
        parts, found = [], 0
        while found < size:
            parts.append(self._faded(self._from_anywhere(rng, source, size - found)))
            found += len(parts[-1])
        return np.concatenate(parts)[:size]  # a recording at another rate may give a sample more

    def _from_anywhere(self, rng: np.random.Generator, source: Recordings, count: int) -> Samples:
        number, first = source.anywhere(rng)
        size = _samples(source.clips[number].duration)
        return source.part(number, max(0, min(first, size - count)), count)


def gather_clips(clips: Sequence[TriggerClip]) -> TriggerBatch:
    """Clips as a batch, padded with zeros."""
    lengths = torch.tensor([len(clip.samples) for clip in clips])
    samples = torch.zeros(len(clips), int(lengths.max()))
    for row, clip in zip(samples, clips, strict=True):
        row[: len(clip.samples)] = torch.from_numpy(clip.samples)
    return TriggerBatch(samples, lengths, tuple(clip.ends for clip in clips))


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def _at_level(samples: Samples, level_db: float) -> Samples:
    """Silence stays silence."""
    found = effects.active_level_db(samples, SAMPLE_RATE)
    return effects.gain(samples, level_db - found) if np.isfinite(found) else samples
