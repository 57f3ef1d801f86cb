"""Requests to one server: bounded, retried if that may help, with failures told apart by whose fault they are.

The key comes from the environment variable that the gate file names, and goes into one header only: no message, no log,
no record. Redirects are not followed, certificates are verified, the environment's .netrc is ignored, and its proxy
too unless the arm asks for it (`network`). If tokens are counted, each request is claimed before it is sent
(`charging`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import ValidationError

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import Served
from qualgate.records.identity import own_version
from qualgate.records.served import OMIT
from qualgate.served import sglang
from qualgate.served.answer import Answer, Gathering
from qualgate.served.charging import Charges, Meter
from qualgate.served.connecting import about_proxy, speaks_tls, tls_advice
from qualgate.served.doubt import Doubt
from qualgate.served.faults import ADDRESS, UNLISTED, NotServed, RequestRefused, WireFault, reported
from qualgate.served.forms import Forms, unstreamed
from qualgate.served.gateways import answerers, known_names
from qualgate.served.half_characters import with_halves
from qualgate.served.limit_headers import asked_wait
from qualgate.served.network import UNSENT, Broken, Exchange, Network, Question, Response
from qualgate.served.received import Received
from qualgate.served.refusals import parameter_cure
from qualgate.served.replies import Completed, Reply
from qualgate.served.retries import FORM_TRIES, LIMIT, RETRIED, TRIES, USED_UP, Limits, Pace, pause
from qualgate.served.stream import BOM, Events
from qualgate.served.turns import Notify, Turns
from qualgate.text.escaping import visible_line

MOST_BYTES = 2**26  # of one answer, whole or in pieces
PAGE_SECONDS = 10.0  # in which a page is to come that nothing but a count rests on
AZURE = (".openai.azure.com", ".cognitiveservices.azure.com")  # ends of its hosts
MOST_SAID = 300  # characters of a server's own words in a message
WHOLE = 600.0  # s in which the next whole thing is to come (a head, a body, an event), however its bytes trickle

MOST_PAGE = 20_000  # characters of a web page in which its words are looked for
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)

Of = TypeVar("Of", bound=Reply)


class Client:
    """Asks one arm's server. Use it as a context manager.

    name: the arm's, for messages. at_once: requests under way at most. tries: of one request, the first among them.
    sleep: how it waits before a retry. charges: counts what each request takes. notify: called with the seconds of a
    pause before it begins, and a line about it for people, "" for none. pace: as learnt by earlier clients of the
    same server; None: nothing is known.
    """

    def __init__(
        self,
        name: str,
        served: Served,
        at_once: int,
        tries: int = TRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        charges: Charges | None = None,
        notify: Notify = lambda seconds, line: None,
        pace: Pace | None = None,
    ) -> None:
        self._where = name if name == served.endpoint else f"{name} ({served.endpoint})"
        self._served, self._tries, self._charges = served, tries, charges
        self._sleep = sleep
        pace = pace or Pace(served.requests_per_minute, served.patience)
        self._turns = Turns(self._where, pace, at_once, self._sleep, notify, self._shown)
        self.received = Received()  # by an earlier attempt at what is requested
        self.forms = Forms(served.whole, self._shown)
        self._key = _key_of(name, served.api_key_env)
        self._headers = {
            "User-Agent": f"qualgate/{own_version()}",
            "Accept-Encoding": "identity",  # what is packed small may unpack beyond any bound
            **dict(served.extra_headers),
        }
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
            if (urlsplit(served.endpoint).hostname or "").endswith(AZURE):
                self._headers["api-key"] = self._key  # its deployments read it there alone
        self._query = f"?{urlencode(served.extra_query, quote_via=quote)}" if served.extra_query else ""
        self._proxied = served.trust_env and not served.command
        secure = served.endpoint.startswith("https:")
        self._network = Network(at_once, secure=secure, proxied=self._proxied)
        self._reached = False  # whether anything ever answered
        self.named: dict[str, None] = {}  # by which names its answers call who gave them

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *failed: Any) -> None:
        await self._network.close()

    async def ask(self, path: str, body: Mapping[str, Any], of: str = "") -> Answer:
        """Return the whole answer to a request. of: its case. NotServed if it is refused, RequestRefused if that is the
        request's own fault; InfrastructureError if none came after all tries, or if the budget does not suffice
        (BudgetSpent)."""
        if (checked := self.forms.checked(body, of)) is not None:
            return checked
        return await self._again(self.forms.once(partial(self._answer, path), body), paced=True)

    async def check(self, path: str, body: Mapping[str, Any], of: str = "") -> Answer:
        """Return the answer as `ask` does, and check how streams are put together: see `Forms.check`."""

        async def streamed() -> Answer:
            return await self._again(self.forms.once(partial(self._answer, path), body, 1), paced=True)

        async def whole() -> Answer:
            return (await self._again(lambda: self._answer(path, unstreamed(body)), paced=True))[0]

        return await self.forms.check(streamed, whole, body, of)

    async def whole(self, path: str, body: Mapping[str, Any]) -> Completed:
        """Return the raw reply to a request without a stream. Errors as of `ask`."""
        return await self._again(lambda: self._replied(path, body), paced=True)

    async def get(self, path: str, kind: type[Of], *, of_host: bool = False) -> Of | None:
        """Get `path` below the API's address or (of_host) its host's; None if it does not exist. Errors as of `ask`;
        NotServed if the reply is no `kind`."""
        base = self._host() if of_host else self._served.endpoint
        return await self._again(lambda: self._got(base.rstrip("/") + path, kind, loading=path == "/models"))

    async def page(self, path: str) -> str:
        """Return the text at `path` of its host, for mere counts: requested once, "" if it does not come whole within
        some seconds."""
        address = self._host() + path.lstrip("/")
        try:
            async with asyncio.timeout(PAGE_SECONDS), self._turns.free, self._sent("GET", address, None) as response:
                raw = await _bytes(response) if response.status == 200 else b""
        except (Broken, WireFault, NotServed, TimeoutError):
            return ""
        return raw.decode("utf-8", "replace")

    def _host(self) -> str:
        parts = urlsplit(self._served.endpoint)
        return f"{parts.scheme}://{parts.netloc}/"

    async def pause(self, tries: int) -> None:
        """Wait as after `tries` failures of a request."""
        await self._sleep(pause(tries, None, random.random(), inf) or 0.0)

    async def _again(self, once: Callable[[], Awaitable[Any]], *, paced: bool = False) -> Any:
        """Send a request until it is answered. InfrastructureError once it has failed too often, or waited too long.

        once: sends it. A demanded pause is no failure. paced: the request keeps the pace of `requests_per_minute`.
        """
        failures = unreadable = 0
        limits = Limits(self._served.patience)
        while True:
            try:
                return await self._turns.take(once, paced=paced, alone=limits.alone)
            except WireFault as error:
                fault = error
            if fault.limit:
                if (wait := limits.met(self._turns.answered, fault.asked_wait, random.random())) is None:
                    raise InfrastructureError(
                        f"{self._where}: {self._shown(str(fault))}. It said so {limits.times} times and answered "
                        "others between, so it is this request that it does not take now."
                    )
                if wait:
                    await self._turns.rest(wait, str(fault))
                continue
            failures, unreadable = failures + 1, unreadable + fault.of_form
            exhausted = unreadable >= FORM_TRIES or failures >= self._tries
            wait = None if exhausted else pause(failures, None, random.random())
            if wait is None:
                times = f"asked {failures} times" if failures > 1 else "asked once"
                raise InfrastructureError(
                    f"{self._where}: {times}, no answer. {self._shown(str(fault))}.{self.forms.given_up(fault)} Look "
                    "whether the server runs and is not overloaded (`concurrency`), then run again: what was answered "
                    "is kept."
                )
            await self._sleep(wait)

    async def _broken(self, error: Broken) -> Exception:
        """Return the exception for a failed connection."""
        if error.tls is not None:
            return NotServed(
                f"{self._where}: no secure connection: {self._shown(str(error.tls))}. {tls_advice(error.tls)}."
            )
        endpoint = self._served.endpoint
        silent = not (self._reached or error.name in UNSENT or self._proxied)
        if silent and endpoint.startswith("http:") and await speaks_tls(endpoint):
            return NotServed(
                f"{self._where}: its server speaks TLS at this port, and `endpoint` says http: write `endpoint: https://…`."
            )
        cause = "timeout" if error.name.endswith("Timeout") else "connection"
        proxy = about_proxy(endpoint, used=self._proxied) if error.name in UNSENT else ""
        words = ". ".join(filter(None, (str(error).removesuffix("."), proxy)))
        return WireFault(words, cause=cause, unanswered=error.name in UNSENT)

    async def _answer(self, path: str, body: Mapping[str, Any]) -> tuple[Answer, Doubt]:
        """Return an answer, whole or of a stream, and why its stream is doubtful; "" if it is not."""
        async with self._charged(body) as meter:
            began, gathered, exchange = time.perf_counter(), Gathering(), Exchange()
            async with aclosing(self.pieces(path, body, exchange)) as pieces:
                async for piece in pieces:
                    meter.take(piece)
                    gathered.take(piece, time.perf_counter() - began)
            answer = gathered.answer(time.perf_counter() - began, done=exchange.done)
        answer = replace(answer, models=answerers(exchange.headers, answer.models))
        self.named.update(dict.fromkeys(known_names(answer.models)))
        return answer, gathered.doubt if body.get("stream") and answer.pieces > 1 else ""

    def _charged(self, body: Mapping[str, Any]) -> AbstractAsyncContextManager[Meter]:
        return nullcontext(Meter()) if self._charges is None else self._charges.charged(body)

    async def pieces(
        self, path: str, body: Mapping[str, Any], exchange: Exchange | None = None
    ) -> AsyncGenerator[Completed, None]:
        """Send a request once, at once, and yield its reply piece by piece; closing this early ends the connection.
        WireFault if the reply is incomplete; NotServed and RequestRefused as of `ask`."""
        async with self._sent("POST", sglang.address(self._served.endpoint, path), body, exchange) as response:
            if path == sglang.PATH:
                yield self._read(await _bytes(response), sglang.Generated).completed(body["input_ids"])
            elif body.get("stream"):
                async for piece in self._pieces(response, exchange or Exchange()):
                    yield piece
            else:
                yield self._read(await _bytes(response), Completed)

    async def _replied(self, path: str, body: Mapping[str, Any]) -> Completed:
        """Return a reply that is not streamed. WireFault for one that reports a fault."""
        async with self._charged(body) as meter:
            async with self._sent("POST", self._served.endpoint.rstrip("/") + path, body) as response:
                reply = self._read(await _bytes(response), Completed)
            if reply.fault is not None:
                raise reported(reply.fault)
            meter.take(reply)
        return reply

    async def _got(self, address: str, kind: type[Of], *, loading: bool) -> Of | None:
        """Get a reply of type `kind`; None for status 404. loading: wait for a server that is not ready yet."""
        try:
            async with self._sent("GET", address, None) as response:
                if response.status == 404:
                    return None
                raw = await _bytes(response)
        except WireFault as fault:
            fault.limit = fault.limit or (loading and fault.cause == "status 503")
            raise
        try:
            return self._read(raw, kind)
        except WireFault as fault:
            raise NotServed(f"{self._where}: {fault}. {_addressed(address)}.") from None

    async def _pieces(self, response: Response, exchange: Exchange) -> AsyncIterator[Completed]:
        """Yield the pieces of a stream of server-sent events. A stream without [DONE] is whole if its answer has a
        finish reason (`Gathering.answer`)."""
        exchange.done = False
        if "text/event-stream" not in response.headers.get("content-type", "").lower():
            # Servers that cannot stream answer whole.
            exchange.done = True
            yield self._read(await _bytes(response), Completed)
            return
        size, events = 0, _events(response)
        while (event := await _in_time(anext(events, None), "piece of its answer")) is not None:
            if event.strip() == b"[DONE]":
                exchange.done = True
                return
            if (size := size + len(event)) > MOST_BYTES:
                raise WireFault(f"it sends more than {MOST_BYTES:,} bytes")
            yield self._read_piece(event)

    @asynccontextmanager
    async def _sent(
        self, method: str, address: str, body: Mapping[str, Any] | None, exchange: Exchange | None = None
    ) -> AsyncIterator[Response]:
        """Send a request and yield the response with status 200, or 404 for a GET."""
        # ASCII: half a character in a case's text stays an escape, which the server may refuse.
        content = None if body is None else json.dumps(self._named(body), allow_nan=False).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if content else {})
        target = {"address": address + self._query, "exchange": exchange or Exchange()}
        question = Question(method=method, content=content, headers=headers, **target)
        try:
            response = await _in_time(self._network.send(question), "head of an answer")
            question.exchange.headers = response.headers
            self._reached = True
            try:
                if response.lay_there:
                    raise WireFault("an answer that nobody had asked for lay in its connection", cause="connection")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise WireFault("its answer is compressed, which was not asked for")
                if response.status != 200 and not (response.status == 404 and body is None):
                    await self._refuse(response, urlsplit(address).path)
                yield response
            finally:
                await response.aclose()
        except Broken as error:
            raise await self._broken(error) from None

    def _named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with its keys renamed by the arm's `parameters`."""
        names = dict(self._served.parameters)
        return {names.get(name, name): value for name, value in body.items() if names.get(name) != OMIT}

    async def _refuse(self, response: Response, path: str) -> None:
        """Raise the exception for a response with an error status.

        WireFault for one that may pass, RequestRefused for a fault of the request, NotServed for any other.
        """
        status = response.status
        if status in RETRIED or status in self._served.passing:
            waits = asked_wait(response.headers, datetime.now(UTC), at_limit=status == LIMIT)
            limit, words = status == LIMIT or bool(waits), await self._words(response)
            if waits is None and status == LIMIT and any(code in words for code in USED_UP):
                waits = inf
            raise WireFault(f"It answers {status}: {words}", waits, f"status {status}", unanswered=True, limit=limit)
        if 300 <= status < 400:
            location = self._shown(response.headers.get("location", ""))
            raise NotServed(
                f"{self._where}: it sends on to {location!r} ({status}), and prompts and keys are not sent on. If that "
                "address is meant, write it as `endpoint`."
            )
        refusal = await self._words(response)
        if status in (401, 403):
            credential = (
                f"the key in {self._served.api_key_env}" if self._key else "a request without a key (`api_key_env`)"
            )
            raise NotServed(f"{self._where}: it refuses {credential} ({status}): {refusal}")
        if status in (400, 413, 422):
            cure = parameter_cure(refusal, dict(self._served.parameters))
            raise RequestRefused(f"{self._where}: it refuses the request ({status}): {refusal}{cure}")
        if status in (404, 405):
            raise NotServed(
                f"{self._where}: it has no {path} ({status}): {refusal}. {_addressed(path)}. `model` is the name that "
                "/models lists."
            )
        raise NotServed(f"{self._where}: it answers {status}: {refusal}")

    def _read_piece(self, event: bytes) -> Completed:
        halved = with_halves(event)
        piece = self._read(halved, Completed)
        return piece if halved is event or halved == event else piece.model_copy(update={"halved": True})

    def _read(self, raw: bytes, kind: type[Of]) -> Of:
        """Read a reply's JSON as the type `kind`. WireFault, with the reply's beginning, for anything else."""
        try:
            return kind.model_validate_json(raw.removeprefix(BOM))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = self._shown(".".join(map(str, first["loc"])))
            finding = "it sends a web page" if raw.lstrip()[:1] == b"<" else "what it sends is not this API's"
            beginning = self._shown(raw[:4096].decode("utf-8", "replace"))[:80]  # cut behind: half a key is not found
            raise WireFault(f"{finding} ({field or 'JSON'}: {first['msg']}); it begins {beginning!r}") from None

    async def _words(self, response: Response) -> str:
        """Return the server's own words about its refusal."""
        return self._shown((await _bytes(response)).decode("utf-8", "replace")) or "no more is said"

    def _shown(self, text: str) -> str:
        """Make foreign text fit for a message: on one line, short, and without the key."""
        for key in filter(None, (self._key, json.dumps(self._key)[1:-1])):
            text = text.replace(key, "***")
        line = visible_line(_readable(text))
        return line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}…"


