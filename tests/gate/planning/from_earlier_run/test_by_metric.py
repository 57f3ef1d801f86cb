"""What is foretold of rules on what is measured, against the gate itself deciding on drawn answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.comparisons.acceptance import Terms
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.unfinished_sets import Unfinished
from qualgate.gate.planning.from_earlier_run.by_metric import Foretold, foretell, jointly
from qualgate.gate.rules import Slice, check_policy
from qualgate.records import ArmEvidence, Attempt, Policy, Prices, Rule, RunEvidence, Slo, UnitEvidence, UnitKey
from qualgate.stats import cost_ratio
from tests.gate.planted import identity

QUALITY = Rule(metric="exact_match", max_drop=0.05)
PRICES = Prices(version="1", currency="EUR", device_second=1.0)
SETS = {"a": ("exact_match",)}
BUDGET = 46  # tokens that an answer may take


def unit(arm: str, index: int, cluster: str | None = None, **changes) -> UnitEvidence:
    fields = {
        "key": UnitKey(arm, "a", f"c{index}"), "case_hash": f"h{index}", "status": "done", "finished": True,
        "values": {"exact_match": 1.0}, "scorers": {"exact_match": "exact_match/1"}, "tokens": 20, "cluster": cluster,
        "kl": () if arm == "baseline" else (0.0,) * 4, "top1_agreement": None if arm == "baseline" else 1.0,
        "token_ids": b"\0\0\0\0" * 4, "job": index,
        "began": float(index),
    }  # fmt: skip
    return UnitEvidence(**(fields | changes))


def evidence(baseline: list[UnitEvidence], **variants: list[UnitEvidence]) -> RunEvidence:
    arms = [
        ArmEvidence(name=name, identity=identity(name), units=tuple(units))
        for name, units in {"baseline": baseline, **variants}.items()
    ]
    return RunEvidence(
        run_id="r1",
        expected=tuple(one.key for arm in arms for one in arm.units),
        metrics=SETS,
        baseline=arms[0],
        variants=tuple(arms[1:]),
        max_new_tokens={("a", one.key.case_id): BUDGET for one in baseline},
    )


def told(
    rule: Rule, sizes: dict[int, int], earlier: RunEvidence | None = None, *more: Rule, **policy
) -> tuple[Foretold, Slice, Policy]:
    policy = Policy(rules=(QUALITY, rule, *more), **policy)
    slices = check_policy(policy, SETS)
    found = foretell(slices, lambda part: Counter(sizes), policy, earlier)
    assert slices[0] not in found, "quality is predicted elsewhere"
    return found[slices[1]], slices[1], policy


def timed(n: int, rng: np.random.Generator, ratio: float, right: float = 1.0) -> tuple[list, list]:
    """Both arms' units: lognormal seconds, cases of unequal length, times of one case alike in both arms."""
    length = rng.lognormal(0, 0.5, n)
    sides = []
    for arm, factor in (("baseline", 1.0), ("int8", ratio)):
        seconds = factor * length * rng.lognormal(0, 0.3, n)
        sides.append([
            unit(arm, index, values={"exact_match": float(rng.random() < right), "latency.e2e": float(s)},
                 attempts=(Attempt(outcome="done", prompt_tokens=1, output_tokens=1, seconds=float(s)),))
            for index, s in enumerate(seconds)
        ])  # fmt: skip
    return sides[0], sides[1]


def both(n: int) -> RunEvidence:
    before, after = timed(n, np.random.default_rng(0), 1.0)
    return evidence(before, int8=after)


def decided(part: Slice, policy: Policy, sides: tuple[list, list], strict: float) -> tuple[bool, bool]:
    pairs = {"a": tuple(Pair(baseline=b, variant=v, cluster=int((b.cluster or f"p{i}")[1:]), max_new_tokens=BUDGET)
                        for i, (b, v) in enumerate(zip(*sides, strict=True)))}  # fmt: skip
    terms = Terms(prices=PRICES, slo=Slo(), metrics=SETS, corrected=None, feedback_asked=False)
    found = measure(part, pairs, Unfinished(), policy.alpha, terms)
    assert found.comparison.p_broken is not None, found.obstacle
    return found.p_within <= policy.alpha, found.comparison.p_broken <= strict


