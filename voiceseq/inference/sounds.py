"""What is transcribed, as blocks of 16 kHz, and the pieces of speech in it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from voiceseq.audio.cutting import Cutter, Cutting, Piece
from voiceseq.audio.files import Audio, LevelMeter, stream_audio
from voiceseq.audio.reading_ahead import read_ahead
from voiceseq.audio.resample import finite, resample
from voiceseq.errors import InputError
from voiceseq.inference.pooling import Job
from voiceseq.inference.speech import SAMPLE_RATE, Samples
from voiceseq.remote import LONGEST_S as LONGEST_FETCH_S
from voiceseq.remote import url_of

BLOCK_S = 10.0
STALL_S = 90.0  # a decoder that gives nothing for so long is given up
LONGEST_S = 24 * 3600.0  # of one file: a small one can be made to decode for ever
OFFSET = 0.01  # a mean further from 0 than this is taken away: recognisers have never heard it

SHORT_S = 3.0  # somebody thinks that there is something in a file as short as this: the recogniser decides
DOUBTFUL = 0.3  # the probability of speech from which on it is asked

Sound = tuple[str, Iterator[Audio]]  # a name, and blocks


def file_sound(
    file: str | Path, channels: str | int, name: str | None = None, clip: tuple[float, float] | None = None
) -> Sound:
    """A file or URL, or the ``clip`` of it from a second on, so many seconds long.

    ``name`` is how the transcript calls it. Errors are raised as the blocks are asked for.
    """
    offset_s, duration_s = clip or (0.0, None)
    part = {"offset_s": offset_s, "duration_s": duration_s}
    blocks = stream_audio(file, BLOCK_S, sample_rate=SAMPLE_RATE, channels=channels, **part)  # type: ignore[arg-type]
    if duration_s is not None:
        blocks = (replace(audio, whole_s=duration_s) for audio in blocks)
    waited_s = STALL_S if url_of(file) is None else LONGEST_FETCH_S
    return name or str(file), read_ahead(blocks, str(file), waited_s)


def samples_sound(samples: Samples, sample_rate: int, channels: str | int) -> Sound:
    """Samples ``(n,)`` or ``(channels, n)``. Raises InputError for another shape, no samples, a missing channel."""
    samples = np.asarray(samples)
    if samples.ndim not in (1, 2) or not samples.size:
        raise InputError(f"samples have shape {samples.shape}; (n,) or (channels, n) was wanted, and at least one")
    rows, replaced = finite(np.atleast_2d(samples).astype(np.float32, copy=False))
    if channels == "mix":
        rows = rows.mean(0, keepdims=True)
    elif channels != "separate":
        if not (isinstance(channels, int) and 0 <= channels < len(rows)):
            raise InputError(f"channels is {channels!r}; 'mix', 'separate' or 0 to {len(rows) - 1} was wanted")
        rows = rows[[channels]]
    warnings = (f"{replaced} samples are NaN or infinite; they were set to 0",) if replaced else ()
    whole_s = rows.shape[1] / sample_rate
    return "samples", iter([Audio(resample(rows, sample_rate, SAMPLE_RATE), SAMPLE_RATE, warnings, whole_s)])


def cut_blocks(job: Job, blocks: Iterator[Audio], cutting: Cutting) -> Iterator[tuple[int, Piece] | None]:
    """``(channel, piece)`` as the blocks come, and None after each block.

    Notes in the job how long the sound is, and what is wrong with it.
    """
    cutters: list[Cutter] = []
    meter = LevelMeter()
    for audio in _limited(job, blocks):
        rows = np.atleast_2d(audio.samples)
        cutters = cutters or [Cutter(_lenient(cutting, audio.whole_s)) for _ in rows]
        meter.add(rows)
        for channel, (cutter, row) in enumerate(zip(cutters, rows, strict=True)):
            yield from ((channel, _centred(piece)) for piece in cutter.feed(row))
        yield None
    for channel, cutter in enumerate(cutters):
        yield from ((channel, _centred(piece)) for piece in cutter.finish())
    job.warnings += [f"{job.name}: {warning}" for warning in meter.levels.warnings]


def _lenient(cutting: Cutting, whole_s: float | None) -> Cutting:
    if whole_s is None or whole_s > SHORT_S:
        return cutting
    return replace(cutting, begin=DOUBTFUL, go_on=min(DOUBTFUL, cutting.go_on), sure=DOUBTFUL)


def _limited(job: Job, blocks: Iterator[Audio]) -> Iterator[Audio]:
    for audio in blocks:
        job.duration += audio.duration_s
        job.whole_s = audio.whole_s
        job.warnings += audio.warnings
        yield audio
        if job.duration >= LONGEST_S:
            job.warnings.append(f"{job.name} is longer than {LONGEST_S / 3600:g} hours; the rest is left out")
            return


def _centred(piece: Piece) -> Piece:
    mean = piece.samples.mean()
    return replace(piece, samples=piece.samples - mean) if abs(mean) > OFFSET else piece
