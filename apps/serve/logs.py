"""Logs: a line of JSON an event on stderr. What people said is not in them, unless that was asked for."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO


class Log:
    """``said`` keeps texts and words where ``--log-text`` asked for them, and drops them otherwise."""

    def __init__(self, output: TextIO | None = None, with_text: bool = False) -> None:
        self._output, self.with_text = output or sys.stderr, with_text

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def said(self, event: str, text: str, **fields: Any) -> None:
        self._write("info", event, fields | ({"text": text} if self.with_text else {}))

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"time": now, "level": level, "event": event, **fields}), file=self._output, flush=True)


class LibraryLogs(logging.Handler):
    """Warnings of the libraries in the same form; their texts only, without what clients sent."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        reason = repr(record.exc_info[1]) if record.exc_info and record.exc_info[1] else None
        self.log.warning("library", name=record.name, message=record.getMessage().strip(), reason=reason)
