"""Strings are taken out of a test file as it writes them down, and held against what was read of them."""

from __future__ import annotations

import pytest

from tests.verification.references.dialect_strings import PARSERS
from tests.verification.references.published_strings import FILES, compared, strings

SOURCE = """
OPEN = "<tool_call>"
CLOSE = OPEN + "/end"
def test(parser):
    text = f"{OPEN}\\n{{}}" "\\n</tool_call>"
    assert parser(OPEN + '{"name": "a"}' + "</tool_call>") == unknown + "but not this one"
    short, number = "short", 12345678
"""


def test_constants_sums_and_f_strings_of_a_dialects_file_are_put_together():
    found = strings(SOURCE)
    made = {"<tool_call>\n{}\n</tool_call>", '<tool_call>{"name": "a"}</tool_call>', "<tool_call>/end"}
    assert made < {*found}
    assert not [text for text in found if len(text) < 8]
    assert len(found) == len({*found})
    assert {*FILES} == {*PARSERS}


@pytest.mark.parametrize(
    ("read", "alike"),
    [([{"name": "f", "arguments": {"a": 1}}], True), ([{"name": "f", "arguments": {"a": 2}}], False), (None, False)],
)
def test_a_reading_that_differs_is_told_with_both(read, alike):
    [(name, why)] = compared([("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', [])], [read])
    assert (name, not why) == ("hermes", alike)
    assert alike or ("theirs" in why and "ours" in why)
