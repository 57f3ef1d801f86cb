"""Forms in which a stream's events are framed and sent: data.

FRAMES write events as server-sent events, WIRES send their bytes; those of DOUBTED_FRAMES and DOUBTED_WIRES are none by
the standard's word: read right, or refused in words that the pattern beside them fits.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.verification.served.forms import Event


def _frames(
    before: str = "data: ", behind: str = "\n\n", first: str = "", last: str = "data: [DONE]\n\n", **dumps: Any
) -> Any:
    def framed(events: Sequence[Event]) -> bytes:
        said = "".join(before + json.dumps(event, **dumps) + behind for event in events)
        return (first + said + last).encode(errors="backslashreplace")  # half a character is JSON's escape

    return framed


def _lines_of_data(events: Sequence[Event]) -> bytes:
    """Each line of indented JSON a line of data."""
    told = (json.dumps(event, indent=1).replace("\n", "\ndata: ") for event in events)
    return "".join(f"data: {one}\n\n" for one in told).encode() + b"data: [DONE]\n\n"


FRAMES: dict[str, Callable[[Sequence[Event]], bytes]] = {
    "characters as they are": _frames(ensure_ascii=False),
    "no blank behind data:": _frames("data:", last="data:[DONE]\n\n"),
    "lines that end \\r\\n": _frames(behind="\r\n\r\n", last="data: [DONE]\r\n\r\n"),
    "lines that end \\r": _frames(behind="\r\r", last="data: [DONE]\r\r"),
    "lines that end \\r\\n and \\n": _frames(behind="\r\n\n"),
    "lines that end \\n and \\r": _frames(behind="\n\r"),
    "three blank lines": _frames(behind="\n\n\n\n"),
    "comments between": _frames(": ping\n\ndata: "),
    "a comment within": _frames(": keep-alive\ndata: "),
    "OPENROUTER PROCESSING": _frames(": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: "),
    "named message": _frames("event: message\ndata: "),
    "named otherwise": _frames("event: chat.completion.chunk\ndata: "),
    "named behind its data": _frames(behind="\nevent: completion\n\n"),
    "events with ids and retry": _frames("id: 7\nretry: 3000\ndata: "),
    "pings with {}": _frames("event: ping\ndata: {}\n\ndata: "),
    "empty data between": _frames("data:\n\ndata: "),
    "empty data with a blank between": _frames("data: \n\ndata: "),
    "a field data alone": _frames("data\n\ndata: "),
    "data over many lines": _lines_of_data,
    "a byte order mark": _frames(first="\ufeff"),
    "blank lines first": _frames(first="\n\n\r\n"),
    "fields that nobody knows": _frames("x-trace: 5\ndata: "),
    "JSON in blanks": _frames("data:   ", "  \n\n"),
    "compact JSON": _frames(separators=(",", ":")),
    "no [DONE]": _frames(last=""),
    "[DONE] without its end": _frames(last="data: [DONE]"),
    "[DONE] in blanks": _frames(last="data:  [DONE] \n\n"),
    "[DONE] without data:": _frames(last="[DONE]\n\n"),
    "[DONE] twice": _frames(last="data: [DONE]\n\n" * 2),
    "[DONE] named": _frames(last="event: done\ndata: [DONE]\n\n"),
    "a comment behind [DONE]": _frames(last="data: [DONE]\n\n: bye\n\n"),
    "a cost behind [DONE]": _frames(last='data: [DONE]\n\nevent: cost\ndata: {"cost": 0.1}\n\n'),
    "a comment for an end": _frames(last=": end\n\n"),
    "its last event without an end": lambda events: _frames(last="")(events).rstrip(b"\n"),
}


def _cut(every: int) -> Callable[[bytes], list[bytes]]:
    return lambda raw: [raw[at : at + every] for at in range(0, len(raw), every)]


def _cut_at(mark: bytes, behind: int = 1) -> Callable[[bytes], list[bytes]]:
    """Cut within each `mark`."""

    def cut(raw: bytes) -> list[bytes]:
        first, *others = raw.split(mark)
        if not others:
            return [raw]
        return [
            first + mark[:behind],
            *(mark[behind:] + one + mark[:behind] for one in others[:-1]),
            mark[behind:] + others[-1],
        ]

    return cut


EVENT_STREAM = "Content-Type: text/event-stream"
CHUNKED = "Transfer-Encoding: chunked"
Wire = tuple[tuple[str, ...], Callable[[bytes], list[bytes]]]
WIRES: dict[str, Wire] = {
    "byte by byte": ((EVENT_STREAM, CHUNKED), _cut(1)),
    "three bytes each": ((EVENT_STREAM, CHUNKED), _cut(3)),
    "seven bytes each": ((EVENT_STREAM, CHUNKED), _cut(7)),
    "cut between line ends": ((EVENT_STREAM, CHUNKED), _cut_at(b"\n\n")),
    "cut within data:": ((EVENT_STREAM, CHUNKED), _cut_at(b"data", 2)),
    "all at once": ((EVENT_STREAM, CHUNKED), lambda raw: [raw]),
    "its length known": ((EVENT_STREAM,), lambda raw: [raw]),
    "until it is closed": ((EVENT_STREAM, "Connection: close"), _cut(50)),
    "a charset": ((EVENT_STREAM + "; charset=utf-8", CHUNKED), _cut(90)),
    "a type in capitals": (("content-type: Text/Event-Stream;charset=UTF-8", CHUNKED), _cut(90)),
    "cached and proxied": ((EVENT_STREAM, CHUNKED, "X-Accel-Buffering: no", "cf-ray: 1", "Via: 1.1 x"), _cut(90)),
}
DOUBTED_WIRES: dict[str, tuple[Wire, str]] = {
    "no type": (((CHUNKED,), _cut(90)), "data: "),
    "type text/plain": ((("Content-Type: text/plain", CHUNKED), _cut(90)), "data: "),
    "type application/json": ((("Content-Type: application/json", CHUNKED), _cut(90)), "data: "),
    "packed": (((EVENT_STREAM, CHUNKED, "Content-Encoding: gzip"), lambda raw: [gzip.compress(raw)]), "compressed"),
}
DOUBTED_FRAMES: dict[str, tuple[Callable[[Sequence[Event]], bytes], str]] = {
    "JSON lines": (_frames("", "\n", last=""), "broke off"),
    "no blank lines": (_frames(behind="\n", last="data: [DONE]\n"), "trailing|not this API"),
    "data as an array": (lambda events: _frames(last="")([list(events)]), "not this API"),  # type: ignore[list-item]
    "in another alphabet": (
        lambda events: _frames(ensure_ascii=False)(events).decode().encode("utf-16"),
        "no answer|not this API",
    ),
    "[done] in small letters": (_frames(last="data: [done]\n\n"), r"\[done\]"),
    "null between": (_frames("data: null\n\ndata: "), "null"),
    "a ping that is no JSON": (_frames("data: ping\n\ndata: "), "ping"),
}
