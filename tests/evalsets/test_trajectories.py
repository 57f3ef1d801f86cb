"""A row with `turns` is as many cases, each asked with what was recorded before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qualgate import evalsets
from qualgate.records import Evalset
from tests.evalsets.tables import rows_of

TOOLS = [
    {"name": "order", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
    {"name": "cancel", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
]
ORDER = {"name": "order", "arguments": {"id": 7}}
HEADER = "metrics: [tool_call.correct, turns.correct]"
FIRST = {"user": "Order 7?", "expected_calls": [ORDER], "results": [{"status": "sent"}]}
SPOKEN = {"expected_calls": [], "says": "It was sent."}
LAST = {"user": "Cancel it.", "expected_calls": [{"cancel": {"id": [7, ""]}}]}
ROW = {"id": "refund", "max_new_tokens": 20, "tools": TOOLS, "tags": ["shop"], "turns": [FIRST, SPOKEN, LAST]}


def read(path) -> Evalset:
    found = evalsets.read(path)
    assert isinstance(found, Evalset)
    return found


def faults(write, *rows: Any, header: str = HEADER) -> list[str]:
    return [fault.message for fault in evalsets.check(write(list(rows), header))]


def test_each_turn_is_asked_with_the_recorded_calls_and_results_before_it(write):
    system = {"role": "system", "content": "Be brief."}
    cases = read(write([ROW | {"messages": [system]}], HEADER)).cases
    call = {"id": "000100000", "type": "function", "function": {"name": "order", "arguments": '{"id": 7}'}}
    recorded = [
        system,
        {"role": "user", "content": "Order 7?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "000100000", "name": "order", "content": '{"status": "sent"}'},
        {"role": "assistant", "content": "It was sent."},
        {"role": "user", "content": "Cancel it."},
    ]
    assert [case.id for case in cases] == ["refund/1", "refund/2", "refund/3"]
    assert [case.body["messages"] for case in cases] == [recorded[:2], recorded[:4], recorded]
    assert [case.body["expected_calls"] for case in cases] == [[ORDER], [], LAST["expected_calls"]]
    assert {case.cluster for case in cases} == {"refund"}
    assert [case.tags for case in cases] == [("shop", f"turn:{number}") for number in (1, 2, 3)]
    assert len({case.hash for case in cases}) == 3
    assert all("turns" not in case.body for case in cases)


def test_a_call_is_recorded_with_the_first_of_its_accepted_values(write):
    turns = [{"user": "a", "expected_calls": [{"order": {"id": [3, 4]}}, {"cancel": {"id": ["", 5]}}]}, LAST]
    turns[0]["results"] = ["one", "two"]
    messages = read(write([ROW | {"turns": turns}], HEADER)).cases[1].body["messages"]
    made = [call["function"] for call in messages[1]["tool_calls"]]
    assert [json.loads(call["arguments"]) for call in made] == [{"id": 3}, {"id": 5}]
    assert [one["content"] for one in messages[2:4]] == ["one", "two"]
    assert [one["tool_call_id"] for one in messages[2:4]] == [call["id"] for call in messages[1]["tool_calls"]]


def test_rows_keep_their_own_cluster_and_turns_their_own_limit(write):
    turns = [FIRST, SPOKEN | {"max_new_tokens": 99}]
    first, second = read(write([ROW | {"turns": turns, "cluster": "shop"}], HEADER)).cases
    assert (first.cluster, second.cluster, first.max_new_tokens, second.max_new_tokens) == ("shop", "shop", 20, 99)


def test_tools_of_a_turn_are_offered_from_it_on(write):
    waits = {"user": "Cancel it.", "expected_calls": [], "says": "I cannot."}
    turns = [FIRST, SPOKEN, waits, {"user": "Now you can.", "tools": TOOLS[1:], **LAST}, LAST]
    turns[3]["results"] = ["done"]
    cases = read(write([ROW | {"tools": TOOLS[:1], "turns": turns}], HEADER)).cases
    assert [case.body["tools"] for case in cases] == [TOOLS[:1]] * 3 + [TOOLS] * 2
    found = faults(write, ROW | {"tools": TOOLS[:1], "turns": [FIRST, SPOKEN, LAST]})
    assert len(found) == 1
    assert "which no tool is called" in found[0]


@pytest.mark.parametrize(("turns", "message"), rows_of("turns"))
def test_turns_that_nobody_can_be_asked_are_refused(write, turns, message):
    found = faults(write, ROW | {"turns": turns})
    assert len(found) == 1
    assert message in found[0]


def test_what_is_wrong_with_every_turn_is_told_once(write):
    found = faults(write, {key: value for key, value in ROW.items() if key != "tools"})
    assert len([one for one in found if "needs `tools`" in one]) == 1


def test_the_turns_of_other_datasets_whose_rows_ask_something_beside_are_their_own(write):
    case = {"id": "a", "prompt": "What is 1 + 1?", "answer": "2", "max_new_tokens": 3, "turns": ["Hello", "And?"]}
    assert not faults(write, case, header="metrics: [exact_match]")


def test_other_bad_rows_with_turns_are_refused(write):
    assert "duplicate id 'refund'; first on line 1" in faults(write, ROW, ROW)
    written_out = {"id": "refund/2", "max_new_tokens": 3, "prompt": "a", "tools": TOOLS, "expected_calls": []}
    assert "duplicate id 'refund/2'; first on line 1" in faults(write, ROW, written_out)
    again = faults(write, ROW, ROW | {"id": "other"})
    assert any("asks what line 1 asks" in one and "same `cluster`" in one for one in again)
    assert not faults(write, ROW | {"cluster": "a"}, ROW | {"id": "other", "cluster": "a"})
    assert "`prompt` beside `turns`" in faults(write, ROW | {"prompt": "a"})[0]
    assert "`expected_calls` beside `turns`" in faults(write, ROW | {"expected_calls": []})[0]
    assert "`messages` must be a list" in faults(write, ROW | {"messages": "Be brief."})[0]
    assert "`tags` must be a list" in faults(write, ROW | {"tags": "shop"})[0]
    alone = {"id": "a", "max_new_tokens": 3, "prompt": "a", "tools": TOOLS, "expected_calls": []}
    assert "this case is no turn of one" in faults(write, alone)[0]
    assert not faults(write, alone | {"id": "a/1"})
    for header in ("metrics: [exact_match]", "kind: calibration"):
        assert "the set has no metric of them" in faults(write, ROW, header=header)[0]
