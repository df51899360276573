"""A transcript in the shapes of OpenAI's API."""

import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

Transcript = dict[str, Any]  # as `voiceseq transcribe --format json` has it
LANGUAGES = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian", "nl": "dutch"}


def plain(transcript: Transcript) -> dict[str, Any]:
    return {"text": transcript["text"], "usage": {"type": "duration", "seconds": math.ceil(transcript["duration"])}}


def verbose(transcript: Transcript, granularities: Sequence[str]) -> dict[str, Any]:
    """Segments unless only words were asked for, as OpenAI has it; words where they were."""
    language = transcript["language"]
    reply = {
        "task": "transcribe",
        "language": LANGUAGES.get(language, language),
        "duration": transcript["duration"],
    } | plain(transcript)
    if "word" in granularities:
        words = [word for segment in transcript["segments"] for word in segment["words"]]
        reply["words"] = [{key: word[key] for key in ("word", "start", "end")} for word in words]
    if "segment" in granularities or not granularities:
        reply["segments"] = [_segment(number, one) for number, one in enumerate(transcript["segments"])]
    return reply


def _segment(number: int, segment: dict[str, Any]) -> dict[str, Any]:
    """Whisper's own figures, where ours has their like: the log of the confidence, how well the text packs."""
    text = segment["text"].encode()
    return {
        "id": number,
        "seek": round(100 * segment["start"]),
        "start": segment["start"],
        "end": segment["end"],
        "text": segment["text"],
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": round(math.log(max(1e-6, segment["confidence"])), 4),
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 4),
        "no_speech_prob": 0.0,
    }


def sse(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"
