"""A server on a bare socket that answers right, unless it strikes: then a misbehaviour has the connection to itself."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Act = Callable[["Struck"], Awaitable[None]]
MODELS = {"object": "list", "data": [{"id": "m", "root": "./m"}]}
EVERY = 3  # one question in so many is struck


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A request under way. events: those of its right answer, to a stream; whole: the same as one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    events: Sequence[dict[str, Any]]
    whole: dict[str, Any]
    streams: bool

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, value: Any, status: int = 200, *headers: str, behind: bytes = b"") -> None:
        """One whole reply; bytes are sent as they stand."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        said = head(status, f"Content-Length: {len(body)}", "Content-Type: application/json", *headers)
        await self.send(said + body + behind)

    async def pieces(self, events: Sequence[Any], *, done: bool = True, behind: bytes = b"") -> None:
        """Server-sent events, chunked; bytes are sent as they stand."""
        await self.send(STREAM)
        for one in [*events, *([b"data: [DONE]\n\n"] if done else [])]:
            await self.send(chunk(one if isinstance(one, bytes) else event(one)))
        await self.send(b"0\r\n\r\n" + behind)

    async def right(self, behind: bytes = b"") -> None:
        """behind: sent with the end of it."""
        await (self.pieces(self.events, behind=behind) if self.streams else self.answer(self.whole, behind=behind))

    @property
    def half(self) -> bytes:
        """The first half of the right answer's bytes, its head and more among them."""
        body = json.dumps(self.whole).encode()
        raw = STREAM + b"".join(chunk(event(one)) for one in self.events[:2])
        return raw if self.streams else head(200, f"Content-Length: {len(body)}") + body[: len(body) // 2]

    async def reset(self) -> None:
        """End the connection as a process does that is killed with bytes unread."""
        found = self.writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def hold(self) -> None:
        """Say nothing until whoever asked has gone."""
        with suppress(ConnectionError):
            await self.reader.read()

    async def drip(self, data: bytes, seconds: float = 0.2) -> None:
        """Byte for byte, so that the next is always about to come."""
        for byte in data:
            await self.send(bytes([byte]))
            await asyncio.sleep(seconds)


def head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} Said", *lines, "", ""]).encode()


STREAM = head(200, "Transfer-Encoding: chunked", "Content-Type: text/event-stream")


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@dataclass
class Striking:
    """act: what a struck request meets, the first `times` that it is asked; of the questions every so many. answer: a
    request's body → its number, the events and the whole of its right answer."""

    answer: Callable[[dict[str, Any]], tuple[int, Sequence[dict[str, Any]], dict[str, Any]]]
    act: Act | None = None
    times: float = 0
    every: int = EVERY
    models: dict[str, Any] = field(default_factory=lambda: MODELS)
    asked: Counter[int] = field(default_factory=Counter)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                size = next((int(one[15:]) for one in lines if one.lower().startswith("content-length:")), 0)
                await self._reply(lines[0], json.loads(await reader.readexactly(size) or b"{}"), reader, writer)
                if writer.is_closing():
                    break
        writer.close()

    async def _reply(
        self, asks: str, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        bare = Struck(reader=reader, writer=writer, events=(), whole={}, streams=False)
        if asks.startswith("GET"):
            if "/models" in asks:
                return await bare.answer(self.models)
            return await bare.answer({"version": "1.0"}, 200 if "/version" in asks else 404)
        number, events, whole = self.answer(body)
        found = Struck(reader=reader, writer=writer, events=events, whole=whole, streams=bool(body.get("stream")))
        self.asked[number] += 1
        if self.act is None or number % self.every or self.asked[number] > self.times:
            return await found.right()
        return await self.act(found)


@contextmanager
def running(server: Striking) -> Iterator[Striking]:
    """The server, at its address, until it is left; it then ends with every connection."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # connections that are cut off are what it is for
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
    server.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def end() -> None:
        listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
