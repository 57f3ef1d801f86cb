"""The one place where conversations are recorded or told again: below the client, in place of the network."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from qualgate.served.network import Asked, Broken, Question, Response
from qualgate.served.tape import Asking, Player, Recorder, Said, normal

MATTER = ("content-type", "content-encoding", "retry-after", "location")  # of a response's headers
CUT_OFF = ("ReadTimeout", "whoever asked waited no longer, when this was recorded")


def asking_of(question: Question, session: Recorder | Player) -> Asking:
    """A request as it is recorded; keys and other headers are no part of it."""
    body = json.loads(question.content) if question.content else None
    address = normal(question.address, session.served)
    return Asking(of=question.exchange.of, method=question.method, address=address, body=body)


class Recording:
    """Asks by `inner`, and keeps what is said. key: the server's, which is kept nowhere."""

    def __init__(self, inner: Asked, recorder: Recorder, key: str) -> None:
        self._inner, self._recorder, self._key = inner, recorder, key

    async def send(self, question: Question) -> Response:
        """The server's own response, which is recorded as it is read."""
        asking, began = asking_of(question, self._recorder), time.perf_counter()
        others = {name: text for name, text in question.headers.items() if name.lower() != "accept-encoding"}
        try:  # a person is to read it
            response = await self._inner.send(replace(question, headers={**others, "Accept-Encoding": "identity"}))
        except (Broken, asyncio.CancelledError) as error:
            self._recorder.add(asking, Said(headers={}, broke=_broke(error)), self._key)
            raise
        return _Kept(response, asking, began, self._recorder, self._key)

    async def close(self) -> None:
        """Of its connections; the recorder is its opener's."""
        await self._inner.close()


class _Kept:
    """A response, recorded when it ends or is left."""

    def __init__(self, response: Response, asking: Asking, began: float, recorder: Recorder, key: str) -> None:
        self.status, self.headers, self.lay_there = response.status, response.headers, response.lay_there
        self._response, self._asking, self._began = response, asking, began
        self._recorder, self._key = recorder, key
        self._pieces: list[tuple[float, str]] = []
        self._broke: tuple[str, str] | None = CUT_OFF
        self._added = False

    async def parts(self) -> AsyncIterator[bytes]:
        """See `Response`."""
        try:
            async for part in self._response.parts():
                at = round(time.perf_counter() - self._began, 6)
                self._pieces.append((at, part.decode("utf-8", "surrogateescape")))
                yield part
            self._broke = None
        except Broken as error:
            self._broke = _broke(error)
            raise

    async def aclose(self) -> None:
        """See `Response`."""
        await self._response.aclose()
        if not self._added:
            self._added = True
            headers = {name: self.headers[name] for name in MATTER if name in self.headers}
            said = Said(status=self.status, headers=headers, pieces=self._pieces, broke=self._broke)
            self._recorder.add(self._asking, said, self._key)


def _broke(error: BaseException) -> tuple[str, str]:
    return (error.name, error.words) if isinstance(error, Broken) else CUT_OFF


class Replaying:
    """Answers by a recording. Nothing here can reach a network."""

    def __init__(self, player: Player) -> None:
        self._player = player

    async def send(self, question: Question) -> Response:
        """What was said then. NotRecorded where nothing was."""
        said = self._player.answer(asking_of(question, self._player))
        if said.status == 0:
            raise Broken(*(said.broke or CUT_OFF))
        return _Told(said, question)

    async def close(self) -> None:
        """There is nothing to close."""


class _Told:
    lay_there = False

    def __init__(self, said: Said, question: Question) -> None:
        self.status, self.headers = said.status, {name.lower(): text for name, text in said.headers.items()}
        self._said, self._exchange = said, question.exchange

    async def parts(self) -> AsyncIterator[bytes]:
        """See `Response`."""
        for at, text in self._said.pieces:
            self._exchange.told = at
            yield text.encode("utf-8", "surrogateescape")
        if self._said.broke is not None:
            raise Broken(*self._said.broke)

    async def aclose(self) -> None:
        """See `Response`."""
