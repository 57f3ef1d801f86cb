"""The planner's benchmark: its policies, its simulation of the gate, and what its marks are given for."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.records import Policy, Rule
from qualgate.stats.power import chance_to_approve, chance_to_block
from tests.verification.verdicts.planned_policies import METRIC, PLAIN, SEEDED, policies, seeded
from tests.verification.verdicts.planner_rates import planner_rates, undecided
from tests.verification.verdicts.simulated_verdicts import drawn, simulated, with_whole_questions


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


def test_predicted_rates_are_those_of_decided_runs():
    case = next(case for case in policies() if case.name == "GPQA at 1 point")
    planned = plan_policy(case.sets, case.policy, case.assumed, search=False)
    same, worse = (simulated(case.sets, case.policy, case.assumed, 600, times=times) for times in (0.0, 2.0))
    assert abs(planned.approve - same.approve) <= 0.05
    assert abs(planned.block - worse.block) <= 0.05


@pytest.mark.parametrize(
    ("rate", "together", "met"), [(0.55, False, True), (0.3, False, False), (0.3, True, False), (0.9, True, True)]
)
def test_a_rate_that_is_surely_another_than_predicted_is_not_met(rate, together, met):
    sound = {"policy": "b", "together": False, "refused": False, "change": None, "approve": (0.5, 0.5, 0.02),
             "block": None, "after": None}  # fmt: skip
    odd = sound | {"together": together, "approve": (0.5, rate, 0.02)}
    assert (planner_rates([sound, odd])[0]["met"] is not False) == met


def test_what_any_of_several_answers_gives_follows_from_the_answers():
    one = PlannedSet(name="a", metrics=(METRIC,), cases=50, repeats=2)
    told = with_whole_questions([one], Assumed(default_baseline=0.6, repeat_correlation=0.0), METRIC)
    assert told.right(f"{METRIC} any", "a") == pytest.approx(1 - 0.4**2, abs=0.01)
    assert told.right(f"{METRIC} all", "a") == pytest.approx(0.6**2, abs=0.01)


def test_answers_of_a_question_and_questions_of_a_passage_correlate_as_told():
    one = PlannedSet(name="a", metrics=("m",), cases=60, clusters=(3,) * 20, repeats=2)
    told = Assumed(correlation=0.1, repeat_correlation=0.6, default_disagreement=0.2, default_baseline=0.5)
    before, after = (x.astype(int) for x in drawn(one, "m", told, 0.05, np.random.default_rng(0), 20_000))
    assert (np.mean(after < before), np.mean(after > before), before.mean()) == pytest.approx(
        (0.15, 0.1, 0.5), abs=0.003
    )
    d = (after - before).reshape(-1, 6)
    pairs = np.corrcoef(d.T)[np.triu_indices(6, 1)]
    assert pairs.mean() == pytest.approx((0.6 + 2 * 2 * 0.1) / 5, abs=0.01)
    assert abs(np.corrcoef(d[:-1, 0], d[1:, 0])[0, 1]) < 0.01  # of another passage


def test_undecided_and_both_errors_are_those_of_the_exact_test():
    one = PlannedSet(name="a", metrics=(METRIC,), cases=300)
    policy = Policy(rules=(Rule(metric=METRIC, max_drop=0.05),))
    same, worse = (simulated([one], policy, Assumed(), 1_500, times=times) for times in (0.0, 1.0))
    assert same.undecided == pytest.approx(1 - chance_to_approve(300, 0.05, 0.05), abs=0.045)
    assert worse.approve == pytest.approx(chance_to_approve(300, 0.05, 0.10, -0.05), abs=0.02)
    assert worse.block == pytest.approx(chance_to_block(300, 0.05, 0.10, -0.05), abs=0.02)


@pytest.mark.parametrize(
    ("fault", "met"),
    [({}, True), ({"undecided": 0.11}, False), ({"approve": 0.14}, False), ({"block": 0.14}, False)],
)  # fmt: skip
def test_more_undecided_or_an_error_beyond_alpha_is_not_met(fault, met):
    sound = {"policy": "a", "change": None, "refused": False, "cases": 60, "foretold": 0.9, "undecided": 0.1,
             "approve": 0.05, "block": 0.0, "draws": 100}  # fmt: skip
    assert (undecided([sound | fault])["met"] is not False) == met
