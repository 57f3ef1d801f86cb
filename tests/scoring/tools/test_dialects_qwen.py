"""Qwen3-Coder's calls whose arguments, or the prose around them, hold the very tags that calls are made of."""

from __future__ import annotations

import time

import pytest

from qualgate.scoring.tools.dialects import BadCall, Call
from qualgate.scoring.tools.dialects.registry import dialect

TOOLS = [
    {
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "integer"}},
        },
    },
    {"name": "ping", "parameters": {"type": "object", "properties": {}}},
]
PING = "<tool_call>\n<function=ping>\n</function>\n</tool_call>"


def call(*arguments: tuple[str, str], name: str = "write") -> str:
    """As the template writes it."""
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{pairs}</function>\n</tool_call>"


def outcome(text: str, cuts: tuple[int, ...] = (), tools=TOOLS) -> tuple[Call, ...] | str:
    """The calls, or the fault's word, of an answer fed in pieces."""
    stream = dialect("qwen3_coder").stream(tools)
    try:
        for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
            stream.feed(text[start:end])
        stream.close()
    except BadCall as error:
        return error.error_type
    return tuple(stream.calls)


def read(text: str, tools=TOOLS) -> tuple[Call, ...] | str:
    """The same, whole and in every two pieces and in single characters: all must agree."""
    whole = outcome(text, tools=tools)
    for at in range(len(text)):
        assert outcome(text, (at,), tools) == whole, text[:at]
    assert outcome(text, tuple(range(1, len(text))), tools) == whole
    return whole


WITHIN = {
    "a block's end": "it ends with </tool_call> always",
    "a block's end on its own line": "a\n</tool_call>\nb",
    "a block's beginning": "it begins with <tool_call> always",
    "a function's tags": "<function=f> and </function>",
    "a function's end and a block's": "a\n</function>\n</tool_call>\nb",
    "an argument's tag": "write <parameter=key> here",
    "an argument's end": "close it with </parameter> at the end",
    "a whole argument": "<parameter=key>\nvalue\n</parameter>",
    "a whole call": call(("text", "hi"), ("path", "b")),
    "a call without arguments": PING,
    "two calls": f"{PING}\n{call(('mode', '1'))}",
    "a call within a call": call(("text", call(("text", "hi")))),
    "thinking and a fence": "<think>\n```python\nx\n```\n</think>",
    "nothing": "",
    "line ends": "\n\n",
}


@pytest.mark.parametrize("value", WITHIN.values(), ids=WITHIN)
def test_an_argument_may_hold_the_tags_that_calls_are_made_of(value):
    wanted = Call("write", {"text": value, "path": "a"})
    assert read(call(("text", value), ("path", "a"))) == (wanted,)
    assert read(call(("path", "a"), ("text", value))) == (Call("write", {"path": "a", "text": value}),)
    assert read(f"Here:\n{call(('text', value), ('path', 'a'))}\n{PING}") == (wanted, Call("ping", {}))


@pytest.mark.parametrize(
    "prose",
    [
        "I write <tool_call> tags. ",
        "Calls stand in `<tool_call>` and `</tool_call>`: ",
        "The form is <function=NAME> and </function> closes it. ",
        "A <tool_call> begins, a </tool_call> ends, <parameter=x> and </parameter> hold a value. ",
        "Say <function=\n",
    ],
)
def test_tags_in_prose_are_words(prose):
    assert read(prose) == ()
    assert read(prose + PING) == (Call("ping", {}),)
    assert read(f"{PING}\n{prose}") == (Call("ping", {}),)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=write>\n<parameter=path>\na\n<parameter=text>\nb\n</parameter>\n</function>\n</tool_call>",
        "<tool_call><function=write><parameter=path>a<parameter=text>b</parameter></function></tool_call>",
        "<tool_call><function=write><parameter=path>a\n</function></tool_call>",
        "<tool_call><function=write><parameter=path>a</parameter><parameter=text>b</function></tool_call>",
        "<tool_call><function=write><parameter=path>a</parameter></tool_call>",
        "<tool_call><function=write><parameter=path>a</function></tool_call>\n"
        "<tool_call><function=write><parameter=path>b</parameter></function></tool_call>",
        f"<tool_call><function=write><parameter=path>a</function></tool_call>\n{call(('path', 'b'))}",
        "<tool_call>\n<function=write>\n<parameter=path>\na",
        "<tool_call>\n",
        f"{PING}</tool_call>",
        f"<tool_call>{PING}",
    ],
)
@pytest.mark.parametrize("tools", [TOOLS, []], ids=["documented", "not documented"])
def test_an_argument_or_a_block_that_is_not_closed_is_a_fault_and_no_value(text, tools):
    assert read(text, tools) in ("unbalanced", "call_shape")


def test_a_lost_wrapper_is_a_leak():
    assert read("<function=ping>\n</function>\n</tool_call>") == "leaked_token"
    assert read("So: <function=write>\n<parameter=path>\na\n</parameter>\n</function>") == "leaked_token"


@pytest.mark.parametrize("piece", ["</tool_call>", "<parameter=a>", "</parameter>", "<function=f>", "<tool_call> "])
def test_no_answer_takes_long(piece):
    for text in (piece * 20_000, f"<tool_call>\n<function=f>\n<parameter=a>\n{piece * 20_000}"):
        start = time.process_time()
        outcome(text)
        assert time.process_time() - start < 2
