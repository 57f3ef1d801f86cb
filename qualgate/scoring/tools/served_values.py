"""What vLLM 0.33.0 makes of an argument by its schema, before it is executed: not what the schema says, but what its
`coerce_to_schema_type` does, in our own words.

A value becomes the first of null, integer, number, boolean, object, array, string that its schema allows and it can be,
by Python's own `int` and `float` (`1_000` is 1000, `٣` is 3); where it can be none, JSON if it is JSON, else it stays
text. `const` and references say nothing; a schema that says nothing allows text alone.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.tools.dialects.call import BadCall, Call

SERVER = "vLLM 0.33.0"
_MAX_DEPTH = 32
MOST_LITERAL = 2_000  # characters
_ALIASES = (
    dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string")
    | dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short", "unsigned"), "integer")
    | dict.fromkeys(("float", "float32", "float64", "double"), "number")
    | {"bool": "boolean", "dict": "object", "arr": "array", "list": "array", "sequence": "array"}
)
_OF_ENUM = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def lenient(text: str) -> Any:
    """JSON as Python's reader takes it: of equal keys the last, NaN and Infinity too. ValueError for what is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def finite(value: Any) -> bool:
    """Whether `value`, read by `lenient`, can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def executed(name: str, arguments: Any, server: str = SERVER) -> Call:
    """The call that the server makes. BadCall where what it hands on is no object, or no JSON."""
    if not isinstance(arguments, dict):
        raise BadCall("call_shape", f"{server} executes a call without an object of arguments: {quote(arguments)}")
    if not finite(arguments):
        raise BadCall("call_shape", f"{server} executes arguments that are no JSON: {quote(arguments)}")
    return Call(name, arguments)


def coerced(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Each value as its schema in `known` makes it, inside of objects and lists, too."""
    return {key: _value(value, known[key]) if key in known else value for key, value in given.items()}


def _value(value: Any, schema: Any, depth: int = 0) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        known = schema.get("properties")
        known = known if isinstance(known, dict) else {}
        return {key: _value(inner, known[key], depth + 1) if key in known else inner for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, schema.get("items"), depth + 1) for inner in value]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return first_of(text, allowed(schema))


def allowed(schema: Any, depth: int = 0) -> frozenset[str]:
    """The types that a schema allows, for all that it says; text without any."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return frozenset({"string"})
    declared = schema.get("type")
    found = {kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)}
    values = schema.get("enum")
    found |= {_OF_ENUM.get(type(value), "null") for value in (values if isinstance(values, list) else ())}
    for branch in ("anyOf", "oneOf", "allOf"):
        for choice in schema[branch] if isinstance(schema.get(branch), list) else ():
            found |= allowed(choice, depth + 1)
    names = (kind.strip().lower() for kind in found)
    return frozenset(_ALIASES.get(name, name) for name in names) or frozenset({"string"})


def first_of(text: str, kinds: frozenset[str]) -> Any:
    """The first kind that `text` can be."""
    if "null" in kinds and text.lower() == "null":
        return None
    if "integer" in kinds and (integer := _number(int, text)) is not None:
        return integer
    if "number" in kinds and (integer := _number(int, text)) is not None:
        return integer  # which a float would round
    if "number" in kinds and (number := _number(float, text)) is not None and math.isfinite(number):
        return int(number) if number == int(number) else number
    if "boolean" in kinds and (bare := text.lower().strip()) in ("true", "1", "false", "0"):
        return bare in ("true", "1")
    if "string" in kinds and not kinds & {"object", "array"}:
        return text
    try:
        found = lenient(text)
    except ValueError:
        return text
    return found if finite(found) else text


def _number(kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None


def by_first_type(text: str, schema: Any) -> Any:
    """What Hunyuan's parsers make of an argument: the first of boolean, integer, number, JSON, text that its schema's
    own types allow and it can be. Null is none of them; where none fits, JSON or a Python literal if it is one.
    TypeError for a schema that they fail at.
    """
    if not isinstance(schema, dict):
        raise TypeError("a schema of theirs is an object")
    declared = schema.get("type", schema.get("anyOf", schema.get("oneOf", "string")))
    options = [declared] if isinstance(declared, str) else declared
    named = [one.get("type", "string") if isinstance(one, dict) else one for one in options]
    kinds = {_normalized(one) for one in named if isinstance(one, str)} - {"null"}
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "integer" in kinds and (integer := _number(int, text)) is not None:
        return integer
    if "number" in kinds:
        number = _number(float if re.search("[.eE]", text) else int, text)
        if number is not None:
            return number
    if kinds - {"string", "boolean", "integer", "number"}:
        try:
            return lenient(text)
        except ValueError:
            pass
    return text if "string" in kinds else json_or_literal(text)


def _normalized(kind: str) -> str:
    if kind in _HUNYUAN:
        return _HUNYUAN[kind]
    low = kind.lower()
    if low.startswith(("int", "uint", "long", "short", "unsigned")):
        return "integer"
    return "number" if low.startswith(("num", "float")) else kind


_HUNYUAN = dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string") | {
    "bool": "boolean", "binary": "boolean", "int": "integer", "float": "number", "double": "number", "list": "array",
    "dict": "object", "map": "object",
}  # fmt: skip


def json_or_literal(text: str) -> Any:
    """JSON, or a Python literal, or text. TypeError for a literal that cannot be JSON."""
    try:
        return lenient(text)
    except ValueError:
        pass
    if len(text) > MOST_LITERAL:
        raise BadCall(
            "too_much", f"{len(text):,} characters may be a Python literal, and are too many to be read as one"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes and numbers as Python will not read them one day
            return lenient(json.dumps(ast.literal_eval(text)))  # a tuple is handed on as a list
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
