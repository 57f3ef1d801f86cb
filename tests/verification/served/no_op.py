"""A server that does nothing, in a process of its own: it answers each request with the same few bytes, or opens a
stream, says its first piece, and the rest when told to.

python no_op.py          says its port, then serves until its input ends
"""

from __future__ import annotations

import asyncio
import json
import sys

ANSWER = json.dumps(
    {
        "id": "x",
        "choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
).encode()
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER
PIECE = b'data: {"choices": [{"index": 0, "text": "y", "finish_reason": null}]}\n\n'
OPENED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + PIECE
ENDED = b'data: {"choices": [{"index": 0, "text": "es", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class Serving(asyncio.Protocol):
    """One connection."""

    open: set[asyncio.Transport] = set()  # streams that have not ended

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if len(body) < size:
            return
        self._got = body[size:]
        if b'"stream": true' in body:
            self.open.add(self._transport)
            self._transport.write(OPENED)
        elif head.startswith(b"GET /end"):
            for stream in [*self.open]:
                stream.write(ENDED)
                stream.close()
            self._transport.write(WHOLE)
        else:
            self._transport.write(WHOLE)


async def main() -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Serving, "127.0.0.1", 0, backlog=20_000)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
