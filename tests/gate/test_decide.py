"""The one door to a verdict: which way decides follows from the policy alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate import decide as door
from qualgate.gate.peers.nel_policy import NelPolicy, as_text
from qualgate.records import EarlyStop, FourArms, Policy, Rule
from tests.gate.planted import run

PLAIN = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))
LOOKS = replace(PLAIN, stop=EarlyStop(seed=1, looks=(32, 64)))
NEL = replace(PLAIN, nel=as_text(NelPolicy()))
FOUR = replace(NEL, four_arm=FourArms(quantization="int4", speculation="drafted", both="int4+drafted"))
WAYS = {"decide_plain": PLAIN, "decide_early": LOOKS, "decide_by": NEL, "decide_four": FOUR}


@pytest.mark.parametrize(("way", "policy"), WAYS.items())
def test_the_policy_says_which_way_decides_and_no_other_is_asked(monkeypatch, way, policy):
    asked = []

    def asks(name):
        def answer(*given):
            asked.append(name)
            return ((), policy, ()) if name == "decide_by" else ()

        return answer

    for name in WAYS:
        monkeypatch.setattr(door, name, asks(name))
    assert door.decide(run(), policy) == door.Decided(verdicts=(), policy=policy)
    assert asked == [way]


def test_a_stop_that_planned_no_looks_is_decided_by_the_rules_on_all_cases():
    policy = replace(PLAIN, stop=EarlyStop(seed=1, looks=()))
    assert door.decide(run(), policy).verdicts == door.decide_plain(run(), policy)
