"""A file server on loopback: GET, HEAD, listings and PUT of one folder, and answers that go wrong on purpose."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(SimpleHTTPRequestHandler):
    """``moods``: path -> how its next answers go wrong: ``busy`` (503), ``short`` (half of it) or ``endless``."""

    moods: dict[str, list[str]] = {}  # noqa: RUF012
    asked: list[tuple[str, str]] = []  # noqa: RUF012

    def do_PUT(self) -> None:
        path = Path(self.translate_path(self.path))
        if "forbidden" in self.path:
            return self.send_error(403)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        return self.end_headers()

    def do_GET(self) -> None:
        self.asked.append(("GET", self.path))
        mood = self.moods.get(self.path, [])
        wrong = mood.pop(0) if mood else ""
        if wrong == "busy":
            return self.send_error(503)
        if wrong in ("short", "endless"):
            data = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if wrong == "short" else data * 100)
            return None
        return super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def file_server(folder: Path) -> Iterator[tuple[str, type[Handler]]]:
    """Its address without a stroke at the end, and the handler's class."""
    handler = type("Own", (Handler,), {"moods": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
