"""What the user saves while listening: false alarms and missed words, for ``voiceseq wakeword retrain``.

The clips are ``saved/false-alarm/WORD/TIME.wav`` and ``saved/missed/WORD/TIME.wav``; ``saved/saved.jsonl`` is their
manifest, a row a clip, which also says ``kind``, ``word``, ``time`` (of the session), ``at`` (in the clip: where it was
detected, or when the key was pressed), ``score``, ``threshold`` and ``model``.
"""

import errno
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voiceseq.audio.files import write_audio
from voiceseq.errors import AudioError

FALSE_ALARM, MISSED = "false-alarm", "missed"
CAP_MB = 200.0


class Saver:
    """Writes clips below ``folder``, never more than ``cap_mb`` of them. ``count`` is how many in this session."""

    def __init__(self, folder: Path, cap_mb: float = CAP_MB) -> None:
        self.folder, self.cap_mb, self.count = folder, cap_mb, 0

    def save(self, kind: str, samples: NDArray[np.float32], sample_rate: int, *, word: str, **facts: Any) -> Path:
        """The clip as 16-bit wav, and its row with the ``facts``; both or neither.

        Raises AudioError: the disk is full or cannot be written to, the cap is reached, there is nothing to save.
        """
        if not len(samples):
            raise AudioError("nothing to save: nothing was heard yet")
        self._check_cap(2 * len(samples))
        now = datetime.now()
        path = self.folder / kind / folder_name(word) / f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}.wav"
        row = {
            "id": f"{kind}-{folder_name(word)}-{path.stem}",
            "audio": path.relative_to(self.folder).as_posix(),
            "duration": round(len(samples) / sample_rate, 3),
            "kind": kind,
            "word": word,
            **facts,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_audio(path, samples, sample_rate)
            append_line(self.folder / "saved.jsonl", json.dumps(row, ensure_ascii=False))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise AudioError(f"{self.folder} cannot be written: {error.strerror}") from error
        self.count += 1
        return path

    def _check_cap(self, more: int) -> None:
        held = sum(path.stat().st_size for path in self.folder.rglob("*.wav"))
        if held + more > self.cap_mb * 1e6:
            raise AudioError(
                f"{self.folder} holds {held / 1e6:.0f} MB of the {self.cap_mb:g} MB allowed: retrain and delete some, "
                "or raise --save-cap"
            )


def folder_name(word: str) -> str:
    """``Hey, Luna!`` -> ``hey-luna``: safe in a path, letters of any script kept."""
    return re.sub(r"[^\w]+", "-", word.casefold()).strip("-") or "word"


def append_line(path: Path, line: str) -> None:
    """The whole line or, where the disk is full, none of it."""
    data = line.encode("utf-8", "surrogateescape") + b"\n"
    with path.open("ab", buffering=0) as file:
        end = file.tell()
        written = 0
        try:
            written = file.write(data)
        finally:
            if written != len(data):
                file.truncate(end)
    if written != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
