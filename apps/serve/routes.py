"""HTTP: OpenAI's transcription API, health, metrics, the page."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, File, Form, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from voiceseq.apps.serve import replies
from voiceseq.apps.serve.guard import Guard, problem
from voiceseq.apps.serve.inspection import add_inspection
from voiceseq.apps.serve.jobs import answered, failures, find_model, keep, nobody, unless_gone
from voiceseq.apps.serve.link import Message
from voiceseq.apps.serve.page import Page
from voiceseq.apps.serve.service import Service, Settings
from voiceseq.apps.serve.sockets import add_sockets
from voiceseq.apps.serve.texts import add_texts

import voiceseq
from voiceseq.errors import VoiceseqError

PLACEHOLDER = "<!doctype html><title>voiceseq</title><p>voiceseq is listening; this installation has no page."
FIELDS, FIELD_BYTES = 64, 64 << 10
FIRST_S = 5.0  # that a stream waits for its first text before it answers; what is wrong by then is an HTTP error


class Listed(BaseModel):
    """A model in OpenAI's form; ``kind``, ``words`` and ``task`` are ours."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "voiceseq"
    kind: Literal["speech", "wake word", "text"]
    words: list[str]
    task: str


class Models(BaseModel):
    """All that is served."""

    object: Literal["list"] = "list"
    data: list[Listed]


class Health(BaseModel):
    """Whether the server can be asked."""

    status: Literal["ok", "starting", "stopping"]
    version: str


class SmallFormRequest(Request):
    """One file and a few short fields."""

    def form(self, **_: Any) -> Any:
        return super().form(max_files=1, max_fields=FIELDS, max_part_size=FIELD_BYTES)


class SmallFormRoute(APIRoute):
    """A route whose form is read as `SmallFormRequest` has it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(SmallFormRequest(request.scope, request.receive))

        return handle


def make_app(service: Service, settings: Settings) -> Any:
    """The ASGI application, guarded."""
    app = FastAPI(title="voiceseq", version=voiceseq.__version__, docs_url=None, redoc_url=None)
    app.router.route_class = SmallFormRoute
    add_errors(app)
    add_about(app, service)
    add_transcriptions(app, service)
    add_inspection(app, service)
    add_texts(app, service)
    add_sockets(app, service)
    if settings.page.is_dir():
        app.mount("/", Page(directory=settings.page, html=True))
    else:
        app.get("/", response_class=HTMLResponse, include_in_schema=False)(lambda: PLACEHOLDER)
    guarded: Any = Guard(app, service, settings)
    if settings.origins:
        headers = ["authorization", "content-type"]
        guarded = CORSMiddleware(guarded, settings.origins, allow_methods=["GET", "POST"], allow_headers=headers)
    return guarded


def add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        said = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors())
        return JSONResponse(problem(400, said), 400)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        headers = {"Retry-After": "5"} if error.status_code == 503 else {}
        return JSONResponse(
            problem(error.status_code, str(error.detail)), error.status_code, {**headers, **(error.headers or {})}
        )

    @app.exception_handler(VoiceseqError)
    async def wrong(request: Request, error: VoiceseqError) -> JSONResponse:
        return JSONResponse(problem(400, str(error)), 400)


def add_about(app: FastAPI, service: Service) -> None:
    listed = {
        one.name: Listed(id=one.name, kind=one.kind, words=list(one.words), task=one.task)
        for one in service.catalogue.models
    }

    @app.get("/healthz", responses={503: {"model": Health}})
    async def health(response: Response) -> Health:
        """200 when all workers can be asked."""
        stopping = service.gate.stopping.is_set()
        status: Any = "stopping" if stopping else "ok" if service.workers.ready else "starting"
        response.status_code = 200 if status == "ok" else 503
        return Health(status=status, version=voiceseq.__version__)

    @app.get("/metrics", response_class=PlainTextResponse, responses=failures())
    async def metrics() -> PlainTextResponse:
        """Prometheus' text form."""
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models", responses=failures())
    async def models() -> Models:
        """What is served."""
        return Models(data=list(listed.values()))

    @app.get("/v1/models/{name}", responses=failures(404))
    async def model(name: str) -> Listed:
        """One of them."""
        if name not in listed:
            raise HTTPException(404, f"there is no model {name!r}; served are: {', '.join(listed)}")
        return listed[name]


