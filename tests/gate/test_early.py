"""Stopping early: what is settled, what waits, and that looking at it does not make it up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.errors import Exit, UsageError
from qualgate.gate.early import decide_early, lay_out, look, presumed_of, seeded_order
from qualgate.gate.early import order_of as order_of_run
from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.early_stop import until_settled
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.records import Case, EarlyStop, Policy, Quarantine, Rule, RunEvidence, UnitKey
from qualgate.stats.betting import METHOD_SEQUENTIAL, compare_in_sequence, presume
from qualgate.stats.intervals import binomial_lower
from tests.depth import examples
from tests.gate.planted import run, with_each, with_units

METRICS = {"code": ("exact_match",)}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))
EARLY = replace(POLICY, stop=EarlyStop(seed=0))


def order_of(evidence: RunEvidence, seed: int = 0):
    cases = [Case(evalset=unit.key.evalset, body={"id": unit.key.case_id}) for unit in evidence.baseline.units]
    return seeded_order(cases, seed)


def first(evidence: RunEvidence, order, n: int) -> RunEvidence:
    """The same run while the variant has answered the first n clusters of the order only."""
    seen = {question for cluster in order[:n] for question in cluster}
    variant = evidence.variants[0]
    units = tuple(u for u in variant.units if (u.key.evalset, u.key.case_id, u.key.repeat) in seen)
    return replace(evidence, variants=(replace(variant, units=units),))


def test_an_equal_variant_is_approved_long_before_the_end_and_stays_so() -> None:
    evidence = run(n=600, metrics=METRICS)
    order = order_of(evidence)
    open_ = look(first(evidence, order, 40), POLICY, "int4", order)
    assert not open_.settled
    assert open_.verdict.comparisons[0].needed is None, "no other test's number of cases"
    found = look(first(evidence, order, 150), POLICY, "int4", order)
    assert (found.verdict.word, found.settled, found.seen) == ("approve", True, 150)
    assert found.verdict.comparisons[0].method == METHOD_SEQUENTIAL
    assert look(evidence, POLICY, "int4", order).verdict.word == "approve"


def test_only_the_beginning_of_the_order_counts_and_a_failed_unit_ends_it() -> None:
    evidence = run(n=300, metrics=METRICS)
    order = order_of(evidence)
    _, third, _ = order[2][0]
    broken = with_each(
        evidence, "variant", lambda u: replace(u, status="error", error="x") if u.key.case_id == third else u
    )
    found = look(broken, POLICY, "int4", order)
    assert (found.seen, found.settled) == (2, False)


def test_nothing_answered_yet_is_no_verdict() -> None:
    evidence = run(n=100, metrics=METRICS)
    order = order_of(evidence)
    found = look(first(evidence, order, 0), POLICY, "int4", order)
    assert (found.seen, found.settled) == (0, False)
    assert found.verdict.exit != Exit.APPROVE


def test_an_order_of_another_list_is_refused() -> None:
    evidence = run(n=100, metrics=METRICS)
    with pytest.raises(UsageError, match="closed list"):
        look(evidence, POLICY, "int4", order_of(evidence)[:-1])
    with pytest.raises(UsageError, match="no variant"):
        look(evidence, POLICY, "int5", order_of(evidence))


@pytest.mark.parametrize(
    "rule",
    [
        Rule(metric="exact_match", max_relative_drop=0.1),
        Rule(metric="exact_match", max_drop=0.05, repeats="all"),
        Rule(metric="latency.e2e", max_ratio=1.5),
        Rule(metric="drift.kl_mean", max=0.05),
    ],
)
def test_a_rule_without_a_test_for_many_looks_waits_for_every_case_and_is_asked_then(rule) -> None:
    policy = replace(POLICY, rules=(*POLICY.rules, rule))
    equal, worse = run(n=400, metrics=METRICS), run(n=400, lost=0.3, metrics=METRICS)
    order = order_of(equal)
    waiting = look(first(equal, order, 300), policy, "int4", order)
    assert [one.status for one in waiting.verdict.comparisons] == ["proven", "undecided"]
    assert (waiting.verdict.word, waiting.settled) == ("undecided", False)
    assert "once every case is in" in waiting.verdict.reasons[0]
    whole = look(equal, policy, "int4", order)
    assert (whole.verdict.word, whole.settled) == ("approve", True)
    assert look(first(worse, order, 100), policy, "int4", order).verdict.word == "block", "and nothing else waits"


def fallen(evidence: RunEvidence) -> list[str]:
    """The cases of which the two arms' scores differ."""
    pairs = zip(evidence.baseline.units, evidence.variants[0].units, strict=True)
    return [one.key.case_id for one, other in pairs if one.values["exact_match"] != other.values["exact_match"]]


