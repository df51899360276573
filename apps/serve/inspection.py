"""``POST /v1/inspect``: what a recogniser makes of one utterance, opened up."""

import asyncio
import uuid
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, File, Form, Request, UploadFile
from pydantic import BaseModel
from voiceseq.apps.serve.jobs import answered, failures, find_model, keep, nobody, unless_gone
from voiceseq.apps.serve.service import Service


class SpokenWord(BaseModel):
    """A word with its seconds."""

    word: str
    start: float
    end: float
    confidence: float


class Reading(BaseModel):
    """One of the best hypotheses; ``score`` is its log-probability, of some decoders the mean of a symbol."""

    text: str
    score: float
    words: list[SpokenWord]


class Picture(BaseModel):
    """A map of named rows and frames; ``data`` is a byte a value (255 is 1), row after row, in base64."""

    rows: list[str]
    frames: int
    data: str


class BeamStep(BaseModel):
    """The beam at one moment, best first; ``parents``: places in the step before, -1 where there is none."""

    texts: list[str]
    scores: list[float]
    ended: list[bool]
    parents: list[int]
    time: float | None


class Inside(BaseModel):
    """All there is to see of an utterance."""

    model: str
    text: str
    duration: float
    hypotheses: list[Reading]
    frame_s: float
    posteriors: Picture | None
    attention: Picture | None
    steps: list[BeamStep]


def add_inspection(app: FastAPI, service: Service) -> None:
    @app.post("/v1/inspect", responses=failures(400, 404, 408, 413, 422, 500, 503))
    async def inspect(
        request: Request,
        file: Annotated[UploadFile, File(description="one utterance, in any format that voiceseq reads")],
        model: Annotated[str, Form(min_length=1, max_length=200)],
        beam: Annotated[int, Form(ge=1, le=20, description="hypotheses that are kept at each step")] = 5,
    ) -> Inside:
        """CTC's posteriors, attention, the n best and what the beam did, for one utterance."""
        chosen = find_model(service, model, None)
        path = service.folder / uuid.uuid4().hex
        job = {"path": str(path), "name": Path(file.filename or "file").name[:200], "model": chosen, "beam": beam}
        try:
            await asyncio.to_thread(keep, file, path)
            work = service.workers.run("files", "inspect", service.limits.short_s, nobody, **job)
            answer = await unless_gone(request, answered(work))
        finally:
            path.unlink(missing_ok=True)
        service.log.said("inspected", answer["inside"]["text"], model=chosen, duration=answer["inside"]["duration"])
        return Inside(model=chosen, **answer["inside"])
