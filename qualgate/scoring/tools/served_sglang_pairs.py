"""SGLang's parsers of Kimi K3's, K2 Horizon's and Inkling's calls: what each makes of a finished answer, in our own
words (`served_sglang`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Tools
from qualgate.scoring.tools.served_pairs import k3_calls
from qualgate.scoring.tools.served_sglang_values import (
    SERVER,
    Named,
    all_or_none,
    inferred,
    no_constant,
    offered,
    parameters,
    properties,
    standard,
)

_THOUGHTS = re.compile(r"\s*<ifm\|(think(?:_fast|_faster)?)>(.*?)</ifm\|\1>", re.DOTALL)
_THOUGHT = re.compile(r"\s*<ifm\|think(?:_fast|_faster)?>")
_CALL = re.compile(r"<ifm\|tool_call>(.*?)</ifm\|tool_call>", re.DOTALL)
_PAIR = re.compile(
    r"\s*<ifm\|arg_key>(.*?)</ifm\|arg_key>\s*(?:<ifm\|arg_type>(.*?)</ifm\|arg_type>\s*)?"
    r"<ifm\|arg_value>(.*?)</ifm\|arg_value>",
    re.DOTALL,
)


def _k2(text: str, tools: Tools) -> Iterator[Named]:
    """Behind the thoughts that it begins with: the first frame that is closed, if nothing in it is out of place; else
    closed calls, those that are amiss passed over."""
    at = 0
    while thought := _THOUGHTS.match(text, at):
        at = thought.end()
    if _THOUGHT.match(text, at):  # never closed
        return
    text = text[at:]
    frame, closed, _ = text.partition("<ifm|tool_calls>")[2].partition("</ifm|tool_calls>")
    if closed and _CALL.sub("", frame).strip():
        return
    for block in _CALL.findall(frame if closed else text):
        try:
            calls = _of_json(block.strip(), tools) if block.strip()[:1] in ("{", "[") else [_of_pairs(block, tools)]
        except (TypeError, ValueError):
            if closed:
                raise
            continue
        for name, given in calls:
            yield from offered({"name": name, "arguments": given}, tools)


def _of_json(block: str, tools: Tools) -> list[Named]:
    """An object, or a list of them, wrapped as OpenAI's or not. ValueError, or TypeError, for what is no call."""
    value, found = json.loads(block), []
    for one in value if isinstance(value, list) else [value]:
        function = one.get("function", one) if isinstance(one, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not name or not isinstance(name, str):
            raise ValueError("no call")
        given = function.get("arguments", function.get("parameters", {}))
        if isinstance(given, str):
            given = json.loads(given) if given.strip() else {}
        if not isinstance(given, dict | None):
            raise ValueError("no object of arguments")
        schema = parameters(tools, name)
        kinds = {key: _kind(schema, key) or "any" for key in given or ()}
        found.append((name, {key: _k2_value(value, kinds[key]) for key, value in (given or {}).items()}))
    return found


def _of_pairs(block: str, tools: Tools) -> Named:
    """A name, and pairs with nothing between; a value may say its type, where the schema does not. ValueError for what
    is out of place."""
    name, mark, rest = block.partition("<ifm|arg_key>")
    name, rest, given, at = name.strip(), mark + rest, {}, 0
    if not name:
        raise ValueError("no name")
    end = rest.rfind("</ifm|arg_value>") + len("</ifm|arg_value>")  # a value that is not closed is not looked for
    while pair := _PAIR.match(rest, at, end):
        if not (key := pair[1].strip()):
            raise ValueError("no key")
        kind = _kind(parameters(tools, name), key) or (pair[2].strip() if pair[2] else None)
        given[key] = _k2_value(pair[3], kind)
        at = pair.end()
    if rest[at:].strip():
        raise ValueError("not pairs alone")
    return name, given


def _kind(schema: Any, key: str) -> str | None:
    """The one type that the schema has for an argument; None of several."""
    one = _resolved(properties(schema).get(key), schema)
    kind = standard(one.get("type")) if one else None
    if not one or one.keys() & {"anyOf", "oneOf"} or (isinstance(kind, list) and len({*kind} - {"null"}) > 1):
        return None
    return inferred(one)


def _resolved(schema: Any, root: Any) -> dict[str, Any] | None:
    """A schema with what it refers to, its own words before those; None for a circle."""
    seen, found = set(), schema if isinstance(schema, dict) else None
    while found and isinstance(reference := found.get("$ref"), str):
        where, _, name = reference.removeprefix("#/").partition("/")
        target = root.get(where, {}) if reference.startswith("#/") and where in ("$defs", "definitions") else {}
        target = target.get(name) if isinstance(target, dict) else None
        if reference in seen:
            return None
        if not isinstance(target, dict):
            break
        seen.add(reference)
        found = target | {key: value for key, value in found.items() if key != "$ref"}
    return found


def _k2_value(value: Any, kind: str | None) -> Any:
    """Text as JSON, where the type is not text; of a value that is JSON already only that is made text, where it
    should be."""
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if kind == "any" or not isinstance(value, str):
        return value
    try:
        return json.loads(value.strip())
    except json.JSONDecodeError:
        return value


_JSON, _TEXT, _END = "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|end_message|>"
_INVOKED = re.compile(f"({re.escape(_JSON)}|{re.escape(_TEXT)})(.*?)({re.escape(_END)}|\\Z)", re.DOTALL)
_CONTROL = re.compile(
    r"<\|(?:endoftext|end_message|audio_end|model_trigger_generation|message_(?:user|model|system|tool)"
    r"|content_(?:text|image|model_end_sampling|thinking|audio_input|tool_error|xml|invoke_tool(?:_json|_text)?))\|>"
)


def _inkling(text: str, tools: Tools) -> list[Named]:
    """Every message that invokes, whatever its tool; where one is amiss, the last object alone, if that is a call."""
    found: list[Named] = []
    for mark, body, end in _INVOKED.findall(text):
        call = ("", {"text": _cleaned(body)}) if mark == _TEXT else _invoked(body, no_constant)
        if not end or call is None:
            last = text.rpartition(_JSON)
            call = _invoked(_cleaned(last[2].partition(_END)[0])) if last[1] else None
            return [call] if call and call[0] else []
        found.append(call)
    return found


def _cleaned(text: str) -> str:
    """Without marks. BadCall where one stands within another: which of them goes first is the process's chance."""
    cleaned = _CONTROL.sub("", text)
    if left := _CONTROL.search(cleaned):
        raise BadCall("no_served_reading", f"{SERVER} reads a mark within a mark ({left[0]}) now so, now otherwise")
    return cleaned


def _invoked(body: str, constant: Any = None) -> Named | None:
    """constant: what becomes of NaN and Infinity. None for what is no object of a name and arguments."""
    try:
        value = json.loads(body.strip(), parse_constant=constant)
    except ValueError:
        return None
    name, given = (value.get("name"), value.get("args")) if isinstance(value, dict) else (None, None)
    return (name, given) if isinstance(name, str) and isinstance(given, dict) else None


KIMI_K3, K2_HORIZON = all_or_none(lambda text, tools: k3_calls(text)), all_or_none(_k2)
INKLING = all_or_none(_inkling)
