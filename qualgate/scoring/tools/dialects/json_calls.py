"""Calls written as JSON objects: `{"name": …, "arguments": {…}}`, alone, in a list, one a line, and OpenAI's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_json

_FIELD = re.compile(r"\{(?:index|name|json_name|call|arguments)\}")

Shape = Callable[[Any], Call]


def shape(name: str = "name", arguments: Sequence[str] = ("arguments",), also: Sequence[str] = ()) -> Shape:
    """Return the reader of a call in an object: its keys, and `also` other keys that are ignored."""
    known = frozenset((name, *arguments, *also))

    def call(value: Any) -> Call:
        """Return the call of one object. BadCall for any other value."""
        if not isinstance(value, dict):
            raise BadCall("call_shape", "not an object")
        called_name, values = value.get(name), None
        for key in arguments:
            if key in value:
                values = None if values is not None else value[key]
        if isinstance(called_name, str) and isinstance(values, dict) and (len(value) == 2 or value.keys() <= known):
            return Call(called_name, values)
        raise BadCall("call_shape", f"has {quote(sorted(value))}, not a {name} and an {arguments[0]} object")

    return call


def keyed(value: Any) -> Call:
    """Read `{NAME: arguments}`."""
    match value:
        case dict() if len(value) == 1 and isinstance(given := next(iter(value.values())), dict):
            return Call(next(iter(value)), given)
    raise BadCall("call_shape", "not one name with an object of arguments")


PLAIN = shape()
EITHER = shape(arguments=("arguments", "parameters"))
LLAMA = shape(arguments=("arguments", "parameters"), also=("type",))
WITH_ID = shape(also=("id",))
INKLING = shape(arguments=("args",))
COHERE = shape("tool_name", ("parameters",), also=("tool_call_id",))


def single(of: Shape = PLAIN) -> Callable[[str, Tools], list[Call]]:
    """Return a reader of one object."""
    return lambda text, tools: [of(read_json(text))]


def listed(of: Shape = PLAIN, or_one: bool = False) -> Callable[[str, Tools], list[Call]]:
    """Return a reader of a list of objects; `or_one`: or of one without the list."""

    def read(text: str, tools: Tools) -> list[Call]:
        value = read_json(text)
        if isinstance(value, dict) and or_one:
            value = [value]
        if not isinstance(value, list):
            raise BadCall("call_shape", "not a list of calls")
        if not value:
            raise BadCall("call_shape", "an empty list of calls")
        return [of(item) for item in value]

    return read


def lines(text: str, tools: Tools) -> list[Call]:
    """Read one object per line."""
    calls = [PLAIN(read_json(line)) for line in text.split("\n") if line.strip()]
    if not calls:
        raise BadCall("empty", "no call in the block")
    return calls


def openai_call(value: Any) -> Call:
    """Read one entry of `tool_calls`; `arguments` is JSON text in OpenAI's API, an object with some servers."""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadCall("call_shape", "no function with a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise BadCall("call_shape", "the arguments are not an object")
    return Call(function["name"], arguments)


def openai_calls(value: Any) -> list[Call]:
    """Read the calls of a decoded message, of its `tool_calls`, or of one of them."""
    if isinstance(value, dict) and "tool_calls" in value:
        value = value["tool_calls"]
    if value is None:
        return []
    return [openai_call(item) for item in (value if isinstance(value, list) else [value])]


def read_openai(text: str, tools: Tools) -> list[Call]:
    """Read calls as `openai_calls` does, from JSON text."""
    return openai_calls(read_json(text))


def dump(value: Any, markers: Sequence[str] = ()) -> str:
    """Write JSON as templates' `tojson` does; a marker in a string is broken up by an escape, which JSON allows."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for marker in markers:
        if marker in text:
            text = text.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return text


def joined(
    form: str, markers: Sequence[str] = (), between: str = "\n", around: str = "{}", name: str = ""
) -> Callable[[Sequence[Call]], str]:
    """Return a writer of calls by `form` ({call}, {name}, {json_name}, {arguments}, {index}), joined, inside `around`.

    `name`: what a name that stands outside of JSON may look like; ValueError for another.
    """
    allowed = re.compile(name)
    before, after = around.split("{}")

    def write(calls: Sequence[Call]) -> str:
        parts = []
        for index, call in enumerate(calls):
            if name and not allowed.fullmatch(call.name):
                raise ValueError(f"the name {quote(call.name)} cannot be written in this dialect")
            values = {
                "{index}": lambda index=index: str(index),
                "{name}": lambda call=call: call.name,
                "{json_name}": lambda call=call: dump(call.name, markers),
                "{call}": lambda call=call: dump({"name": call.name, "arguments": call.arguments}, markers),
                "{arguments}": lambda call=call: dump(call.arguments, markers),
            }
            parts.append(_FIELD.sub(lambda field, values=values: values[field[0]](), form))
        return before + between.join(parts) + after

    return write


def write_openai(calls: Sequence[Call]) -> str:
    """Write the `tool_calls` list of a message."""
    items = [
        {"id": f"call_{index}", "type": "function", "function": {"name": call.name, "arguments": dump(call.arguments)}}
        for index, call in enumerate(calls)
    ]
    return dump(items)
