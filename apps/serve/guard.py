"""Who is let in to HTTP and WebSockets, and with how much: every request passes here first."""

import asyncio
import hmac
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from voiceseq.apps.serve.limits import Busy
from voiceseq.apps.serve.service import LOOPBACK, Service, Settings

UPLOAD, INSPECT, TEXT = "/v1/audio/transcriptions", "/v1/inspect", "/v1/text"
UTTERANCE = 32 << 20  # bytes of one utterance, in any format
REFUSALS = (401, 403, 408, 413, 421, 503)
SMALL = 64 << 10  # bytes of any other request's body
OPEN = ("/v1/", "/metrics", "/openapi.json")  # what begins so wants the token; the page and its health do not
POLICY = "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; style-src 'self' 'unsafe-inline'; "
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", POLICY.encode() + b"frame-ancestors 'none'; base-uri 'none'"),
]
ROUTES = ("/", "/healthz", "/metrics", "/openapi.json", "/v1/models", UPLOAD, INSPECT, TEXT, "/v1/listen",
          "/v1/transcribe")  # fmt: skip


class Refused(HTTPException):
    """An HTTP status and what to say."""


class Guard:
    """ASGI middleware: host, origin, token, size and pace of the body, places for uploads, a line of log."""

    def __init__(self, app: ASGIApp, service: Service, settings: Settings) -> None:
        self.app, self.service, self.settings = app, service, settings
        self.hosts = {*LOOPBACK, settings.host.strip("[]").lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        try:
            self._check(scope)
            await self._pass(scope, receive, noting)
        except Refused as refused:
            if status == 0:
                await refuse(scope, noting, refused)
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in ROUTES else "other"
        self.service.metrics.count("requests_total", route=path, status=str(status))
        if status in REFUSALS:
            self.service.metrics.count("refused_total", reason=str(status))
        peer = scope["client"][0] if scope.get("client") else ""
        self.service.log.info("request", route=path, status=status, seconds=round(seconds, 3), peer=peer)

    def _check(self, scope: Scope) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        token = self.settings.token
        if token is None and hostname(f"//{host}") not in self.hosts:  # a name that somebody made lead here
            raise Refused(421, "this server answers to localhost; start it with --token to use it by another name")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self.settings.origins and netloc(origin) != host:
            raise Refused(403, "pages from elsewhere may not ask this server; --origin names those that may")
        if token is not None and scope["path"].startswith(OPEN) and not self._knows(token, scope, headers):
            raise Refused(401, "a token is wanted: Authorization: Bearer TOKEN (WebSockets: ?token=TOKEN will do)")

    @staticmethod
    def _knows(token: str, scope: Scope, headers: dict[bytes, str]) -> bool:
        given = headers.get(b"authorization", "").removeprefix("Bearer ").strip()
        if scope["type"] == "websocket" and not given:  # a browser cannot send the header
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), token.encode())

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        upload = self.service.limits.upload_bytes
        places = {UPLOAD: ("files", upload), INSPECT: ("files", min(upload, UTTERANCE)), TEXT: ("texts", SMALL)}
        if scope["method"] != "POST" or scope["path"] not in places:
            await self.app(scope, self._measured(scope, receive, SMALL), send)
            return
        kind, most = places[scope["path"]]
        try:
            with self.service.gate.enter(kind):
                await self.app(scope, self._measured(scope, receive, most), send)
        except Busy as busy:
            raise Refused(503, str(busy)) from busy

    def _measured(self, scope: Scope, receive: Receive, most: int) -> Receive:
        """``receive`` that refuses a body of more than ``most`` bytes, or one that comes too slowly."""
        limits = self.service.limits
        for name, value in scope["headers"]:
            if name.lower() == b"content-length" and (not value.isdigit() or int(value) > most):
                raise Refused(413, f"at most {most} bytes are taken here")
        size, whole, end = 0, False, time.monotonic() + limits.upload_s

        async def measured() -> Message:
            nonlocal size, whole
            if whole:  # only the end of the connection can come
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), min(limits.idle_s, max(0.0, end - time.monotonic())))
            except TimeoutError:
                raise Refused(408, "the rest of the request did not come in time") from None
            size += len(message.get("body", b""))
            whole = message["type"] != "http.request" or not message.get("more_body", False)
            if size > most:
                raise Refused(413, f"at most {most} bytes are taken here")
            return message

        return measured


def netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def problem(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """An error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


async def refuse(scope: Scope, send: Send, refused: Refused) -> None:
    """Before anything was answered; a WebSocket is refused while it still is HTTP."""
    start = "http.response" if scope["type"] == "http" else "websocket.http.response"
    body = json.dumps(problem(refused.status_code, refused.detail)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")]
    if refused.status_code == 503:
        headers.append((b"retry-after", b"5"))
    if refused.status_code == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{start}.start", "status": refused.status_code, "headers": headers})
    await send({"type": f"{start}.body", "body": body})
