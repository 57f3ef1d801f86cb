"""Transcripts of BFCL's shape: changed by one action, and judged action by action."""

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
    state_of,
    written,
)

TOOLS = [
    {"name": name, "parameters": {"type": "dict", "properties": {"folder": {"type": "string"}}, "required": []}}
    for name in ("cd", "mkdir", "pwd")
]
WORLD = {
    "involved_classes": ["GorillaFileSystem", "MathAPI"],
    "initial_config": {"GorillaFileSystem": {"root": {}}, "MathAPI": {"digits": 3}},
}
REFERENCE = [[Call("mkdir", {"folder": "a"}), Call("cd", {"folder": "a"})], [], [Call("mkdir", {"folder": "b"})]]


def test_calls_are_read_with_the_names_of_their_places():
    assert parsed("cd('a')", TOOLS) == parsed("cd(folder='a')", TOOLS) == Call("cd", {"folder": "a"})
    assert parsed(written(REFERENCE[0][0]), TOOLS) == REFERENCE[0][0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_makes_a_transcript_wrong_and_none_leaves_it_right(kind):
    for seed in range(9):
        made = changed(REFERENCE, kind, random.Random(seed))
        assert made is not None
        assert ours([TOOLS] * 3, REFERENCE, made) is (made == REFERENCE)
        assert (made == REFERENCE) is (kind == "none") or kind == "early"


def test_an_entry_is_a_row_whose_every_call_is_an_action():
    entry = {"id": "multi_turn_base_7", "question": [[{"role": "user", "content": word}] for word in "xyz"]}
    row = row_of(entry | WORLD, [TOOLS] * 3, REFERENCE, [["made", "moved"], [], ["made"]])
    cases, faults = read_turns(row)
    assert not faults
    assert [case["expected_calls"] for case in cases] == [
        [{"name": "mkdir", "arguments": {"folder": "a"}}], [{"name": "cd", "arguments": {"folder": "a"}}], [],
        [{"name": "mkdir", "arguments": {"folder": "b"}}],
    ]  # fmt: skip
    assert [one["content"] for one in cases[-1]["messages"] if one["role"] in ("user", "tool")] == [
        "x", "made", "moved", "y", "z",
    ]  # fmt: skip
    assert row["cluster"] == "entry_7"


def test_an_entrys_classes_begin_as_bfcl_has_them_begin():
    files, mathematics = (f"{SOURCES.replace('/', '.')}.{name}" for name in
                          ("gorilla_file_system.GorillaFileSystem", "math_api.MathAPI"))  # fmt: skip
    world = {"classes": [files, mathematics], "initial": {files: {"root": {}}}}  # it gives MathAPI none
    assert state_of({"id": "multi_turn_base_7"} | WORLD) == world
    assert state_of({"id": "multi_turn_long_context_7"} | WORLD) == world | {"long_context": True}


def test_tools_that_an_entry_holds_back_are_offered_where_it_reveals_them():
    questions = [[{"role": "user", "content": "x"}], [{"role": "user", "content": "y"}], []]
    entry = {"id": "multi_turn_miss_func_7", "question": questions, "missed_function": {"2": ["mkdir"]}}
    known = offered(entry, TOOLS)
    assert [[tool["name"] for tool in tools] for tools in known] == [
        ["cd", "pwd"],
        ["cd", "pwd"],
        ["cd", "mkdir", "pwd"],
    ]
    reference = [[Call("cd", {"folder": "a"})], [], [Call("mkdir", {"folder": "b"})]]
    row = row_of(entry | WORLD, known, reference, [["moved"], [], ["made"]])
    cases, faults = read_turns(row)
    assert not faults
    assert [[tool["name"] for tool in case["tools"]] for case in cases] == [["cd", "pwd"]] * 2 + [
        ["cd", "pwd", "mkdir"]
    ]
    assert cases[-1]["messages"][-1]["content"] == MORE
    assert ours(known, reference, reference)
    assert not ours(known, [[*reference[0]], [Call("mkdir", {})], []], [[*reference[0]], [Call("mkdir", {})], []])
