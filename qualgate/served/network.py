"""Connections to servers by aiohttp, the only place that opens them, with a cause for each failure.

Nothing is followed, unpacked, kept or taken from the environment: no redirect, no .netrc, no cookie, and a proxy only
if an arm asks for it.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp
from yarl import URL

from qualgate.served.connecting import environment_proxy, trusted

# s: to connect, and to wait for the next bytes, which a queue before a busy model may hold back for long.
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=600.0)
IDLE = 4.0  # s after which an idle connection is closed: many servers close theirs after 5
CLOSED = 0.1  # share of requests that meet a closed connection, from which on each gets one of its own
AT_ONCE = 2**20  # bytes that are written without a look at what else is to be done
UNSENT = ("ConnectError", "ConnectTimeout")  # names of failures before anything was asked


class Broken(Exception):
    """A connection that failed. name: how; tls: the fault of its certificate, if that was the cause."""

    def __init__(self, name: str, words: str, tls: ssl.SSLError | ssl.CertificateError | None = None) -> None:
        super().__init__(f"{name}: {words}")
        self.name, self.words, self.tls = name, words, tls


@dataclass(slots=True)
class Exchange:
    """One request as its sender sees it. headers: of its response, once it is there. done: whether the response reached
    its declared end, which only a stream has."""

    headers: Mapping[str, str] = field(default_factory=dict)
    done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request. headers: all of them."""

    method: str
    address: str
    content: bytes | None
    headers: Mapping[str, str]
    exchange: Exchange


class Response(Protocol):
    """A response."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name."""
        ...

    @property
    def lay_there(self) -> bool:
        """Whether its head was in the connection before the request was sent: it then answers another request, late or
        twice."""
        ...

    def parts(self) -> AsyncIterator[bytes]:
        """Yield its body as it comes. Broken if it is incomplete."""
        ...

    async def aclose(self) -> None:
        """Release it; end its connection if it was not read to its end."""
        ...


class _Reply(aiohttp.ClientResponse):
    """A response that detects data already in the connection: reading the network lets the event loop run first."""

    lay_there = False

    async def start(self, connection: Any) -> Any:
        """See `aiohttp.ClientResponse`."""
        went_on, protocol = list[bool](), connection.protocol
        asyncio.get_running_loop().call_soon(went_on.append, True)
        response = await super().start(connection)
        self.lay_there = not went_on
        if self.lay_there and protocol is not None:
            protocol.close()  # each further answer in it is of the question before
        return response


class Network:
    """Connections to one server. at_once: their maximum. secure: whether certificates are checked, as for https.
    proxied: whether the environment's proxy is used."""

    def __init__(self, at_once: int, *, secure: bool, proxied: bool = False) -> None:
        self._at_once, self._secure, self._proxied = at_once, secure, proxied
        self._session: aiohttp.ClientSession | None = None
        self._sent = self._met_closed = 0

    async def send(self, question: Question) -> Response:
        """Send a request; return the response once its head is there. Broken if none comes."""
        for retries_left in range(self._at_once, -1, -1):
            try:
                return _Received(await self._sent_once(question))
            except (aiohttp.ClientError, OSError, ValueError) as error:
                self._met_closed += isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
                unsent = isinstance(error.__cause__, aiohttp.ClientConnectionResetError)
                # Of a longer one, a part may have come to a server that will not have it.
                if not (retries_left and unsent and len(question.content or b"") <= AT_ONCE):
                    raise broken(error) from None
        raise AssertionError("the last one ends it")

    async def _sent_once(self, question: Question) -> aiohttp.ClientResponse:
        """Send a request in one connection.

        Servers may close a connection behind an answer without notice, as llama.cpp's does behind each stream. A
        request in such a connection reached nobody, and is sent in another; where that happens often, each gets a
        connection of its own.
        """
        headers = dict(question.headers)
        if self._met_closed > CLOSED * self._sent:
            headers.setdefault("Connection", "close")
        self._sent += 1
        body: Any = question.content
        if body is not None and len(body) > AT_ONCE:
            body = io.BytesIO(body)
        proxy = environment_proxy(question.address) if self._proxied else None
        return await self._opened().request(
            question.method,
            URL(question.address, encoded=True),
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=proxy and proxy[1],
        )

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session. It is made at first use, since that must be within the running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._at_once, ssl=trusted() if self._secure else True, keepalive_timeout=IDLE
                ),
                timeout=TIMEOUT,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                response_class=_Reply,
                trust_env=False,
            )
        return self._session


class _Received:
    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply, self.status = reply, reply.status
        self.lay_there = bool(getattr(reply, "lay_there", False))
        self.headers = joined(reply.headers.items())

    async def parts(self) -> AsyncIterator[bytes]:
        """See `Response`."""
        try:
            async for piece in self._reply.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise broken(error) from None

    async def aclose(self) -> None:
        """See `Response`."""
        self._reply.close()


def joined(headers: Any) -> dict[str, str]:
    """Return headers by lower-case name; values of one name are joined by commas."""
    merged = dict[str, str]()
    for name, value in headers:
        merged[name.lower()] = f"{merged[name.lower()]}, {value}" if name.lower() in merged else value
    return merged


def broken(error: Exception) -> Broken:
    """Convert aiohttp's exception to `Broken`, with a name for how the connection failed."""
    words = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        inner: Any = getattr(error, "certificate_error", None) or error.os_error
        return Broken("ConnectError", str(inner), inner)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Broken("ConnectTimeout", words)
    if isinstance(error, aiohttp.ClientConnectorError):  # its own words speak of ssl where there is none
        os_error = error.os_error
        return Broken("ConnectError", f"{error.host}, port {error.port}: {os_error.strerror or os_error}")
    if isinstance(error, aiohttp.ClientHttpProxyError):  # its own words repeat the proxy's address, with its password
        return Broken("ConnectError", f"the proxy refuses ({error.status} {error.message})")
    if isinstance(error, aiohttp.InvalidURL):
        return Broken("ConnectError", words)
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Broken("ReadTimeout", words)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
        return Broken("RemoteProtocolError", words)
    return Broken("ReadError", words)
