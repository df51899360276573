"""Sound files to text with times: everything between a file and a recogniser.

    transcriber = voiceseq.load("english-small")
    transcriber.transcribe("talk.mp3").text

A file is decoded block by block and cut into pieces of speech; the pieces of all files are recognised in batches of
about one length, and the answers are joined again in the order of the files. Memory does not grow with their length.
"""

import contextlib
import importlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, cast

from voiceseq.audio.cutting import Cutting
from voiceseq.audio.files import Audio
from voiceseq.bundles import Bundle
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.live import UtteranceStream
from voiceseq.inference.pooling import Failure, Job, Pool, Waiting
from voiceseq.inference.sounds import Sound, cut_blocks, file_sound, samples_sound
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, LiveSpeech, Recogniser, Samples
from voiceseq.inference.transcripts import Segment, Transcript, make_segments

__all__ = ["RECOGNISERS", "Failure", "Progress", "Segment", "Settings", "Transcriber", "Transcript", "make_settings"]

# What opens a bundle of each kind; the class has a classmethod from_bundle(bundle).
RECOGNISERS = {
    "recogniser": "voiceseq.inference.recogniser:AcousticRecogniser",
    "whisper": "voiceseq.inference.whisper:WhisperRecogniser",
}


@dataclass(frozen=True)
class Settings:
    """How to transcribe.

    Args:
        decoding: how to search.
        channels: ``mix``, ``separate`` (each segment says whose it is), or the number of one, counted from 0.
        batch_s: seconds of sound, filled up to the longest piece, that are recognised at once; 0 is one by one.
    """

    decoding: Decoding = field(default_factory=Decoding)
    channels: str | int = "mix"
    batch_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.batch_s < float("inf"):
            raise InputError(f"batch_s is {self.batch_s}; 0 seconds or more was wanted")


@dataclass(frozen=True)
class Progress:
    """How far it is: ``read_s`` of ``whole_s`` (if that is known) of the ``file``-th file have been read.

    ``recognised_s`` seconds of speech, of all files, are done with, and ``waiting_s`` wait.
    """

    file: int
    read_s: float
    whole_s: float | None
    recognised_s: float
    waiting_s: float


Watch = Callable[[Progress], None]


def unwatched(progress: Progress) -> None:
    """Nobody wants to know how far it is."""


class Transcriber:
    """A recogniser, and all that it takes to bring files of any length and kind to it."""

    def __init__(self, recogniser: Recogniser) -> None:
        self.recogniser = recogniser

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError where the bundle is no recogniser's, or damaged."""
        if bundle.kind not in RECOGNISERS:
            raise BundleError(f"{bundle.path} is a {bundle.kind!r}; {' or '.join(RECOGNISERS)} was wanted")
        module, _, name = RECOGNISERS[bundle.kind].partition(":")
        return cls(getattr(importlib.import_module(module), name).from_bundle(bundle))

    def transcribe(self, source: str | Path | Samples, sample_rate: int | None = None, **settings: Any) -> Transcript:
        """One file, or samples ``(n,)`` or ``(channels, n)`` with their rate.

        Settings are those of ``Settings`` and of ``Decoding`` (``beam=8, hotwords=("luna",), channels=1``).

        Raises:
            AudioError: a file that cannot be read.
            InputError: samples without a rate or of another shape, unknown settings.
        """
        wanted = make_settings(**settings)
        if isinstance(source, str | Path):
            sound = file_sound(source, wanted.channels)
        elif sample_rate is None:
            raise InputError("samples came without their sample_rate; give it as the second argument")
        else:
            sound = samples_sound(source, sample_rate, wanted.channels)
        (job,) = self._jobs([sound], wanted, raising=True)
        return self._transcript(job)

    def transcribe_files(
        self, files: Iterable[str | Path], settings: Settings | None = None, watch: Watch = unwatched
    ) -> Iterator[Transcript | Failure]:
        """Each file's transcript, or why there is none, in the order of the files; ``watch`` hears how far it is."""
        settings = settings or Settings()
        return self.transcribe_sounds((file_sound(file, settings.channels) for file in files), settings, watch)

    def transcribe_sounds(
        self, sounds: Iterable[Sound], settings: Settings, watch: Watch = unwatched
    ) -> Iterator[Transcript | Failure]:
        """As ``transcribe_files``, of anything that comes in blocks."""
        for job in self._jobs(sounds, settings, watch):
            yield job.failure or self._transcript(job)

    def stream(self, sample_rate: int = SAMPLE_RATE, decoding: Decoding | None = None) -> LiveSpeech:
        """A live listener: the recogniser's own, or one that hears utterance by utterance where it has none."""
        own = getattr(self.recogniser, "stream", None)
        if own is not None:
            with contextlib.suppress(InputError):  # a network that needs the whole utterance
                return cast(LiveSpeech, own(sample_rate) if decoding is None else own(sample_rate, decoding))
        return UtteranceStream(self.recogniser, sample_rate, decoding)

    def _jobs(
        self, sounds: Iterable[Sound], settings: Settings, watch: Watch = unwatched, raising: bool = False
    ) -> Iterator[Job]:
        """Finished jobs, in order."""
        jobs: deque[Job] = deque()
        pool = Pool(self.recogniser, settings.decoding, settings.batch_s, raising)
        job = Job("")

        def tell() -> None:
            watch(Progress(job.number, job.duration, job.whole_s, pool.recognised_s, pool.waiting_s))

        for number, (name, blocks) in enumerate(sounds):
            job = Job(name, number, settings.channels == "separate")
            jobs.append(job)
            for waiting in self._pieces(job, blocks, raising):
                tell()
                for _ in pool.add(waiting):
                    tell()
            job.read = True
            while jobs and jobs[0].done:
                yield jobs.popleft()
        for _ in pool.empty():
            tell()
        yield from jobs

    def _pieces(self, job: Job, blocks: Iterator[Audio], raising: bool) -> Iterator[Waiting | None]:
        """The pieces of a file as its blocks come, and None after each block."""
        try:
            for found in cut_blocks(job, blocks, Cutting(longest_s=self.recogniser.longest_s)):
                yield found and job.add(*found)
        except Exception as error:  # whatever one file does, the others go on
            if raising:
                raise
            job.fail(error)

    def _transcript(self, job: Job) -> Transcript:
        segments = [
            segment
            for channel, answers in job.answers().items()
            for segment in make_segments(answers, channel if job.apart else None)
        ]
        segments.sort(key=lambda segment: segment.start)
        return Transcript(job.name, job.duration, self.recogniser.language, tuple(segments), tuple(job.warnings))


def make_settings(channels: str | int = "mix", batch_s: float = Settings.batch_s, **decoding: Any) -> Settings:
    """Settings from plain names. Raises InputError for one that is not known, with those that are."""
    known = [one.name for one in fields(Decoding)]
    if unknown := sorted(decoding.keys() - set(known)):
        raise InputError(f"no setting {unknown[0]!r}; there are channels, batch_s, {', '.join(known)}")
    return Settings(Decoding(**decoding), channels, batch_s)
