"""What servers, proxies and networks do to an answer, one function each, in the words of whoever would report it.

AT_CONNECTIONS befalls any answer; WHOLES one that comes at once; STREAMS one that comes in pieces; TOLD such a one
whose tokens are told; CALLS the tool calls of one whose tokens are not.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from tests.verification.served.striking import STREAM, Act, Struck, chunk, event, head

LOTS = b" " * 2**20


def answers(value: Any, status: int = 200, *headers: str) -> Act:
    async def act(to: Struck) -> None:
        await to.answer(value, status, *headers)

    return act


def sends(data: bytes, then: str = "close") -> Act:
    async def act(to: Struck) -> None:
        await to.send(data)
        await (to.reset() if then == "reset" else to.hold() if then == "hold" else _closed(to))

    return act


async def _closed(to: Struck) -> None:
    to.writer.close()


def half(then: str) -> Act:
    async def act(to: Struck) -> None:
        await sends(to.half, then)(to)

    return act


async def half_closed(to: Struck) -> None:
    await to.send(to.half)
    to.writer.write_eof()
    await to.hold()


async def loris_head(to: Struck) -> None:
    await to.drip(head(200, "X-Slow: " + "y" * 200))


async def loris_body(to: Struck) -> None:
    await to.send(STREAM if to.streams else head(200, "Content-Length: 9999"))
    for _ in range(200):
        await to.drip(b"1\r\n \r\n" if to.streams else b" ")


async def endless_head(to: Struck) -> None:
    await to.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await to.send(b"X-More: " + b"y" * 1000 + b"\r\n")


async def endless_body(to: Struck) -> None:
    await to.send(STREAM if to.streams else head(200, "Transfer-Encoding: chunked"))
    while True:
        await to.send(chunk(b"data: " + LOTS if to.streams else LOTS))


async def continues(to: Struck) -> None:
    while True:
        await to.send(head(100))
        await asyncio.sleep(0.05)


async def answered_twice(to: Struck) -> None:
    """A second answer lies in the connection before the next question, for it comes with the first: of one that came
    once the next is asked nobody could tell that it is not the next one's."""
    again = json.dumps({"choices": [{"index": 0, "text": "stale", "finish_reason": "stop"}]}).encode()
    await to.right(head(200, f"Content-Length: {len(again)}", "Content-Type: application/json") + again)


@cache
def _bomb() -> bytes:
    return gzip.compress(b" " * 2**26, 1)