@pytest.mark.parametrize(
    ("rule", "n", "draws"),
    [
        (Rule(metric="latency.e2e", max_ratio=1.1), 230, 80),
        pytest.param(Rule(metric="latency.e2e", percentile=95, max_ratio=2.0), 300, 40, marks=pytest.mark.proof),
        (Rule(metric="cost_per_accepted_answer", max_ratio=1.15), 300, 30),
    ],
)
def test_ratios_are_decided_as_often_as_foretold(rule: Rule, n: int, draws: int, monkeypatch) -> None:
    monkeypatch.setattr(cost_ratio, "DRAWS", 200)
    rng = np.random.default_rng(7)
    right = 0.9 if "cost" in rule.metric else 1.0
    before, after = timed(3_000, rng, 0.8, right)
    found, part, policy = told(rule, {1: n}, evidence(before, int8=after), prices=PRICES)
    good, bad = (1.0, 1 + 2 * (rule.max_ratio - 1)) if rule.max_ratio > 1 else (rule.max_ratio**2, 1.0)
    strict = policy.alpha / 2  # two critical rules
    approve = np.mean([decided(part, policy, timed(n, rng, good, right), strict)[0] for _ in range(draws)])
    block = np.mean([decided(part, policy, timed(n, rng, bad, right), strict)[1] for _ in range(draws)])
    assert found.approve == pytest.approx(approve, abs=0.03 + 3 * 0.5 / draws**0.5)
    assert found.block == pytest.approx(block, abs=0.03 + 3 * 0.5 / draws**0.5)


def drifted(n: int, rng: np.random.Generator, scale: float = 1.0, first: int = 0) -> tuple[list, list]:
    """Both arms' units, the variant's drift unequal from case to case. scale: of all that drifts."""
    before, after = [], []
    for index in range(first, first + n):
        tokens, level = int(rng.integers(4, 12)), scale * rng.lognormal(-0.5, 1.0)
        kl = tuple(0.02 * level * rng.exponential(1.0, tokens))
        agreed = 1 - rng.binomial(tokens, min(0.03 * level, 1.0)) / tokens
        said = rng.integers(0, 9, tokens).astype("<i4")
        other = said.copy()
        other[rng.integers(0, tokens) if rng.random() < 0.1 * scale else tokens :] = 77
        longer = max(1, round(tokens * (1 + 0.2 * scale) * rng.lognormal(-0.045, 0.3)))
        before.append(unit("baseline", index, tokens=tokens, token_ids=said.tobytes()))
        after.append(unit("int8", index, tokens=longer, kl=kl, top1_agreement=float(agreed), token_ids=other.tobytes()))
    return before, after


DRIFTS = [
    Rule(metric="drift.kl_mean", max=0.05),
    Rule(metric="drift.kl_p99", max=0.2),
    Rule(metric="drift.kl_max", max=0.5),
    Rule(metric="drift.top1_agreement", min=0.95),
    Rule(metric="drift.length_ratio", max=1.3),
    Rule(metric="parity.tokens", min=0.9),
    Rule(metric="parity.prefix", min=0.9),
]


EXACT = [Rule(metric=name, min=1.0) for name in ("parity.tokens", "parity.prefix", "drift.top1_agreement")]


