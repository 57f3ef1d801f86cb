"""What a server makes of calls that are elements of XML, or nearly, in our own words (`served_parsers`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.tagged import properties, tool_names
from qualgate.scoring.tools.served_json import FAULTS
from qualgate.scoring.tools.served_values import allowed, coerced, executed, first_of, json_or_literal, lenient

_INVOKED = re.compile(r"<invoke\s+name\s*=([^>]+)>(.*?)</invoke>", re.DOTALL)
_PAIR = re.compile(r"<parameter\s+name\s*=([^>]+)>(.*?)</parameter>", re.DOTALL)


def dots(text: str, tools: Tools) -> Iterator[Call]:
    """Blocks that are closed, of invocations or of an object; only of tools that are offered."""
    offered = tool_names(tools)
    for block in dots_blocks(text):
        if block.startswith("<invoke"):
            calls = [(name, _dots_arguments(pairs, name, tools)) for name, pairs in dots_invoked(block)]
        else:
            try:
                value = lenient(block)
            except ValueError:
                continue
            value = value if isinstance(value, dict) else {}
            calls = [(value.get("name"), value.get("arguments", value.get("parameters", {})) or {})]
        for name, arguments in calls:
            if isinstance(name, str) and name in offered and isinstance(arguments, dict):
                yield executed(name, arguments)


def dots_blocks(text: str) -> list[str]:
    """What is in closed blocks."""
    return list(map(str.strip, re.findall(r"<dots_function_call>(.*?)</dots_function_call>", text, re.DOTALL)))


def dots_invoked(block: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Names of a block's invocations, each with its pairs."""
    for name, body in _INVOKED.findall(block):
        yield _bare(name), [(_bare(key), value.strip()) for key, value in _PAIR.findall(body)]


def _bare(name: str) -> str:
    name = name.strip()
    return name[1:-1] if len(name) >= 2 and name[0] == name[-1] and name[0] in "\"'" else name


def _dots_arguments(pairs: list[tuple[str, str]], name: str, tools: Tools) -> dict[str, Any]:
    defs = _parameters(tools, name).get("$defs")
    known = properties(tools, name)
    defs = defs if isinstance(defs, dict) else {}
    return {key: dots_value(value, dots_type(known.get(key), defs) or "string", lenient) for key, value in pairs}


def _parameters(tools: Tools, name: str) -> dict[str, Any]:
    functions = (tool.get("function", tool) for tool in tools)
    found = next((one.get("parameters") for one in functions if one.get("name") == name), None)
    return found if isinstance(found, dict) else {}