def test_a_rule_by_task_sees_its_own_cases_alone() -> None:
    evidence = run(n=300, lost=0.3, metrics=METRICS)
    bad = set(fallen(evidence))
    labels = {
        ("code", unit.key.case_id): ("task:bad" if unit.key.case_id in bad else "task:good",)
        for unit in evidence.baseline.units
    }
    policy = Policy(rules=(Rule(metric="exact_match", scope="task", max_drop=0.1),))
    order = order_of(evidence)
    found = look(replace(evidence, labels=labels), policy, "int4", order).verdict
    assert {one.slice: (one.n, one.status) for one in found.comparisons} == {
        "task:bad": (90, "broken"),
        "task:good": (210, "proven"),
    }


def test_looks_are_planned_on_whole_clusters_and_end_with_all() -> None:
    cases = [Case(evalset="a", body={"id": f"c{i}", "cluster": f"p{i // 7}"}) for i in range(2000)]
    stop, added = lay_out(EARLY, reversed(cases))
    assert stop.looks[-1] == 2000
    assert len(stop.looks) <= 120
    assert sum(map(len, added)) == 2000
    assert [len(questions) for questions in added] == [
        b - a for a, b in zip((0, *stop.looks), stop.looks, strict=False)
    ]
    homes = [{int(case[1:]) // 7 for _, case, _ in questions} for questions in added]
    assert sum(map(len, homes)) == len(set().union(*homes)), "a cluster is in one look only"
    assert lay_out(EARLY, [])[0].looks == (0,)


def test_the_order_is_told_by_what_a_run_keeps() -> None:
    cases = [
        Case(evalset="a", body={"id": f"c{i}", "cluster": f"p{i // 3}"} if i % 2 else {"id": f"c{i}"})
        for i in range(50)
    ]
    keys = tuple(UnitKey(arm, "a", case.id, repeat) for arm in ("baseline", "v") for case in cases for repeat in (0, 1))
    evidence = replace(
        run(n=1, metrics=METRICS),
        expected=keys[::-1],
        clusters={("a", case.id): case.cluster for case in cases if case.cluster is not None},
    )
    assert order_of_run(evidence, 5) == seeded_order(cases, 5, repeats=2)


def test_cases_in_quarantine_are_run_and_do_not_count() -> None:
    evidence = run(n=300, lost=0.02, metrics=METRICS)
    held = tuple(Quarantine(case=name, owner="Ada", expires="2030-01-01", reason="flaky") for name in fallen(evidence))
    order = order_of(evidence)
    found = look(evidence, replace(POLICY, quarantine=held), "int4", order, now="2026-01-01T00:00:00Z")
    assert (found.seen, found.verdict.comparisons[0].n, found.verdict.comparisons[0].lost) == (300, 294, 0)
    ended = look(evidence, replace(POLICY, quarantine=held), "int4", order, now="2031-01-01T00:00:00Z")
    assert (ended.verdict.comparisons[0].n, ended.verdict.comparisons[0].lost) == (300, 6)


def cut_off(evidence: RunEvidence, share: float, seed: int = 0) -> RunEvidence:
    """Of the baseline's answers, at random."""
    generator = np.random.default_rng(seed)
    n = len(evidence.baseline.units)
    cut = set(generator.choice(n, round(share * n), replace=False).tolist())
    return with_units(evidence, "baseline", lambda units: (
        replace(unit, truncated=index in cut) for index, unit in enumerate(units)))  # fmt: skip


def test_few_cut_off_answers_hold_an_approval_up_and_no_block() -> None:
    equal, order = cut_off(run(n=1200, metrics=METRICS), 0.03), order_of(run(n=1200, metrics=METRICS))
    waiting = look(equal, EARLY, "int4", order, at=100).verdict
    assert (waiting.word, waiting.comparisons[0].status) == ("undecided", "undecided")
    assert "of all 1,200 is not sure yet" in waiting.reasons[0]
    assert look(equal, EARLY, "int4", order, at=900).verdict.word == "approve"
    worse = cut_off(run(n=1200, lost=0.3, metrics=METRICS), 0.04)
    assert look(worse, EARLY, "int4", order, at=100).verdict.word == "block"


@given(st.integers(0, 10**6), st.floats(0, 0.3), st.data())
@examples(15)
def test_a_look_depends_on_the_beginning_of_the_order_alone(seed, lost, data) -> None:
    """Whatever else has been answered, and in whatever order it came."""
    evidence = run(n=120, lost=lost, seed=seed, metrics=METRICS)
    order = order_of(evidence, seed)
    at = data.draw(st.integers(40, 120))
    expected = look(evidence, POLICY, "int4", order, at=at)
    seen = {question for cluster in order[:at] for question in cluster}
    variant = evidence.variants[0]
    some = [
        u for u in variant.units if (u.key.evalset, u.key.case_id, u.key.repeat) in seen or data.draw(st.booleans())
    ]
    units = tuple(data.draw(st.permutations(some)))
    found = look(replace(evidence, variants=(replace(variant, units=units),)), POLICY, "int4", order, at=at)
    assert found == expected


def test_foretold_cases_are_those_that_simulated_runs_take() -> None:
    """Against runs drawn here, looked at one by one."""
    n, margin, draws = 320, 0.08, 20
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=margin),), stop=EarlyStop(seed=0))
    stop, _ = lay_out(policy, [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(n)])
    policy = replace(policy, stop=stop)
    foretold = until_settled([PlannedSet(name="code", metrics=("exact_match",), cases=n)], policy, draws=400)
    rng = np.random.default_rng(1)

    def asked(seen):
        return compare_in_sequence(seen, margin, presumed=presume(margin, n))

    def cases(loss: float, proven) -> float:
        drawn = rng.choice([1, -1, 0], p=[0.025 + loss, 0.025, 0.95 - loss], size=(draws, n))
        taken = [next((at for at in stop.looks if proven(asked(one[:at]))), n) for one in drawn]
        return float(np.mean(taken))

    # A fifth of a standard deviation of 100 cases or so, three times, and half a look.
    assert abs(foretold.identical - cases(0.0, lambda found: found.p_within <= 0.05)) <= 40
    assert abs(foretold.twice - cases(2 * margin, lambda found: found.p_beyond <= 0.05)) <= 60
    assert foretold.looks == len(stop.looks)


