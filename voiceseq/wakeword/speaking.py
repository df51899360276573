"""What synthesisers say for a wake word, as files with a manifest: said once, found again by a second run."""

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.voices import Take, utter
from voiceseq.errors import AudioError, InputError, VoiceseqError

SAMPLE_RATE = 16_000
LONGEST_S = 12.0
Progress = Callable[[int, int], None]


def say_all(takes: Sequence[Take], folder: Path, workers: int = 1, progress: Progress | None = None) -> list[Clip]:
    """Each take as a clip of ``folder``; ``extra`` has ``word_start`` and ``word_end``. Takes that fail are left out.

    A take that lies there already, said in the same way, is not said again. Raises InputError where none can be said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [(take, folder / f"{name_of(take)}.wav") for take in takes]
    found: list[Clip | None] = []
    if workers < 2:
        for job in jobs:
            found.append(_say(job))
            _tell(progress, len(found), len(jobs))
    else:
        # spawned, since a forked process may inherit a lock of the synthesiser's threads
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for clip in pool.map(_say, jobs, chunksize=8):
                found.append(clip)
                _tell(progress, len(found), len(jobs))
    clips = [clip for clip in found if clip is not None]
    if takes and not clips:
        raise InputError(
            f"none of {len(takes)} takes of {takes[0].sentence.text[:40]!r} could be said: try other voices"
        )
    return clips


def name_of(take: Take) -> str:
    """The same for the same words, voice and manner."""
    said = json.dumps([take.sentence.pieces, take.voice.label, take.manner.told()], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:20]


def _say(job: tuple[Take, Path]) -> Clip | None:
    take, path = job
    beside = path.with_suffix(".json")
    if not (path.exists() and beside.exists()):
        try:
            said = utter(take.sentence, take.voice, take.manner, SAMPLE_RATE)
        except VoiceseqError:
            return None
        if said.phrase is None or len(said.samples) > LONGEST_S * SAMPLE_RATE:
            return None
        write_audio(path, said.samples, SAMPLE_RATE)
        row = {"duration": len(said.samples) / SAMPLE_RATE, "word_start": said.phrase[0], "word_end": said.phrase[1]}
        partial = beside.with_suffix(".part")
        try:
            partial.write_text(json.dumps(row), encoding="utf-8")
            partial.replace(beside)
        except OSError as error:
            raise AudioError(f"{beside} cannot be written: {error.strerror}; make room, run this again") from error
    row = json.loads(beside.read_text(encoding="utf-8"))
    extra: dict[str, Any] = {"word_start": row["word_start"], "word_end": row["word_end"], "engine": take.voice.engine}
    return Clip(path.stem, path, row["duration"], 0.0, take.sentence.text, take.voice.label, extra)


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
