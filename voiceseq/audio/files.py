"""Sound files: read any of them, whole or block by block, and write wav and flac. numpy, no torch.

Samples are float32, full scale being 1: ``(frames,)`` for one channel, ``(channels, frames)`` for several. NaN and
infinite samples become 0. What was wrong with a file and did not keep it from being read stands in ``Audio.warnings``,
a line each; a file that gives nothing raises ``AudioError``.
"""

import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.decoding import Block, Decoder, open_decoder
from voiceseq.audio.resample import StreamResampler, finite
from voiceseq.errors import AudioError, InputError, MissingDependencyError

Samples = NDArray[np.float32]
DECODED_S = 10.0  # decoded at a time, whatever the blocks: some decoders round differently where they are cut
DECODED_VALUES = 8_000_000  # and no more than this: a header may claim a thousand channels
ENCODINGS = {"pcm16": "PCM_16", "pcm24": "PCM_24", "float": "FLOAT"}
WRITTEN = {".wav": "WAV", ".flac": "FLAC"}
FULL_SCALE = 32766 / 32768  # the last two steps of 16 bits count as clipped


@dataclass(frozen=True)
class Audio:
    """Sound: ``samples (frames,)`` or ``(channels, frames)``, and what was wrong with where it came from.

    ``whole_s`` is how long the file says it is of which this is a block.
    """

    samples: Samples
    sample_rate: int
    warnings: tuple[str, ...] = ()
    whole_s: float | None = None

    @property
    def duration_s(self) -> float:
        return float(self.samples.shape[-1] / self.sample_rate)


@dataclass(frozen=True)
class AudioInfo:
    """What a file says of itself, before it is decoded; through ffmpeg ``frames`` is near the truth or None.

    ``problems`` say that its end is missing, where that is seen so early (wav, ogg).
    """

    sample_rate: int
    channels: int
    frames: int | None
    format: str
    problems: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float | None:
        return None if self.frames is None else self.frames / self.sample_rate


def audio_info(path: str | Path) -> AudioInfo:
    """Sample rate, channels, length and format of a file. Raises ``AudioError`` for what cannot be read."""
    with open_decoder(path) as file:
        file.note_cut_end()
        return AudioInfo(file.sample_rate, file.channels, file.frames, file.format, tuple(file.problems))


def read_audio(
    path: str | Path,
    *,
    sample_rate: int | None = None,
    offset_s: float = 0.0,
    duration_s: float | None = None,
    channels: str | int = "mix",
) -> Audio:
    """A file, or the part of it from ``offset_s`` on, in one piece.

    Args:
        sample_rate: resample to it; None keeps the file's own.
        offset_s, duration_s: seconds of the file; None is to its end. A file that ends earlier gives what it has.
        channels: ``mix`` (their mean), ``separate`` (``(channels, frames)``), or the number of one, counted from 0.

    Raises:
        AudioError: a file that cannot be read, holds no audio, ends before ``offset_s`` or lacks the channel.
        InputError: a setting that cannot be.
    """
    blocks = list(
        stream_audio(
            path, DECODED_S, sample_rate=sample_rate, offset_s=offset_s, duration_s=duration_s, channels=channels
        )
    )
    samples = blocks[0].samples if len(blocks) == 1 else np.concatenate([b.samples for b in blocks], axis=-1)
    return Audio(samples, blocks[0].sample_rate, blocks[-1].warnings)


def read_clip(path: str | Path, offset_s: float, duration_s: float, sample_rate: int | None = None) -> Samples:
    """The samples ``(frames,)`` of one row of a manifest: a clip inside a long recording.

    The file is opened anew each time: for 20 minutes of Opus that takes 0.4 ms, a hundredth of decoding a clip.

    Raises:
        AudioError: as ``read_audio``, and where the recording ends before the clip does.
    """
    audio = read_audio(path, sample_rate=sample_rate, offset_s=offset_s, duration_s=duration_s)
    if audio.duration_s < duration_s - 1.5 / audio.sample_rate:
        raise AudioError(
            f"{path} ends {duration_s - audio.duration_s:.3f} s before the clip of {duration_s:g} s at {offset_s:g} s "
            "does: is the manifest of another recording?"
        )
    return audio.samples


