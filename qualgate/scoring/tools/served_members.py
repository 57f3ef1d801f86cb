"""What a server makes of calls whose name may stand in their own JSON, in our own words (`served_parsers`): the
arguments are a member's text, closed or not, and are read when they are handed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from qualgate.scoring.tools.dialects.call import Call, Tools
from qualgate.scoring.tools.dialects.tagged import properties
from qualgate.scoring.tools.served_json import FAULTS, Reader
from qualgate.scoring.tools.served_values import coerced, executed, lenient

_TOKEN = re.compile(r'"((?:\\.|[^"\\])*)"|[{}\[\]:]', re.DOTALL)
_BRACKET = re.compile(r'"(?:\\.|[^"\\])*(?:"|\Z)|[{}\[\]]', re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')


def _reader(bodies: Callable[[str], Iterable[Sequence[str]]], *members: str) -> Reader:
    """bodies: names, where they stand apart, and texts of a call. members: which of its JSON are the arguments, the
    first as it is written; without any, the whole text is."""

    def found(name: str, body: str) -> tuple[Any, str]:
        name = (name or ((one := _NAME.search(body)) and one[1]) or "").strip()
        if not name:
            return _whole(body, members)
        if not members:
            return name, body.strip()
        try:
            return name, _member(body, members[0])
        except ValueError:
            return name, _whole(body, members)[1]

    def read(text: str, tools: Tools) -> Iterator[Call]:
        try:
            calls = [found(name, body) for name, body in bodies(text) if name or body.strip()]
        except FAULTS:
            return
        if all(isinstance(name, str) for name, _ in calls):
            for name, arguments in calls:
                if name:
                    yield executed(name, _typed(arguments or "{}", properties(tools, name)))

    return read


def _typed(text: str, known: dict[str, Any]) -> Any:
    try:
        value = lenient(text)
    except ValueError:
        return text
    return coerced(value, known) if isinstance(value, dict) else value


def _whole(body: str, members: tuple[str, ...]) -> tuple[Any, str]:
    """The name and the arguments' text of a call that is JSON; without arguments, all but the name are those."""
    try:
        value = lenient(body)
    except ValueError:
        return "", body
    if not isinstance(value, dict):
        return "", body
    given = next((value[key] for key in members if key in value), {key: value[key] for key in value if key != "name"})
    return value.get("name") or "", given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _member(text: str, key: str) -> str:
    """The text of an object's member, up to the end where it is open; "" without it. ValueError where it is no
    object."""
    depth, last = 0, ""
    for one in _TOKEN.finditer(text):
        if one[1] is not None:
            last = one[1] if depth == 1 else last
        elif one[0] == ":":
            if depth == 1 and last == key:
                value = text[one.end() :].lstrip(" \t\r\n")
                if value and value[0] != "{":
                    raise ValueError("no object")
                return value[: _closed(value, "{}")]
        else:
            depth += 1 if one[0] in "{[" else -1
    return ""


def _closed(text: str, kinds: str, at: int = 0) -> int | None:
    """Where the object at `at` is closed; None where it is not. kinds: brackets that are counted."""
    depth = 0
    for one in _BRACKET.finditer(text, at):
        if one[0] in kinds:
            depth = max(0, depth + (1 if one[0] in "{[" else -1))
            if not depth and one[0] == "}":
                return one.end()
    return None


def _granite(text: str) -> Iterator[tuple[str, str]]:
    """Objects of a list behind a mark, of which the last may be open; the list ends where something else stands."""
    at = 0
    while begin := _GRANITE.search(text, at):
        at, listed = begin.end(), begin[1]
        while listed and (at := _BETWEEN.match(text, at).end()) < len(text) and text[at] == "{":  # pyright: ignore
            end = _closed(text, "{}[]", at) or len(text)
            yield "", text[at:end]
            at = end
        if amiss := _MARK.match(text, at):  # it ends a list, and begins none
            at = amiss.end()


_MARK = re.compile(r"<\|tool_call\|>|<tool_call>")
_GRANITE = re.compile(rf"(?:{_MARK.pattern})[ \t\r\n]*(\[?)")
_BETWEEN = re.compile(r"[ \t\r\n,]*")


def _inkling(text: str) -> list[tuple[str, str]]:
    """Blocks up to the end of their message, or of all."""
    block = r"<\|content_invoke_tool_json\|>(.*?)(?:<\|end_message\|>|<\|content_model_end_sampling\|>|\Z)"
    return [("", body) for body in re.findall(block, text, re.DOTALL)]


_PLAMO = re.compile(
    r"<\|plamo:(?:(?:begin|end)_(?:tool_requests?|tool_name|think):plamo\|>|end_tool_arguments:plamo\|>|tag\|>"
    r"|begin_tool_arguments:plamo\|><\|plamo:constrain\|>json<\|plamo:msg\|>)"
)
_PLAMO_CUT = re.compile(r"<\|plamo:(?:begin|end)_[a-z_]*\Z")
# Where PLaMo's marks lead from a state; elsewhere they are text.
_PLAMO_STEPS = {
    ("content", "begin_think"): "thought",
    ("content", "begin_tool_requests"): "requests",
    ("thought", "end_think"): "content",
    ("thought", "begin_tool_requests"): "requests",
    ("thought", "tag|>"): "content",
    ("requests", "begin_tool_name"): "name",
    ("requests", "begin_tool_arguments"): "arguments",
    ("requests", "end_tool_requests"): "content",
    ("requests", "tag|>"): "content",
    ("name", "end_tool_name"): "requests",
    ("name", "tag|>"): "content",
    ("arguments", "end_tool_arguments"): "between",
    ("arguments", "tag|>"): "content",
    ("between", "end_tool_request"): "requests",
    ("between", "tag|>"): "content",
}


def _plamo(text: str) -> list[list[str]]:
    """Names and arguments by PLaMo's marks; a mark that the text is cut off in is none of them. Arguments without a
    name go with those before; IndexError where there are none."""
    state, at = "content", 0
    calls: list[list[str]] = []
    held = ""
    for mark in (*_PLAMO.finditer(text), None):
        held += text[at : mark.start() if mark else len(text)]
        step = _PLAMO_STEPS.get((state, mark[0].removeprefix("<|plamo:").partition(":")[0])) if mark else state
        at = mark.end() if mark else at
        if mark and not step:
            held += mark[0]
            continue
        if state == "name":
            calls[-1][0] = _PLAMO_CUT.sub("", held)
        elif state == "arguments" and held:
            calls[-1][1] += _without_cut(calls[-1][1], held)
        held, state = "", step or state
        if mark and state == "name":
            calls.append(["", ""])
    return calls


def _without_cut(before: str, text: str) -> str:
    """Without its last mark and what follows, where it is JSON without them."""
    cut, mark, _ = text.rpartition("<|plamo:")
    try:
        lenient(before + cut)
    except ValueError:
        return text
    return cut if mark else text


GRANITE = _reader(_granite, "arguments", "parameters")
INKLING = _reader(_inkling, "args", "arguments", "parameters")
PLAMO = _reader(_plamo)
