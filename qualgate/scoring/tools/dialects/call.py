"""A tool call, and the faults in reading one.

The words of `BadCall.error_type`: those of the strict JSON reader (`not_json`, `duplicate_key`, `too_deep` …), and

    unbalanced         a block, frame or value that is opened and not closed, or closed and not opened
    unbalanced_quotes  the text of a call ends inside a string
    call_shape         read, but no name and arguments
    stray_text         prose where only calls may stand
    leaked_token       a special token in a name, in the answer, or outside the block it belongs to
    call_in_fence      the only calls stand in a Markdown code fence
    call_in_think      the only calls stand in a <think> block, or thinking ends after a call
    not_a_literal      an argument that would have to be evaluated
    too_many_calls     more than MAX_CALLS
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualgate.scoring import strict_json

MAX_CALLS = 1000

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the model wrote it; nothing is checked against a tool."""

    name: str
    arguments: dict[str, Any]


class BadCall(ValueError):
    """The text means to call and cannot be read. `str(error)` is the reason, `error_type` its word."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


# Possessive, and a string that is not closed runs to the end of the text: linear on any text.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+("?)', re.DOTALL)


def read_json(text: str) -> Any:
    """The one JSON value `text` is, strictly; BadCall otherwise."""
    try:
        return strict_json.read(text)
    except strict_json.NotStrictJson as error:
        if error.error_type == "not_json" and not all(string[1] for string in _STRING.finditer(text)):
            raise BadCall("unbalanced_quotes", f"a string is not closed: {error}") from None
        raise BadCall(error.error_type, str(error)) from None


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call, a JSON object; BadCall otherwise."""
    if not isinstance(arguments := read_json(text), dict):
        raise BadCall("call_shape", "the arguments are not an object")
    return arguments
