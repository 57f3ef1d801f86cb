"""Rules on how long thoughts are: as those on answers, over the cases that have one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.comparisons.drift_summary import summarise
from qualgate.gate.comparisons.lengths import measure_lengths
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records import UNCOUNTED, Rule, UnitEvidence, UnitKey
from qualgate.records.metrics import THOUGHT

RULE = Rule(metric=THOUGHT, max=1.2)
SLICE = Slice(rule=RULE, name="pooled", evalsets=("s",))


def unit(arm: str, number: int, thought: int | None) -> UnitEvidence:
    key = UnitKey(arm, "s", str(number))
    return UnitEvidence(key=key, case_hash="h", status="done", tokens=200, thought=thought)


def pairs(before: list[int | None], after: list[int | None], most: int | None = 400) -> list[Pair]:
    numbered = enumerate(zip(before, after, strict=True))
    return [
        Pair(baseline=unit("baseline", at, b), variant=unit("v", at, v), cluster=at, max_new_tokens=most)
        for at, (b, v) in numbered
    ]


def drawn(n: int, times: float) -> list[Pair]:
    lengths = np.random.default_rng(3).integers(80, 120, n)
    return pairs([int(one) for one in lengths], [round(times * one) for one in lengths])


@pytest.mark.parametrize(("times", "status"), [(1.0, "proven"), (1.6, "broken")])
def test_thoughts_that_are_as_long_keep_it_and_longer_ones_break_it(times, status):
    found = measure_lengths(SLICE, drawn(400, times), 0.05)
    assert found.comparison.variant == pytest.approx(times, rel=0.01)
    assert (found.p_within <= 0.05) == (status == "proven")
    assert found.comparison.p_broken is not None
    assert (found.comparison.p_broken <= 0.05) == (status == "broken")


def test_cases_without_a_thought_are_no_part_of_it():
    some = [*drawn(400, 1.0), *pairs([None] * 50, [None] * 50)]
    assert measure_lengths(SLICE, some, 0.05).comparison.n == 400
    assert summarise(some) == {THOUGHT: pytest.approx(1.0)}


@pytest.mark.parametrize("thought", [UNCOUNTED, None])
def test_one_thought_that_nobody_counted_leaves_the_rule_open(thought):
    some = drawn(400, 1.0)
    some[7] = replace(some[7], variant=unit("v", 7, thought))
    found = measure_lengths(SLICE, some, 0.05)
    assert "the tokens of some thoughts were not counted" in found.obstacle
    assert THOUGHT not in summarise(some)


def test_without_any_thought_it_says_so():
    assert "no thought was counted" in measure_lengths(SLICE, pairs([None] * 30, [None] * 30), 0.05).obstacle
    assert "thoughts have no token" in measure_lengths(SLICE, pairs([0] * 30, [5] * 30), 0.05).obstacle


def test_where_thoughts_may_become_of_any_length_none_is_proven():
    some = [replace(pair, max_new_tokens=None) for pair in drawn(400, 1.0)]
    assert "is not known for 400 of 400 cases" in measure_lengths(SLICE, some, 0.05).obstacle