@pytest.mark.parametrize("rule", [*DRIFTS, *EXACT], ids=lambda rule: rule.id)
def test_an_identical_variant_keeps_a_drift_rule_just_where_the_gate_would_say_so(rule: Rule) -> None:
    alike = [unit("baseline", index) for index in range(50)], [unit("int8", index) for index in range(50)]
    earlier = evidence(alike[0], int8=alike[1]) if rule.metric == "drift.length_ratio" else None
    for n in (5, 19, 20, 30, 58, 59, 298, 299):
        found, part, policy = told(rule, {1: n}, earlier)
        same = [unit("baseline", index) for index in range(n)], [unit("int8", index) for index in range(n)]
        pairs = {
            "a": tuple(
                Pair(baseline=b, variant=v, cluster=i, max_new_tokens=BUDGET)
                for i, (b, v) in enumerate(zip(*same, strict=True))
            )
        }
        assert found.approve == float(measure(part, pairs, Unfinished(), policy.alpha).p_within <= policy.alpha), n
        if found.approve == 0 and rule is not EXACT[2]:  # of agreement a sample never proves that there is all
            assert found.needed is not None
            enough = told(rule, {1: found.needed}, earlier)[0]
            assert enough.approve == 1
            assert told(rule, {1: round(0.98 * found.needed) - 1}, earlier)[0].approve == 0


@pytest.mark.parametrize(
    ("rule", "n", "scale"),  # scale: at which the truth of `drifted` is twice the limit
    [
        (Rule(metric="drift.kl_mean", max=0.05), 40, 0.1 / 0.02),
        (Rule(metric="drift.length_ratio", max=1.3), 45, 3.0),
        (Rule(metric="parity.tokens", min=0.9), 60, 2.0),
    ],
    ids=lambda value: value.metric if isinstance(value, Rule) else None,
)
def test_a_drift_of_twice_the_limit_is_broken_as_often_as_foretold(rule: Rule, n: int, scale: float) -> None:
    rng, draws = np.random.default_rng(5), 150
    before, after = drifted(2_500, rng, 0.6 * scale)
    found, part, policy = told(rule, {1: n}, evidence(before, int8=after))
    strict = policy.alpha / 2  # two critical rules
    seen = np.mean([decided(part, policy, drifted(n, rng, scale), strict)[1] for _ in range(draws)])
    assert 0.2 < seen < 0.98, "else the comparison says little"
    assert found.block == pytest.approx(seen, abs=0.05 + 3 * 0.5 / draws**0.5)


def test_the_largest_kl_is_broken_where_one_case_of_the_earlier_run_would_be() -> None:
    kls = [0.1] * 90 + [0.4] * 9 + [0.5]  # scaled to a largest of 2: 1.6 in nine cases, 0.4 in the others
    units = [unit("int8", index, kl=(kl, 0.0)) for index, kl in enumerate(kls)]
    earlier = evidence([unit("baseline", index) for index in range(100)], int8=units)
    found = told(Rule(metric="drift.kl_max", max=1.0), {1: 7}, earlier)[0]
    assert found.approve == 1
    assert found.block == pytest.approx(1 - 0.9**7, abs=0.08)


def test_without_an_earlier_run_only_what_is_sure_is_foretold() -> None:
    unknown = [
        Rule(metric="latency.e2e", max_ratio=1.2),
        Rule(metric="cost_per_accepted_answer", max_ratio=1.2),
        Rule(metric="goodput", max_drop=0.05),
        Rule(metric="coverage.range", min=0.9),
        Rule(metric="memory.weights", max=1e9),
    ]
    for rule in unknown:
        found = told(rule, {1: 400}, slo=Slo(e2e=1.0))[0]
        assert (found.approve, found.block) == (None, None), rule.id
        assert "no earlier run" in found.note
    unlabelled = told(Rule(metric="drift.kl_mean", max=0.05, where="tag:x"), {1: 400})[0]
    assert unlabelled.approve is None
    assert "tags of its cases are not known" in unlabelled.note
    drift = told(Rule(metric="drift.kl_mean", max=0.05), {1: 400})[0]
    assert (drift.approve, drift.block) == (1.0, None)
    assert "equally long (of unlike ones more cases are needed); no earlier run" in drift.note
    memory = told(Rule(metric="memory.weights", max_ratio=1.2), {1: 400})[0]
    assert (memory.approve, memory.block) == (1.0, 1.0)
    saved = told(Rule(metric="memory.weights", max_ratio=0.5), {1: 400})[0]
    assert (saved.approve, saved.block) == (1.0, 1.0)
    assert "no chance" in saved.note
    faster = Rule(metric="latency.e2e", max_ratio=0.5)
    assert "0.25 times as much" in told(faster, {1: 400}, both(90))[0].note


