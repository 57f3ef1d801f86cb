"""SGLang's parser of Gemma 4's calls, in our own words (`served_sglang`): no schema is asked, a bare value is what it
looks like, and what is not closed is read as far as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Tools
from qualgate.scoring.tools.served_sglang_values import SERVER, Named, all_or_none

_MARK = '<|"|>'
_MAX_DEPTH = 32  # of brackets; each takes as long as the text
_BRACKETS = {
    (kind, strings): re.compile((rf"{re.escape(_MARK)}(?:.*?{re.escape(_MARK)}|.*)|" if strings else "")
                                + f"[{re.escape(kind)}]", re.DOTALL)
    for kind in ("{}", "[]")
    for strings in (True, False)
}  # fmt: skip


def _gemma(text: str, tools: Tools) -> Iterator[Named]:
    """Closed calls, whatever their tools."""
    for call in re.findall(r"<\|tool_call>(.*?)<tool_call\|>", text, re.DOTALL):
        name, begun, _ = call.partition("{")
        if begun and name.startswith("call:"):
            end, closed = _closing(call, len(name), "{}")
            yield name.removeprefix("call:"), _object(call[len(name) + 1 : end - 1 if closed else end], 0)


def _closing(text: str, at: int, kind: str, strings: bool = True) -> tuple[int, bool]:
    """Behind the bracket that closes the one at `at`, and whether one does; brackets in strings are none."""
    level = 0
    for one in _BRACKETS[kind, strings].finditer(text, at):
        level += (one[0] == kind[0]) - (one[0] == kind[1])
        if not level:
            return one.end(), True
    return len(text), False


def _object(text: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = _behind(text, 0, " ,\n\t")
    while (colon := text.find(":", at)) >= 0:
        begin = _behind(text, colon + 1, " \n\t")
        value, end = _value(text, begin, ",}]", True, depth)
        found[text[at:colon].strip()] = value
        at = _behind(text, end, " ,\n\t")
    return found


def _list(text: str, depth: int) -> list[Any]:
    found: list[Any] = []
    at = _behind(text, 0, " ,\n\t")
    while at < len(text):
        if text[at] == "]":
            raise BadCall("too_much", f"{SERVER} never ends at a bracket that closes none: {text[at : at + 40]!r}")
        value, end = _value(text, at, ",]", False, depth)
        found.append(value)
        at = _behind(text, end, " ,\n\t")
    return found


def _behind(text: str, at: int, blanks: str) -> int:
    while at < len(text) and text[at] in blanks:
        at += 1
    return at


def _value(text: str, at: int, ends: str, strings: bool, depth: int) -> tuple[Any, int]:
    """The value at `at`, and where it ends. ends: what a bare one ends before; strings: whether a list's brackets in
    strings are none."""
    if depth > _MAX_DEPTH:
        raise BadCall("too_much", f"brackets are nested deeper than {_MAX_DEPTH}")
    if text.startswith(_MARK, at):
        end = text.find(_MARK, at + len(_MARK))
        return (text[at + len(_MARK) : end], end + len(_MARK)) if end >= 0 else (text[at + len(_MARK) :], len(text))
    if text[at : at + 1] == "{":
        end, _ = _closing(text, at, "{}")
        return _object(text[at + 1 : end - 1], depth + 1), end
    if text[at : at + 1] == "[":
        end, _ = _closing(text, at, "[]", strings)
        return _list(text[at + 1 : end - 1], depth + 1), end
    end = at
    while end < len(text) and text[end] not in ends:
        end += 1
    return _bare(text[at:end].strip()), end


def _bare(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


GEMMA4 = all_or_none(_gemma)
