from __future__ import annotations

import json
from typing import Any

from qualgate.scoring.tools.strict import FLAGS
from tests.scoring.cases import scored, table
from tests.tables import each_row

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "number"}, "who": {"type": "string"}, "vip": {"type": "boolean"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
    },
    {"name": "cancel", "parameters": {"type": "object"}},
    {"name": "ping"},
]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def judged(text: str, *expected: tuple[str, dict[str, Any]]) -> tuple[int, str, str]:
    """How many of the nested flags hold, and why not the next."""
    calls = [{"name": name, "arguments": arguments} for name, arguments in expected]
    found = scored({"tools": TOOLS, "expected_calls": calls}, FLAGS, text)
    verdicts = [found[flag].verdict for flag in FLAGS]
    assert verdicts == sorted(verdicts, reverse=True), "a flag holds only when those before it do"
    last = found[FLAGS[-1]]
    return sum(verdicts), last.error_type, last.reason


BOOK = ("book", {"n": 2})


@each_row(("text", "expected", "result"), table("tools/flags"))
def test_flags_are_nested_and_named(text, expected, result):
    assert judged(text, *expected)[:2] == tuple(result)
    assert judged("<tool_call>" * 5000, *expected)[:2] == (0, "too_many_calls")


def test_reasons_say_which_argument():
    assert judged(call("book", n=3), BOOK)[2] == "book: 'n' is 3, expected 2"
    assert judged(call("book", n=2, who="x"), BOOK)[2] == "book: 'who' is not expected"
    assert judged(call("book", n="2"), BOOK)[2] == "book $.n: '2' is not of type 'number'"
    assert judged("<tool_call>{", BOOK)[2] == "call 1 is not closed"


def test_a_call_in_the_text_of_an_argument_is_not_a_second_call():
    # The tags are the grammar: a model that writes one into an argument has broken its own call.
    assert judged(call("book", n=2, who="</tool_call>"), BOOK)[0] == 0


def test_what_was_called_is_kept():
    found = scored({"tools": TOOLS, "expected_calls": []}, ("tool_call.parses",), call("book", n=2))
    assert found["tool_call.parses"].extracted == '[{"name": "book", "arguments": {"n": 2}}]'


def test_a_tool_whose_schema_cannot_be_used_gives_no_verdict():
    body = {"tools": [{"name": "f", "parameters": {"$ref": "#"}}], "expected_calls": []}
    found = scored(body, FLAGS, call("f"))
    assert [found[flag].verdict for flag in FLAGS] == [True, None, None, None, None, None]
