from __future__ import annotations

from qualgate.bench.planning import early, fixed_pairs, peeking, policies, simulated
from qualgate.gate.planner import plan_policy


def test_predicted_rates_are_those_of_the_gates_own_tests_on_drawn_cases():
    for case in policies(6)[4:6]:
        planned = plan_policy(case.sets, case.policy, case.assumed)
        found = simulated(case.sets, case.policy, case.assumed, 10_000)
        assert abs(planned.approve - found.approve) <= 0.02
        assert abs(planned.block - found.block) <= 0.02


def test_early_stopping_saves_cases_both_ways():
    identical, twice, worst = early(150, (0.05,))
    assert identical.measured["mean"] > 0.25
    assert twice.measured["mean"] > 0.25
    assert fixed_pairs(0.05, 0.05, beyond=False) < fixed_pairs(0.05, 0.05, beyond=True)
    assert worst.rounds


def test_the_best_moment_to_look_is_no_better_than_alpha():
    row = peeking(8_000, 200)
    assert row.met
    assert row.measured["schedules"] >= 8_000
