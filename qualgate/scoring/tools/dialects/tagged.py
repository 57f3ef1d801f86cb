"""Calls written between tags, one pair of tags an argument: see `elements`, and DSML and XTML, which say the types.

Such text has no types; a value gets its type from the tool's schema, as the reference parsers do. Of several types the
first that the text can be is taken, in the order null, integer, number, boolean, object, array, string (vLLM's).
A value that can be none of them stays text, and so fails the schema. What has no schema is text (Qwen, MiniMax: vLLM
and SGLang alike) or, with `guess`, JSON where it is JSON (GLM, Hunyuan: SGLang).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_json

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FIELD = re.compile(r"\{(key|value|text|type|index)\}")
_ALIASES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}
_MAX_SCHEMA_DEPTH = 8


def tool_names(tools: Tools) -> frozenset[str]:
    """Return the names of the offered tools, OpenAI's `function` unwrapped."""
    functions = [tool.get("function", tool) for tool in tools]
    return frozenset(
        str(function["name"]) for function in functions if isinstance(function, dict) and "name" in function
    )


def properties(tools: Tools, name: str) -> dict[str, Any]:
    """Return the schema of each argument of the tool `name`; {} if it declares none."""
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, dict) and function.get("name") == name:
            schema = function.get("parameters")
            arguments = schema.get("properties") if isinstance(schema, dict) else None
            return arguments if isinstance(arguments, dict) else {}
    return {}


def types(schema: Any, depth: int = 0) -> frozenset[str]:
    """Return the JSON types that `schema` allows by `type`, `enum`, `const` and its branches."""
    if not isinstance(schema, dict) or depth > _MAX_SCHEMA_DEPTH:
        return frozenset()
    declared = schema.get("type")
    type_names = {kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)}
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    type_names |= {_type(value) for value in (*values, *([schema["const"]] if "const" in schema else []))}
    for branch in ("anyOf", "oneOf", "allOf"):
        for choice in schema[branch] if isinstance(schema.get(branch), list) else ():
            type_names |= types(choice, depth + 1)
    return frozenset(_ALIASES.get(kind.lower(), kind.lower()) for kind in type_names)


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def typed(text: str, schema: Any, guess: bool = False) -> Any:
    """Convert `text` to the value it stands for under its argument's `schema` (None: not known)."""
    type_names = types(schema)
    if not type_names:
        return _json_or_text(text) if guess else text
    stripped = text.strip()
    if "null" in type_names and stripped.lower() == "null":
        return None
    if type_names & {"integer", "number"} and _INTEGER.fullmatch(stripped) and len(stripped) <= 400:
        return int(stripped)
    if "number" in type_names and _NUMBER.fullmatch(stripped) and abs(number := float(stripped)) != float("inf"):
        return number
    if "boolean" in type_names and stripped.lower() in ("true", "false", "1", "0"):
        return stripped.lower() in ("true", "1")
    if type_names & {"object", "array"} and stripped[:1] in ("{", "["):
        value = _json_or_text(text)
        if not isinstance(value, str):
            return value
    return text if "string" in type_names else _json_or_text(text)


def _json_or_text(text: str) -> Any:
    try:
        return read_json(text)
    except BadCall:
        return text


def reader(
    head: str, tail: str, pair: str, guess: bool = False, declared: bool = False, plain: Callable[[str], str] = str
) -> Callable[[str, Tools], list[Call]]:
    """Return a reader of `head` (group `name`), pairs (`key`, `value`), `tail`; patterns never backtrack into text.

    declared: a pair itself declares text (the group `text` matched) or JSON. plain: decodes a value.
    """
    # Without the blanks before it: searched for, those of a long value would be looked at from each of them.
    opening = re.compile(pair.partition("(?P<value>")[0].removeprefix(r"\s*"), re.DOTALL)
    heading, pairs, ending = (re.compile(pattern, re.DOTALL) for pattern in (head, pair, rf"\s*{tail}\s*\Z"))

    def read(text: str, tools: Tools) -> list[Call]:
        begin = heading.match(text)
        if not begin:
            raise BadCall("call_shape", f"{quote(text)} does not begin with a name")
        name, position, arguments = begin["name"].strip(), begin.end(), {}
        schemas = properties(tools, name)
        while match := pairs.match(text, position):
            key, value, position = match["key"].strip(), match["value"], match.end()
            if opening.search(value):
                raise BadCall("unbalanced", f"the argument {quote(key)} is not closed before another begins")
            if key in arguments:
                raise BadCall("duplicate_key", f"the argument {quote(key)} twice in one call")
            if declared:
                arguments[key] = value if match["text"] else read_json(value)
            else:
                arguments[key] = typed(plain(value), schemas.get(key), guess)
        if not ending.match(text, position):
            after = text[position:].strip()
            opened = after.startswith("<") or not after
            raise BadCall("unbalanced" if opened else "stray_text", f"{quote(after)} after {len(arguments)} arguments")
        return [Call(name, arguments)]

    return read


def writer(
    head: str,
    pair: str,
    tail: str,
    markers: Sequence[str],
    around: tuple[str, str] = ("", ""),
    between: str = "\n",
    named: str = ".*",
    plain: Callable[[str], str] = str,
) -> Callable[[Sequence[Call]], str]:
    """Return a writer as templates write: strings as they are, all else as JSON. ValueError for a marker in a value and
    for a text that `plain` would decode to another one.

    Forms hold {key} (of `head`: the name), {value}, {text} (whether the value is text), {type}, {index} (from 1).
    named: what names and keys may look like.
    """
    allowed = re.compile(named, re.DOTALL)

    def fill(form: str, key: str, value: Any, index: int = 0) -> str:
        """Fill a form with one argument, or with the name as `key`. ValueError if it would be read as another."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        marked = any(marker in part for part in (key, text) for marker in markers)
        if marked or key != key.strip() or plain(text) != text or not key or not allowed.fullmatch(key):
            raise ValueError(f"{quote(key)} or its value cannot be written in this dialect")
        kind = _type(value).replace("integer", "number")
        values = {"key": key, "value": text, "text": str(kind == "string").lower(), "type": kind, "index": str(index)}
        return _FIELD.sub(lambda field: values[field[1]], form)

    def write_call(index: int, call: Call) -> str:
        pairs = (fill(pair, key, value) for key, value in call.arguments.items())
        return fill(head, call.name, "", index) + "".join(pairs) + tail

    return lambda calls: around[0] + between.join(map(write_call, range(1, len(calls) + 1), calls)) + around[1]
