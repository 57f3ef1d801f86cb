from __future__ import annotations

import json
from typing import Any

import pytest

from qualgate.scoring.tools.strict import FLAGS
from tests.scoring.cases import scored

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


@pytest.mark.parametrize(
    ("text", "expected", "result"),
    [
        (call("book", n=2), [BOOK], (6, "")),
        (call("book", n=2.0), [BOOK], (6, "")),
        (f"Sure! {call('book', n=2)} Done.", [BOOK], (6, "")),
        (call("book", n=3), [BOOK], (5, "wrong_arguments")),
        (call("book", n=2, who="me"), [BOOK], (5, "wrong_arguments")),
        (call("book", n=2), [("book", {"n": 2, "who": "me"})], (3, "missing_argument")),
        (call("cancel", id="5"), [("cancel", {"id": 5})], (4, "wrong_type")),
        (call("cancel", id=True), [("cancel", {"id": 1})], (4, "wrong_type")),
        (call("cancel", id="A b"), [("cancel", {"id": "a b"})], (5, "wrong_arguments")),
        (call("cancel"), [BOOK], (2, "wrong_function")),
        (call("book", n=2) + call("cancel"), [BOOK], (2, "extra_call")),
        (call("book", n=2) + call("book", n=2), [BOOK], (2, "extra_call")),
        (call("book", n=2), [BOOK, ("cancel", {})], (2, "missing_call")),
        ("I cannot do that.", [BOOK], (1, "no_call")),
        ("", [BOOK], (1, "no_call")),
        (call("book", n=2).replace("<tool_call>", "").replace("</tool_call>", ""), [BOOK], (6, "")),  # another dialect
        (call("book", n="2"), [BOOK], (1, "arguments")),
        (call("book"), [BOOK], (1, "arguments")),
        (call("book", n=2, x=1), [BOOK], (1, "arguments")),
        (call("Book", n=2), [BOOK], (1, "unknown_tool")),
        (call("book", n=2)[:-12], [BOOK], (0, "unbalanced")),
        ("<tool_call>{}</tool_call>", [BOOK], (0, "call_shape")),
        ("<tool_call>[]</tool_call>", [BOOK], (0, "call_shape")),
        ('<tool_call>{"name": "book", "arguments": "{}"}</tool_call>', [BOOK], (0, "call_shape")),
        ('<tool_call>{"name": "book", "arguments": {}, "id": 1}</tool_call>', [BOOK], (0, "call_shape")),
        ("<tool_call>{book}</tool_call>", [BOOK], (0, "not_json")),
        ("<tool_call></tool_call>", [BOOK], (0, "empty")),
        ('<tool_call>{"name": "book", "arguments": {"n": 1, "n": 2}}</tool_call>', [BOOK], (0, "duplicate_key")),
        ("</tool_call>", [BOOK], (0, "unbalanced")),
        (call("book", n=2) + "</tool_call>", [BOOK], (0, "unbalanced")),
        ("<tool_call>" * 5000, [BOOK], (0, "too_many_calls")),
        ("No tool fits.", [], (6, "")),
        ("", [], (6, "")),
        (call("ping"), [], (2, "extra_call")),
        (call("ping"), [("ping", {})], (6, "")),
    ],
)
def test_flags_are_nested_and_named(text, expected, result):
    assert judged(text, *expected)[:2] == result


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
