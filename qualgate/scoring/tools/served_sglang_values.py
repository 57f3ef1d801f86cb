"""What SGLang 0.5.23 makes of an argument by its schema, before it is executed: what its parsers do, in our own words.

Its server first rewrites types that are none of JSON Schema's (`int32`, `varchar(9)`, `dict[str, int]`) to those that
are. Each parser then types in a way of its own; what none of them can type stays text.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.served_json import Reader
from qualgate.scoring.tools.served_values import MOST_LITERAL, executed

SERVER = "SGLang 0.5.23"
_MAX_DEPTH = 32
_STANDARD = ("null", "boolean", "object", "array", "number", "string", "integer")
_ALIASES = {one: one for one in _STANDARD} | {
    alias: kind
    for kind, aliases in {
        "string": "str text varchar char enum uuid date datetime time timestamp binary blob bytea bytes varbinary",
        "boolean": "bool",
        "integer": "bigint smallint tinyint",
        "number": "double decimal real numeric",
        "array": "arr tuple set",
        "object": "map",
    }.items()
    for alias in aliases.split()
}
_BEGUN = re.compile(r"(?:(int|uint|long|short|unsigned)|(num|float)|(list)|dict)(?=[0-9\[<( \t]|\Z)")
_OF_PYTHON = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
FAULTS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError, MemoryError,
    SyntaxError,
)  # fmt: skip

Named = tuple[Any, Any]  # a function's name and its arguments


def all_or_none(found: Callable[[str, Tools], Iterable[Named]], without_tools: bool = False) -> Reader:
    """found: names and arguments of a text; whatever it raises, and nothing is called.

    without_tools: whether anything is called where no tool is offered.
    """

    def read(text: str, tools: Tools) -> Iterator[Call]:
        try:
            calls = list(found(text, tools)) if tools or without_tools else []
        except BadCall:  # what is not read here
            raise
        except FAULTS:
            return
        for name, arguments in calls:
            yield executed(name, arguments, SERVER)

    return read


def offered(action: Any, tools: Tools) -> Iterator[Named]:
    """An object's call, or those of a list: of tools that are offered alone, with `parameters` before `arguments`."""
    names = {function_of(tool).get("name") for tool in tools}
    for one in action if isinstance(action, list) else [action]:
        name = one.get("name")
        if name and name in names:
            yield name, one.get("parameters") or one.get("arguments", {})


def function_of(tool: Any) -> dict[str, Any]:
    """A tool as it is offered, OpenAI's `function` unwrapped."""
    function = tool.get("function", tool)
    return function if isinstance(function, dict) else {}


def parameters(tools: Tools, name: str) -> Any:
    """The schema of a tool's arguments; None of one that is not offered."""
    return next((one.get("parameters") for tool in tools if (one := function_of(tool)).get("name") == name), None)


def properties(schema: Any, depth: int = 0) -> dict[str, Any]:
    """Schemas of the arguments: of its branches, where the schema has none of its own."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    if isinstance(schema.get("properties"), dict):
        return schema["properties"]
    found: dict[str, Any] = {}
    for branch in ("anyOf", "oneOf", "allOf"):
        for one in schema[branch] if isinstance(schema.get(branch), list) else ():
            found = properties(one, depth + 1) | found
    return found


def standard(kind: Any) -> Any:
    """A `type` as the server rewrites it, or those of a list; another that it does not know stays."""
    if isinstance(kind, list):
        return [standard(one) for one in kind]
    if not isinstance(kind, str) or kind in _STANDARD:
        return kind
    base = kind.partition("(")[0].strip().lower()
    if base in _ALIASES:
        return _ALIASES[base]
    begun = _BEGUN.match(base)
    return ("integer", "number", "array", "object")[(begun.lastindex or 4) - 1] if begun else kind


def kind_of(value: Any) -> str:
    """The type of a value that JSON holds."""
    return _OF_PYTHON.get(type(value), "null")


def inferred(schema: Any, depth: int = 0) -> str | None:
    """The one type that a schema is taken for; None where it says nothing."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    declared = standard(schema.get("type"))
    if isinstance(declared, str):
        return declared
    if isinstance(declared, list) and declared:
        return next((kind for kind in declared if kind != "null"), "string")
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and (kinds := [kind for one in choices if (kind := inferred(one, depth + 1))]):
        others = [kind for kind in dict.fromkeys(kinds) if kind != "null" or len({*kinds}) != 2]
        return others[0] if len(others) == 1 or "string" not in others else "string"
    if isinstance(values := schema.get("enum"), list):
        kinds = list({kind_of(value) for value in values})
        return kinds[0] if len(kinds) == 1 else "string"
    if isinstance(branches := schema.get("allOf"), list):
        return next((kind for one in branches if (kind := inferred(one, depth + 1)) not in (None, "string")), "string")
    return "object" if "properties" in schema else "array" if "items" in schema else None


