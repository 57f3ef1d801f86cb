"""Requests to one server: bounded, tried again where that may help, and told of by whose fault it is.

The key is read from the environment variable that the gate file names, goes into one header, and into nothing else: no
message, no log, no record. Redirects are not followed, certificates are verified, and neither a proxy nor a .netrc of
the environment has a say in where a prompt goes (`network`). Where a run is recorded or replayed, what stands in the
network's place does that (`taping`); where its tokens are counted, each request is claimed before it is sent
(`charging`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from qualgate.errors import InfrastructureError, NotHere, UsageError
from qualgate.escaping import visible_line
from qualgate.identity import own_version
from qualgate.records import Served
from qualgate.served import sglang
from qualgate.served.answer import Answer, Gathering
from qualgate.served.charging import Charges, Meter
from qualgate.served.doubt import rearranged
from qualgate.served.engines import says_done
from qualgate.served.faults import ADDRESS, NotServed, RequestRefused, WireFault
from qualgate.served.network import UNSENT, Asked, Broken, Exchange, Network, Question, Response
from qualgate.served.replies import Completed, Reply
from qualgate.served.retries import RETRIED, TRIES, Pace, pause, retry_after
from qualgate.served.stream import Events
from qualgate.served.tape import Player, Recorder
from qualgate.served.taping import Recording, Replaying

MOST_BYTES = 2**26  # of one answer, whole or in pieces
PAGE_SECONDS = 10.0  # in which a page is to come that nothing but a count rests on
MOST_SAID = 300  # characters of a server's own words in a message
WHOLE = 600.0  # s in which the next whole thing is to come (a head, a body, an event), however its bytes trickle

Of = TypeVar("Of", bound=Reply)


class Client:
    """Asks one arm's server. Use it as a context manager.

    name: the arm's, for messages. at_once: requests under way at most. tries: of one request, the first among them.
    sleep: how it waits before it asks again. share: of how many processes that ask this server it is one, as for its
    rate. session: where what is said is recorded, or told again. charges: counts what each request takes.
    """

    def __init__(
        self,
        name: str,
        served: Served,
        at_once: int,
        tries: int = TRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        share: int = 1,
        session: Recorder | Player | None = None,
        charges: Charges | None = None,
    ) -> None:
        self._where = name if name == served.endpoint else f"{name} ({served.endpoint})"
        self._served, self._tries, self._session, self._charges = served, tries, session, charges
        replays = isinstance(session, Player)
        self._sleep = _no_wait if replays else sleep
        self._pace = Pace(0.0 if replays else served.requests_per_minute / share)
        self._key = "" if replays else _key_of(name, served.api_key_env)
        self._turns = asyncio.Semaphore(at_once)
        self._headers = {
            "User-Agent": f"qualgate/{own_version()}",
            "Accept-Encoding": "identity",  # what is packed small may unpack beyond any bound
            **dict(served.extra_headers),
        }
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        self._asked = self._network(at_once)

    def _network(self, at_once: int) -> Asked:
        if isinstance(self._session, Player):
            return Replaying(self._session)
        network = Network(at_once, secure=self._served.endpoint.startswith("https:"))
        return network if self._session is None else Recording(network, self._session, self._key)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *failed: Any) -> None:
        await self._asked.close()
        if isinstance(self._session, Recorder):
            (self._session.keep if failed[0] is None else self._session.drop)()

    async def ask(self, path: str, body: Mapping[str, Any], of: str = "") -> Answer:
        """The whole answer to a request for one. of: the case that it asks of. NotServed where it is refused,
        RequestRefused where that is the request's own fault; InfrastructureError where none came, however often it was
        asked, and where what the run may spend does not reach for it (BudgetSpent)."""
        return await self._again(lambda: self._answer(path, body, of), paced=True)

    async def whole(self, path: str, body: Mapping[str, Any]) -> Completed:
        """The reply to a request that asks for no stream, as it came. Errors as of `ask`."""
        return await self._again(lambda: self._replied(path, body), paced=True)

    async def get(self, path: str, kind: type[Of], *, of_host: bool = False) -> Of | None:
        """What stands at `path`, below the API's address or (of_host) its host's; None where nothing does. Errors as of
        `ask`; NotServed where something else than `kind` stands there."""
        base = self._host() if of_host else self._served.endpoint
        return await self._again(lambda: self._got(base.rstrip("/") + path, kind))

    async def page(self, path: str) -> str:
        """The text at `path` of its host, for what nothing rests on but a count: asked once, "" where it does not come
        whole within some seconds."""
        address = self._host() + path.lstrip("/")
        try:
            async with asyncio.timeout(PAGE_SECONDS), self._turns, self._sent("GET", address, None) as response:
                raw = await _bytes(response) if response.status == 200 else b""
        except (Broken, WireFault, NotServed, TimeoutError):
            return ""
        return raw.decode("utf-8", "replace")

    def _host(self) -> str:
        parts = urlsplit(self._served.endpoint)
        return f"{parts.scheme}://{parts.netloc}/"

    async def _again(self, once: Callable[[], Awaitable[Any]], *, paced: bool = False) -> Any:
        failures = 0
        while True:
            try:
                async with self._turns:
                    if paced and (wait := self._pace.wait(time.monotonic())):
                        await self._sleep(wait)
                    return await once()
            except WireFault as found:
                fault = found
            failures += 1
            wait = pause(failures, fault.asked_wait, random.random(), self._tries)
            if wait is None:
                times = f"asked {failures} times" if failures > 1 else "asked once"
                after = f", and it asks to wait for {fault.asked_wait:g} s" if fault.asked_wait else ""
                raise InfrastructureError(
                    f"{self._where}: {times}, no answer{after}. {self._shown(str(fault))}. Look whether the server "
                    "runs and is not overloaded (`concurrency`), then run again: what was answered is kept."
                )
            await self._sleep(wait)

    def _broken(self, error: Broken) -> Exception:
        """What a connection that fails is to whoever asked."""
        if error.tls is not None:
            return self._tls(error.tls)
        cause = "timeout" if error.name.endswith("Timeout") else "connection"
        return WireFault(str(error), cause=cause, unanswered=error.name in UNSENT)

    def _tls(self, error: BaseException) -> NotServed:
        return NotServed(
            f"{self._where}: no secure connection: {self._shown(str(error))}. Its certificate is verified always; name "
            "the file of your own authority in SSL_CERT_FILE, or use the address that the certificate is for."
        )

    async def _answer(self, path: str, body: Mapping[str, Any], of: str) -> Answer:
        async with self._charged(body) as meter:
            began, gathered, exchange = time.perf_counter(), Gathering(), Exchange(of=of)
            async with aclosing(self.pieces(path, body, exchange)) as pieces:
                async for piece in pieces:
                    meter.take(piece)
                    gathered.take(piece, _seconds(exchange, began))
            answer = gathered.answer(_seconds(exchange, began))
        if body.get("stream") and gathered.doubtful:
            plain = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
            whole = await self._answer(path, plain, of)
            return whole if rearranged(answer.said, whole.said) else answer
        return answer

    def _charged(self, body: Mapping[str, Any]) -> AbstractAsyncContextManager[Meter]:
        return nullcontext(Meter()) if self._charges is None else self._charges.charged(body)

    async def pieces(
        self, path: str, body: Mapping[str, Any], exchange: Exchange | None = None
    ) -> AsyncGenerator[Completed, None]:
        """What comes back to a request that is sent once, at once, piece by piece; whoever closes this early ends the
        connection. WireFault where it is not whole; NotServed and RequestRefused as of `ask`."""
        async with self._sent("POST", sglang.address(self._served.endpoint, path), body, exchange) as response:
            if path == sglang.PATH:
                yield self._read(await _bytes(response), sglang.Generated).completed(body["input_ids"])
            elif body.get("stream"):
                async for piece in self._pieces(response):
                    yield piece
            else:
                yield self._read(await _bytes(response), Completed)

    async def _replied(self, path: str, body: Mapping[str, Any]) -> Completed:
        async with self._charged(body) as meter:
            async with self._sent("POST", self._served.endpoint.rstrip("/") + path, body) as response:
                reply = self._read(await _bytes(response), Completed)
            if reply.error is not None:
                raise WireFault(f"it reports an error in place of an answer: {json.dumps(reply.error)}")
            meter.take(reply)
        return reply

    async def _got(self, address: str, kind: type[Of]) -> Of | None:
        async with self._sent("GET", address, None) as response:
            if response.status == 404:
                return None
            raw = await _bytes(response)
        try:
            return self._read(raw, kind)
        except WireFault as fault:
            raise NotServed(f"{self._where}: {fault}. {ADDRESS}.") from None

    async def _pieces(self, response: Response) -> AsyncIterator[Completed]:
        """Of a stream of server-sent events. WireFault unless it ends as it must."""
        if "text/event-stream" not in response.headers.get("content-type", ""):
            # Servers that cannot stream answer whole; what is neither says what it is.
            yield self._read(await _bytes(response), Completed)
            return
        size, events = 0, _events(response)
        while (event := await _in_time(anext(events, None), "piece of its answer")) is not None:
            if event == b"[DONE]":
                return
            if (size := size + len(event)) > MOST_BYTES:
                raise WireFault(f"it sends more than {MOST_BYTES:,} bytes")
            yield self._read(event, Completed)
        if says_done(self._served.engine):
            raise WireFault("its stream broke off before its end")

    @asynccontextmanager
    async def _sent(
        self, method: str, address: str, body: Mapping[str, Any] | None, exchange: Exchange | None = None
    ) -> AsyncIterator[Response]:
        """The response, whose status is 200, or 404 to what is only looked for."""
        # ASCII: half a character in a case's text stays an escape, which the server may refuse.
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if content else {})
        question = Question(
            method=method, address=address, content=content, headers=headers, exchange=exchange or Exchange()
        )
        try:
            response = await _in_time(self._asked.send(question), "head of an answer")
            try:
                if response.lay_there:
                    raise WireFault("an answer that nobody had asked for lay in its connection")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise WireFault("its answer is compressed, which was not asked for")
                if response.status != 200 and not (response.status == 404 and body is None):
                    await self._refuse(response, urlsplit(address).path)
                yield response
            finally:
                await response.aclose()
        except Broken as error:
            raise self._broken(error) from None

    async def _refuse(self, response: Response, path: str) -> None:
        status = response.status
        if status in RETRIED:
            waits = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            words = await self._words(response)
            raise WireFault(f"It answers {status}: {words}", waits, f"status {status}", unanswered=True)
        if 300 <= status < 400:
            told = self._shown(response.headers.get("location", ""))
            raise NotServed(
                f"{self._where}: it sends on to {told!r} ({status}), and prompts and keys are not sent on. If that "
                "address is meant, write it as `endpoint`."
            )
        said = await self._words(response)
        if status in (401, 403):
            named = f"the key in {self._served.api_key_env}" if self._key else "a request without a key (`api_key_env`)"
            raise NotServed(f"{self._where}: it refuses {named} ({status}): {said}")
        if status in (400, 413, 422):
            raise RequestRefused(f"{self._where}: it refuses the request ({status}): {said}")
        if status in (404, 405):
            raise NotServed(
                f"{self._where}: it has no {path} ({status}): {said}. {ADDRESS}, "
                "and `model` the name that /models lists."
            )
        raise NotServed(f"{self._where}: it answers {status}: {said}")

    def _read(self, raw: bytes, kind: type[Of]) -> Of:
        try:
            return kind.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = self._shown(".".join(map(str, first["loc"])))
            what = "it sends a web page" if raw.lstrip()[:1] == b"<" else "what it sends is not this API's"
            begins = self._shown(raw[:4096].decode("utf-8", "replace"))[:80]  # cut behind: half a key is not found
            raise WireFault(f"{what} ({place or 'JSON'}: {first['msg']}); it begins {begins!r}") from None

    async def _words(self, response: Response) -> str:
        """A server's own words about its refusal."""
        return self._shown((await _bytes(response)).decode("utf-8", "replace")) or "no more is said"

    def _shown(self, text: str) -> str:
        """Foreign text as a message may hold it: on one line, short, and without the key."""
        for key in filter(None, (self._key, json.dumps(self._key)[1:-1])):
            text = text.replace(key, "***")
        told = visible_line(text)
        return told if len(told) <= MOST_SAID else f"{told[:MOST_SAID]}…"


