"""The page's files: asked for anew when they have changed, and nothing for who wants a WebSocket."""

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from voiceseq.apps.serve.guard import problem


class Page(StaticFiles):
    """What is at ``/`` and below, where no route is."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            socket = WebSocket(scope, receive, send)
            await socket.send_denial_response(JSONResponse(problem(404, "there is no such stream"), 404))
        else:
            await super().__call__(scope, receive, send)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"  # a new version must not meet the scripts of an old one
        return response
