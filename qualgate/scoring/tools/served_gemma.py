"""What a server makes of Gemma's calls, in our own words (`served_parsers`): every value is text until its schema, or
JSON, says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.tagged import properties
from qualgate.scoring.tools.served_json import FAULTS
from qualgate.scoring.tools.served_values import coerced, executed, lenient

_MARK = '<|"|>'
_MAX_DEPTH = 32  # of brackets; each takes as long as the text
_CALL = re.compile(
    r"<\|tool_call>[^:]*?(?:<tool_call\|>|:(.*?)(?:<tool_call\|>|[{(](.*?)(?:<tool_call\|>|\Z)|\Z))", re.DOTALL
)
_BLANK = re.compile(r"[ ,\n\t]*")
_KEY = re.compile(r"([^:]*):[ \n\t]*")
_TEXT = re.compile(rf"{re.escape(_MARK)}(.*?)(?:{re.escape(_MARK)}|\Z)", re.DOTALL)
_BARE = re.compile(r"[^,}\]]+")
_BRACKETS = {kind: re.compile(rf"{re.escape(_MARK)}.*?(?:{re.escape(_MARK)}|\Z)|[{re.escape(kind)}]", re.DOTALL)
             for kind in ("{}", "[]")}  # fmt: skip


def gemma4(text: str, tools: Tools) -> Iterator[Call]:
    """Calls between tokens, of which the last may be open; a value that is not closed is read as far as it goes."""
    for name, body in _CALL.findall(text):
        if name := name.strip():
            body = body.strip()
            if body.endswith("}") or (body.endswith(")") and body.count("(") < body.count(")")):
                body = body[:-1]
            yield executed(name, coerced(_object(body), properties(tools, name)))


def _object(text: str, cut: bool = False, depth: int = 0) -> dict[str, Any]:
    """Keys and values; what stands bare at the end of a text that was cut is left out."""
    found: dict[str, Any] = {}
    at = _past(text, 0)
    while key := _KEY.match(text, at):
        name, at = key[1].strip(), key.end()
        if name.startswith(_MARK) and name.endswith(_MARK):
            name = name[len(_MARK) : -len(_MARK)]
        if at == len(text):
            return found if cut else found | {name: ""}
        value, at = _value(text, at, cut, depth, _BARE)
        if value is None:
            break
        found[name] = value
        at = _past(text, at)
    return found


def _list(text: str, cut: bool, depth: int) -> list[Any]:
    found, at = [], _past(text, 0)
    while at < len(text):
        value, at = _value(text, at, cut, depth, _ITEM)
        if value is None:
            break
        found.append(value)
        at = _past(text, at)
    return found


_ITEM = re.compile(r"[^,\]]+")


def _past(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None, "it may be empty"
    return blank.end()


def _value(text: str, at: int, cut: bool, depth: int, bare: re.Pattern[str]) -> tuple[Any, int]:
    """The value at `at`, and where it ends; None for what is none, or may go on."""
    if string := _TEXT.match(text, at):
        return string[1], string.end()
    if text[at] in "{[":
        inner, end, open = _within(text, at, depth)
        return (_object if text[at] == "{" else _list)(inner, open, depth + 1), end
    raw = bare.match(text, at)
    if raw is None or (cut and (raw.end() == len(text) or raw[0].strip().endswith("."))):
        return None, at
    return raw[0].strip(), raw.end()


def _within(text: str, at: int, depth: int) -> tuple[str, int, bool]:
    """What the bracket at `at` holds, where it ends, and whether it is open."""
    kind = "{}" if text[at] == "{" else "[]"
    level, end = 0, len(text)
    for one in _BRACKETS[kind].finditer(text, at):
        level += (one[0] == kind[0]) - (one[0] == kind[1])
        if level + depth > _MAX_DEPTH:
            raise BadCall("too_much", f"brackets are nested deeper than {_MAX_DEPTH}")
        if not level:
            return text[at + 1 : one.start()], one.end(), False
    return text[at + 1 : end], end, True


def functiongemma(text: str, tools: Tools) -> Iterator[Call]:
    """Calls, of which the last may be open; a value is what stands escaped behind a word, JSON if it can be."""
    block = re.compile(
        r"<start_function_call>call:(\w+)\{(.*?)\}<end_function_call>|<start_function_call>call:(\w+)\{(.*)", re.DOTALL
    )
    calls = [(name or last, body or rest) for name, body, last, rest in block.findall(text)]
    try:
        read = [
            (
                name,
                {
                    key: _json(value)
                    for key, value in re.findall(r"(?<!\w)(\w++):<escape>(.*?)<escape>", body, re.DOTALL)
                },
            )
            for name, body in calls
        ]
    except FAULTS:
        return
    yield from (executed(name, given) for name, given in read)


def _json(text: str) -> Any:
    try:
        return lenient(text)
    except json.JSONDecodeError:
        return text
