"""Text files as they come: UTF-8, plain or gzipped."""

import gzip
import zlib
from pathlib import Path

from voiceseq.errors import InputError


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file (``.gz`` too, a byte order mark is dropped); ``InputError`` when it cannot be read."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); convert it, e.g. iconv -f latin1 -t utf-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); give the path of a text file, plain or .gz") from error
