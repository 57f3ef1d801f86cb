"""Transcripts of BFCL's shape: changed by one action, judged action by action, and written as rows."""

from __future__ import annotations

import random

import pytest

from qualgate.evalsets import read_turns
from qualgate.scoring.tools.dialects import Call
from tests.verification.references.bfcl_turns import (
    KINDS,
    MORE,
    SOURCES,
    changed,
    offered,
    ours,
    parsed,
    row_of,
    written,
)

TOOLS = [
    {"name": name, "parameters": {"type": "dict", "properties": {"folder": {"type": "string"}}, "required": []}}
    for name in ("cd", "mkdir", "pwd")
]
REFERENCE = [[Call("mkdir", {"folder": "a"}), Call("cd", {"folder": "a"})], [], [Call("mkdir", {"folder": "b"})]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_makes_a_transcript_wrong_and_none_leaves_it_right(kind):
    assert parsed(written(REFERENCE[0][0]), TOOLS) == parsed("mkdir('a')", TOOLS) == REFERENCE[0][0]
    for seed in range(9):
        made = changed(REFERENCE, kind, random.Random(seed))
        assert made is not None
        assert ours([TOOLS] * 3, REFERENCE, made) is (made == REFERENCE)
        assert (made == REFERENCE) is (kind == "none") or kind == "early"


def test_an_entry_is_a_row_whose_every_call_is_an_action_with_the_tools_of_its_turn():
    said = [[{"role": "user", "content": word}] for word in "xy"] + [[]]
    entry = {
        "id": "multi_turn_miss_func_7", "question": said, "missed_function": {"2": ["mkdir"]},
        "involved_classes": ["GorillaFileSystem", "MathAPI"],
        "initial_config": {"GorillaFileSystem": {"root": {}}, "MathAPI": {"digits": 3}},
    }  # fmt: skip
    known = offered(entry, TOOLS)
    assert [[tool["name"] for tool in tools] for tools in known] == [["cd", "pwd"]] * 2 + [["cd", "mkdir", "pwd"]]
    reference = [[Call("cd", {"folder": "a"})], [], [Call("mkdir", {"folder": "b"})]]
    row = row_of(entry, known, reference, [["moved"], [], ["made"]])
    cases, faults = read_turns(row)
    assert not faults
    assert [[call["name"] for call in case["expected_calls"]] for case in cases] == [["cd"], [], ["mkdir"]]
    assert [one["content"] for one in cases[-1]["messages"] if one["role"] in ("user", "tool")] == [
        "x", "moved", "y", MORE,
    ]  # fmt: skip
    assert [len(case["tools"]) for case in cases] == [2, 2, 3]
    assert row["cluster"] == "entry_7"
    files, mathematics = row["state"]["classes"]
    assert files == f"{SOURCES.replace('/', '.')}.gorilla_file_system.GorillaFileSystem"
    assert row["state"]["initial"] == {files: {"root": {}}}, "BFCL gives MathAPI none"
    assert mathematics.endswith("math_api.MathAPI")
