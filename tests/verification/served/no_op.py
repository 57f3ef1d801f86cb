"""A server that does nothing, in a process of its own: it answers each request with the same few bytes, or opens a
stream, says its first piece, and the rest when told to.

python no_op.py          says its port, then serves until its input ends
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

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


OPEN = set[asyncio.StreamWriter]()  # streams that have not ended


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            sizes = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            if b'"stream": true' in await reader.readexactly(sum(sizes)):
                OPEN.add(writer)
                return writer.write(OPENED)
            if head.startswith(b"get /end"):
                for stream in OPEN:
                    stream.write(ENDED)
                    stream.close()
                OPEN.clear()
            writer.write(WHOLE)
    writer.close()


async def main() -> None:
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=20_000)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
