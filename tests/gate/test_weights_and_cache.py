"""Quantized weights and a quantized cache apart and together, found by what four arms are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.records import EarlyStop, Policy, Rule, RunEvidence, WeightsAndCache
from tests.gate.planted import arm, identity, of

METRICS = {"code": ("exact_match",)}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.10),))
HELD = {
    "baseline": identity("w0"),
    "int4": identity("w4"),
    "kv8": identity("w0", kv_cache="int8"),
    "int4+kv8": identity("w4", kv_cache="int8"),
}


def scores(n: int, weights: int, cache: int, together: int) -> dict[str, np.ndarray]:
    """Of four arms: the baseline is right on all, each change loses so many cases of its own, both these and more."""
    found = {name: np.ones(n) for name in HELD}
    found["int4"][:weights] = found["int4+kv8"][:weights] = 0
    found["kv8"][weights : weights + cache] = found["int4+kv8"][weights : weights + cache] = 0
    found["int4+kv8"][weights + cache : weights + cache + together] = 0
    return found


def four(outcomes: dict[str, np.ndarray], held=None) -> RunEvidence:
    held = held or HELD
    arms = [
        replace(arm(name, {("code", "exact_match"): column}), identity=held[name]) for name, column in outcomes.items()
    ]
    return of(arms[0], *arms[1:], metrics=METRICS)


def apart(evidence: RunEvidence, policy: Policy = POLICY) -> dict[str, WeightsAndCache]:
    found = decide(evidence, policy).verdicts
    return {one.variant: one.weights_and_cache for one in found if one.weights_and_cache is not None}


def test_each_change_alone_both_and_what_they_do_together_stand_beside_the_verdict_on_both():
    outcomes = scores(300, weights=6, cache=3, together=24)
    evidence = four(outcomes)
    (told,) = apart(evidence).values()
    assert (told.weights, told.cache, told.both) == ("int4", "kv8", "int4+kv8")
    alone = {one.variant: one.difference for one in told.effects}
    assert alone == pytest.approx({"int4": -6 / 300, "kv8": -3 / 300, "int4+kv8": -33 / 300})
    (both,) = told.interactions
    means = {name: column.mean() for name, column in outcomes.items()}
    assert both.estimate == pytest.approx(means["int4+kv8"] - means["int4"] - means["kv8"] + means["baseline"])
    assert (both.metric, both.slice, both.n, both.found) == ("exact_match", "pooled", 300, True)
    assert both.lower < both.estimate < both.upper < 0
    comparisons = {one.variant: one.comparisons[0] for one in decide(evidence, POLICY).verdicts}
    for one in told.effects:
        assert (one.lower, one.upper) == (comparisons[one.variant].lower, comparisons[one.variant].upper)
    assert "beyond what int4 and kv8 lose by themselves" in decide(evidence, POLICY).verdicts[2].reasons[-1]


def test_losses_that_only_add_up_are_no_interaction():
    (told,) = apart(four(scores(300, weights=12, cache=9, together=0))).values()
    (both,) = told.interactions
    assert (both.estimate, both.found) == (pytest.approx(0), False)
    assert both.lower <= 0 <= both.upper


def test_it_decides_nothing():
    found, without = (decide(four(scores(300, 6, 3, lost)), POLICY).verdicts for lost in (24, 0))
    assert [one.exit for one in found[:2]] == [one.exit for one in without[:2]]
    unseen = decide(four(scores(300, 6, 3, 24), HELD | NO_FOUR["another cache in both"]), POLICY).verdicts
    assert found[2].exit == unseen[2].exit


NO_FOUR = {
    "another cache in both": {"int4+kv8": identity("w4", kv_cache="fp8")},
    "other weights in both": {"int4+kv8": identity("w3", kv_cache="int8")},
    "no variant with the cache alone": {"kv8": identity("w3", kv_cache="int8")},
    "one that speculates": {"int4+kv8": identity("w4", kv_cache="int8", speculation="d")},
    "an arm that says nothing of itself": {"int4": None},
}


@pytest.mark.parametrize("why", NO_FOUR)
def test_other_arms_are_no_two_by_two(why):
    assert apart(four(scores(120, 6, 3, 24), HELD | NO_FOUR[why])) == {}


def test_a_baseline_may_have_a_cache_of_its_own():
    cached = {"baseline": identity("w0", kv_cache="bf16"), "int4": identity("w4", kv_cache="bf16")}
    assert set(apart(four(scores(120, 6, 3, 0), HELD | cached))) == {"int4+kv8"}


def test_broken_or_stopped_evidence_tells_nothing():
    evidence = four(scores(120, 6, 3, 24))
    failed = replace(evidence.variants[0], units=evidence.variants[0].units[:-1])
    assert apart(replace(evidence, variants=(failed, *evidence.variants[1:]))) == {}
    assert apart(evidence, replace(POLICY, stop=EarlyStop(seed=1, looks=(32, 64)))) == {}
