"""Decoders: sound files as blocks of samples, by soundfile where it can, else by ffmpeg in a process of its own.

``open_decoder(path)`` finds the one that reads a file. A decoder knows ``sample_rate``, ``channels`` and, where the file
says so, ``frames``; ``blocks`` gives ``(frames, channels)`` float32. What is wrong with a file and yet leaves something
to work on (its end is missing) is noted in ``problems``; what leaves nothing raises ``AudioError``.
"""

import os
import re
import shutil
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.errors import AudioError

Block = NDArray[np.float32]
SLOWEST, FASTEST = 1_000, 1_000_000  # sample rates beyond these are damage, not sound
# A sound file that is streamed, or longer than its header can say, promises one of the largest lengths there are.
OPEN_ENDED = 0x7FFF_0000
STALL_S = 60.0  # ffmpeg is killed when one block takes longer
LONGEST_S = 24 * 3600.0  # and stops there: a small file can be made to decode for ever
# Containers alone: no playlists, which would make it open other files.
FORMATS = (
    "mov,matroska,webm,avi,flv,asf,aac,ac3,eac3,amr,aiff,au,caf,mpeg,mpegts,mp3,ogg,flac,wav,w64,ape,wv,tta,dts,dsf,gsm"
)
INSTALL = "install ffmpeg (apt install ffmpeg, brew install ffmpeg, winget install ffmpeg) or convert the file to wav"


class Decoder:
    """An open sound file; use it in a ``with`` statement. ``name`` is how messages call it."""

    name: str
    format: str
    sample_rate: int
    channels: int
    frames: int | None

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.problems: list[str] = []

    def blocks(self, start: int, count: int | None, size: int) -> Iterator[Block]:
        """Frames ``start .. start + count`` (None: to the end) in blocks of at most ``size``."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_missing(self, promised: int, got: int) -> None:
        wanted_s, got_s = promised / self.sample_rate, got / self.sample_rate
        self.problems.append(
            f"{self.name} is cut short: {wanted_s:.2f} s were promised, {got_s:.2f} s are there and are used"
        )


def open_decoder(path: str | Path) -> Decoder:
    """The decoder for a file.

    Raises:
        AudioError: no such file, no sound in it, or a kind of sound that nothing here can read; says what to do.
    """
    path = Path(path)
    _check_readable(path)
    try:
        decoder: Decoder = SoundFileDecoder(path)
    except _Unknown as unknown:
        decoder = FfmpegDecoder(path, str(unknown))
    try:
        _check_figures(decoder.name, decoder.sample_rate, decoder.channels)
    except AudioError:
        decoder.close()
        raise
    return decoder


class _Unknown(Exception):
    """soundfile cannot read it (or is not installed); another decoder may."""


class SoundFileDecoder(Decoder):
    """wav, flac, ogg, opus, mp3, aiff, au, caf, ...: whatever libsndfile reads; seeks to the very sample."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import soundfile
        except (ModuleNotFoundError, OSError) as error:  # OSError: the package is there, its library is not
            raise _Unknown(f"soundfile is missing ({error}): pip install soundfile") from error
        try:
            self._file = soundfile.SoundFile(path)
        except soundfile.LibsndfileError as error:
            self._explain(path)
            raise _Unknown(f"soundfile says: {error.error_string.strip('. ')}") from error
        self._error = soundfile.LibsndfileError
        self._path = path
        self.format = f"{self._file.format} {self._file.subtype}"
        self.sample_rate, self.channels, self.frames = self._file.samplerate, self._file.channels, self._file.frames

    @staticmethod
    def _explain(path: Path) -> None:
        """Say in plain words what is wrong with a wav header."""
        with path.open("rb") as file:
            header = read_wave_header(file)
        if header is not None:
            _check_figures(str(path), header.sample_rate, header.channels)
            if header.bits == 0:
                raise AudioError(f"{path}: its header says 0 bits a sample: the file is damaged, record it anew")

    def blocks(self, start: int, count: int | None, size: int) -> Iterator[Block]:
        promised = self._file.frames
        end = promised if count is None else min(promised, start + count)
        at = start
        try:
            self._file.seek(start)
            while at < end:
                block = self._read(min(size, end - at))
                at += len(block)
                if not len(block):
                    break
                yield block
        except self._error as error:
            raise AudioError(f"{self.name} cannot be decoded ({error.error_string}): is it damaged?") from error
        if at < end:
            self._note_missing(promised, at)
        elif at == promised:
            self._note_cut_end(promised)

    def _read(self, count: int) -> Block:
        """Up to ``count`` frames; where the decoder gives up, those before that place."""
        block = np.full((count, self.channels), np.nan, np.float32)
        try:
            return self._file.read(dtype="float32", always_2d=True, out=block)  # type: ignore[no-any-return]
        except self._error:
            read = np.isfinite(block).all(1)
            return block[: count if read.all() else int(read.argmin())]

    def _note_cut_end(self, frames: int) -> None:
        """libsndfile is silent about a wav or an ogg file whose end is missing."""
        if self.format.startswith("OGG") and not ogg_has_end(self._path):
            self.problems.append(f"{self.name} is cut short: its last page is missing; {self._seconds(frames)} are used")
        if self.format.startswith("WAV"):
            with self._path.open("rb") as file:
                header = read_wave_header(file)
            if header and header.frame_bytes and header.promised < OPEN_ENDED:
                promised = header.promised // header.frame_bytes
                if promised > frames and "PCM" in self.format or "FLOAT" in self.format or "DOUBLE" in self.format:
                    if promised > frames:
                        self._note_missing(promised, frames)

    def _seconds(self, frames: int) -> str:
        return f"{frames / self.sample_rate:.2f} s"

    def close(self) -> None:
        self._file.close()