def _key_of(name: str, variable: str) -> str:
    """The key, "" where none is named. UsageError, which does not show it, where it is missing or is none."""
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise NotHere(f"{name}: `api_key_env` names {variable}, which is not set: export {variable}=…")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{name}: what {variable} holds is no key: it has blanks or characters that no header takes")
    return key


async def _no_wait(seconds: float) -> None:
    """A recording need not be left alone before it is asked again."""


def _seconds(exchange: Exchange, began: float) -> float:
    return time.perf_counter() - began if exchange.told is None else exchange.told


async def _in_time(coming: Awaitable[Any], what: str) -> Any:
    """What comes. WireFault where it does not come whole, however often a byte of it does."""
    try:
        async with asyncio.timeout(WHOLE):
            return await coming
    except TimeoutError:
        raise WireFault(f"no whole {what} came within {WHOLE:g} s", cause="timeout") from None


async def _events(response: Response) -> AsyncIterator[bytes]:
    """The data of each server-sent event."""
    events = Events(MOST_BYTES)
    async for part in response.parts():
        for event in events.take(part):
            yield event


async def _bytes(response: Response) -> bytes:
    """The whole of it. WireFault where that is too much, or does not come whole."""
    return await _in_time(_all_bytes(response), "answer")


async def _all_bytes(response: Response) -> bytes:
    parts, size = [], 0
    async for part in response.parts():
        parts.append(part)
        if (size := size + len(part)) > MOST_BYTES:
            raise WireFault(f"it sends more than {MOST_BYTES:,} bytes")
    return b"".join(parts)
