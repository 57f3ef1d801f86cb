"""MiniMax-M3's grammar: every tag begins with a mark, and an argument is an element, whose children are its parts.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="NAME">
    ]<]minimax[>[<KEY>TEXT]<]minimax[>[</KEY>
    ]<]minimax[>[<KEY>]<]minimax[>[<item>TEXT]<]minimax[>[</item>]<]minimax[>[</KEY>
    ]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

The schema types an element: its text; its children as a list if it allows one, else as an object, in which a repeated
name has a list. An argument may be JSON, too, and lists are written so here. Text beside children is a fault here
(vLLM keeps it as `$text`).
"""

from __future__ import annotations

import re
from typing import Any

from qualgate.scoring.outcome import quote
from qualgate.scoring.strict_json import MAX_DEPTH
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM
from qualgate.scoring.tools.dialects.stream import Dialect
from qualgate.scoring.tools.dialects.tagged import properties, typed, types, writer

MARK = "]<]minimax[>["
_HEAD = re.compile(r'(?P<name>[^">\n]+)">')
_TAG = re.compile(re.escape(MARK) + r"<(?P<close>/?)(?P<name>[^<>/\s]+)>")

Element = tuple[str, Any]  # name, and its text or the list of its children


def read(text: str, tools: Tools) -> list[Call]:
    """Read the call of one block."""
    head = _HEAD.match(text)
    if not head:
        raise BadCall("call_shape", f"{quote(text)} does not begin with a name")
    elements, name = _children(text, head.end()), head["name"].strip()
    schemas, arguments = properties(tools, name), {}
    for key, value in elements:
        if key in arguments:
            raise BadCall("duplicate_key", f"the argument {quote(key)} twice in one call")
        arguments[key] = _value(value, schemas.get(key))
    return [Call(name, arguments)]


def _children(text: str, position: int) -> list[Element]:
    """Read the elements up to the end of the text, without recursion, so that no text can exhaust the stack."""
    levels: list[tuple[str, list[Element], list[str]]] = [("", [], [])]
    for tag in _TAG.finditer(text, position):
        name, children, between = levels[-1]
        between.append(text[position : tag.start()])
        position = tag.end()
        if not tag["close"]:
            if len(levels) > MAX_DEPTH:
                raise BadCall("too_deep", f"more than {MAX_DEPTH} levels of elements")
            levels.append((tag["name"], [], []))
        elif tag["name"] != name:
            raise BadCall("unbalanced", f"{quote(tag['name'])} is closed where {quote(name)} is open")
        else:
            levels.pop()
            levels[-1][1].append((name, _content(children, "".join(between))))
    name, children, between = levels[-1]
    if len(levels) > 1:
        raise BadCall("unbalanced", f"the element {quote(name)} is not closed")
    between.append(text[position:])
    if stray := "".join(between).strip():
        raise BadCall("unbalanced" if MARK in stray else "stray_text", f"{quote(stray)} between arguments")
    return children


def _content(children: list[Element], text: str) -> Any:
    if MARK in text:
        raise BadCall("unbalanced", f"{quote(text)} holds a mark without a tag")
    if children and text.strip():
        raise BadCall("stray_text", f"{quote(text)} beside elements")
    return children or text


def _value(value: Any, schema: Any) -> Any:
    """Return an element's value as `schema` types it: its text, or its children as a list or object.

    A child's name that comes again makes a list of its values.
    """
    schema_types = types(schema)
    if isinstance(value, str):
        if not value.strip() and "string" not in schema_types and schema_types & {"array", "object"}:
            return [] if "array" in schema_types else {}
        return typed(value, schema)
    inner = schema if isinstance(schema, dict) else {}
    if "array" in schema_types:
        return [_value(child, inner.get("items")) for _, child in value]
    known = inner.get("properties")
    known, members, repeated = known if isinstance(known, dict) else {}, {}, set()
    for key, child in value:
        child_value = _value(child, known.get(key, inner.get("additionalProperties")))
        if key not in members:
            members[key] = child_value
        elif key in repeated:
            members[key].append(child_value)
        else:
            members[key] = [members[key], child_value]
            repeated.add(key)
    return members


_write = writer(
    MARK + '<invoke name="{key}">\n',
    f"{MARK}<{{key}}>{{value}}{MARK}</{{key}}>\n",
    f"{MARK}</invoke>",
    (MARK,),
    around=(f"{MARK}<tool_call>\n", f"\n{MARK}</tool_call>"),
    named=r'[^<>/\s\]\["]+',
)

MINIMAX_M3 = Dialect(
    name="minimax_m3",
    source=f"{VLLM}parser/minimax_m3.py; {SGLANG}minimax_m3.py",
    frame=(f"{MARK}<tool_call>", f"{MARK}</tool_call>"),
    open=(f'{MARK}<invoke name="',),
    close=f"{MARK}</invoke>",
    thinks=("<mm:think>", "</mm:think>"),
    read=read,
    write=_write,
)
