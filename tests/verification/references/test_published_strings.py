"""Strings are taken out of a test file as it writes them down, and held against what was read of them."""

from __future__ import annotations

import pytest

from tests.verification.references.dialect_strings import PARSERS
from tests.verification.references.published_strings import FILES, compared, strings, tools_for

SOURCE = """
OPEN = "<tool_call>"
CLOSE = OPEN + "/end"
def test(parser):
    text = f"{OPEN}\\n{{}}" "\\n</tool_call>"
    assert parser(OPEN + '{"name": "a"}' + "</tool_call>") == unknown + "but not this one"
    short, number = "short", 12345678
"""


def test_constants_sums_and_f_strings_of_a_file_are_put_together():
    found = strings(SOURCE)
    assert "<tool_call>\n{}\n</tool_call>" in found
    assert '<tool_call>{"name": "a"}</tool_call>' in found
    assert "<tool_call>/end" in found
    assert not [text for text in found if len(text) < 8]
    assert len(found) == len(set(found))


def test_tools_are_those_that_were_called_with_parameters_as_their_texts_look():
    [tool] = tools_for([{"name": "f", "arguments": {"a": "1", "b": "x", "c": True, "d": "[1]", "e": 1.5, "g": None}}])
    properties = tool["function"]["parameters"]["properties"]
    assert {key: one["type"] for key, one in properties.items()} == {
        "a": "integer", "b": "string", "c": "boolean", "d": "array", "e": "number", "g": "string"
    }  # fmt: skip
    assert tools_for({"raised": "ValueError"}) == []


@pytest.mark.parametrize(
    ("read", "alike"),
    [([{"name": "f", "arguments": {"a": 1}}], True), ([{"name": "f", "arguments": {"a": 2}}], False), (None, False)],
)
def test_a_reading_that_differs_is_told_with_both(read, alike):
    [(name, why)] = compared([("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', [])], [read])
    assert (name, not why) == ("hermes", alike)
    assert alike or ("theirs" in why and "ours" in why)


def test_each_file_is_of_a_dialect():
    assert set(FILES) == set(PARSERS)
