"""A turn is right as its tool calls are, under a metric that counts trajectories."""

from __future__ import annotations

import pytest

from qualgate.records import Case, Evalset
from qualgate.records.metrics import TURNS
from qualgate.scoring import registry

TOOLS = [{"name": "order", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}]
EVALSET = Evalset(name="shop", version="1", sha256="", metrics=(TURNS,))
RIGHT = '<tool_call>\n{"name": "order", "arguments": {"id": 7}}\n</tool_call>'


def case(**body) -> Case:
    calls = [{"name": "order", "arguments": {"id": 7}}]
    return Case(evalset="shop", body={"id": "refund/1", "tools": TOOLS, "expected_calls": calls} | body)


@pytest.mark.parametrize(
    ("answer", "expected", "verdict"),
    [
        (RIGHT, [{"name": "order", "arguments": {"id": 7}}], True),
        (RIGHT.replace("7", "8"), [{"name": "order", "arguments": {"id": 7}}], False),
        ("It was sent.", [{"name": "order", "arguments": {"id": 7}}], False),
        ("It was sent.", [], True),
        (RIGHT, [], False),
    ],
)
def test_the_right_action_is_the_expected_calls_or_none(answer, expected, verdict):
    asked = case(expected_calls=expected)
    score = registry.apply(registry.find("turns"), asked, EVALSET, answer)[TURNS]
    same = registry.apply(registry.find("tool_call"), asked, EVALSET, answer)["tool_call.correct"]
    assert (score.verdict, score.metric, score.scorer) == (verdict, TURNS, "turns/3")
    assert (score.value, score.error_type, score.reason) == (same.value, same.error_type, same.reason)


def test_a_declared_dialect_is_read_and_another_one_is_doubted():
    scorer = registry.in_dialect(registry.find("turns"), "mistral")
    written = '[TOOL_CALLS] [{"name": "order", "arguments": {"id": 7}}]'
    assert registry.apply(scorer, case(), EVALSET, written)[TURNS].verdict
    assert registry.apply(scorer, case(), EVALSET, RIGHT)[TURNS].verdict is None


def test_a_case_that_is_no_turn_of_a_trajectory_is_refused():
    scorer = registry.find("turns")
    assert not list(scorer.unscorable(case().body, EVALSET))
    for strange in ("refund", "/1", "refund/0", "refund/x", "refund/01", "refund/-1"):
        assert "no turn of one" in next(scorer.unscorable(case(id=strange).body, EVALSET))