async def bombed(to: Struck) -> None:
    packed = await asyncio.to_thread(_bomb)
    await to.send(head(200, "Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed)


AT_CONNECTIONS: dict[str, Act] = {
    "closed without a word": _closed,
    "killed without a word": Struck.reset,
    "hung": Struck.hold,
    "closed in the midst": half("close"),
    "killed in the midst": half("reset"),
    "hung in the midst": half("hold"),
    "half-closed in the midst": half_closed,
    "slow-loris, its head": loris_head,
    "slow-loris, its body": loris_body,
    "endless headers": endless_head,
    "an endless body": endless_body,
    "100 Continue for ever": continues,
    "no HTTP": sends(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
    "a broken status line": sends(b"HTTP/1.1 two hundred\r\n\r\n{}"),
    "a body without a head": sends(b'{"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}'),
    "chunks of no size": sends(head(200, "Transfer-Encoding: chunked") + b"zz\r\nhello\r\n"),
    "chunks that break off": sends(head(200, "Transfer-Encoding: chunked") + b"ff\r\n{"),
    "two lengths": sends(head(200, "Content-Length: 2", "Content-Length: 7") + b"{}"),
    "gzip that is none": answers(b"plain", 200, "Content-Encoding: gzip"),
    "a gzip bomb": bombed,
    "a page of a gateway, 502": answers(b"<html>Bad Gateway</html>", 502),
    "overloaded, 503 with a time": answers({"error": "busy"}, 503, "Retry-After: 0"),
    "too many, 429": answers({"error": {"message": "rate limit"}}, 429),
    "its own error, 500": answers({"error": {"message": "CUDA error"}}, 500),
    "a timeout, 504": answers(b"", 504),
    "overloaded, 529": answers({"type": "error"}, 529),
    "an error under 200": answers({"error": {"message": "out of memory"}}),
    "an error under 200, as a text": answers({"error": "out of memory", "choices": []}),
    "a page under 200": answers(b"<html>Sign in</html>"),
    "nothing under 200": answers(b""),
    "half a JSON": answers(b'{"choices": [{"index": 0, "text": "ye'),
    "a JSON list": answers([1, 2]),
    "null": answers(b"null"),
    "a deep JSON": answers(b"[" * 100_000),
    "half a character": answers(b'{"choices": [{"index": 0, "text": "\xff\xfe", "finish_reason": "stop"}]}'),
    "no choice": answers({"choices": []}),
    "two choices": answers({"choices": [{"index": n, "text": "x", "finish_reason": "stop"} for n in (0, 1)]}),
    "another choice": answers({"choices": [{"index": 1, "text": "x", "finish_reason": "stop"}]}),
    "a number for a text": answers({"choices": [{"index": 0, "text": 5, "finish_reason": "stop"}]}),
    "no end": answers({"choices": [{"index": 0, "text": "x", "finish_reason": None}]}),
    "an unknown end": answers({"choices": [{"index": 0, "text": "x", "finish_reason": "tired"}]}),
}
WHOLES: dict[str, Act] = {
    "answered twice": answered_twice,
    "fewer bytes than promised": sends(head(200, "Content-Length: 500") + b'{"choices": ['),
    "more bytes than promised": sends(head(200, "Content-Length: 12") + b'{"choices": [{"index": 0, "text": "x"}]}'),
}


def changed(change: Any, *, done: bool = True) -> Act:
    """The right answer's events as `change` leaves them; an answer that comes at once is left alone."""

    async def act(to: Struck) -> None:
        if not to.streams:
            return await to.right()
        await to.pieces(change(list(deepcopy(to.events))), done=done)

    return act


async def comments(to: Struck) -> None:
    await to.send(STREAM)
    while True:
        await to.send(chunk(b": still here\n\n"))
        await asyncio.sleep(0.05)


async def empty_pieces(to: Struck) -> None:
    await to.send(STREAM)
    nothing = chunk(event({"choices": [{"index": 0, "text": "", "finish_reason": None}], "id": "x" * 1000}) * 50)
    while True:
        await to.send(nothing)


FAILED = {"error": {"message": "worker died", "code": 500}}
MORE = {"choices": [{"index": 0, "text": "more", "delta": {"content": "more"}, "finish_reason": None}]}
STREAMS: dict[str, Act] = {
    "a piece twice": changed(lambda events: [*events[:2], events[1], *events[2:]]),
    "every piece twice": changed(lambda events: [one for event in events[:-2] for one in (event, event)] + events[-2:]),
    "an error at once": changed(lambda events: [FAILED]),
    "an error in the midst": changed(lambda events: [*events[:2], FAILED]),
    "an event called error": changed(lambda events: [*events[:2], b'event: error\ndata: {"message": "died"}\n\n']),
    "done before its end": changed(lambda events: events[:2]),
    "an end, and never done": changed(lambda events: events, done=False),
    "more behind its end": changed(lambda events: [*events, MORE]),
    "two choices in pieces": changed(lambda events: [*events[:1], _as_choice(events[1], 1), *events[2:]]),
    "half an event": changed(lambda events: [*events[:1], event(events[1])[:20] + b"\n\n", *events[2:]]),
    "comments for ever": comments,
    "empty pieces for ever": empty_pieces,
}
TOLD: dict[str, Act] = {
    "a piece twice": changed(lambda events: [*events[:2], events[1], *events[2:]]),
    "a piece lost": changed(lambda events: [events[0], *events[2:]]),
    "every piece twice": changed(lambda events: [one for event in events[:-2] for one in (event, event)] + events[-2:]),
    "the first half twice": changed(lambda events: [*events[:3], *events]),
}


def _as_choice(piece: dict[str, Any], index: int) -> dict[str, Any]:
    return {**piece, "choices": [{**one, "index": index} for one in piece["choices"]]}


def _order(*places: int) -> Act:
    """Pieces of an answer with two calls in another order, those behind these as they were."""

    def change(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [events[at] for at in places] + list(events[max(places) + 1 :])

    return changed(change)


def _one_call(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both calls under one number."""
    for one in events:
        for choice in one["choices"]:
            for call in choice.get("delta", {}).get("tool_calls", ()):
                call["index"] = 0
    return events


def _unnumbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for one in events:
        for choice in one["choices"]:
            for call in choice.get("delta", {}).get("tool_calls", ()):
                del call["index"]
    return events


# Pieces: 0 name of the first call, 1 to 3 its arguments; 4 name of the second, 5 to 7 its arguments; end, usage.
CALLS: dict[str, Act] = {
    "calls that are interleaved": _order(0, 4, 1, 5, 2, 6, 3, 7),
    "the second call first": _order(4, 5, 6, 7, 0, 1, 2, 3),
    "arguments before their name": _order(1, 0, 2, 3),
    "arguments in another order": _order(0, 2, 1, 3),
    "arguments backwards": _order(0, 3, 2, 1),
    "a piece of the arguments twice": _order(0, 1, 2, 2, 3),
    "the last of the arguments twice": _order(0, 1, 2, 3, 3),
    "both calls under one number": changed(_one_call),
    "calls without a number": changed(_unnumbered),
}
