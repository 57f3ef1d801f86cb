"""The planner's benchmark: its policies, its simulation of the gate, and a slice of what it measures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.records import Policy, Rule
from tests.verification.verdicts import planner_rates, simulated_verdicts
from tests.verification.verdicts.planned_policies import PLAIN, policies
from tests.verification.verdicts.simulated_verdicts import _answers, simulated


def _special(rule) -> bool:
    return bool(rule.where or rule.scope not in ("pooled", "evalset") or rule.repeats != "mean"
                or rule.max_relative_drop)  # fmt: skip


def test_every_kind_of_rule_is_among_the_policies_and_the_first_ones_stay_plain():
    cases = policies()
    assert len(cases) == len({case.name for case in cases}) == 50
    kinds = [any(_special(rule) for rule in case.policy.rules) or max(one.repeats for one in case.sets) > 1
             for case in cases]  # fmt: skip
    assert kinds == [False] * PLAIN + [True] * 14


@pytest.mark.parametrize(
    "name",
    [
        "GPQA at 1 point",
        pytest.param("tags of unequal size", marks=pytest.mark.proof),
        pytest.param("4 answers, pass@4 and pass^4", marks=pytest.mark.proof),
    ],
)
def test_predicted_rates_are_those_of_the_gates_own_tests_on_drawn_answers(name):
    case = next(case for case in policies() if case.name == name)
    planned = plan_policy(case.sets, case.policy, case.assumed, search=False)
    found = simulated(case.sets, case.policy, case.assumed, 6_000)
    assert abs(planned.approve - found.approve) <= 0.02
    assert abs(planned.block - found.block) <= 0.02
    assert found.checked >= 30
    assert not found.differing


@pytest.mark.parametrize(
    ("name", "draws"),
    [("passages across tags", 8), pytest.param("relative loss, pooled", 8, marks=pytest.mark.proof)],
)
def test_what_decides_every_draw_decides_as_the_gate_itself(name, draws, monkeypatch):
    case = next(case for case in policies() if case.name == name)
    monkeypatch.setattr(simulated_verdicts, "CHECKED", draws)
    found = simulated(case.sets, case.policy, case.assumed, draws, seed=1)
    assert found.checked >= 32  # both words of every slice, of both truths
    assert found.differing <= 0.01 * found.checked


@pytest.mark.proof
def test_bets_on_a_few_passages_are_foretold_and_simulated_as_the_gate_lays_them(monkeypatch):
    sets = [PlannedSet(name=name, metrics=("exact_match",), cases=size * count, clusters=(size,) * count)
            for name, size, count in (("a", 4, 60), ("b", 3, 50))]  # fmt: skip
    policy = Policy(
        rules=(Rule(metric="exact_match", max_drop=0.06), Rule(metric="exact_match", scope="evalset", max_drop=0.09))
    )
    monkeypatch.setattr(simulated_verdicts, "CHECKED", 16)
    found = simulated(sets, policy, Assumed(), 400)
    assert found.checked >= 90
    assert not found.differing
    planned = plan_policy(sets, policy, draws=4_000, search=False)
    assert planned.approve == pytest.approx(found.approve, abs=0.08)
    assert found.approve > 0.45  # where t and the effective size approved 0.25


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


@pytest.mark.proof
def test_what_a_file_holds_is_not_measured_again(tmp_path, monkeypatch):
    kept, chosen = tmp_path / "rounds.jsonl", policies()[4:5]
    first = planner_rates.planner_rates(chosen, 200, kept)
    monkeypatch.setattr(planner_rates, "simulated", None)
    assert planner_rates.planner_rates(chosen, 200, kept) == first
    assert [json.loads(line)["policy"] for line in kept.read_text().splitlines()] == ["GPQA at 1 point"]
