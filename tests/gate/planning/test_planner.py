"""What the planner predicts against the exact test's own rates, and against the gate deciding on drawn cases."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from qualgate.errors import UsageError
from qualgate.gate.advice import AIM
from qualgate.gate.planning.assumed import Assumed, seen_in
from qualgate.gate.planning.outcomes import (
    Columns,
    Drawn,
    decide_clusters,
    shape_of,
)
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.gate.planning.power import Prediction
from qualgate.records import ArmEvidence, Case, Evalset, Policy, Rule, UnitEvidence, UnitKey
from qualgate.records.metrics import TURNS
from qualgate.stats.cluster_bets import log_bets
from qualgate.stats.paired.compare import compare_clustered_pairs
from qualgate.stats.power import chance_to_approve, chance_to_block, pairs_to_approve
from tests.gate.planted import identity, of, run

METRIC = ("exact_match",)
GSM8K = PlannedSet(name="gsm8k", metrics=METRIC, cases=1_319)


def policy(*rules: Rule) -> Policy:
    return Policy(rules=rules)


def test_one_rule_has_the_exact_rates_of_its_test() -> None:
    one = PlannedSet(name="a", metrics=METRIC, cases=600)
    (rule,) = plan_policy([one], policy(Rule(metric="exact_match", max_drop=0.03)), search=False).rules
    assert rule.approve == pytest.approx(chance_to_approve(600, 0.03, 0.05), abs=0.012)
    assert rule.block == pytest.approx(chance_to_block(600, 0.03, 0.11, -0.06), abs=0.012)


def _turns(trajectories: int, each: int, **more) -> Evalset:
    cases = tuple(
        Case(evalset="shop", body={"id": f"t{n}/{turn}", "cluster": f"t{n}", "tags": [f"kind:{n % 2}"]} | more)
        for n in range(trajectories)
        for turn in range(1, each + 1)
    )
    return Evalset(name="shop", version="1", sha256="", metrics=(TURNS, "exact_match"), cases=cases)


def test_a_rule_on_trajectories_is_planned_as_so_many_single_cases() -> None:
    """And one on turns as cases in clusters."""
    one = PlannedSet.of(_turns(300, 4))
    rules = policy(Rule(metric=TURNS, max_drop=0.05), Rule(metric="exact_match", max_drop=0.05))
    whole, turns = plan_policy([one], rules, search=False).rules
    assert (whole.n, whole.clusters, turns.n, turns.clusters) == (300, None, 1200, 300)
    assert whole.approve == pytest.approx(chance_to_approve(300, 0.05, 0.05), abs=0.012)
    halves = plan_policy(
        [one], policy(*rules.rules, Rule(metric=TURNS, scope="tag:kind", max_drop=0.05)), search=False, draws=200
    ).rules
    assert [(rule.slice, rule.n) for rule in halves[2:]] == [("tag:kind:0", 150), ("tag:kind:1", 150)]
    assert (one.grown(2400).whole or one).cases == 600


def test_what_an_earlier_run_tells_of_trajectories_is_told_of_whole_ones() -> None:
    def arm(name: str, wrong: set[tuple[int, int]]) -> ArmEvidence:
        units = tuple(
            UnitEvidence(
                key=UnitKey(name, "shop", f"t{n}/{turn}"),
                case_hash=f"{n}/{turn}",
                status="done",
                values={TURNS: float((n, turn) not in wrong)},
            )
            for n in range(20)
            for turn in (1, 2, 3)
        )
        return ArmEvidence(name=name, identity=identity(name), units=units)

    arms = arm("baseline", {(0, 1), (0, 2)}), arm("int4", {(0, 3), (1, 1), (1, 2)})
    found = seen_in(of(*arms, metrics={"shop": (TURNS,)}))
    assert found.right(TURNS, "shop") == 19 / 20
    assert found.flips(TURNS, "shop") == (1 + 1) / (20 + 1)  # t0 is wrong in both, and t1 once


def test_the_cases_said_to_suffice_do_and_a_tenth_fewer_do_not() -> None:
    needed = pairs_to_approve(0.03, 0.06, 0.9)
    assert needed is not None
    assert chance_to_approve(needed, 0.03, 0.06) >= 0.9 > chance_to_approve(int(0.9 * needed), 0.03, 0.06)


def test_the_cases_said_to_suffice_show_that_the_baseline_is_right_often_enough_too() -> None:
    """Right on 55 % of them, where 10 points can be lost from 50 % on."""
    one, rules = PlannedSet(name="a", metrics=METRIC, cases=40), policy(Rule(metric="exact_match", max_drop=0.1))
    assumed = Assumed(default_baseline=0.55)
    needed = plan_policy([one], rules, assumed).rules[0].needed
    assert needed is not None
    enough, fewer = (plan_policy([one.grown(n)], rules, assumed).approve for n in (needed, int(0.8 * needed)))
    assert enough >= AIM - 0.02 > fewer
    assert plan_policy([one], rules, Assumed(default_baseline=0.5)).rules[0].needed is None, "no number would do"


def test_draws_with_clusters_are_decided_as_the_gate_decides_them() -> None:
    rng = np.random.default_rng(4)
    sizes = np.array([4] * 40 + [1] * 20 + [9] * 5)
    lost = rng.binomial(sizes, rng.choice([0.0, 0.12, 0.6], p=[0.6, 0.3, 0.1], size=(10, 65)))
    gained = rng.binomial(sizes - lost, 0.03)
    d = gained - lost
    capital = np.zeros(10)  # no bets are laid among so many single cases
    sums = Drawn(*(x.sum(axis=1) for x in (lost, gained, sizes - gained, d * d, d * sizes, lost + gained > 0)), capital)
    within, beyond = decide_clusters(sums, Counter(sizes.tolist()), (0.06, 0.06), 0.05, 0.05)
    for row in range(10):
        before, after = [], []
        for size, l, g in zip(sizes, lost[row], gained[row], strict=True):  # noqa: E741
            before += [1] * l + [0] * g + [1] * (size - l - g)
            after += [0] * l + [1] * g + [1] * (size - l - g)
        result = compare_clustered_pairs(before, after, np.repeat(np.arange(65), sizes), 0.06)
        assert (within[row], beyond[row]) == (result.p_within <= 0.05, result.p_beyond <= 0.05)


def test_draws_by_bets_are_decided_as_the_gate_decides_them() -> None:
    one = PlannedSet(name="a", metrics=METRIC, cases=330, clusters=(*[6] * 40, *[3] * 30))
    model = Prediction(sets=(one,), policy=policy(Rule(metric="exact_match", max_drop=0.06)), assumed=Assumed())
    (slice_,) = model.slices
    bets = model.bets[slice_]
    assert bets is not None
    columns = Columns.of([shape_of(kind, [None], 1) for kind in one.each()], Assumed(), 1)
    lost, gained, right = columns.draw(np.array([0.02, 0.02, 0.7, 0.26]), 30, np.random.default_rng(8))
    d, sizes = gained - lost, columns.sizes
    capital = log_bets(-d, sizes, bets.margin, bets.largest)
    parts = (lost, gained, right, d * d, d * sizes, lost + gained > 0, capital)
    sums = Drawn(*(x.sum(axis=1) for x in parts))
    within, beyond = model._decide(slice_, {slice_: sums})
    for row in range(30):
        before, after = [], []
        for size, l, g, r in zip(sizes, lost[row], gained[row], right[row], strict=True):  # noqa: E741
            before += [1] * r + [0] * (size - r)
            after += [0] * l + [1] * (r - l) + [1] * g + [0] * (size - r - g)
        result = compare_clustered_pairs(before, after, np.repeat(np.arange(70), sizes), 0.06)
        assert (within[row], beyond[row]) == (result.p_within <= 0.05, result.p_beyond <= 0.05)
    assert 5 < within.sum() < 30


def test_rules_that_no_change_saves_are_refused() -> None:
    weak = Assumed(default_baseline=0.1)
    planned = plan_policy([GSM8K], policy(Rule(metric="exact_match", max_drop=0.02)), weak)
    assert (planned.approve, planned.refused) == (0.0, True)


def test_same_arguments_same_numbers_and_rules_on_the_same_cases_are_not_independent() -> None:
    both = policy(Rule(metric="exact_match", max_drop=0.03), Rule(metric="exact_match", scope="evalset", max_drop=0.03))
    one = PlannedSet(name="a", metrics=METRIC, cases=500)
    first, again = (plan_policy([one], both, search=False) for _ in range(2))
    assert first == again
    assert first.approve == first.rules[0].approve == first.rules[1].approve


def test_too_few_clusters_or_cases_for_drift_say_so() -> None:
    few = PlannedSet(name="a", metrics=METRIC, cases=40)
    rules = (Rule(metric="exact_match", max_drop=0.1), Rule(metric="drift.kl_mean", max=0.05))
    planned = plan_policy([few], policy(*rules), search=False)
    assert planned.approve == 0.0
    assert planned.rules[1].note == "40 independent cases are too few (59 needed)"
    clustered = PlannedSet(name="a", metrics=METRIC, cases=60, clusters=(6,) * 10)
    assert plan_policy([clustered], policy(rules[0]), search=False).rules[0].approve == 0.0


def test_a_policy_that_does_not_fit_the_sets_is_refused_as_the_gate_refuses_it() -> None:
    with pytest.raises(UsageError, match=r"carries json\.valid"):
        plan_policy([GSM8K], policy(Rule(metric="json.valid", max_drop=0.02)))


def test_an_earlier_run_tells_how_often_answers_change() -> None:
    seen = seen_in(run(n=100, right=0.9, lost=0.03, gained=0.02))
    assert seen.disagreement["exact_match", "code"] == pytest.approx(6 / 101)  # 3 lost, 2 gained, one more
    assert seen.baseline["exact_match", "code"] == pytest.approx(0.9)


def test_a_set_with_shared_passages_is_seen_as_clusters() -> None:
    cases = [Case(evalset="a", body={"id": str(i)} | ({"cluster": f"p{i // 3}"} if i < 6 else {})) for i in range(8)]
    found = PlannedSet.of(Evalset(name="a", version="1", sha256="", metrics=METRIC, cases=tuple(cases)))
    assert (found.cases, sorted(found.clusters)) == (8, [1, 1, 3, 3])
    assert (
        PlannedSet.of(Evalset(name="a", version="1", sha256="", metrics=METRIC, cases=tuple(cases[6:]))).clusters == ()
    )