def _readable(text: str) -> str:
    """Return the words of a web page; any other text unchanged."""
    return " ".join(_TAGS.sub(" ", text[:MOST_PAGE]).split()) or text if text.lstrip()[:1] == "<" else text


def _addressed(path: str) -> str:
    return f"{ADDRESS}. {UNLISTED}" if path.endswith("/models") else ADDRESS


def _key_of(name: str, variable: str) -> str:
    """Return an arm's key, "" if no variable is named. UsageError, which does not show it, if it is missing or invalid.

    name: of the arm; variable: its `api_key_env`.
    """
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"{name}: `api_key_env` names {variable}, which is not set: export {variable}=…")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{name}: what {variable} holds is no key: it has blanks or characters that no header takes")
    return key


async def _in_time(coming: Awaitable[Any], what: str) -> Any:
    """Await a result. WireFault if it does not arrive whole in time, however often single bytes of it do."""
    try:
        async with asyncio.timeout(WHOLE):
            return await coming
    except TimeoutError:
        raise WireFault(f"no whole {what} came within {WHOLE:g} s", cause="timeout") from None


async def _events(response: Response) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event.

    A response without events has its first stray line yielded, which may be an error's text.
    """
    events, no_event = Events(MOST_BYTES), True
    async for piece in response.parts():
        for event in events.take(piece):
            no_event = False
            yield event
    for event in events.rest():
        no_event = False
        yield event
    if no_event and events.stray:  # an error's own words, though a stream was promised
        yield events.stray


async def _bytes(response: Response) -> bytes:
    """Return the whole body. WireFault if it is too large or incomplete."""
    return await _in_time(_all_bytes(response), "answer")


async def _all_bytes(response: Response) -> bytes:
    parts, size = [], 0
    async for piece in response.parts():
        parts.append(piece)
        if (size := size + len(piece)) > MOST_BYTES:
            raise WireFault(f"it sends more than {MOST_BYTES:,} bytes")
    return b"".join(parts)
