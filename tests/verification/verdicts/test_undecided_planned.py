"""The row of undecided identical variants: its policies, its truths, and what its marks are given for."""

from __future__ import annotations

import json

import pytest

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.records import Policy, Rule
from qualgate.stats.power import chance_to_approve, chance_to_block
from tests.verification.verdicts.planned_policies import METRIC
from tests.verification.verdicts.simulated_verdicts import simulated
from tests.verification.verdicts.undecided_planned import POLICIES, seeded, undecided


def test_there_are_at_least_250_seeded_policies_with_and_without_passages():
    cases = seeded()
    assert len(cases) == POLICIES >= 250
    assert seeded(8) == cases[:8]
    passages = sum(any(one.clusters for one in case.sets) for case in cases)
    assert 0.3 * len(cases) < passages < 0.8 * len(cases)


def test_undecided_and_both_errors_are_those_of_the_exact_test():
    one = PlannedSet(name="a", metrics=(METRIC,), cases=300)
    policy = Policy(rules=(Rule(metric=METRIC, max_drop=0.05),))
    found = simulated([one], policy, Assumed(), 6_000, times=1.0)
    assert found.undecided == pytest.approx(1 - chance_to_approve(300, 0.05, 0.05), abs=0.02)
    assert found.passed == pytest.approx(chance_to_approve(300, 0.05, 0.10, -0.05), abs=0.012)
    assert found.block == pytest.approx(chance_to_block(300, 0.05, 0.10, -0.05), abs=0.012)
    assert max(found.passed, found.block) <= 0.05 + 0.012


@pytest.mark.proof
def test_a_policy_of_passages_is_rarely_undecided_at_the_planners_cases():
    row = undecided([case for case in seeded(5) if case.name in ("seeded 4", "seeded 2")])
    assert row.measured["undecided"] <= 0.10
    assert max(row.measured["approve"], row.measured["block"]) <= 0.05
    assert row.measured["changed"] == 1
    assert row.met


def test_more_undecided_or_an_error_beyond_alpha_is_not_met(tmp_path):
    kept, case = tmp_path / "rounds.jsonl", seeded(1)
    sound = {"policy": case[0].name, "change": None, "refused": False, "cases": 60, "foretold": 0.9, "undecided": 0.1,
             "approve": 0.05, "block": 0.0, "checked": 32, "differing": 0}  # fmt: skip
    for fault, met in (({}, True), ({"undecided": 0.11}, False), ({"approve": 0.06}, False), ({"block": 0.06}, False),
                       ({"differing": 1}, False)):  # fmt: skip
        kept.write_text(json.dumps(sound | fault) + "\n")
        assert undecided(case, kept).met is met
