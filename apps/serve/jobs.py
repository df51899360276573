"""What routes that give work to a worker share: the upload, the wait, what becomes of errors."""

import asyncio
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request, UploadFile
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from voiceseq.apps.serve import replies
from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.service import Service
from voiceseq.apps.serve.workers import TooLong, WorkerLost

from voiceseq.errors import AudioError, InputError

T = TypeVar("T")


class Problem(BaseModel):
    """What went wrong, in OpenAI's form."""

    error: dict[str, Any]


def failures(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem} for code in (401, 403, 421, *codes)}


def find_model(service: Service, name: str, language: str | None) -> str:
    try:
        chosen = service.catalogue.recogniser(name).name
    except InputError as error:
        raise HTTPException(404, str(error)) from error
    spoken = service.workers.languages.get(chosen)
    if language and spoken and language.lower() not in (spoken, replies.LANGUAGES.get(spoken)):
        raise HTTPException(400, f"language {language!r}: {chosen} knows {spoken!r}")
    return chosen


def keep(file: UploadFile, path: Path) -> None:
    """The upload under a name of its own, for the worker that reads it. Raises HTTPException on a full disk."""
    try:
        with path.open("wb") as out:
            shutil.copyfileobj(file.file, out, 1 << 20)
    except OSError as error:
        raise HTTPException(503, f"the upload cannot be kept: {error.strerror}") from error


async def nobody(message: Message) -> None:
    """Nobody wants to know how far it is."""


async def answered(work: Awaitable[Message]) -> Message:
    """What a worker answers. Raises HTTPException."""
    try:
        return await work
    except (InputError, AudioError) as error:
        raise HTTPException(400, str(error)) from error
    except TooLong as error:
        raise HTTPException(422, str(error)) from error
    except WorkerLost as error:
        raise HTTPException(503, str(error)) from error
    except RuntimeError as error:
        raise HTTPException(500, str(error)) from error


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when the client is gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watching = asyncio.ensure_future(work), asyncio.create_task(gone())
    try:
        await asyncio.wait((task, watching), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HTTPException(499, "the client is gone")
        return task.result()
    finally:
        task.cancel()
        watching.cancel()
