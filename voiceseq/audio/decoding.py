"""Decoders: sound files as blocks of samples, by soundfile where it can, else by ffmpeg in a process of its own.

``open_decoder(path)`` finds the one that reads a file. A decoder knows ``sample_rate``, ``channels`` and, where the
file says so, ``frames``; ``blocks`` gives ``(frames, channels)`` float32. What is wrong with a file and yet leaves
something to work on (its end is missing) is noted in ``problems``; what leaves nothing raises ``AudioError``.
"""

import os
import re
import shutil
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from voiceseq import remote
from voiceseq.errors import AudioError, InputError

Block = NDArray[np.float32]
SLOWEST, FASTEST = 1_000, 1_000_000  # sample rates beyond these are damage, not sound
# A sound file that is streamed, or longer than its header can say, promises one of the largest lengths there are.
OPEN_ENDED = 0x7FFF_0000
STALL_S = 60.0  # ffmpeg is killed when one block takes longer
TOLD_S = 2.0  # that the length of a file may be waited for, which is told at once or never
LONGEST_S = 24 * 3600.0  # and stops there: a small file can be made to decode for ever
# Containers alone: no playlists, which would make it open other files.
FORMATS = (
    "mov,matroska,webm,avi,flv,asf,aac,ac3,eac3,amr,aiff,au,caf,mpeg,mpegts,mp3,ogg,flac,wav,w64,ape,wv,tta,dts,dsf,gsm"
)
WHOLE, FLOATING, EXTENSIBLE = 1, 3, 0xFFFE  # how a wav file codes its samples; the last: it says so further on
PLAIN = {(WHOLE, 8): "u1", (WHOLE, 16): "<i2", (WHOLE, 24): "<i4", (WHOLE, 32): "<i4"}
PLAIN |= {(FLOATING, 32): "<f4", (FLOATING, 64): "<f8"}
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
        self._held: remote.Held | None = None

    def hold(self, held: remote.Held) -> None:
        """It reads the copy of a URL, which is released with it."""
        self.name, self._held = held.url or self.name, held

    def blocks(self, start: int, count: int | None, size: int) -> Iterator[Block]:
        """Frames ``start .. start + count`` (None: to the end) in blocks of at most ``size``."""
        raise NotImplementedError

    def note_cut_end(self) -> None:
        """Note in ``problems`` that the end of the file is missing, where that is seen without decoding all of it."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._held is not None:
            self._held.release()

    def _note_missing(self, promised: int, got: int) -> None:
        wanted_s, got_s = promised / self.sample_rate, got / self.sample_rate
        self.problems.append(
            f"{self.name} is cut short: {wanted_s:.2f} s were promised, {got_s:.2f} s are there and are used"
        )


def open_decoder(path: str | Path) -> Decoder:
    """The decoder for a file, or for what is behind a URL.

    Raises:
        AudioError: no such file, no sound in it, or a kind of sound that nothing here can read; says what to do.
    """
    try:
        url = remote.url_of(path)
        if url is None:
            return _open_file(remote.local_path(path))
        held = remote.hold(url)
    except InputError as error:
        raise AudioError(str(error)) from error
    try:
        decoder = _open_file(held.path)
    except BaseException as error:
        held.release()
        if isinstance(error, AudioError):
            raise AudioError(str(error).replace(str(held.path), url)) from error
        raise
    decoder.hold(held)
    return decoder


def _open_file(path: Path) -> Decoder:
    _check_readable(path)
    try:
        decoder: Decoder = SoundFileDecoder(path)
    except _Absent as absent:
        decoder = WaveDecoder(path) if is_plain_wave(path) else FfmpegDecoder(path, str(absent))
    except _Unknown as unknown:
        decoder = FfmpegDecoder(path, str(unknown))
    try:
        _check_figures(decoder.name, decoder.sample_rate, decoder.channels)
    except AudioError:
        decoder.close()
        raise
    return decoder


class _Unknown(Exception):
    """soundfile cannot read it; another decoder may."""


class _Absent(_Unknown):
    """There is no soundfile."""


class SoundFileDecoder(Decoder):
    """wav, flac, ogg, opus, mp3, aiff, au, caf, ...: whatever libsndfile reads; seeks to the very sample."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import soundfile
        except (ModuleNotFoundError, OSError) as error:  # OSError: the package is there, its library is not
            raise _Absent(f"soundfile is missing ({error}): pip install soundfile") from error
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
            self.note_cut_end()

    def _read(self, count: int) -> Block:
        """Up to ``count`` frames; where the decoder gives up, those before that place."""
        block = np.full((count, self.channels), np.nan, np.float32)
        try:
            return np.asarray(self._file.read(dtype="float32", always_2d=True, out=block))
        except self._error:
            read = np.isfinite(block).all(1)
            return block[: count if read.all() else int(read.argmin())]

    def note_cut_end(self) -> None:
        """libsndfile is silent about a wav or ogg file whose end is missing."""
        frames = self._file.frames
        if self.format.startswith("OGG") and not ogg_has_end(self._path):
            seconds = frames / self.sample_rate
            self.problems.append(f"{self.name} is cut short: its last page is missing; {seconds:.2f} s are used")
        if self.format.startswith("WAV"):
            with self._path.open("rb") as file:
                header = read_wave_header(file)
                there = os.fstat(file.fileno()).st_size - file.tell()
            if header and there < header.promised < OPEN_ENDED:
                self._note_missing(round(frames * header.promised / there), frames)

    def close(self) -> None:
        self._file.close()


