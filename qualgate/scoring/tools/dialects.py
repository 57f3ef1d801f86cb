"""How models write tool calls as text. Hermes today; others come with a later version.

Hermes: `<tool_call>{"name": "…", "arguments": {…}}</tool_call>`, any number of them, other text around is no call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualgate.scoring import strict_json
from qualgate.scoring.outcome import quote

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = 1000


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


class BadCall(ValueError):
    """The text means to call and cannot be read. `str(error)` is the reason, `error_type` its word."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


def hermes(text: str) -> tuple[Call, ...]:
    """Every call in `text`, in order; none for a plain answer."""
    before, *pieces = text.split(OPEN, MAX_CALLS + 1)
    if len(pieces) > MAX_CALLS:
        raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
    if CLOSE in before:
        raise BadCall("unbalanced", f"{CLOSE} without {OPEN}")
    calls = []
    for number, piece in enumerate(pieces, start=1):
        inside, closed, after = piece.partition(CLOSE)
        if not closed:
            raise BadCall("unbalanced", f"call {number} is not closed")
        if CLOSE in after:
            raise BadCall("unbalanced", f"{CLOSE} without {OPEN} after call {number}")
        calls.append(_call(number, inside))
    return tuple(calls)


def _call(number: int, text: str) -> Call:
    try:
        value = strict_json.read(text)
    except strict_json.NotStrictJson as error:
        raise BadCall(error.error_type, f"call {number}: {error}") from None
    match value:
        case {"name": str() as name, "arguments": dict() as arguments} if len(value) == 2:
            return Call(name, arguments)
        case dict():
            raise BadCall("call_shape", f"call {number} has {quote(sorted(value))}, not a name and an arguments object")
        case _:
            raise BadCall("call_shape", f"call {number} is not an object")
