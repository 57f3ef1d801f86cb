"""The one door to a verdict: which way decides follows from the policy alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate import decide as door
from qualgate.gate.peers.nel_policy import NelPolicy, as_text
from qualgate.records import EarlyStop, Policy, Rule
from tests.gate import four
from tests.gate.planted import run

PLAIN = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))
NEL = replace(PLAIN, nel=as_text(NelPolicy()))


def test_a_stop_that_planned_no_looks_is_decided_by_the_rules_on_all_cases():
    policy = replace(PLAIN, stop=EarlyStop(seed=1, looks=()))
    assert door.decide(run(), policy).verdicts == door.decide_plain(run(), policy)
    assert door.decide(replace(run(), judged_before={"int4": 120}), policy).verdicts[0].exit == 12


def test_a_variant_whose_list_was_judged_when_it_held_less_is_not_for_the_fixed_tests():
    evidence = run()
    (asked,) = door.decide(evidence, PLAIN).verdicts
    assert asked.word == "approve"
    (again,) = door.decide(replace(evidence, judged_before={asked.variant: 120}), PLAIN).verdicts
    assert (again.word, again.exit) == ("undecided", 12)
    assert again.reasons[0].startswith("this list was judged before at 120 answers: two tests of one list err more")
    assert "judge cases that no look has seen, as an evalset of their own" in again.reasons[0]
    assert door.decide(replace(evidence, judged_before={"another": 120}), PLAIN).verdicts == (asked,)


def test_broken_evidence_stays_that_at_any_look():
    evidence = replace(run(), integrity=("a digest",))
    (broken,) = door.decide(evidence, PLAIN).verdicts
    assert door.decide(replace(evidence, judged_before={broken.variant: 120}), PLAIN).verdicts == (broken,)


@pytest.mark.parametrize(("lost", "word"), [(0.0, "approve"), (0.6, "block")])
def test_after_another_look_a_run_that_stops_early_neither_approves_nor_blocks(lost, word):
    evidence = run(lost=lost)
    policy = replace(PLAIN, stop=EarlyStop(seed=1, looks=(len(evidence.baseline.units),)))
    (alone,) = door.decide(evidence, policy).verdicts
    (again,) = door.decide(replace(evidence, judged_before={alone.variant: 120}), policy).verdicts
    assert (alone.word, again.word, again.exit) == (word, "undecided", 12)


def test_of_four_arms_a_look_at_one_was_a_look_at_the_choice():
    seconds = dict(zip(four.NAMES, (1.0, 0.7, 0.7, 0.4), strict=True))
    right = dict.fromkeys(four.NAMES, np.ones(400))
    evidence = four.evidence(right, seconds)
    assert door.decide(evidence, four.POLICY).exit == 0
    decided = door.decide(replace(evidence, judged_before={"int4": 120}), four.POLICY)
    assert decided.exit == 12
    assert {verdict.word for verdict in decided.verdicts} == {"undecided"}


@pytest.mark.parametrize("policy", [PLAIN, NEL, four.POLICY, replace(PLAIN, alpha=0.3)])
@pytest.mark.parametrize("lost", [0.0, 0.6])
def test_a_trial_neither_passes_nor_blocks_by_whichever_policy_it_is_judged(policy, lost):
    seconds = dict(zip(four.NAMES, (1.0, 0.7, 0.7, 0.4), strict=True))
    right = dict.fromkeys(four.NAMES, np.ones(400))
    evidence = four.evidence(right, seconds) if policy is four.POLICY else run(lost=lost)
    if policy in (PLAIN, four.POLICY):
        assert door.decide(evidence, policy).exit == (10 if lost and policy is PLAIN else 0)
    decided = door.decide(replace(evidence, decides_nothing="trial: 10 of 60 cases"), policy)
    assert {one.word for one in decided.verdicts} == {"undecided"}
    assert (decided.exit, {one.exit for one in decided.verdicts}) == (12, {12})
    assert all(one.reasons[0].startswith("trial: 10 of 60 cases: it decides nothing") for one in decided.verdicts)


@pytest.mark.parametrize(("fault", "code"), [({"integrity": ("changed",)}, 14), ({"expected": ()}, 14)])
def test_a_trial_that_is_broken_is_broken(fault, code):
    (verdict,) = door.decide(replace(run(), decides_nothing="trial: 10 of 60 cases", **fault), PLAIN).verdicts
    assert (verdict.exit, verdict.word) == (code, "invalid")
