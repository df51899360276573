"""One server for all tests that do not disturb it; they skip where the packages of ``voiceseq[serve]`` are missing."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from places import ROOT

if TYPE_CHECKING:
    from serving import Server

NEEDED = ("fastapi", "uvicorn", "websockets", "multipart", "wyoming", "openai", "httpx")
if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    collect_ignore_glob = ["test_*.py"]
    print(f"tests of the server are left out: no {', '.join(missing)}; pip install 'voiceseq[serve,dev]'")


@pytest.fixture(scope="session")
def server() -> "Iterator[Server]":
    from serving import serving

    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def clip() -> Path:
    """Somebody says "computer", and more."""
    return ROOT / "data" / "clips" / "computer.flac"


@pytest.fixture(scope="session")
def quiet_clip() -> Path:
    """No wake word, but some that sound alike."""
    return ROOT / "data" / "clips" / "no-words.flac"


@pytest.fixture(scope="session")
def pcm(clip: Path) -> "tuple[np.ndarray[Any, Any], int]":
    """The clip as 16 bits, and its rate."""
    import soundfile

    return soundfile.read(clip, dtype="int16")
