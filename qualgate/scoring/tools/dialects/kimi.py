"""Kimi's dialects: K2 writes JSON between tokens, K3 a tree of channels (XTML), whose arguments declare their type.

    <|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|>
    <|open|>argument key="KEY" type="string"<|sep|>TEXT<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|>

Other text stands in the channels `think` and `response`; the first may be open when the answer begins.
`&` and `"` of a name or key are written as `&amp;` and `&quot;`; values are as they are, or JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_arguments
from qualgate.scoring.tools.dialects.json_calls import joined
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM, template
from qualgate.scoring.tools.dialects.stream import Dialect
from qualgate.scoring.tools.dialects.tagged import reader, writer


def _read_kimi(text: str, tools: Tools) -> list[Call]:
    """Read the one call of a block, `functions.name:index` and JSON arguments. BadCall for anything else."""
    head = _KIMI_HEAD.match(text)
    if not head:
        raise BadCall("call_shape", "no functions.name:index before the arguments")
    return [Call(head["name"], read_arguments(text[head.end() :]))]


_KIMI_HEAD = re.compile(r"\s*(?:functions\.)?(?P<name>[^\s:<]+):[0-9]+\s*<\|tool_call_argument_begin\|>")
_KIMI = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
)
KIMI_K2 = Dialect(
    name="kimi_k2",
    source=template("moonshotai-Kimi-K2-Thinking.jinja", "0c3c896ea80643608b4e961eec7e1efcd844e109")
    + "; "
    + VLLM
    + "parser/kimi_k2.py; "
    + SGLANG
    + "kimik2_detector.py",
    frame=_KIMI[:2],
    open=_KIMI[2:3],
    close=_KIMI[3],
    stray=_KIMI[4:],
    read=_read_kimi,
    write=joined(
        "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        _KIMI,
        name=r"[^\s:<]+",
        between="",
        around="<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
    ),
)

_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_read_k3 = reader(
    r'(?P<name>[^"]+)" index="[0-9]+"<\|sep\|>',
    "",
    r'\s*<\|open\|>argument key="(?P<key>[^"]+)" type="(?:(?P<text>string)|number|boolean|null|object|array)"<\|sep\|>'
    r"(?P<value>.*?)<\|close\|>argument<\|sep\|>",
    declared=True,
)
_write_k3 = writer(
    '<|open|>call tool="{key}" index="{index}"<|sep|>',
    '<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
    "<|close|>call<|sep|>",
    (_OPEN, _CLOSE, _SEP),
    between="",
    around=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
)


def _read_escaped(text: str, tools: Tools) -> list[Call]:
    return [
        Call(_plain(call.name), {_plain(key): value for key, value in call.arguments.items()})
        for call in _read_k3(text, tools)
    ]


def _write_escaped(calls: Sequence[Call]) -> str:
    return _write_k3(
        [Call(_attribute(call.name), {_attribute(key): v for key, v in call.arguments.items()}) for call in calls]
    )


def _plain(attribute: str) -> str:
    return attribute.replace("&quot;", '"').replace("&amp;", "&")


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


KIMI_K3 = Dialect(
    name="kimi_k3",
    source=template("Kimi-K3.jinja", "181a4a8fb1af6142a7bf611dddd36fe34a3de3fe")
    + f"; {VLLM}tool_parsers/kimi_k3_tool_parser.py; {SGLANG}kimik3_detector.py",
    frame=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    open=('<|open|>call tool="',),
    close="<|close|>call<|sep|>",
    thinks=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    message=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"),
    read=_read_escaped,
    write=_write_escaped,
)
