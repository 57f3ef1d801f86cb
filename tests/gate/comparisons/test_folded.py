"""Rules on trajectories count each as right when all of its turns are, in the same repeat; pass^k counts repeats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.gate.early import in_sequence
from qualgate.gate.four_arm.interaction import interactions
from qualgate.gate.rules import check_policy
from qualgate.records import ArmEvidence, Comparison, Policy, Rule, RunEvidence, UnitEvidence, UnitKey
from qualgate.records.metrics import TURNS
from qualgate.stats.paired.compare import compare_clustered_pairs, compare_pairs
from tests.gate.planted import identity, of

Outcomes = np.ndarray  # [trajectories, turns, repeats] of 0, 1 and NaN, which nobody could judge


def arm(name: str, outcomes: Outcomes, case_id: Callable[[int, int], str]) -> ArmEvidence:
    units = []
    for (trajectory, turn, repeat), value in np.ndenumerate(outcomes):
        at = case_id(trajectory, turn + 1)
        units.append(
            UnitEvidence(
                key=UnitKey(name, "shop", at, repeat),
                case_hash=f"sha {at}",
                status="done",
                values={TURNS: None if np.isnan(value) else float(value), "exact_match": 1.0},
                scorers={TURNS: "turns/1", "exact_match": "exact_match/1"},
                tokens=9,
                cluster=f"t{trajectory}",
            )
        )
    return ArmEvidence(name=name, identity=identity(name), units=tuple(units))


def run(before: Outcomes, after: Outcomes, case_id: Callable[[int, int], str] = "t{}/{}".format) -> RunEvidence:
    metrics = {"shop": (TURNS, "exact_match")}
    return of(arm("baseline", before, case_id), arm("int4", after, case_id), metrics=metrics)


def compared(evidence: RunEvidence, repeats: str = "mean", *, relative: bool = False) -> Comparison:
    bounds = (None, 0.1) if relative else (0.1, None)
    rule = Rule(metric=TURNS, repeats=repeats, max_drop=bounds[0], max_relative_drop=bounds[1])
    (verdict,) = decide(evidence, Policy(rules=(rule,))).verdicts
    return verdict.comparisons[0]


def drawn(trajectories: int, turns: int, repeats: int = 1, *, right: float = 0.95, seed: int = 0) -> Outcomes:
    return (np.random.default_rng(seed).random((trajectories, turns, repeats)) < right).astype(float)


def test_a_trajectory_counts_once_and_is_right_when_all_of_its_turns_are():
    before, after = drawn(60, 4, seed=1), drawn(60, 4, seed=2)
    told = compared(run(before, after))
    whole = before.min(1)[:, 0], after.min(1)[:, 0]
    lost, gained = int(((whole[0] == 1) & (whole[1] == 0)).sum()), int(((whole[0] == 0) & (whole[1] == 1)).sum())
    assert (told.n, told.clusters, told.lost, told.gained) == (60, None, lost, gained)
    assert (told.baseline, told.variant) == (whole[0].mean(), whole[1].mean())
    exact = compare_pairs(lost, gained, 60, 0.1, 0.05)  # of single cases: a trajectory is one
    assert (told.lower, told.upper) == (exact.lower, exact.upper)
    assert compared(run(before, after), relative=True).n == 60


def test_trajectories_of_unlike_length_and_of_slashes_in_their_names_are_told_apart():
    def case_id(trajectory: int, turn: int) -> str:
        return f"a/{trajectory // 2}/{turn + 3 * (trajectory % 2)}"  # two of the array are one, of twice the turns

    before, after = np.ones((40, 3, 1)), np.ones((40, 3, 1))
    after[0, 0] = after[1, 2] = after[4, 1] = 0
    told = compared(run(before, after, case_id))
    assert (told.n, told.lost) == (20, 2)


def test_repeats_of_a_trajectory_are_one_cluster_and_each_is_whole_by_itself():
    before, after = drawn(50, 3, 4, seed=3), drawn(50, 3, 4, right=0.9, seed=4)
    told = compared(run(before, after))
    was, now = before.min(1), after.min(1)  # [trajectories, repeats]
    expected = compare_clustered_pairs(was.ravel(), now.ravel(), np.repeat(np.arange(50), 4), 0.1, 0.05)
    assert (told.n, told.clusters) == (200, 50)
    assert (told.lower, told.upper) == pytest.approx((expected.lower, expected.upper))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_k_is_the_mean_over_all_draws_of_k_repeats(k):
    before, after = drawn(50, 3, 4, seed=5), drawn(50, 3, 4, right=0.9, seed=6)
    told = compared(run(before, after), f"pass^{k}")
    for found, outcomes in ((told.baseline, before), (told.variant, after)):
        rates = [np.mean([min(draw) for draw in combinations(one, k)]) for one in outcomes.min(1)]
        assert found == pytest.approx(np.mean(rates))
    assert told.n == 50
    if k == 4:
        whole = compared(run(before, after), "all")
        assert (whole.baseline, whole.variant, whole.lower) == (told.baseline, told.variant, told.lower)


def test_a_turn_that_nobody_could_judge_neither_approves_nor_blocks():
    before, after = np.ones((80, 3, 1)), np.ones((80, 3, 1))
    sure = compared(run(before, after))
    after[:20, 1] = np.nan
    doubted = compared(run(before, after))
    assert (sure.status, doubted.status) == ("proven", "undecided")
    after[:20, 0] = 0  # it is wrong at another turn: what nobody knows does not matter
    assert compared(run(before, after)).status == "broken"


@pytest.mark.parametrize(
    ("repeats", "turn", "why"),
    [
        ("mean", "t{}".format, "is no turn of one (TRAJECTORY/1)"),
        ("pass^2", "t{}".format, "is no turn of one (TRAJECTORY/1)"),
        ("pass^3", "t{}/{}".format, "pass^3 needs 3 answers to each case, there are 2"),
    ],
)
def test_a_case_that_is_no_turn_or_more_repeats_than_there_are_decide_nothing(repeats, turn, why):
    told = compared(run(np.ones((90, 1, 2)), np.ones((90, 1, 2)), turn), repeats)
    assert (told.status, why in told.reason) == ("undecided", True), told.reason


def test_rules_on_trajectories_wait_for_all_answers_where_generation_may_stop_early():
    """Cases come one by one there, and the test for looks counts each as it comes."""
    assert in_sequence(Rule(metric="tool_call.correct", max_drop=0.1))
    assert not in_sequence(Rule(metric=TURNS, max_drop=0.1))


def test_an_interaction_of_two_changes_is_one_of_trajectories():
    """Each change spoils one turn of the first four trajectories, which both together spoil once more."""
    outcomes = {name: np.ones((40, 3, 1)) for name in ("baseline", "int4", "drafted", "both")}
    for name, turn in (("int4", 0), ("drafted", 2), ("both", 0), ("both", 2)):
        outcomes[name][:4, turn] = 0
    units = {name: list(arm(name, one, "t{}/{}".format).units) for name, one in outcomes.items()}
    policy = Policy(rules=(Rule(metric=TURNS, max_drop=0.1),))
    slices = check_policy(policy, {"shop": (TURNS,)})
    (found,) = interactions(slices, units, list(outcomes), np.repeat(np.arange(40), 3), policy)
    assert (found.n, found.clusters) == (40, 40)
    assert found.estimate == pytest.approx((36 - 36 - 36 + 40) / 40)