def add_transcriptions(app: FastAPI, service: Service) -> None:
    good: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/json": {}, "text/plain": {}, "text/event-stream": {}}}
    }

    @app.post(
        "/v1/audio/transcriptions", response_model=None, responses=good | failures(400, 404, 408, 413, 422, 500, 503)
    )
    async def transcriptions(
        request: Request,
        file: Annotated[UploadFile, File(description="sound or video, in any format that voiceseq reads")],
        model: Annotated[str, Form(min_length=1, max_length=200)],
        granularities: Annotated[
            list[Literal["word", "segment"]], Form(alias="timestamp_granularities[]", default_factory=list)
        ],
        files: Annotated[
            list[Literal["txt", "srt", "vtt", "tsv", "json"]],
            Form(alias="files[]", default_factory=list, max_length=5, description="ours: JSON answers have these, too"),
        ],
        response_format: Annotated[Literal["json", "text", "srt", "vtt", "verbose_json"], Form()] = "json",
        stream: Annotated[bool, Form()] = False,
        language: Annotated[str | None, Form(max_length=40, description="must be the model's, if given")] = None,
        hotwords: Annotated[str, Form(max_length=4000, description="ours: words to expect, commas between")] = "",
    ) -> Response:
        """What is said in a file."""
        chosen = find_model(service, model, language)
        drawn = sorted({*files, *({response_format} & {"srt", "vtt"})})
        job = {"model": chosen, "drawn": drawn, "pieces": stream}
        job["hotwords"] = [word.strip() for word in hotwords.split(",") if word.strip()]
        shape = Shape(response_format, granularities, files)
        path = service.folder / uuid.uuid4().hex
        job |= {"path": str(path), "name": Path(file.filename or "file").name[:200]}
        try:
            await asyncio.to_thread(keep, file, path)
            if stream:
                return await stream_text(service, job, path, shape)
            answer = await unless_gone(request, transcribe(service, job))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)
        return shape.reply(answer)


@dataclass(frozen=True)
class Shape:
    """In which form a transcript was asked for."""

    form: str
    granularities: Sequence[str]
    files: Sequence[str]

    def to_json(self, answer: Message) -> dict[str, Any]:
        transcript, verbose = answer["transcript"], self.form == "verbose_json"
        told = replies.verbose(transcript, self.granularities) if verbose else replies.plain(transcript)
        return told | ({"files": {name: answer["drawn"][name] for name in self.files}} if self.files else {})

    def reply(self, answer: Message) -> Response:
        if self.form in ("json", "verbose_json"):
            return JSONResponse(self.to_json(answer))
        text = answer["transcript"]["text"] + "\n" if self.form == "text" else answer["drawn"][self.form]
        return PlainTextResponse(text)


async def transcribe(service: Service, job: dict[str, Any], tell: Any = nobody) -> Message:
    """Raises HTTPException."""
    answer = await answered(service.workers.transcribe(tell, **job))
    transcript = answer["transcript"]
    service.metrics.count("audio_seconds_total", transcript["duration"], kind="files")
    service.log.said("transcribed", transcript["text"], model=job["model"], duration=transcript["duration"])
    return answer


async def stream_text(service: Service, job: dict[str, Any], path: Path, shape: Shape) -> Response:
    """Server-sent events; what is wrong with the file before its first word still is an HTTP error."""
    events: asyncio.Queue[Message | None] = asyncio.Queue()
    task = asyncio.create_task(transcribe(service, job, events.put))
    task.add_done_callback(lambda _: path.unlink(missing_ok=True))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        first = await first_piece(events)
        if first is None:
            task.result()
    except BaseException:
        task.cancel()
        raise
    return StreamingResponse(deltas(first, events, task, shape), media_type="text/event-stream")


async def first_piece(events: "asyncio.Queue[Message | None]") -> Message | None:
    """The first text, None where there is none, and news of how far it is where it takes long."""
    try:
        async with asyncio.timeout(FIRST_S):
            while (event := await events.get()) is not None and event["say"] != "piece":
                pass
            return event
    except TimeoutError:
        return {"say": "progress"}


async def deltas(
    event: Message | None, events: "asyncio.Queue[Message | None]", task: "asyncio.Task[Message]", shape: Shape
) -> AsyncIterator[str]:
    """A delta a piece of speech; `done` has the whole text, in which words that two pieces share stand once.

    How many seconds were read is a comment between them, which clients skip.
    """
    before = ""
    try:
        while event is not None:
            if event["say"] == "piece":
                yield replies.sse({"type": "transcript.text.delta", "delta": before + event["text"]})
                before = " "
            else:
                yield f": {event.get('read_s', 0):.1f} s read\n\n"
            event = await events.get()
        with contextlib.suppress(HTTPException):
            yield replies.sse({"type": "transcript.text.done", **shape.to_json(task.result())})
        if task.exception() is not None:
            yield replies.sse(problem(500, str(getattr(task.exception(), "detail", "it failed"))))
    finally:
        task.cancel()
