"""``POST /v1/text``: translate, tag, write on, read dates."""

from typing import Annotated, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from voiceseq.apps.serve.jobs import answered, failures, nobody, unless_gone
from voiceseq.apps.serve.service import Service

from voiceseq.errors import InputError

LONGEST = 2_000  # characters of a text
WRITTEN = 1_000  # symbols that are written on


class TextOrder(BaseModel):
    """What to do with a text; ``length``, ``temperature`` and ``seed`` are for ``generate``."""

    model_config = ConfigDict(extra="forbid")

    task: Literal["translate", "tag", "generate", "dates"]
    text: Annotated[str, Field(max_length=LONGEST)]
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    length: Annotated[int, Field(ge=1, le=WRITTEN)] = 300
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.8
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class Candidate(BaseModel):
    """One of the best outputs."""

    text: str
    score: float


class AttentionMap(BaseModel):
    """``weights[row][column]``: how much it looked at a symbol of the input while it wrote one of the output."""

    rows: list[str]
    columns: list[str]
    weights: list[list[float]]


class TaggedToken(BaseModel):
    """A word, its place in ``text``, its tag."""

    word: str
    start: int
    end: int
    tag: str
    probability: float


class TaggedSpan(BaseModel):
    """A name and its kind, where the tags are of names."""

    start: int
    end: int
    type: str


class TextReply(BaseModel):
    """``output`` is what the command of that name prints; the rest is there where the task has it."""

    task: str
    model: str
    text: str
    output: str
    probability: float | None = None
    candidates: list[Candidate] = []
    attention: AttentionMap | None = None
    tokens: list[TaggedToken] = []
    spans: list[TaggedSpan] = []


def add_texts(app: FastAPI, service: Service) -> None:
    @app.post("/v1/text", responses=failures(400, 404, 408, 413, 422, 500, 503))
    async def text(request: Request, order: TextOrder) -> TextReply:
        """A text, as `voiceseq translate`, `tag`, `generate` and `dates` read it. 404 where no bundle can."""
        try:
            model = service.catalogue.for_task(order.task, order.model)
        except InputError as error:
            raise HTTPException(404, str(error)) from error
        asked = order.model_dump() | {"model": model.name}
        work = service.workers.run("texts", "text", service.limits.short_s, nobody, **asked)
        answer = await unless_gone(request, answered(work))
        return TextReply(**{"task": order.task, "model": model.name, "text": order.text} | answer["result"])