def test_what_the_earlier_run_could_not_measure_is_told_in_its_words() -> None:
    earlier = evidence([unit("baseline", i) for i in range(80)], int8=[unit("int8", i) for i in range(80)])
    untimed = told(Rule(metric="latency.e2e", max_ratio=1.2), {1: 400}, earlier)[0]
    assert untimed == Foretold(note="in run r1 no time was recorded for 80 of 80 cases")
    uncovered = told(Rule(metric="coverage.range", min=0.9), {1: 400}, earlier)[0]
    assert uncovered.approve is None
    assert "no calibration of the variant was measured" in uncovered.note


@pytest.mark.parametrize("broken", ["nan", "twice", "missing", "none"])
def test_a_broken_earlier_run_is_as_none(broken: str) -> None:
    before, after = timed(80, np.random.default_rng(0), 1.0)
    match broken:
        case "nan":
            after[3] = replace(after[3], values={"exact_match": 1.0, "latency.e2e": float("nan")})
        case "twice":
            after[3] = after[4]
        case "missing":
            after[3] = replace(after[3], status="missing")
    found = told(Rule(metric="latency.e2e", max_ratio=1.2), {1: 400}, evidence(before, int8=after))[0]
    assert (found.approve is None) == (broken != "none")


def test_the_baseline_against_itself_counts_before_any_variant() -> None:
    rng = np.random.default_rng(0)
    before, calm = timed(200, rng, 1.0)
    wild = [replace(u, key=replace(u.key, arm="int4"),
                    values=u.values | {"latency.e2e": float(rng.lognormal(0, 2))}) for u in calm]  # fmt: skip
    again = [replace(u, key=replace(u.key, arm="baseline@aa")) for u in calm]
    rule = Rule(metric="latency.e2e", max_ratio=1.1)
    alone = told(rule, {1: 900}, evidence(before, int4=wild))[0]
    beside = told(rule, {1: 900}, evidence(before, int4=wild, **{"baseline@aa": again}))[0]
    assert "int4 did" in alone.note
    assert "baseline@aa did" in beside.note
    assert alone.approve < 0.3 < 0.7 < beside.approve


def test_shares_of_cases_have_the_binomial_chances_of_their_test() -> None:
    """Proven at 20 clusters or more, by Clopper and Pearson: worked out here draw by draw."""
    from scipy.stats import beta

    rng = np.random.default_rng(3)
    n, late = 150, 0.02
    slow = rng.random(1_500) < late
    before = [unit("baseline", i, values={"exact_match": 1.0, "latency.e2e": 2.0 if s else 0.5})
              for i, s in enumerate(slow)]  # fmt: skip
    after = [replace(u, key=replace(u.key, arm="int8")) for u in before]
    rule = Rule(metric="goodput", min=0.95)
    found = told(rule, {1: n}, evidence(before, int8=after), slo=Slo(e2e=1.0))[0]
    in_time, worse = rng.binomial(n, 1 - slow.mean(), 20_000), rng.binomial(n, 0.9, 20_000)
    assert found.approve == pytest.approx(np.mean(beta.ppf(0.05, in_time, n - in_time + 1) >= 0.95), abs=0.02)
    upper = beta.ppf(1 - 0.025, worse + 1, n - worse)
    assert found.block == pytest.approx(np.mean(upper <= 0.95), abs=0.02)
    assert found.needed is not None
    assert told(rule, {1: found.needed}, evidence(before, int8=after), slo=Slo(e2e=1.0))[0].approve >= 0.8
    lost = told(Rule(metric="goodput", max_drop=0.05), {1: 400}, evidence(before, int8=after), slo=Slo(e2e=1.0))[0]
    assert lost.approve > 0.99
    assert lost.block > 0.5
    untold = told(rule, {1: n}, evidence(before, int8=after))[0]
    assert untold == Foretold(note="in run r1 no `slo` says how slow an answer may be")


