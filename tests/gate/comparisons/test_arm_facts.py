"""Rules on a variant as a whole, on goodput, and on how far answers repeat."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from struct import pack

import numpy as np
import pytest
from sqlalchemy import text

from qualgate.errors import Exit, UsageError
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.verdict import decide_plain
from qualgate.records import CACHE_TOKEN, NOISE, ArmFootprint, FourArms, Policy, Rule, RunEvidence, Slo
from qualgate.records.metrics import METRICS
from qualgate.store import plain, runs
from qualgate.store.database import open_store
from tests.gate.planted import of, repeated, run, with_each, with_unit, with_variant
from tests.store.made import make_plan, make_run
from tests.tables import each_row

QUALITY = Rule(metric="exact_match", max_drop=0.1)
FULL = {"memory.weights": 1000.0, CACHE_TOKEN: 10.0}


def found(evidence: RunEvidence, metric: str, *, slo: Slo | None = None, **rule):
    """(the verdict's word, the comparison of the one rule that is added to a rule on quality)."""
    (verdict,) = decide_plain(evidence, Policy(rules=(QUALITY, Rule(metric=metric, **rule)), slo=slo))
    return verdict.word, verdict.comparisons[-1]


def measured(baseline: dict[str, float], variant: dict[str, float]) -> RunEvidence:
    """With the sizes of both arms; every prompt has 30 tokens and its answer 20, but one of the variant's has 120."""
    evidence = with_variant(replace(run(), baseline=replace(run().baseline, facts=baseline)), facts=variant)
    return with_unit(with_each(evidence, "both", prompt_tokens=30), "int4", 7, tokens=120)


@pytest.mark.parametrize(
    ("rule", "word", "variant", "lower"),
    [
        ({"metric": "memory.weights", "max_ratio": 0.3}, "approve", 300.0, 0.3),
        ({"metric": "memory.weights", "max_ratio": 0.29}, "block", 300.0, 0.3),
        ({"metric": "memory.peak", "max_ratio": 1.2}, "approve", 300 + 150 * 10, 1800 / 1500),
        ({"metric": "memory.peak", "max_ratio": 1.19}, "block", 1800.0, 1800 / 1500),
        ({"metric": "memory.peak", "max": 1800}, "approve", 1800.0, 1800.0),
        ({"metric": "memory.peak", "max": 1799}, "block", 1800.0, 1800.0),
    ],
)  # fmt: skip
def test_memory_is_counted_and_held_to_a_ratio_or_a_size(rule, word, variant, lower):
    said, comparison = found(measured(FULL, {"memory.weights": 300.0, CACHE_TOKEN: 10.0}), **rule)
    assert (said, comparison.variant, comparison.lower) == (word, variant, pytest.approx(lower))
    assert comparison.upper == comparison.lower


@pytest.mark.parametrize(
    ("metric", "rule", "value", "other"),
    [
        ("coverage.range", {"min": 0.999}, 0.999, 0.998),
        ("coverage.clipped_energy", {"max": 1e-4}, 1e-4, 2e-4),
        ("stability.steady", {"min": 1.0}, 1.0, 0.97),
        ("stability.saturated", {"max": 1e-6}, 0.0, 1e-5),
        ("stability.sqnr", {"min": 18.0}, 18.5, 17.5),
        ("stability.sqnr", {"min": 18.0}, 18.5, -3.0),
    ],
)
def test_a_number_of_the_variant_keeps_its_limit_or_breaks_it(metric, rule, value, other):
    for number, word in ((value, "approve"), (other, "block")):
        assert found(with_variant(run(), facts={metric: number}), metric, **rule)[0] == word


def test_what_nobody_measured_is_undecided_and_never_a_pass():
    for metric in METRICS.values():
        if metric.kind in ("arm", "service", "stability"):
            for bound in metric.bounds:
                limit = {"max_drop": 0.1, "min": 0.5}.get(bound, 1e12)
                word, comparison = found(run(), metric.name, **{bound: limit})
                assert (word, comparison.status) == ("undecided", "undecided"), metric.name
                assert comparison.reason.startswith(f"{metric.name} [pooled]: ")
    half = measured({}, FULL)
    assert found(half, "memory.weights", max_ratio=1.0)[0] == "undecided", "nothing to take a ratio to"
    assert found(half, "memory.weights", max=1e6)[0] == "approve", "the size itself was measured"
    untold = with_unit(measured(FULL, FULL), "int4", 3, prompt_tokens=None)
    assert found(untold, "memory.peak", max_ratio=9.0)[0] == "undecided"


@each_row("side", ["baseline", "int4"])
@each_row("value", [nan, inf, -0.5, "beyond", None, True])
@each_row("metric", [name for name, metric in METRICS.items() if metric.kind == "arm"])
def test_a_number_out_of_its_range_is_no_evidence_whether_or_not_a_rule_asks(metric, value, side):
    unit = METRICS[metric].unit
    if unit == "dB" and value == -0.5:
        return
    value = (
        {"bytes": 0 if metric == "memory.weights" else -1, "dB": inf}.get(unit, 1.01) if value == "beyond" else value
    )
    evidence = run(n=30)
    if side == "baseline":
        evidence = replace(evidence, baseline=replace(evidence.baseline, facts={metric: value}))
    else:
        evidence = with_variant(evidence, facts={metric: value})
    for rules in ((QUALITY,), (QUALITY, Rule(metric=metric, **{METRICS[metric].bounds[-1]: 0.5}))):
        (verdict,) = decide_plain(evidence, Policy(rules=rules))
        assert (verdict.exit, metric in verdict.reasons[0]) == (Exit.INFRASTRUCTURE, True)


def test_what_was_looked_at_and_has_no_number_says_why():
    why = "1 of 9 packed layers hold NaN or infinities, model.layers.3.mlp.up_proj among them"
    evidence = with_variant(run(), unmeasured={"stability.sqnr": why})
    for tier, word in (("critical", "undecided"), ("advisory", "approve")):
        said, comparison = found(evidence, "stability.sqnr", min=20.0, tier=tier)
        assert (said, comparison.status) == (word, "undecided")
        assert comparison.reason == f"stability.sqnr [pooled]: {why}"
    size = ArmFootprint(
        bytes_on_disk=1, bytes_in_memory=1, quantized_bytes=1, effective_bits=4.0, unmeasured={"a": why}
    )
    assert plain.footprint(plain.to_json(size)) == size


@pytest.mark.parametrize(
    "odd",
    [{"kl": (0.1, nan)}, {"kl": (0.1, inf)}, {"kl": (0.1, -0.1)}, {"kl_eta": nan}, {"kl_eta": 1.0}, {"kl_eta": -0.1},
     {"top1_agreement": nan}, {"top1_agreement": 1.1}, {"top1_agreement": -0.1}, {"tokens": -1}, {"prompt_tokens": -1}],
    ids=str,
)  # fmt: skip
def test_drift_that_is_no_number_is_no_evidence(odd):
    (verdict,) = decide_plain(with_unit(run(), "int4", 5, **odd), Policy(rules=(QUALITY,)))
    assert verdict.exit == Exit.INFRASTRUCTURE
    for missing in ({"kl": ()}, {"top1_agreement": None}):
        assert found(with_unit(run(), "int4", 5, **missing), "drift.kl_mean", max=1.0)[1].status == "undecided"


def test_a_number_of_the_whole_has_no_part_for_a_slice():
    for slice_ in ({"scope": "evalset"}, {"evalset": "code"}, {"where": "tag:x"}):
        with pytest.raises(UsageError, match="whole variant"):
            decide_plain(run(), Policy(rules=(QUALITY, Rule(metric="memory.weights", max=1.0, **slice_))))


# ------------------------------------------------------------------------------------------------------------ goodput


def timed(late: dict[str, int]) -> RunEvidence:
    """late: arm → how many of its 240 answers take 3 s, in place of 1."""
    evidence = run()
    for side, count in late.items():
        for at in range(count):
            evidence = with_unit(evidence, side, at, values=evidence.baseline.units[at].values | {"latency.e2e": 3.0})
    return evidence


SLO = Slo(e2e=2.0, tpot=0.02)


def test_goodput_is_the_share_of_answers_within_every_limit():
    evidence = timed({"baseline": 0, "int4": 6})
    word, comparison = found(evidence, "goodput", slo=SLO, min=0.9)
    assert (word, comparison.variant, comparison.n) == ("approve", 234 / 240, 240)
    assert found(evidence, "goodput", slo=SLO, min=0.995)[0] == "block"
    assert found(evidence, "goodput", slo=SLO, min=0.97)[0] == "undecided", "no sample of 240 tells"
    slow = with_each(evidence, "int4", lambda u: replace(u, values=u.values | {"latency.tpot": 0.03}))
    assert found(slow, "goodput", slo=SLO, min=0.9)[1].variant == 0, "limits are joined by and"


def test_goodput_is_compared_with_the_baselines_in_pairs():
    word, comparison = found(timed({"baseline": 0, "int4": 6}), "goodput", slo=SLO, max_drop=0.06)
    assert (word, comparison.lost, comparison.gained) == ("approve", 6, 0)
    assert found(timed({"baseline": 0, "int4": 40}), "goodput", slo=SLO, max_drop=0.06)[0] == "block"
    assert found(timed({"baseline": 240, "int4": 240}), "goodput", slo=SLO, max_drop=0.06)[0] == "undecided"


def test_one_answer_without_a_time_leaves_goodput_undecided():
    evidence = with_unit(
        timed({}), "int4", 5, values={"exact_match": 1.0, "latency.e2e": None}, scorers={"exact_match": "exact_match/1"}
    )
    for rule in ({"min": 0.5}, {"max_drop": 0.1}):
        assert found(evidence, "goodput", slo=Slo(e2e=2.0), **rule)[1].status == "undecided"


# ---------------------------------------------------------------------------------------------------------- stability


def again(differing: int) -> RunEvidence:
    """A variant, and the A/A arm, which says another thing for so many of 240 answers."""
    base = run()

    def spoken(units, other):
        return tuple(replace(u, token_ids=pack("<2i", 1, 2 + (i < other))) for i, u in enumerate(units))  # fmt: skip

    baseline = replace(base.baseline, units=spoken(base.baseline.units, 0))
    variant = replace(base.variants[0], units=spoken(base.variants[0].units, 0))
    name = f"baseline{NOISE}"
    units = tuple(replace(u, key=replace(u.key, arm=name), kl=()) for u in spoken(base.baseline.units, differing))
    return of(baseline, variant, replace(base.baseline, name=name, units=units))


def test_the_baseline_must_say_the_same_again_in_other_batches():
    assert found(again(0), "stability.rerun", min=1.0)[0] == "approve"
    assert found(again(1), "stability.rerun", min=1.0)[0] == "block", "all of these means all of these"
    word, comparison = found(again(1), "stability.rerun", min=0.95)
    assert (word, comparison.variant, comparison.n) == ("approve", 239 / 240, 240)
    assert found(again(1), "stability.rerun", min=0.99)[0] == "undecided"
    assert found(again(40), "stability.rerun", min=0.95)[0] == "block"


def flaky(cases: int, repeats: int = 3) -> RunEvidence:
    """100 cases; of the first ones the variant's last repeat is wrong."""
    right = np.ones((100, repeats))
    right[:cases, -1] = 0
    return repeated(baseline=np.ones((100, repeats)), int4=right)


def test_repeats_of_a_case_are_to_be_scored_alike():
    assert found(flaky(0), "stability.repeats", min=1.0)[0] == "approve"
    word, comparison = found(flaky(3), "stability.repeats", min=0.9)
    assert (word, comparison.variant, comparison.n) == ("approve", 0.97, 100)
    assert found(flaky(30), "stability.repeats", min=0.9)[1].status == "broken"
    assert found(flaky(0, repeats=1), "stability.repeats", min=0.5)[0] == "undecided", "asked once"


@pytest.mark.parametrize(
    ("silent", "least", "status", "why"),
    [(1, 0.9, "proven", ""), (40, 0.9, "undecided", "could not say for 40 of 100 cases"), (1, 1.0, "undecided", "")],
)
def test_repeats_that_nobody_could_score_are_alike_for_no_approval_and_unlike_for_no_block(silent, least, status, why):
    def unsaid(unit):
        return replace(unit, values={"exact_match": None}) if int(unit.key.case_id[1:]) < silent else unit

    comparison = found(with_each(flaky(0), "int4", unsaid), "stability.repeats", min=least)[1]
    assert (comparison.status, comparison.variant) == (status, (100 - silent) / 100)
    assert why in comparison.reason


def test_a_common_prefix_is_counted_in_tokens():
    evidence = again(0)
    other = with_unit(evidence, "int4", 0, token_ids=pack("<2i", 9, 2))
    other = with_unit(other, "int4", 1, token_ids=pack("<1i", 1))
    assert found(other, "parity.prefix", min=0.9)[1].variant == (480 - 3) / 480
    assert found(other, "parity.prefix", min=1.0)[0] == "block"


# ---------------------------------------------------------------------------------------------------------- four arms


def test_no_critical_rule_is_left_out_of_the_steps_of_four_arms():
    """Each arm's steps look at rules by kind: one of no step's kind would be passed over."""
    base = run()
    units = base.variants[0].units
    arms = [
        replace(base.variants[0], name=name, units=tuple(replace(u, key=replace(u.key, arm=name)) for u in units))
        for name in ("q", "s", "qs")
    ]
    four = FourArms(quantization="q", speculation="s", both="qs", parity="lossy")
    for rule in (
        Rule(metric="memory.weights", max=1e9), Rule(metric="coverage.range", min=0.9), Rule(metric="goodput", min=0.5),
        Rule(metric="stability.rerun", min=0.5), Rule(metric="parity.prefix", min=0.1),
    ):  # fmt: skip
        policy = Policy(rules=(QUALITY, rule), four_arm=four)
        last = decide_four(of(base.baseline, *arms), policy)[-1]
        steps = [step for step in last.four_arm.steps if step.arm == "q" and step.reason.startswith(rule.metric)]
        assert [step.status for step in steps] == ["undecided"], rule.metric


# ------------------------------------------------------------------------------------------------------ from a store


def test_facts_that_are_stored_are_read_back_and_sealed(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/q.db") as store:
        found = make_run(store, make_plan(cases=4))
        runs.add_facts(store, found, "int8", {"coverage.range": 0.5})
        runs.add_facts(store, found, "int8", {"coverage.range": 0.9, "coverage.unigrams": 0.25})
        facts = {arm.name: dict(arm.facts) for arm in runs.evidence(store, found).variants}
        assert facts["int8"] == {"coverage.range": 0.5, "coverage.unigrams": 0.25}, "what was measured first stays"
        assert facts["mxfp4"] == {}
        with store.write() as connection:
            connection.execute(text("update arms set footprint_json = replace(footprint_json, '0.25', '0.99')"))
        assert any("sizes of arm 'int8'" in line for line in runs.evidence(store, found).integrity)