def dots_type(schema: Any, defs: dict[str, Any], depth: int = 0) -> Any:
    """A schema's own type, or the first that it refers to or allows."""
    if not isinstance(schema, dict) or depth > 10:
        return None
    if "type" in schema:
        return schema["type"]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return dots_type(defs.get(reference.rsplit("/", 1)[-1]), defs, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        for choice in schema[word] if isinstance(schema.get(word), list) else ():
            null = isinstance(choice, dict) and choice.get("type") == "null"
            if not null and (found := dots_type(choice, defs, depth + 1)) is not None:
                return found
    return None


def dots_value(text: str, kind: Any, read: Callable[[str], Any]) -> Any:
    """A text by its type: text, a number, what is no `true` false; of every other what `read` makes of it, JSON."""
    if text.lower() == "null":
        return None
    kind = str(next((one for one in kind if one != "null"), "string") if isinstance(kind, list) else kind).lower()
    if kind in ("string", "str", "text"):
        return text
    if kind in ("boolean", "bool"):
        return text.lower() in ("true", "1")
    try:
        if kind in ("integer", "int"):
            return int(text)
        if kind in ("number", "float"):
            number = float(text)
            return int(number) if number.is_integer() else number
        return read(text)
    except ValueError:
        return text


_SPACE = "]<]minimax[>["
_MAX_DEPTH = 128
_Element = str | list[tuple[str, Any]]


def minimax_m3(text: str, tools: Tools) -> Iterator[Call]:
    """Every invocation behind the first frame; of its elements those before one that is not closed."""
    _, _, rest = text.partition(f"{_SPACE}<tool_call>")
    space = re.escape(_SPACE)
    mark = rf"{space}<(?:/?tool_call>|invoke name=[\"']?|/invoke>)"  # in a name, text
    name = rf"((?:{mark}|(?![\"']?>).)*+)"
    invoked = re.compile(rf"{space}<invoke name=[\"']?{name}(?:[\"']?>(.*?)(?:{space}</invoke>|\Z))?", re.DOTALL)
    calls = [(name.strip(), body) for name, body in invoked.findall(rest)]
    for name, body in calls:
        if name:
            known = properties(tools, next(first for first, same in calls if same == body))  # as the server has it
            found = _fields(_children(body), {"properties": known})
            yield executed(name, coerced(found, properties(tools, name)))


def _children(body: str) -> list[tuple[str, _Element]]:
    found, at = [], 0
    while (at := _past_blank(body, at)) < len(body) and (element := _element(body, at, 1)):
        name, value, at = element
        found.append((name, value))
    return found


def _past_blank(text: str, at: int) -> int:
    blank = re.compile(r"\s*").match(text, at)
    assert blank is not None, "it may be empty"
    return blank.end()


_OPEN = re.compile(rf"{re.escape(_SPACE)}<([^>]+)>")


def _element(text: str, at: int, depth: int) -> tuple[str, _Element, int] | None:
    """Name, value and end of the element at `at`; None where there is none, or it is not closed."""
    begin = _OPEN.match(text, at)
    if begin is None or depth > _MAX_DEPTH or begin[1].startswith("/") or not begin[1].strip():
        return None
    name, at = begin[1], begin.end()
    close, said, children = f"{_SPACE}</{name}>", "", []
    while (mark := text.find(_SPACE, at)) >= 0:
        said += text[at:mark]
        if text.startswith(close, mark):
            field = "$text"
            while any(field == one for one, _ in children):
                field = "$" + field
            mixed = [(field, said)] if said.strip() else []
            return name, [*children, *mixed] if children else said, mark + len(close)
        if (child := _element(text, mark, depth + 1)) is None:
            return None
        *pair, at = child
        children.append(tuple(pair))
    return None


def _container(schema: Any) -> tuple[str, dict[str, Any]] | None:
    """The first list or object that a schema allows."""
    if not isinstance(schema, dict):
        return None
    declared = schema.get("type")
    for kind in ("array", "object"):
        if declared == kind or (isinstance(declared, list) and kind in declared):
            return kind, schema
    if declared is None and "items" in schema:
        return "array", schema
    if declared is None and ("properties" in schema or "additionalProperties" in schema):
        return "object", schema
    choices = (choice for word in ("anyOf", "oneOf") for choice in schema.get(word) or ())
    return next(filter(None, map(_container, choices)), None)


def _m3_value(value: _Element, schema: Any) -> Any:
    container = _container(schema)
    if isinstance(value, str):
        if not isinstance(schema, dict):
            return value
        if container and "string" not in allowed(schema) and not value.strip():
            return [] if container[0] == "array" else {}
        return first_of(value, allowed(schema))
    if container and container[0] == "array":
        return [_m3_value(child, container[1].get("items")) for _, child in value]
    return _fields(value, container[1] if container else {})


def _fields(elements: list[tuple[str, _Element]], schema: dict[str, Any]) -> dict[str, Any]:
    """An object; what is named again becomes a list."""
    known, other = schema.get("properties") or {}, schema.get("additionalProperties")
    found: dict[str, list[Any]] = {}
    for name, value in elements:
        found.setdefault(name, []).append(_m3_value(value, known.get(name, other)))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


# MiniCPM5's names of a benchmark's tools, where they are not offered and others are: to which of those the server gives
# the call, and by argument whose value it takes for it, the first that says something.
_BY_LINE = {"id": ("line_id", "id")}
_BIRTH, _LINE = ("date_of_birth", "dob"), {"line_id": ("line_id", "id")}
_REFUEL = _LINE | {"amount_gb": ("amount_gb", "gb", "gb_amount", "amount")}
_RENAMED: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "get_details_by_phone": ("get_customer_by_phone", {"phone_number": ("phone_number", "phone")}),
    "get_details_by_name": (
        "get_customer_by_name", {"full_name": ("full_name", "name"), "date_of_birth": _BIRTH, "dob": _BIRTH}
    ),
    "get_line_details": ("get_details_by_id", _BY_LINE),
    "get_line_status": ("get_details_by_id", _BY_LINE),
    "get_roaming_status": ("get_details_by_id", _BY_LINE),
    "get_plan_details": ("get_details_by_id", {"id": ("plan_id", "id")}),
    "enable_roaming": ("toggle_roaming", _LINE),
    "disable_roaming": ("toggle_roaming", _LINE),
    "add_refueled_data": ("refuel_data", _REFUEL),
    "add_data_to_line": ("refuel_data", _REFUEL),
}  # fmt: skip