def test_the_same_answers_again_are_as_likely_as_the_earlier_run_saw_them() -> None:
    before = [unit("baseline", index) for index in range(200)]
    again = [unit("baseline@aa", i, token_ids=b"\1\0\0\0" if i < 4 else b"\0\0\0\0" * 4) for i in range(200)]
    earlier = evidence(before, **{"baseline@aa": again})
    always = told(Rule(metric="stability.rerun", min=1.0), {1: 100}, earlier)[0]
    assert always.approve == pytest.approx((1 - 4.5 / 201) ** 100)
    assert always.block is None
    mostly = told(Rule(metric="stability.rerun", min=0.9), {1: 100}, earlier)[0]
    assert mostly.approve > 0.8
    assert mostly.block > 0.7


def test_clusters_count_and_not_their_cases() -> None:
    before, after = timed(400, np.random.default_rng(0), 1.0)
    earlier = evidence(before, int8=after)
    rule = Rule(metric="latency.e2e", max_ratio=1.1)
    single, fourfold, unequal = (told(rule, sizes, earlier)[0] for sizes in ({1: 100}, {4: 100}, {1: 19}))
    assert fourfold.approve == single.approve
    assert unequal.approve == 0
    drift = Rule(metric="drift.kl_mean", max=0.05)
    assert told(drift, {1: 60})[0].approve == 1
    assert told(drift, {1: 60, 40: 1})[0].approve == 0, "one large cluster leaves few that are surely independent"


def test_a_family_too_large_for_the_bootstrap_never_blocks() -> None:
    before, after = timed(600, np.random.default_rng(0), 1.0)
    rule = Rule(metric="cost_per_accepted_answer", max_ratio=1.5)
    many = [Rule(metric="drift.kl_mean", max=0.05 + number / 1000) for number in range(110)]
    found = told(rule, {1: 600}, evidence(before, int8=after), *many, prices=PRICES)[0]
    assert (found.approve, found.block) == (pytest.approx(1, abs=0.01), 0.0)


def test_prediction_does_not_change_with_the_order_of_units_or_arms() -> None:
    rng = np.random.default_rng(1)
    before, after = drifted(60, rng)
    other = [replace(u, key=replace(u.key, arm="int4"), kl=tuple(3 * kl for kl in u.kl)) for u in after]
    one = evidence(before, int8=after, int4=other)
    two = evidence(before[::-1], int4=other[::-1], int8=after[::-1])
    rule = Rule(metric="drift.kl_mean", max=0.05)
    assert told(rule, {1: 60}, one)[0] == told(rule, {1: 60}, two)[0]


def test_critical_rules_are_taken_to_be_independent_and_the_unknown_are_left_out() -> None:
    rules = [
        QUALITY,
        Rule(metric="latency.e2e", max_ratio=1.08),
        Rule(metric="latency.e2e", percentile=50, max_ratio=1.1),
        Rule(metric="latency.e2e", max_ratio=1.01, tier="supporting"),
        Rule(metric="coverage.range", min=0.9),
    ]
    policy = Policy(rules=tuple(rules))
    slices = check_policy(policy, SETS)
    found = foretell(slices, lambda part: {1: 100}, policy, both(80))
    assert jointly(found) == pytest.approx(found[slices[1]].approve * found[slices[2]].approve)
    assert found[slices[3]].approve < found[slices[1]].approve, "rules of one name keep their own rates"
