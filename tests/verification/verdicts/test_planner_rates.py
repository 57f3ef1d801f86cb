"""The planner's benchmark: its policies, its simulation of the gate, and what its marks are given for."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.records import Policy, Rule
from qualgate.stats.power import chance_to_approve, chance_to_block
from tests.verification.verdicts import simulated_verdicts
from tests.verification.verdicts.planned_policies import METRIC, PLAIN, SEEDED, policies, seeded
from tests.verification.verdicts.planner_rates import undecided
from tests.verification.verdicts.simulated_verdicts import _answers, simulated


def _special(rule) -> bool:
    return bool(rule.where or rule.scope not in ("pooled", "evalset") or rule.repeats != "mean"
                or rule.max_relative_drop)  # fmt: skip


def test_policies_are_of_every_kind_and_the_first_ones_stay_as_they_are():
    cases = policies()
    assert len(cases) == len({case.name for case in cases}) == 50
    kinds = [any(_special(rule) for rule in case.policy.rules) or max(one.repeats for one in case.sets) > 1
             for case in cases]  # fmt: skip
    assert kinds == [False] * PLAIN + [True] * 14
    assert len(seeded()) == SEEDED >= 250
    assert seeded(8) == seeded()[:8]
    passages = sum(any(one.clusters for one in case.sets) for case in seeded())
    assert 0.3 * SEEDED < passages < 0.8 * SEEDED


def test_predicted_rates_are_those_of_the_gates_own_tests_on_drawn_answers():
    case = next(case for case in policies() if case.name == "GPQA at 1 point")
    planned = plan_policy(case.sets, case.policy, case.assumed, search=False)
    found = simulated(case.sets, case.policy, case.assumed, 6_000)
    assert abs(planned.approve - found.approve) <= 0.02
    assert abs(planned.block - found.block) <= 0.02
    assert found.checked >= 30
    assert not found.differing


def test_what_decides_every_draw_decides_as_the_gate_itself(monkeypatch):
    case = next(case for case in policies() if case.name == "passages across tags")
    monkeypatch.setattr(simulated_verdicts, "CHECKED", 8)
    found = simulated(case.sets, case.policy, case.assumed, 8, seed=1)
    assert found.checked >= 32  # both words of every slice, of both truths
    assert not found.differing


def test_another_decision_than_the_gates_would_be_counted(monkeypatch):
    case = policies()[4]
    monkeypatch.setattr(simulated_verdicts, "_of_single_answers", lambda sums, n, *_: (sums.lost >= 0, sums.lost >= n))
    assert simulated(case.sets, case.policy, case.assumed, 60).differing > 5


def test_answers_of_a_question_and_questions_of_a_passage_correlate_as_told():
    one = PlannedSet(name="a", metrics=("m",), cases=60, clusters=(3,) * 20, repeats=2)
    told = Assumed(correlation=0.1, repeat_correlation=0.6, default_disagreement=0.2, default_baseline=0.5)
    drawn = _answers(one, "m", told, 0.05, 20_000, np.random.default_rng(0))
    lost, gained, right = (which.mean() for which in drawn)
    assert (lost, gained, right) == pytest.approx((0.15, 0.1, 0.5), abs=0.003)
    d = (drawn[1].astype(int) - drawn[0]).reshape(-1, 6)
    pairs = np.corrcoef(d.T)[np.triu_indices(6, 1)]
    assert pairs.mean() == pytest.approx((0.6 + 2 * 2 * 0.1) / 5, abs=0.01)
    assert abs(np.corrcoef(d[:-1, 0], d[1:, 0])[0, 1]) < 0.01  # of another passage


def test_undecided_and_both_errors_are_those_of_the_exact_test():
    one = PlannedSet(name="a", metrics=(METRIC,), cases=300)
    policy = Policy(rules=(Rule(metric=METRIC, max_drop=0.05),))
    found = simulated([one], policy, Assumed(), 6_000, times=1.0)
    assert found.undecided == pytest.approx(1 - chance_to_approve(300, 0.05, 0.05), abs=0.02)
    assert found.passed == pytest.approx(chance_to_approve(300, 0.05, 0.10, -0.05), abs=0.012)
    assert found.block == pytest.approx(chance_to_block(300, 0.05, 0.10, -0.05), abs=0.012)
    assert max(found.passed, found.block) <= 0.05 + 0.012


@pytest.mark.parametrize(
    ("fault", "met"),
    [({}, True), ({"undecided": 0.11}, False), ({"approve": 0.06}, False), ({"block": 0.06}, False),
     ({"differing": 1}, False)],
)  # fmt: skip
def test_more_undecided_or_an_error_beyond_alpha_is_not_met(fault, met):
    sound = {"policy": "a", "change": None, "refused": False, "cases": 60, "foretold": 0.9, "undecided": 0.1,
             "approve": 0.05, "block": 0.0, "checked": 32, "differing": 0}  # fmt: skip
    assert undecided([sound | fault]).met is met
