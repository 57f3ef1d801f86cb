"""What a server makes of calls whose arguments are pairs of a key and a value between marks, in our own words
(`served_parsers`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.tagged import properties, tool_names
from qualgate.scoring.tools.served_json import FAULTS
from qualgate.scoring.tools.served_values import allowed, executed, finite, first_of, json_or_literal, lenient

_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def poolside(text: str, tools: Tools) -> Iterator[Call]:
    """Closed calls, of any name; a value whose own type is not string is JSON, or a literal, if it can be."""
    try:
        calls = []
        for block in re.findall(r"<tool_call>.*?</tool_call>", text, re.DOTALL):
            head = next(filter(_names, (block[one.end() :] for one in re.finditer("<tool_call>", block))), None)
            if head is not None:
                name, _, body = head.partition("<")
                calls.append((name.strip(), _poolside_arguments(body, properties(tools, name.strip()))))
    except BadCall:
        raise
    except FAULTS:
        return
    yield from (executed(name, given) for name, given in calls)


def _names(head: str) -> bool:
    """Whether a call begins with a name on one line, and then its pairs or its end."""
    name, _, rest = head.partition("<")
    return bool(name.strip("\n")) and "\n" not in name.strip() and rest.startswith(("arg_key>", "/tool_call>"))


def _poolside_arguments(body: str, known: dict[str, Any]) -> dict[str, Any]:
    given = {}
    for key, value in _PAIR.findall(f"<{body}"):
        text = known.get(key.strip(), {}).get("type") == "string"
        given[key.strip()] = value if text else json_or_literal(value.strip())
    return given


def k2_horizon(text: str, tools: Tools) -> Iterator[Call]:
    """The first frame, if nothing in it is out of place; else nothing is called."""
    _, _, rest = text.partition("<ifm|tool_calls>")
    frame, closed, _ = rest.partition("</ifm|tool_calls>")
    block = re.compile(r"<ifm\|tool_call>(.*?)</ifm\|tool_call>", re.DOTALL)
    if not closed or block.sub("", frame).strip():
        return
    try:
        calls = [_k2_call(body, tools) for body in block.findall(frame)]
    except ValueError:
        return
    yield from (executed(name, given) for name, given in calls)


def _k2_call(body: str, tools: Tools) -> tuple[str, dict[str, Any]]:
    """ValueError for what the server refuses."""
    name, mark, rest = body.partition("<ifm|arg_key>")
    name, rest, offered = name.strip(), mark + rest, tool_names(tools)
    if not name or re.search(r"\s", name) or (offered and name not in offered):
        raise ValueError("no such tool")
    pair = re.compile(
        r"<ifm\|arg_key>(.*?)</ifm\|arg_key>\s*(?:<ifm\|arg_type>(.*?)</ifm\|arg_type>\s*)?"
        r"<ifm\|arg_value>(.*?)</ifm\|arg_value>",
        re.DOTALL,
    )
    if pair.sub("", rest).strip() or "<ifm|arg_" in name or "</ifm|arg_" in name:
        raise ValueError("not pairs alone")
    given: dict[str, Any] = {}
    for one in pair.finditer(rest):
        key, kinds = one[1].strip(), allowed(properties(tools, name).get(one[1].strip()))
        if not key or key in given or one[2] is not None:
            raise ValueError("a key that lacks or is said twice, or a type")
        given[key] = first_of(one[3] if "string" in kinds else one[3].strip(), kinds)
    if not finite(given):
        raise ValueError("no JSON")
    return name, given


def kimi_k3(text: str, tools: Tools) -> Iterator[Call]:
    """Blanks in a mark do not matter."""
    try:
        calls = k3_calls(text, r"\s*")
    except FAULTS:
        return
    yield from (executed(name, given) for name, given in calls)


def k3_calls(text: str, blank: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Closed calls of the first frame, which may be open. blank: a pattern of what may stand in a mark. What JSON's
    reader raises, for what is not broken and yet not read."""
    sep = rf"{blank}<\|sep\|>"
    begin = re.search(rf"<\|open\|>{blank}tools{sep}", text)
    frame = re.split(rf"<\|close\|>{blank}tools{sep}", text[begin.end() :], maxsplit=1)[0] if begin else ""

    def elements(name: str, within: str) -> list[tuple[dict[str, str], str]]:
        said = r"((?:(?!<\|sep\|>).)*+)<\|sep\|>"
        one = re.compile(rf"<\|open\|>{blank}{name}\s{said}(.*?)<\|close\|>{blank}{name}{sep}", re.DOTALL)
        return [(_attributes(said), body) for said, body in one.findall(within)]

    return [
        (name, {one.get("key", ""): _k3_value(one, value) for one, value in elements("argument", body)})
        for said, body in elements("call", frame)
        if (name := said.get("tool"))
    ]


def _attributes(text: str) -> dict[str, str]:
    said = re.findall(r'(?<!\w)(\w++)="([^"]*)"', text)
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in said}


def _k3_value(said: dict[str, str], text: str) -> Any:
    if said.get("type", "string") == "string":
        return text
    try:
        return lenient(text)
    except json.JSONDecodeError:
        return text