def stream_audio(
    path: str | Path,
    block_s: float = 10.0,
    *,
    sample_rate: int | None = None,
    offset_s: float = 0.0,
    duration_s: float | None = None,
    channels: str | int = "mix",
) -> Iterator[Audio]:
    """The same samples as ``read_audio``, in blocks of ``block_s`` seconds (the last is shorter) and bounded memory.

    There is at least one block. The last one has the warnings. Errors are raised as the blocks are asked for.
    """
    _check_settings(block_s, sample_rate, offset_s, duration_s, channels)
    with open_decoder(path) as file:
        start = round(offset_s * file.sample_rate)
        count = None if duration_s is None else max(1, round(duration_s * file.sample_rate))
        _check_part(file, start, channels)
        at_once = min(round(DECODED_S * file.sample_rate), DECODED_VALUES // file.channels)
        picked = _Picked(file.blocks(start, count, at_once), channels)
        rate = sample_rate or file.sample_rate
        size = max(1, round(block_s * rate))
        whole_s = None if file.frames is None else file.frames / file.sample_rate
        previous = None
        for samples in _even(_resampled(picked, file, rate, channels), size):
            if previous is not None:
                yield Audio(previous, rate, whole_s=whole_s)
            previous = samples
        if previous is None or not picked.frames:
            raise AudioError(f"{file.name} holds no audio{f' after {offset_s:g} s' if start else ''}")
        yield Audio(previous, rate, (*file.problems, *picked.warnings(file.name)), whole_s)


class _Picked:
    """Blocks ``(frames, channels)`` -> the channels that are wanted, finite; counts what it sees."""

    def __init__(self, blocks: Iterator[Block], channels: str | int) -> None:
        self.blocks, self.channels = blocks, channels
        self.frames = self.replaced = 0

    def __iter__(self) -> Iterator[Samples]:
        for block in self.blocks:
            block, replaced = finite(block)
            self.frames += len(block)
            self.replaced += replaced
            if self.channels == "separate":
                yield np.ascontiguousarray(block.T)
            elif self.channels == "mix":
                yield block[:, 0] if block.shape[1] == 1 else block.mean(1)
            else:
                yield block[:, int(self.channels)]

    def warnings(self, name: str) -> list[str]:
        if not self.replaced:
            return []
        return [f"{name} has {self.replaced} samples that are NaN or infinite; they were set to 0"]


def _resampled(blocks: _Picked, file: Decoder, rate: int, channels: str | int) -> Iterator[Samples]:
    count = file.channels if channels == "separate" else 1
    resampler = StreamResampler(file.sample_rate, rate, count)
    for block in blocks:
        yield resampler.feed(block[0])[None] if block.shape[:-1] == (1,) else resampler.feed(block)
    rest = resampler.finish()
    yield rest[None] if channels == "separate" and count == 1 else rest


def _even(pieces: Iterator[Samples], size: int) -> Iterator[Samples]:
    """Pieces of any length -> blocks of ``size`` frames; the last is what is left and may be empty if it is alone."""
    waiting: list[Samples] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(p.shape[-1] for p in waiting) > size:
            whole = np.concatenate(waiting, axis=-1)
            full = (whole.shape[-1] - 1) // size * size  # keeps at least one back: the last block is never empty
            yield from (whole[..., at : at + size] for at in range(0, full, size))
            waiting = [whole[..., full:]]
    if waiting:
        yield np.concatenate(waiting, axis=-1)


def write_audio(path: str | Path, samples: Samples, sample_rate: int, encoding: str = "pcm16") -> Path:
    """Write ``(frames,)`` or ``(channels, frames)`` as wav or flac, by the suffix; what is over full scale is clipped.

    The file appears whole or not at all: it is written under a temporary name and renamed.

    Raises:
        InputError: samples of another shape or not finite, an unknown suffix or encoding, a sample rate below 1.
        AudioError: the place cannot be written to (a missing or read-only folder, a full disk).
    """
    path = Path(path)
    data = _encoded(path, np.asarray(samples), sample_rate, encoding)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise AudioError(f"{path} cannot be written: {error.strerror}{_room(path.parent)}") from error
    return path


def _encoded(path: Path, samples: NDArray[np.floating], sample_rate: int, encoding: str) -> memoryview:
    """The bytes of the file: encoded in memory, so that a full disk is met by plain Python."""
    kind = WRITTEN.get(path.suffix.lower())
    if kind is None or encoding not in ENCODINGS or (kind, encoding) == ("FLAC", "float"):
        raise InputError(
            f"{path.name} as {encoding}: .wav with {', '.join(ENCODINGS)} or .flac with pcm16, pcm24 was wanted"
        )
    if samples.ndim not in (1, 2) or not np.issubdtype(samples.dtype, np.floating) or not np.isfinite(samples).all():
        raise InputError(
            f"samples has shape {samples.shape}, dtype {samples.dtype}; finite floating point of (frames,) or "
            "(channels, frames) was wanted"
        )
    try:
        import soundfile
    except (ModuleNotFoundError, OSError) as error:
        raise MissingDependencyError(f"writing {path.name} needs soundfile ({error}): pip install soundfile") from error
    buffer = io.BytesIO()
    try:
        soundfile.write(buffer, samples.T, sample_rate, subtype=ENCODINGS[encoding], format=kind)
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise InputError(f"{path.name}: {samples.shape} at {sample_rate} Hz cannot be encoded ({error})") from error
    return buffer.getbuffer()


def _room(folder: Path) -> str:
    if not folder.is_dir():
        return f"; there is no folder {folder}: make it first"
    return f"; {shutil.disk_usage(folder).free / 1e6:,.0f} MB are free in {folder}"


@dataclass(frozen=True)
class Levels:
    """How loud samples are: ``peak_db`` and ``rms_db`` below full scale (-inf for silence), ``offset`` (DC), and the
    share of them that is ``clipped``, that is, stands at full scale."""

    peak_db: float
    rms_db: float
    offset: float
    clipped: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should hear of, a line each."""
        said = (
            (self.clipped > 0.001, f"{self.clipped:.1%} of the samples are clipped: lower the input level"),
            (abs(self.offset) > 0.05, f"the samples have an offset of {self.offset:.2f} (0 was wanted)"),
            (self.peak_db == -np.inf, "digital silence: is the microphone muted?"),
            (-np.inf < self.peak_db < -50, f"very quiet, the peak is at {self.peak_db:.0f} dB: raise the input level"),
        )
        return tuple(text for holds, text in said if holds)


class LevelMeter:
    """Levels of sound that comes in blocks: ``add`` them, then ``levels``. NaN and infinity count as 0."""

    def __init__(self) -> None:
        self._count = self._clipped = 0
        self._peak = self._squares = self._sum = 0.0

    def add(self, samples: Samples) -> None:
        """``(frames,)`` or ``(channels, frames)``."""
        samples, _ = finite(np.asarray(samples, np.float32))
        if samples.size:
            size = np.abs(samples)
            self._count += samples.size
            self._clipped += int((size >= FULL_SCALE).sum())
            self._peak = max(self._peak, float(size.max()))
            self._squares += float(np.square(samples, dtype=np.float64).sum())
            self._sum += float(samples.sum(dtype=np.float64))

    @property
    def levels(self) -> Levels:
        count = max(1, self._count)
        with np.errstate(divide="ignore"):
            peak_db, rms_db = 20 * np.log10(self._peak), 10 * np.log10(self._squares / count)
        return Levels(float(peak_db), float(rms_db), self._sum / count, self._clipped / count)


def level_report(samples: Samples) -> Levels:
    """Levels of ``(frames,)`` or ``(channels, frames)``; no samples count as silence. NaN and infinity count as 0."""
    meter = LevelMeter()
    meter.add(samples)
    return meter.levels


def _check_settings(
    block_s: float, sample_rate: int | None, offset_s: float, duration_s: float | None, channels: str | int
) -> None:
    if not block_s > 0:
        raise InputError(f"block_s is {block_s}; more than 0 was wanted")
    if sample_rate is not None and sample_rate < 1:
        raise InputError(f"sample_rate is {sample_rate}; at least 1 was wanted")
    if not 0 <= offset_s < np.inf:
        raise InputError(f"offset_s is {offset_s}; 0 or more seconds were wanted")
    if duration_s is not None and not 0 < duration_s < np.inf:
        raise InputError(f"duration_s is {duration_s}; more than 0 seconds, or None for all, was wanted")
    if channels not in ("mix", "separate") and not (isinstance(channels, int) and channels >= 0):
        raise InputError(f"channels is {channels!r}; 'mix', 'separate' or a number from 0 was wanted")


def _check_part(file: Decoder, start: int, channels: str | int) -> None:
    if isinstance(channels, int) and channels >= file.channels:
        raise AudioError(f"{file.name} has {file.channels} channels, 0 to {file.channels - 1}; {channels} was wanted")
    if file.frames == 0:
        raise AudioError(f"{file.name} holds no audio: a header and no samples")
    if file.frames is not None and start >= file.frames and file.format != "ffmpeg":
        seconds = file.frames / file.sample_rate
        raise AudioError(f"{file.name} has {seconds:.2f} s; a part from {start / file.sample_rate:g} s on was wanted")
