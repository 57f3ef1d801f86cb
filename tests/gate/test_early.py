"""Stopping early: what is settled, what waits, and that looking at it does not make it up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit, UsageError
from qualgate.gate.early import look, seeded_order
from qualgate.records import Case, Policy, Rule, RunEvidence
from tests.gate.planted import run

METRICS = {"code": ("exact_match",)}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))


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
    assert not look(first(evidence, order, 40), POLICY, "int4", order).settled
    found = look(first(evidence, order, 150), POLICY, "int4", order)
    assert (found.verdict.word, found.settled, found.seen) == ("approve", True, 150)
    assert found.verdict.comparisons[0].method == "paired_betting/2"
    assert look(evidence, POLICY, "int4", order).verdict.word == "approve"


def test_a_collapse_is_blocked_after_a_few_cases() -> None:
    evidence = run(n=600, lost=0.3, metrics=METRICS)
    order = order_of(evidence)
    found = look(first(evidence, order, 80), POLICY, "int4", order)
    assert (found.verdict.exit, found.settled) == (Exit.BLOCK, True)


def test_a_loss_at_the_margin_is_rarely_approved_by_any_look_in_any_order() -> None:
    evidence = run(n=400, lost=0.05, metrics=METRICS)
    approved = sum(
        look(evidence, POLICY, "int4", order_of(evidence, seed)).verdict.word == "approve" for seed in range(40)
    )
    assert approved <= 6  # at 5 %, more than 6 of 40 has a chance of 0.3 %


def test_only_the_beginning_of_the_order_counts_and_a_failed_unit_ends_it() -> None:
    evidence = run(n=300, metrics=METRICS)
    order = order_of(evidence)
    third = order[2][0]
    variant = evidence.variants[0]
    broken = tuple(
        replace(u, status="error", error="out of memory") if u.key.case_id == third[1] else u for u in variant.units
    )
    found = look(replace(evidence, variants=(replace(variant, units=broken),)), POLICY, "int4", order)
    assert (found.seen, found.settled) == (2, False)


def test_rules_with_one_look_only_keep_an_approval_waiting_but_not_a_block() -> None:
    policy = replace(POLICY, rules=(*POLICY.rules, Rule(metric="drift.kl_mean", max=0.05)))
    equal, worse = run(n=600, metrics=METRICS), run(n=600, lost=0.3, metrics=METRICS)
    order = order_of(equal)
    waiting = look(first(equal, order, 300), policy, "int4", order)
    assert (waiting.verdict.word, waiting.settled) == ("undecided", False)
    assert "once every case is in" in waiting.verdict.reasons[0]
    assert look(equal, policy, "int4", order).settled
    assert look(first(worse, order, 100), policy, "int4", order).verdict.word == "block"


def test_broken_evidence_settles_nothing() -> None:
    evidence = replace(run(n=300, metrics=METRICS), integrity=("a digest differs",))
    found = look(evidence, POLICY, "int4", order_of(evidence))
    assert (found.verdict.exit, found.settled) == (Exit.INTEGRITY, False)


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


def test_the_order_keeps_clusters_whole_and_depends_on_the_seed_alone() -> None:
    cases = [Case(evalset="a", body={"id": f"c{i}", "cluster": f"p{i // 3}"}) for i in range(60)]
    order = seeded_order(cases, 1)
    assert {len(cluster) for cluster in order} == {3}
    assert order == seeded_order(reversed(cases), 1) != seeded_order(cases, 2)
