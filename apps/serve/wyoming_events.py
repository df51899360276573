"""Wyoming's messages, read with limits (the package's own reader takes any length), and what it is told of us."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from voiceseq.apps.serve.catalogue import Catalogue, Model
from wyoming.event import Event
from wyoming.info import AsrModel, AsrProgram, Attribution, Info, WakeModel, WakeProgram

import voiceseq
from voiceseq.errors import InputError

LINE = 64 << 10
MADE_BY = Attribution(name="voiceseq", url="https://pypi.org/project/voiceseq/")


async def read_event(reader: asyncio.StreamReader, most: int) -> Event | None:
    """The next message, None at the end. Raises InputError for what is too long or no message."""
    try:
        line = await reader.readline()
    except ValueError as error:
        raise InputError(f"a line of a message was longer than {LINE} bytes") from error
    if not line:
        return None
    header = _object(line)
    data = header.get("data") or {}
    sizes = [header.get(key) or 0 for key in ("data_length", "payload_length")]
    if not isinstance(header.get("type"), str) or not isinstance(data, dict):
        raise InputError("a message without a type, or with data that are no object")
    if not all(type(size) is int and 0 <= size <= most for size in sizes):
        raise InputError(f"a message announced more than {most} bytes")
    try:
        more = _object(await reader.readexactly(sizes[0])) if sizes[0] else {}
        payload = await reader.readexactly(sizes[1]) if sizes[1] else None
    except asyncio.IncompleteReadError:
        return None
    return Event(header["type"], {**data, **more}, payload)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("a message that is no JSON") from error
    if not isinstance(value, dict):
        raise InputError("a message that is no JSON object")
    return value


def wake_names(models: Mapping[str, Model]) -> dict[str, tuple[str, str]]:
    """What Home Assistant calls each wake word -> (model, word): the model's name, ``model.word`` if it has several."""
    return {
        one.name if len(one.words) == 1 else f"{one.name}.{word}": (one.name, word)
        for one in models.values()
        for word in one.words
    }


def make_info(catalogue: Catalogue, languages: Mapping[str, str]) -> Info:
    """Every bundle as a model: its phrase, languages, version."""
    models = {one.name: one for one in catalogue.wake}
    wake = [
        WakeModel(name, MADE_BY, True, f"{word} ({model})", models[model].version, [languages.get(model, "en")], word)
        for name, (model, word) in wake_names(models).items()
    ]
    speech = [
        AsrModel(one.name, MADE_BY, True, one.description, one.version, [languages.get(one.name, "en")])
        for one in catalogue.speech
    ]
    version = voiceseq.__version__
    hears = WakeProgram("voiceseq", MADE_BY, True, "Wake words from a typed phrase", version, wake)
    writes = AsrProgram(
        "voiceseq", MADE_BY, True, "Speech to text", version, speech, supports_transcript_streaming=True
    )
    return Info(wake=[hears] if wake else [], asr=[writes] if speech else [])