def literal(text: str, unread: tuple[type[Exception], ...] = (ValueError, SyntaxError)) -> Any:
    """A Python literal as it is handed on, a tuple as a list; text that is none.

    unread: what leaves it text; another error, and TypeError for a literal that JSON cannot hold, ends the reading.
    BadCall as of `evaluated`.
    """
    try:
        value = evaluated(text)
    except BadCall:  # what is not read here
        raise
    except unread:
        return text
    return json.loads(json.dumps(value))


def evaluated(text: str) -> Any:
    """A Python literal's value. What `ast.literal_eval` raises for text that is none; BadCall `too_much` for one that
    is too long for it."""
    if len(text) > MOST_LITERAL:
        raise BadCall(
            "too_much", f"{len(text):,} characters may be a Python literal, and are too many to be read as one"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know
        return ast.literal_eval(text)


def by_inferred_type(text: str, kind: str) -> Any:
    """As Qwen3-Coder's parser types, which MiMo's follows: a boolean that is none is false."""
    if text.lower() == "null":
        return None
    if kind == "string":
        return text
    if kind == "boolean":
        return text.lower() == "true"
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            number = float(text)
            return int(number) if number.is_integer() and not re.search("[.eE]", text) else number
        if kind in ("object", "array"):
            return json.loads(text)
    except (ValueError, RecursionError):
        pass
    return text if kind in ("integer", "number") else literal(text, (Exception,))


def by_any_type(text: str, schema: Any) -> Any:
    """As MiniMax-M2's parser types: by the first of integer, number, boolean, object or array, string that the schema
    allows and the text can be; whatever may be null is null."""
    kinds = _kinds(schema)
    if "null" in kinds or text.lower() in ("null", "none", "nil"):
        return None
    if "integer" in kinds and (integer := _number(int, text)) is not None:
        return integer
    if "number" in kinds and (number := _number(float, text)) is not None and not math.isnan(number):
        return int(number) if number == int(number) else number  # an infinite one ends the reading
    if "boolean" in kinds and (bare := text.lower().strip()) in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return bare in ("true", "1", "yes", "on")
    if "string" in kinds and not kinds & {"object", "array"}:
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _kinds(schema: Any, depth: int = 0) -> frozenset[str]:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return frozenset({"string"})
    declared = standard(schema.get("type"))
    found = {kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)}
    if isinstance(values := schema.get("enum"), list):
        found |= {kind_of(value) for value in values}
    for branch in ("anyOf", "oneOf", "allOf"):
        for one in schema[branch] if isinstance(schema.get(branch), list) else ():
            found |= _kinds(one, depth + 1)
    return frozenset(found) or frozenset({"string"})


def _number(kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return None


def by_first_option(text: str, schema: Any) -> Any:
    """As Hunyuan's parser types: by the first of boolean, integer, number, JSON, text that the schema names.

    Errors for a schema that it fails at: one that is no object, or a `type` that is a list.
    """
    options = [schema] if "type" in schema else schema.get("anyOf", schema.get("oneOf", [{"type": "string"}]))
    kinds = frozenset({standard(one.get("type", "string")) for one in options}) - {"null"}
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "integer" in kinds and (integer := _number(int, text)) is not None:
        return integer
    if "number" in kinds and (number := _number(float if re.search("[.eE]", text) else int, text)) is not None:
        return number
    if kinds <= {"string", "boolean", "integer", "number"} and "string" in kinds:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_as_json(text: str, kind: str | None, numbers: dict[str, Callable[[str], Any]]) -> Any:
    """As GLM's parsers do: JSON, also one whose quotes are escaped; else text or a Python literal.

    numbers: by type, what makes a number of a string that the JSON is.
    """
    for unwrapped in (lambda: text, lambda: json.loads('{"tmp": "' + text + '"}')["tmp"]):
        try:
            value = json.loads(unwrapped())
        except (ValueError, KeyError):
            continue
        return numbers[kind](value) if kind in numbers and isinstance(value, str) else value
    if kind == "string":
        return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text
    return literal(text)


def number_or_text(text: str) -> Any:
    """A number, whole where it looks so."""
    number = _number(float if "." in text or "e" in text.lower() else int, text)
    return text if number is None else number


def integer_or_text(text: str) -> Any:
    """A whole number."""
    integer = _number(int, text)
    return text if integer is None else integer


def no_constant(text: str) -> Any:
    """For a reader of JSON that takes no NaN and no Infinity. ValueError."""
    raise ValueError(f"{text} is no JSON")
