"""Outputs and values are judged as LiveCodeBench and EvalPlus, run beside us, judged the same ones."""

from __future__ import annotations

import json
from pathlib import Path

from qualgate.scoring.unit_tests.examples import difference
from qualgate.scoring.unit_tests.reference import Inputs, Rule

ROWS = [json.loads(line) for line in Path(__file__).with_name("code_peers.jsonl").read_text("utf-8").splitlines()[1:]]


def values(text: str) -> list:
    """Numbers that are no numbers are others each time, as if each side had made its own."""
    return eval(text, {"nan": float("nan"), "inf": float("inf")})  # rows of our own


def test_outputs_are_right_where_livecodebench_says_so():
    rows = [row for row in ROWS if "printed" in row]
    assert len(rows) == 300
    for row in rows:
        assert (difference(row["printed"], row["due"]) == "") is row["right"], row


def test_values_are_right_where_evalplus_says_so():
    rows = [row for row in ROWS if "values" in row]
    assert len(rows) == 200
    for row in rows:
        rule = Rule(Inputs(program="", name=row["name"], base=[], plus=[], atol=row["atol"], task=row["set"]))
        asked = zip(values(row["values"]), values(row["due"]), values(row["arguments"]), row["right"], strict=True)
        for value, due, arguments, right in asked:
            assert holds(rule, value, due, arguments) is right, (row, value, due)


def holds(rule: Rule, *asked) -> bool:
    try:
        return rule.holds(*asked)
    except Exception:  # what cannot be compared is wrong
        return False