@pytest.mark.parametrize("sizes", [(), (1,) * 20 + (2,) * 10])
def test_a_baseline_that_is_hardly_right_often_enough_is_foretold_no_approval(sizes) -> None:
    """A loss of 15 points needs a baseline that is surely right on 75 %; 32 of 40 are not sure of it."""
    cases = [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(40)]
    stop, _ = lay_out(EARLY, cases)
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.15),), stop=stop)
    planned = PlannedSet(name="code", metrics=("exact_match",), cases=40, clusters=sizes)
    often = Assumed(baseline={("exact_match", "code"): 0.99}, source="told")
    assert until_settled([planned], policy).approve < 0.5 * until_settled([planned], policy, often).approve


@pytest.mark.parametrize("full", [400, 0])
def test_a_set_of_which_no_case_counts_is_foretold_never_to_be_approved(full) -> None:
    """As the gate says of it: no pair was compared. What is broken elsewhere still blocks."""
    metric = ("exact_match",)
    sets = [
        PlannedSet(name="code", metrics=metric, cases=full),
        PlannedSet(name="tiny", metrics=metric, cases=0, quarantined=1),
    ]
    each = Policy(rules=(Rule(metric="exact_match", scope="evalset", max_drop=0.1),))
    for policy in (POLICY, each):
        policy = replace(policy, stop=EarlyStop(seed=0, looks=(100, 200, 300, 400) if full else (0,)))
        found = until_settled(sets, policy)
        assert (found.approve, found.decidable, found.of, found.identical) == (0.0, False, full, full)
        assert (found.block > 0.9) == bool(full and policy.rules == each.rules)