class WaveDecoder(Decoder):
    """wav of whole numbers or floating point, read by numpy: where there is no soundfile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = path.open("rb")
        header = read_wave_header(self._file)
        assert header is not None  # see is_plain_wave
        self._header, self._first = header, self._file.tell()
        self.format, self._width = "WAV", header.channels * header.bits // 8
        self.sample_rate, self.channels = header.sample_rate, header.channels
        there = os.fstat(self._file.fileno()).st_size - self._first
        self.frames = min(header.promised, there) // self._width
        if there < header.promised < OPEN_ENDED:
            self._note_missing(header.promised // self._width, self.frames)

    def blocks(self, start: int, count: int | None, size: int) -> Iterator[Block]:
        assert self.frames is not None
        end = self.frames if count is None else min(self.frames, start + count)
        self._file.seek(self._first + start * self._width)
        for at in range(start, end, size):
            data = self._file.read(min(size, end - at) * self._width)
            yield plain_samples(data, self._header).reshape(-1, self.channels)

    def close(self) -> None:
        self._file.close()


def is_plain_wave(path: Path) -> bool:
    with path.open("rb") as file:
        header = read_wave_header(file)
    return header is not None and header.channels > 0 and (header.coding, header.bits) in PLAIN


def plain_samples(data: bytes, header: "WaveHeader") -> Block:
    """Full scale is 1; 24 bits are the upper three bytes of 32."""
    if header.bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        data = wide.tobytes()
    values = np.frombuffer(data, PLAIN[header.coding, header.bits])
    if header.coding == FLOATING:
        return values.astype(np.float32)
    if header.bits == 8:  # without a sign
        return ((values.astype(np.float32) - 128) / 128).astype(np.float32)
    return (values / np.float64(np.iinfo(values.dtype).max + 1)).astype(np.float32)


class FfmpegDecoder(Decoder):
    """Everything else that has sound in it (m4a, mp4, webm, ...), decoded by ffmpeg and read from a pipe.

    ffmpeg gets an argument list and no shell, may open this one file and nothing on the net, and is killed when it
    hangs. ``frames`` is what the file's header says, near the truth or None.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path)
        program = shutil.which("ffmpeg")
        if program is None:
            raise AudioError(f"{path} cannot be read: {reason}; if it is sound, {INSTALL}")
        self.format = "ffmpeg"
        self._late = False
        self._said: deque[str] = deque(maxlen=100)
        self._length_s = 0.0  # what the file's header says; 0 where it says nothing
        self._length_told = threading.Event()
        self._process = subprocess.Popen(
            ffmpeg_command(program, path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self._open(reason)
        except BaseException:
            self.close()
            raise

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _listen(self) -> None:
        """Keep the last of what ffmpeg says, so that its pipe never fills."""
        assert self._process.stderr is not None
        while data := self._process.stderr.readline(4096):
            line = data.decode(errors="replace").strip()
            self._said.append(line)
            if line.startswith("Duration: ") and not self._length_told.is_set():
                if figures := re.match(r"Duration: (\d+):(\d\d):(\d\d\.\d+)", line):
                    hours, minutes, seconds = map(float, figures.groups())
                    self._length_s = hours * 3600 + minutes * 60 + seconds
                self._length_told.set()
        self._length_told.set()

    def _open(self, reason: str) -> None:
        with self._in_time():
            header = read_wave_header(self._pipe)
        if header is None:
            self._listener.join(1.0)
            if any(line.endswith("matches no streams.") for line in self._said):
                raise AudioError(f"{self.name} has no sound track, pictures alone; a file with sound was wanted")
            said = self._said[-1] if self._said else "nothing"
            raise AudioError(f"{self.name} holds no sound that can be read ({reason}; ffmpeg says: {said})")
        self.sample_rate, self.channels = header.sample_rate, header.channels
        self._length_told.wait(TOLD_S)  # written before the sound, but to another pipe, which may be read later
        self.frames = round(self._length_s * self.sample_rate) or None

    def blocks(self, start: int, count: int | None, size: int) -> Iterator[Block]:
        # Decoding from the beginning is the only seek that is exact for every container.
        at, end = 0, float("inf") if count is None else start + count
        while at < end and len(block := self._read(size)):
            wanted = block[max(0, start - at) : int(min(len(block), end - at))]
            at += len(block)
            if len(wanted):
                yield wanted
        if at >= end:
            return
        if at >= (LONGEST_S - 1) * self.sample_rate:
            self.problems.append(f"{self.name} is longer than {LONGEST_S / 3600:g} hours; the rest is left out")
        elif self.frames and at < 0.99 * self.frames - 0.1 * self.sample_rate:  # headers are a little off
            self._note_missing(self.frames, at)

    def _read(self, count: int) -> Block:
        width = 4 * self.channels
        with self._in_time():
            data = self._pipe.read(count * width)
        return np.frombuffer(data[: len(data) // width * width], "<f4").reshape(-1, self.channels).astype(np.float32)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Kill ffmpeg, which ends the reading, when what is inside takes too long."""
        timer = threading.Timer(STALL_S, self._kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
        if self._late:
            raise AudioError(f"{self.name}: ffmpeg hung for {STALL_S:g} s and was stopped: is the file damaged?")

    def _kill(self) -> None:
        self._late = True
        self._process.kill()

    def close(self) -> None:
        """End ffmpeg, wherever it is, and wait for it, so that no process is left behind."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def ffmpeg_command(program: str, path: Path) -> list[str]:
    """The first sound track as 32-bit float wav on stdout. ``file:`` and the full path: no name can be an option."""
    source = ["-protocol_whitelist", "file,pipe", "-format_whitelist", FORMATS, "-i", f"file:{path.absolute()}"]
    wanted = ["-map", "0:a:0", "-t", f"{LONGEST_S:g}", "-c:a", "pcm_f32le", "-f", "wav", "pipe:1"]
    return [program, "-nostdin", "-hide_banner", "-nostats", *source, *wanted]


@dataclass(frozen=True)
class WaveHeader:
    """What a wav file says of itself; ``promised`` is the length of its sound in bytes, ``coding`` see PLAIN."""

    sample_rate: int
    channels: int
    bits: int
    promised: int
    coding: int = 0


def read_wave_header(file: IO[bytes]) -> WaveHeader | None:
    """Read up to the first byte of sound; None where the file is no wav or its header is not whole."""
    start = file.read(12)
    if start[:4] not in (b"RIFF", b"RF64") or start[8:] != b"WAVE":
        return None
    channels = rate = bits = coding = 0
    while len(head := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", head)
        if name == b"data":
            return WaveHeader(rate, channels, bits, size, coding)
        body = file.read(min(size + size % 2, 1 << 24))
        if name == b"fmt " and len(body) >= 16:
            coding, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
            if coding == EXTENSIBLE and len(body) >= 26:
                (coding,) = struct.unpack("<H", body[24:26])
    return None


def ogg_has_end(path: Path) -> bool:
    """Whether the last page is whole and says that it is the last."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 17)))  # a page has at most 65,307 bytes
        data = file.read()
    page = data[data.rfind(b"OggS") :]
    if len(page) < 27:
        return False
    segments = page[27 : 27 + page[26]]
    return bool(page[5] & 4) and len(page) >= 27 + page[26] + sum(segments)


def _check_readable(path: Path) -> None:
    if path.exists() and not path.is_file():  # a pipe would be waited for, a device never ends
        raise AudioError(f"{path} is {'a folder' if path.is_dir() else 'not a plain file'}; a sound file was wanted")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise AudioError(f"{path}: there is no such file") from None
    except OSError as error:
        raise AudioError(f"{path} cannot be read: {error.strerror}; a sound file was wanted") from error
    if empty:
        raise AudioError(f"{path} is empty (0 bytes); a sound file was wanted")


def _check_figures(name: str, sample_rate: int, channels: int) -> None:
    if not SLOWEST <= sample_rate <= FASTEST:
        wanted = f"{SLOWEST:,} to {FASTEST:,} was wanted"
        raise AudioError(f"{name}: its header says {sample_rate:,} samples a second; {wanted}: the file is damaged")
    if not 1 <= channels <= 1024:
        raise AudioError(f"{name}: its header says {channels} channels; 1 to 1024 was wanted: the file is damaged")
