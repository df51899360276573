"""Recordings of words: where in a clip the word is, and the samples around it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio import effects
from voiceseq.audio.files import Audio, audio_info, read_clip
from voiceseq.datasets.corpora.rows import is_audio, walk
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.errors import AudioError, InputError

Samples = NDArray[np.float32]
SAMPLE_RATE = 16_000
SLACK_S = 0.01  # by which a row's times may lie past the end of its clip


@dataclass(frozen=True)
class Utterance:
    """A recording with a word in it from ``start_s`` to ``end_s``; ``word`` is the trigger's number, None for none."""

    clip: Clip
    word: int | None
    start_s: float
    end_s: float


def find_utterance(clip: Clip, word: int | None) -> Utterance:
    """The word is where the row's ``word_start`` and ``word_end`` say, else where the recording is not silent.

    Raises:
        InputError: times that lie outside the clip.
    """
    start, end = clip.extra.get("word_start"), clip.extra.get("word_end")
    if start is None or end is None:
        start, end = active_span(read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE))
    elif not 0 <= start < end <= clip.duration + SLACK_S:
        raise InputError(f"{clip.id}: the word is said from {start} to {end} s of a clip of {clip.duration} s")
    return Utterance(clip, word, float(start), min(float(end), clip.duration))


def active_span(samples: Samples) -> tuple[float, float]:
    """Seconds from the first to the end of the last 20 ms that are at most 30 dB below the loudest."""
    size = max(1, min(len(samples), round(effects.FRAME_S * SAMPLE_RATE)))
    power = np.square(samples[: len(samples) // size * size].reshape(-1, size)).mean(1)
    active = np.flatnonzero(power >= power.max() * 10 ** (-effects.ACTIVE_DB / 10))
    return float(active[0]) * size / SAMPLE_RATE, float(active[-1] + 1) * size / SAMPLE_RATE


class Recordings(Sequence[Audio]):
    """Clips as samples. With ``keep`` they are decoded once and stay as 16-bit samples (115 MB an hour)."""

    def __init__(self, clips: Sequence[Clip], keep: bool) -> None:
        self.clips, self.keep = list(clips), keep
        self._kept: dict[int, NDArray[np.int16]] = {}
        self._until = np.cumsum([clip.duration for clip in clips])

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, number: Any) -> Any:
        return Audio(self.part(number, 0, round(self.clips[number].duration * SAMPLE_RATE)), SAMPLE_RATE)

    def anywhere(self, rng: np.random.Generator) -> tuple[int, int]:
        """A recording and a sample in it: every second of sound is as likely as another."""
        at = float(rng.uniform(0, self._until[-1]))
        number = min(int(np.searchsorted(self._until, at, side="right")), len(self) - 1)
        return number, int((at - self._until[number] + self.clips[number].duration) * SAMPLE_RATE)

    def part(self, number: int, first: int, count: int) -> Samples:
        """``count`` samples from ``first`` on, fewer where the clip ends before."""
        clip = self.clips[number]
        if not self.keep:
            first_s, rest = first / SAMPLE_RATE, clip.duration - first / SAMPLE_RATE
            return read_clip(clip.audio, clip.offset + first_s, min(count / SAMPLE_RATE, rest), SAMPLE_RATE)
        if number not in self._kept:
            samples = read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE)
            self._kept[number] = np.clip(np.round(samples * 32768), -32768, 32767).astype(np.int16)
        return self._kept[number][first : first + count].astype(np.float32) / np.float32(32768)


def read_source(path: str | Path, only_word: str | None = None) -> list[Clip]:
    """The clips of a manifest, or of a folder ``WORD/[SPEAKER/]FILE`` or ``FILE`` (these say ``only_word``).

    In a folder every recording without a speaker counts as a speaker of its own.

    Raises:
        InputError: neither of both, or a folder without audio.
    """
    path = Path(path)
    if not path.is_dir():
        return read_manifest(path)
    clips = list(_folder_clips(path, only_word))
    if not clips:
        raise InputError(f"{path} holds no audio; give a manifest, or a folder with recordings in it")
    return clips


def _folder_clips(root: Path, only_word: str | None) -> Iterator[Clip]:
    for folder, names in walk(root):
        for name in filter(is_audio, names):
            inner = (folder / name).relative_to(root)
            *above, _ = inner.parts
            duration = audio_info(folder / name).duration_s
            if duration is None:
                raise AudioError(f"{folder / name} does not say how long it is; convert it to .wav or .flac")
            word = above[0] if above else only_word
            speaker = "/".join(above[1:]) or None
            extra = {"word": word} if word else {}
            yield Clip(inner.as_posix(), folder / name, duration, speaker=speaker, extra=extra)