def test_rules_that_wait_are_named_and_cost_an_identical_variant_every_case() -> None:
    cases = [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(400)]
    stop, _ = lay_out(EARLY, cases)
    policy = replace(POLICY, stop=stop, rules=(*POLICY.rules, Rule(metric="drift.kl_mean", max=0.05)))
    found = until_settled([PlannedSet(name="code", metrics=("exact_match",), cases=400)], policy)
    assert (found.identical, found.waiting) == (400, ("drift.kl_mean [pooled] max 0.05",))
    assert found.twice < found.of


def test_a_rule_on_the_variant_as_a_whole_is_answered_by_what_was_measured_of_both_arms() -> None:
    evidence = run(n=300, metrics=METRICS)
    light = replace(evidence.variants[0], facts={"memory.weights": 300.0})
    evidence = replace(
        evidence, variants=(light,), baseline=replace(evidence.baseline, facts={"memory.weights": 1000.0})
    )
    for ratio, word in ((0.5, "approve"), (0.2, "block")):
        policy = replace(POLICY, rules=(*POLICY.rules, Rule(metric="memory.weights", max_ratio=ratio)))
        assert look(evidence, policy, "int4", order_of(evidence)).verdict.word == word


@pytest.mark.parametrize("arm", ["baseline", "int4"])
def test_an_arm_that_was_planned_in_part_is_invalid_and_no_mistake_of_the_users(arm) -> None:
    evidence = run(n=100, metrics=METRICS)
    stop, _ = lay_out(EARLY, [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(100)])
    dropped = tuple(key for key in evidence.expected if key != UnitKey(arm, "code", "code-3"))
    (verdict,) = decide_early(replace(evidence, expected=dropped), replace(POLICY, stop=stop))
    assert (verdict.word, verdict.exit) == ("invalid", Exit.INTEGRITY)


def test_stakes_of_unequal_clusters_are_those_of_the_whole_list_at_every_look() -> None:
    """The evidence against a loss never shrinks: each look goes on with the bets of the one before."""
    evidence = run(n=300, lost=0.04, metrics=METRICS)
    home = {f"code-{i}": f"p{i % 20}" for i in range(200)}  # 20 of ten cases, 100 of one
    evidence = with_each(evidence, "both", lambda unit: replace(unit, cluster=home.get(unit.key.case_id)))
    evidence = replace(evidence, clusters={("code", case): cluster for case, cluster in home.items()})
    order = order_of_run(evidence, 2)
    found = [look(evidence, POLICY, "int4", order, at=at).verdict.comparisons[0] for at in range(100, 301, 20)]
    chances = [one.p_broken for one in found]
    assert chances == sorted(chances, reverse=True)


def test_stakes_rest_on_the_slices_own_list() -> None:
    sizes = [1] * 300
    stop, _ = lay_out(EARLY, [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(300)])
    planned = replace(POLICY, stop=stop)
    assert presumed_of(planned, 0.05, sizes) == presume(0.05, 300) != presumed_of(planned, 0.05, sizes[:250])


def test_a_baseline_too_weak_to_lose_the_margin_has_each_looks_share_of_the_five_percent() -> None:
    """Right on 30 %, where 25 % is asked: sure enough for one test of these cases, not for one of many."""
    evidence = run(n=600, metrics=METRICS, right=0.3)
    right = float(np.array([unit.values["exact_match"] for unit in evidence.baseline.units], float).mean())
    assert binomial_lower(round(600 * right), 600, 0.05) >= 0.25 > binomial_lower(round(600 * right), 600, 0.05 / 38)
    stop, _ = lay_out(EARLY, [Case(evalset="code", body={"id": f"code-{i}"}) for i in range(600)])
    assert len(stop.looks) == 38
    order = order_of(evidence)
    assert look(evidence, POLICY, "int4", order).verdict.word == "approve"
    often = look(evidence, replace(POLICY, stop=stop), "int4", order).verdict
    assert (often.word, often.exit) == ("undecided", Exit.UNDECIDED)
    assert "99.87 % bound" in often.reasons[0]
