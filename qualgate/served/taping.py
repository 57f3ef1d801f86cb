"""The one place where conversations are recorded or told again: below the client, in place of its transport."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

from qualgate.served.tape import Asking, Player, Recorder, Said, normal

MATTER = ("content-type", "content-encoding", "retry-after", "location")  # of a response's headers
EXCHANGE = "qualgate"  # the name of a request's extension
CUT_OFF = ("ReadTimeout", "whoever asked waited no longer, when this was recorded")


@dataclass(slots=True)
class Exchange:
    """One request as its asker knows it. of: the case that it asks of, "" of none. told: s since it was asked at which
    the last piece came, by a recording; None where a server answers now."""

    of: str = ""
    told: float | None = None


def asking_of(request: httpx2.Request, session: Recorder | Player) -> Asking:
    """A request as it is recorded; keys and other headers are no part of it."""
    exchange = request.extensions.get(EXCHANGE, Exchange())
    body = json.loads(request.content) if request.content else None
    return Asking(of=exchange.of, method=request.method, address=normal(str(request.url), session.served), body=body)


class Recording(httpx2.AsyncBaseTransport):
    """Asks by `inner`, and keeps what is said. key: the server's, which is kept nowhere."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, recorder: Recorder, key: str) -> None:
        self._inner, self._recorder, self._key = inner, recorder, key

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The server's own response, which is recorded as it is read."""
        asking, began = asking_of(request, self._recorder), time.perf_counter()
        request.headers["Accept-Encoding"] = "identity"  # a person is to read it
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.RequestError, asyncio.CancelledError) as error:
            self._recorder.add(asking, Said(headers={}, broke=_broke(error)), self._key)
            raise
        headers = {name: response.headers[name] for name in MATTER if name in response.headers}
        stream = _Kept(response, asking, headers, began, self._recorder, self._key)
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Of its connections; the recorder is its opener's."""
        await self._inner.aclose()


class _Kept(httpx2.AsyncByteStream):
    """A response's bytes, recorded when they end or are left."""

    def __init__(
        self,
        response: httpx2.Response,
        asking: Asking,
        headers: dict[str, str],
        began: float,
        recorder: Recorder,
        key: str,
    ) -> None:
        self._response, self._asking, self._headers, self._began = response, asking, headers, began
        self._recorder, self._key = recorder, key
        self._pieces: list[tuple[float, str]] = []
        self._broke: tuple[str, str] | None = CUT_OFF
        self._added = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._response.stream:  # type: ignore[union-attr]  # an asynchronous one, of its transport
                self._pieces.append(
                    (round(time.perf_counter() - self._began, 6), part.decode("utf-8", "surrogateescape"))
                )
                yield part
            self._broke = None
        except httpx2.RequestError as error:
            self._broke = _broke(error)
            raise

    async def aclose(self) -> None:
        await self._response.aclose()
        if not self._added:
            self._added = True
            said = Said(
                status=self._response.status_code, headers=self._headers, pieces=self._pieces, broke=self._broke
            )
            self._recorder.add(self._asking, said, self._key)


def _broke(error: BaseException) -> tuple[str, str]:
    return (type(error).__name__, str(error)) if isinstance(error, httpx2.RequestError) else CUT_OFF


class Replaying(httpx2.AsyncBaseTransport):
    """Answers by a recording. Nothing here can reach a network."""

    def __init__(self, player: Player) -> None:
        self._player = player

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """What was said then. NotRecorded where nothing was."""
        said = self._player.answer(asking_of(request, self._player))
        if said.status == 0:
            raise _as_error(said, request)
        stream = _Told(said, request)
        return httpx2.Response(said.status, headers=dict(said.headers), stream=stream)


class _Told(httpx2.AsyncByteStream):
    def __init__(self, said: Said, request: httpx2.Request) -> None:
        self._said, self._request = said, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._request.extensions.get(EXCHANGE, Exchange())
        for at, text in self._said.pieces:
            exchange.told = at
            yield text.encode("utf-8", "surrogateescape")
        if self._said.broke is not None:
            raise _as_error(self._said, self._request)


def _as_error(said: Said, request: httpx2.Request) -> httpx2.RequestError:
    name, words = said.broke or CUT_OFF
    kind = getattr(httpx2, name, httpx2.ReadError)
    if not (isinstance(kind, type) and issubclass(kind, httpx2.RequestError)):
        kind = httpx2.ReadError
    return kind(words, request=request)
