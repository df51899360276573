"""Messages between the server and its workers: a JSON object and bytes.

Never pickles: a worker reads strangers' files, and what comes out of it is not trusted with more than data.
"""

import asyncio
import json
import select
import socket
import struct
from typing import Any

HEAD = struct.Struct("<II")
LONGEST = 256 << 20

Message = dict[str, Any]


def pack(message: Message, payload: bytes = b"") -> bytes:
    text = json.dumps(message).encode()
    return HEAD.pack(len(text), len(payload)) + text + payload


async def read(reader: asyncio.StreamReader) -> Message:
    """The next message of a worker, which has no bytes. Raises EOFError when it is gone or talks nonsense."""
    try:
        size, more = HEAD.unpack(await reader.readexactly(HEAD.size))
        if size > LONGEST or more:
            raise EOFError("a worker's message is not as it should be")
        message = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, OSError, ValueError) as error:
        raise EOFError(str(error)) from error
    if not isinstance(message, dict):
        raise EOFError("a worker's message is not as it should be")
    return message


class Wire:
    """The worker's end, which blocks."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, message: Message) -> None:
        self.end.sendall(pack(message))

    def receive(self) -> tuple[Message, bytes]:
        """Raises EOFError when the server is gone."""
        size, more = HEAD.unpack(self._exactly(HEAD.size))
        return json.loads(self._exactly(size)), self._exactly(more)

    def waiting(self) -> bool:
        """Whether a message is there to be received."""
        return bool(select.select([self.end], [], [], 0)[0])

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.end.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise EOFError(str(error)) from error
            if not piece:
                raise EOFError("the server is gone")
            data += piece
        return bytes(data)