def minicpm5(text: str, tools: Tools) -> Iterator[Call]:
    """Closed functions that are offered, with all that they need; as XML, or by their marks where they are none."""
    if any(one in text for one in ("\u0120", "\u010a", "<functionname=", "<paramname=")):  # blanks of a tokenizer
        text = text.replace("\u0120", " ").replace("\u010a", "\n")
        text = text.replace("<functionname=", "<function name=").replace("<paramname=", "<param name=")
    offered, calls = tool_names(tools), []
    try:
        for block in re.findall(r"<function.*?</function>", text, re.DOTALL):
            name, pairs = _of_xml(block) or of_marks(block)
            given = _minicpm_arguments(name, pairs, tools) if name in offered or name in _RENAMED else None
            if given is not None and name not in offered:
                name, given = _renamed(name, given, offered)
            if given is not None and all(key in given for key in _required(tools, name)):
                calls.append((name, lenient(json.dumps(given))))
    except BadCall:
        raise
    except FAULTS:
        return
    yield from (executed(name, given) for name, given in calls)


def _renamed(name: str, given: dict[str, Any], offered: frozenset[str]) -> tuple[str, dict[str, Any] | None]:
    """The call that the server makes of one by another name; None where it makes none."""
    target, taken = _RENAMED[name]
    chosen = {key: next(filter(None, map(given.get, names)), given.get(names[-1])) for key, names in taken.items()}
    found = {key: value for key, value in chosen.items() if value is not None}
    if target == "toggle_roaming" and found:
        found["enabled"] = name == "enable_roaming"
    elif target == "refuel_data" and "customer_id" in given:
        found["customer_id"] = given["customer_id"]
    return target, found if found and target in offered else None


def _required(tools: Tools, name: str) -> list[str]:
    needed = _parameters(tools, name).get("required", [])
    return needed if isinstance(needed, list) else []


_Pairs = list[tuple[str | None, str]]  # None: one without a name


def _of_xml(block: str) -> tuple[str, _Pairs] | None:
    try:
        root = ElementTree.fromstring(block)  # a block begins with its element: it declares no entity
    except (ElementTree.ParseError, ValueError):
        return None
    function = root if root.tag == "function" else root.find("function")
    if function is None or not (name := (function.get("name") or "").strip()):
        return None
    nodes = function.findall("param") or function.findall("arguments[1]/param")
    return name, [(node.get("name") or None, node.text or "") for node in nodes]


def of_marks(block: str) -> tuple[str, _Pairs]:
    """A function's name, "" without one, and its pairs, as their marks say."""
    name = re.search(r"<function\s+name=['\"]([^'\"]+)['\"][^>]*>", block)
    pairs: _Pairs = [
        (key.strip(), value[9:-3] if value.startswith("<![CDATA[") and value.endswith("]]>") else value.strip())
        for key, value in re.findall(r"<param\s+name=['\"]([^'\"]+)['\"]>([\s\S]*?)</param>", block)
    ]
    nameless = re.search(r"<param(?![^>]*\bname=)[^>]*>", block)
    return name[1].strip() if name else "", [*pairs, (None, "")] if nameless else pairs


def _minicpm_arguments(name: str, pairs: _Pairs, tools: Tools) -> dict[str, Any] | None:
    """What is known of what is given; None where a name lacks or is said twice."""
    known, given = properties(tools, name), {}
    for key, text in pairs:
        inner = {key: text}
        if known and key in ("properties", "arguments") and key not in known:
            inner = json_or_literal(text)
            if not isinstance(inner, dict) or not inner.keys() & known.keys():
                return None
        for one, value in inner.items():
            if (not one and one is key) or one in given:
                return None
            if not known or one in known:
                kind = known[one].get("type") if one in known else None
                given[one] = _minicpm_value(value, kind)
    return given


def _minicpm_value(value: Any, kind: Any) -> Any:
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json_or_literal(value) if isinstance(value, str) else value
