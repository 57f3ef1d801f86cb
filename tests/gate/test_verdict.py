"""Words, order, reasons, Holm, sensitivity, and a slice of the operating characteristics."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from time import process_time

import numpy as np
import pytest

from qualgate.errors import Exit, UsageError
from qualgate.gate.rules import check_policy
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import Policy, Rule, Verdict
from qualgate.stats.multiplicity import holm
from tests.gate.planted import METRICS, POLICY, arm, identity, of, run, with_units, with_variant

TOOLS = ("tools", "tool_call.valid")


def word(evidence, policy=POLICY) -> str:
    return decide_plain(evidence, policy)[0].word


def rules(*chosen: Rule, **settings) -> Policy:
    return Policy(rules=chosen, **settings)


def test_a_planted_loss_blocks_and_says_so_in_one_line() -> None:
    (verdict,) = decide_plain(run(n=400, lost={TOOLS: 57 / 400}), POLICY)
    assert (verdict.word, verdict.exit) == ("block", Exit.BLOCK)
    assert verdict.reasons[0] == (
        "tool_call.valid [tools] fell 14.2 points (95 % bound: at least 11.4; allowed 10.0), 57 lost, 0 gained of 400"
    )


def test_too_few_cases_are_undecided_with_the_number_needed() -> None:
    policy = rules(Rule(metric="exact_match", evalset="code", max_drop=0.05))
    (verdict,) = decide_plain(run(n=100, lost=0.05, gained=0.05), policy)
    (comparison,) = verdict.comparisons
    assert (verdict.word, verdict.exit) == ("undecided", 12)
    assert (
        verdict.reasons[0]
        == "exact_match [code]: 100 cases cannot exclude a loss of 5 points; about 270 would (5 lost, 5 gained)"
    )
    assert comparison.needed == 270
    assert decide_plain(run(n=270, lost=0.05, gained=0.05), policy)[0].word == "approve"


def test_comparisons_carry_their_numbers_in_rule_order() -> None:
    (verdict,) = decide_plain(run(lost=0.02, gained=0.05), POLICY)
    assert [(c.metric, c.slice) for c in verdict.comparisons] == [
        ("exact_match", "pooled"),
        ("exact_match", "code"),
        ("exact_match", "tools"),
        ("tool_call.valid", "tools"),
    ]
    for c in verdict.comparisons:
        assert c.n == (240 if c.slice == "pooled" else 120)
        assert c.variant - c.baseline == pytest.approx(c.difference)
        assert c.difference == pytest.approx((c.gained - c.lost) / c.n)
        assert c.lower < c.difference < c.upper
        assert c.status == "proven"
        assert c.method == "paired_exact_unconditional/4"


def test_tiers() -> None:
    lossy = run(n=400, lost={TOOLS: 0.25})
    critical = Rule(metric="exact_match", max_drop=0.05)
    for tier, expected in (("critical", "block"), ("supporting", "review"), ("advisory", "approve")):
        assert word(lossy, rules(critical, Rule(metric="tool_call.valid", max_drop=0.05, tier=tier))) == expected
    small = run(n=400, lost={TOOLS: 0.04})
    undecided = rules(critical, Rule(metric="tool_call.valid", max_drop=0.05, tier="supporting"))
    (verdict,) = decide_plain(small, undecided)
    assert verdict.word == "approve"
    assert any("tool_call.valid" in reason for reason in verdict.reasons)  # shown all the same
    (verdict,) = decide_plain(small, rules(critical, Rule(metric="tool_call.valid", max_drop=0.05, tier="advisory")))
    assert (verdict.word, verdict.reasons[1:]) == ("approve", (verdict.comparisons[1].reason,))


def test_review_always_asks_a_person_instead_of_approving_and_excuses_nothing() -> None:
    always = replace(POLICY, review="always")
    assert decide_plain(run(), always)[0].exit == Exit.REVIEW
    assert word(run(n=400, lost={TOOLS: 0.25}), always) == "block"
    assert word(run(n=10), always) == "undecided"


def test_order_of_words() -> None:
    lossy = run(n=400, lost={TOOLS: 0.25})
    assert word(replace(lossy, integrity=("x",))) == "invalid"
    assert word(with_units(lossy, "variant", lambda u: u[1:])) == "invalid"
    assert word(with_variant(lossy, identity=identity("w", template="other"))) == "undecided"
    few = rules(Rule(metric="exact_match", evalset="code", max_drop=0.001), *POLICY.rules)
    assert word(lossy, few) == "block"  # a proven loss outranks a rule that cannot be decided


def test_overall_exit_takes_the_first_of_its_order() -> None:
    def of_codes(*codes: int) -> list[Verdict]:
        return [Verdict(variant="v", word="approve", exit=code, reasons=()) for code in codes]

    order = [14, 13, 10, 12, 11, 0]
    for index, code in enumerate(order):
        assert overall_exit(of_codes(*reversed(order[index:]))) == code


def test_a_loss_is_blocked_even_where_the_baseline_is_too_weak_to_approve() -> None:
    policy = rules(Rule(metric="exact_match", evalset="code", max_drop=0.05))
    assert word(run(n=400, right=0.22), policy) == "undecided"
    assert word(run(n=400, right=0.22, lost=0.2), policy) == "block"


def test_same_weights_are_noted() -> None:
    (verdict,) = decide_plain(with_variant(run(), identity=identity("baseline")), POLICY)
    assert verdict.word == "approve"
    assert "A/A: same weights as the baseline" in verdict.reasons


def test_blocking_is_holm_corrected_over_the_critical_comparisons() -> None:
    lost = {("code", "exact_match"): 0.0775}  # beyond 5 points at p = 0.015 alone, not times two comparisons or more
    evidence = run(n=400, lost=lost)
    alone = rules(Rule(metric="exact_match", evalset="code", max_drop=0.05))
    (single,) = decide_plain(evidence, alone)
    assert single.word == "block"
    p = single.comparisons[0].p_broken
    others = (Rule(metric="exact_match", evalset="tools", max_drop=0.05), Rule(metric="tool_call.valid", max_drop=0.05))
    (several,) = decide_plain(evidence, rules(*alone.rules, *others, *others))
    adjusted = holm([c.p_broken for c in several.comparisons])
    assert adjusted[0] == pytest.approx(5 * p)
    assert several.word == ("block" if adjusted[0] <= 0.05 else "undecided") == "undecided"
    assert "not after correction" in several.reasons[0]
    advisory = tuple(replace(rule, tier="advisory") for rule in others)
    assert word(evidence, rules(*alone.rules, *advisory)) == "block"  # only critical rules are counted


DRIFT = (
    ("drift.kl_mean", {"max": 0.05}, {"max": 0.005}),
    ("drift.kl_p99", {"max": 0.2}, {"max": 0.01}),
    ("drift.kl_max", {"max": 5.0}, {"max": 0.01}),
    ("drift.top1_agreement", {"min": 0.9}, {"min": 0.999}),
    ("drift.length_ratio", {"max": 1.5}, {"max": 0.5}),
    ("latency.e2e", {"max_ratio": 1.3}, {"max_ratio": 0.5}),
    ("latency.tpot", {"max_ratio": 1.3, "percentile": 95}, {"max_ratio": 0.5, "percentile": 95}),
    ("latency.max_gap", {"max_ratio": 1.3, "percentile": 95}, {"max_ratio": 0.5, "percentile": 95}),
)


@pytest.mark.parametrize(("metric", "kept", "breached"), DRIFT)
def test_drift_and_latency_rules_block_when_critical_and_never_approve_alone(metric, kept, breached) -> None:
    quality = Rule(metric="exact_match", max_drop=0.05)
    evidence = run(n=160)
    assert word(evidence, rules(quality, Rule(metric=metric, **kept))) == "approve"
    assert word(evidence, rules(quality, Rule(metric=metric, **breached))) == "block"
    assert word(evidence, rules(quality, Rule(metric=metric, tier="supporting", **breached))) == "review"
    assert word(run(n=12, right=1.0), rules(quality, Rule(metric=metric, **kept))) == "undecided"
    with pytest.raises(UsageError, match="no critical quality rule"):
        decide_plain(run(), rules(Rule(metric=metric, **kept)))


@pytest.mark.parametrize("metric", ["drift.kl_mean", "drift.kl_p99", "drift.kl_max"])
def test_a_limit_inside_a_kl_s_certified_error_decides_nothing(metric) -> None:
    quality = Rule(metric="exact_match", max_drop=0.05)

    def said(kl: float, eta: float, limit: float) -> str:
        evidence = with_units(run(n=400), "variant", lambda us: (replace(u, kl=(kl,) * 9, kl_eta=eta) for u in us))
        return word(evidence, rules(quality, Rule(metric=metric, max=limit)))

    # eta 0.1 at a KL of 0.02: 0.005 + 0.105 x (0.02 + 0.2) = 0.028
    assert said(0.02, 0.0, 0.03) == "approve"
    assert said(0.02, 0.1, 0.03) == "undecided"
    assert said(0.02, 0.1, 0.06) == "approve"
    assert said(0.02, 0.0, 0.01) == "block"
    assert said(0.02, 0.1, 0.01) == "undecided"


@pytest.mark.parametrize("metric", ["drift.kl_mean", "drift.kl_p99", "drift.kl_max"])
def test_a_kl_that_is_known_as_an_interval_decides_where_the_interval_does(metric) -> None:
    quality = Rule(metric="exact_match", max_drop=0.05)

    def said(least: float, most: float, limit: float) -> str:
        evidence = with_units(
            run(n=400), "variant", lambda us: (replace(u, kl=(least,) * 9, kl_upper=(most,) * 9) for u in us)
        )
        return word(evidence, rules(quality, Rule(metric=metric, max=limit)))

    assert said(0.01, 0.02, 0.03) == "approve"
    assert said(0.01, 0.05, 0.03) == "undecided"
    assert said(0.04, 0.05, 0.03) == "block"
    assert said(0.0, inf, 0.03) == "undecided"
    assert said(0.04, inf, 0.03) == "block"
    assert said(0.02, 0.01, 0.03) == "invalid"
    assert said(0.02, nan, 0.03) == "invalid"


def test_a_kl_that_is_known_as_an_interval_is_not_shown_as_a_number() -> None:
    for most in (0.02, inf):
        evidence = with_units(
            run(n=60), "variant", lambda us, most=most: (replace(u, kl=(0.01,) * 9, kl_upper=(most,) * 9) for u in us)
        )
        (shown,) = decide_plain(evidence, rules(*POLICY.rules, Rule(metric="drift.kl_mean", max=0.5)))
        assert "drift.kl_mean" not in shown.drift
        assert shown.drift["drift.kl_mean_least"] == pytest.approx(0.01)
        assert shown.drift["drift.kl_mean_most"] == (pytest.approx(0.02) if most < inf else None)
        told = shown.comparisons[-1]
        assert told.variant is None
        assert told.lower == pytest.approx(0.01, rel=0.1)
        assert (told.upper is None) == (most == inf)


def test_a_certified_error_is_shown_where_there_is_one() -> None:
    evidence = run(n=60)
    (exact,) = decide_plain(evidence, POLICY)
    assert "drift.kl_error" not in exact.drift
    (kept,) = decide_plain(with_units(evidence, "variant", lambda us: (replace(u, kl_eta=1e-4) for u in us)), POLICY)
    assert 1e-6 < kept.drift["drift.kl_error"] < 1e-4


def test_agreement_everywhere_in_few_answers_proves_no_high_agreement() -> None:
    same = with_units(run(n=20), "variant", lambda us: (replace(u, kl=(0.0,) * 9, top1_agreement=1.0) for u in us))
    policy = rules(
        Rule(metric="exact_match", max_drop=0.19),
        Rule(metric="drift.top1_agreement", min=0.9999),
        Rule(metric="drift.kl_p99", max=0.001),
        Rule(metric="drift.kl_mean", max=0.001),
    )
    _, agreement, tail, mean = decide_plain(same, policy)[0].comparisons
    assert {agreement.status, tail.status, mean.status} == {"undecided"}
    assert agreement.lower < 1 == agreement.upper
    assert tail.upper is None
    assert mean.upper > mean.lower == 0
    assert mean.needed == 59
    assert "too few to tell (at least 59 independent ones needed)" in mean.reason


@pytest.mark.parametrize(("n", "percentile", "needed"), [(40, 95, 82), (41, 95, None), (100, 99, 418)])
def test_a_latency_percentile_is_undecided_below_the_cases_that_can_bound_it(n, percentile, needed) -> None:
    latency = Rule(metric="latency.e2e", max_ratio=5.0, percentile=percentile)
    comparison = decide_plain(run(n=n), rules(*POLICY.rules, latency))[0].comparisons[-1]  # two sets of n
    assert comparison.status == ("undecided" if needed else "proven")
    assert comparison.needed == needed
    if needed:
        assert f"{2 * n} independent timed cases are too few ({needed} needed)" in comparison.reason


def test_of_times_it_is_batches_that_a_percentile_counts() -> None:
    """In 38 % of such draws a variant of which 6 % of the batches take three times as long was proven to keep 1.1."""
    latency = Rule(metric="latency.e2e", max_ratio=5.0, percentile=95)

    def in_batches(size: int):
        def batched(units):
            return (replace(unit, job=unit.job // size) for unit in units)

        evidence = run(n=100)  # two sets of them
        return with_units(with_units(evidence, "baseline", batched), "variant", batched)

    policy = rules(*POLICY.rules, latency)
    assert decide_plain(in_batches(2), policy)[0].comparisons[-1].status == "proven"
    (verdict,) = decide_plain(in_batches(8), policy)
    assert (verdict.word, verdict.comparisons[-1].needed) == ("undecided", 656)
    said = "200 timed cases ran in 25 groups of batches that share no case, and p95 needs 82: more cases, or smaller"
    assert said in verdict.comparisons[-1].reason


def test_of_answers_that_may_become_of_any_length_no_length_is_proven() -> None:
    """One of 100 that never ends is not drawn in 36 % of runs, and with room for 1,024 tokens it doubles the mean."""
    rule = Rule(metric="drift.length_ratio", max=1.5)
    policy, evidence = rules(*POLICY.rules, rule), run(n=100)

    def with_budget(tokens: int):
        return replace(evidence, budgets=dict.fromkeys(evidence.budgets, tokens))

    assert decide_plain(with_budget(40), policy)[0].comparisons[-1].status == "proven"
    room = decide_plain(with_budget(2048), policy)[0].comparisons[-1]
    assert (room.status, room.upper > 2) == ("undecided", True)
    some = {case: tokens for case, tokens in evidence.budgets.items() if case[1] != "code-7"}
    (unknown,) = decide_plain(replace(evidence, budgets=some), policy)
    assert unknown.word == "undecided"
    assert "(`max_new_tokens`) is not known for 1 of 200 cases" in unknown.reasons[0]
    assert unknown.comparisons[-1].upper is None
    longer = with_units(evidence, "variant", lambda us: (replace(u, tokens=60) for u in us))
    assert word(replace(longer, budgets={}), policy) == "block", "what is too long is so whatever else it could be"


def test_latency_cases_of_one_cluster_count_once() -> None:
    def clustered(units):
        return (replace(unit, cluster=f"c{index % 41}") for index, unit in enumerate(units))

    evidence = with_units(with_units(run(), "baseline", clustered), "variant", clustered)
    latency = Rule(metric="latency.e2e", max_ratio=5.0, percentile=95)
    assert (
        decide_plain(evidence, rules(*POLICY.rules, latency))[0].comparisons[-1].needed is None
    )  # 41 clusters a set, two sets


def test_where_a_rule_stands_in_its_file_changes_nothing() -> None:
    moved = replace(POLICY, rules=tuple(replace(rule, line=rule.line + 9) for rule in POLICY.rules))
    assert moved == POLICY
    assert repr(decide_plain(run(lost=0.02), moved)) == repr(decide_plain(run(lost=0.02), POLICY))


@pytest.mark.parametrize("metric", ["drift.kl_mean", "drift.top1_agreement"])
def test_drift_that_was_not_recorded_is_undecided(metric: str) -> None:
    bare = with_units(run(), "variant", lambda us: (replace(u, kl=()) if i == 0 else u for i, u in enumerate(us)))
    limit = {"max": 1.0} if metric == "drift.kl_mean" else {"min": 0.5}
    (verdict,) = decide_plain(bare, rules(*POLICY.rules, Rule(metric=metric, **limit)))
    assert verdict.word == "undecided"
    assert "no drift was recorded for 1 of 240" in verdict.reasons[0]


@pytest.mark.parametrize("metric", ["latency.tpot", "latency.max_gap"])
def test_time_between_tokens_of_one_token_answers_is_excused_other_gaps_are_not(metric: str) -> None:
    policy = rules(*POLICY.rules, Rule(metric=metric, max_ratio=1.3))

    def gap(tokens: int):
        return with_units(
            run(),
            "variant",
            lambda us: (
                replace(u, values=u.values | {metric: None}, tokens=tokens) if i == 0 else u for i, u in enumerate(us)
            ),
        )

    assert word(gap(1), policy) == "approve"
    assert word(gap(9), policy) == "undecided"


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ((), "no critical quality rule"),
        ((Rule(metric="exact_match", max_drop=0.1, tier="supporting"),), "no critical quality rule"),
        ((Rule(metric="exactmatch", max_drop=0.1),), "No metric is called 'exactmatch'"),
        (
            (Rule(metric="numeric", max_drop=0.1),),
            "no evalset carries numeric. The sets' metrics are code: exact_match; tools",
        ),
        ((Rule(metric="tool_call.valid", evalset="code", max_drop=0.1),), "carries tool_call.valid"),
        ((Rule(metric="exact_match", evalset="nowhere", max_drop=0.1),), "'nowhere', which is not here; there is"),
        ((Rule(metric="exact_match", max_drop=0.0),), "between 0 and 1"),
        ((Rule(metric="exact_match", max_drop=0.2),), "could never be proven"),
        ((Rule(metric="exact_match", max_drop=1.0),), "between 0 and 1"),
        ((Rule(metric="exact_match", max_drop=float("nan")),), "between 0 and 1"),
        ((Rule(metric="exact_match", max_ratio=1.1),), "sets exactly max_drop"),
        ((Rule(metric="latency.e2e", max_ratio=1.1, percentile=100),), "percentile"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(chosen: tuple[Rule, ...], said: str) -> None:
    with pytest.raises(UsageError) as error:
        check_policy(Policy(rules=chosen), METRICS)
    assert said in str(error.value)


def test_an_alpha_out_of_range_is_refused() -> None:
    for alpha in (0.0, 0.5, float("nan")):
        with pytest.raises(UsageError, match="alpha"):
            check_policy(replace(POLICY, alpha=alpha), METRICS)


def test_the_order_of_units_changes_no_byte() -> None:
    policy = rules(*POLICY.rules, Rule(metric="latency.e2e", max_ratio=1.3), Rule(metric="drift.kl_mean", max=0.05))
    evidence = run(lost=0.03, gained=0.02)
    expected = repr(decide_plain(evidence, policy))
    generator = np.random.default_rng(8)
    for _ in range(5):
        shuffled = evidence
        for side in ("baseline", "variant"):
            shuffled = with_units(shuffled, side, lambda u: [u[i] for i in generator.permutation(len(u))])
        closed = [evidence.expected[i] for i in generator.permutation(len(evidence.expected))]
        metrics = dict(reversed(evidence.metrics.items()))
        assert repr(decide_plain(replace(shuffled, expected=tuple(closed), metrics=metrics), policy)) == expected


def test_repeats_of_a_case_are_one_cluster() -> None:
    def repeated(units):
        return [replace(u, key=replace(u.key, repeat=r)) for u in units for r in range(3)]

    evidence = with_units(with_units(run(n=60), "baseline", repeated), "variant", repeated)
    evidence = of(evidence.baseline, *evidence.variants)
    (verdict,) = decide_plain(evidence, POLICY)
    single = decide_plain(run(n=60), POLICY)[0]
    for thrice, once in zip(verdict.comparisons, single.comparisons, strict=True):
        assert thrice.n == 3 * once.n
        assert thrice.clusters == once.n
        assert thrice.lower == once.lower  # asking the same question three times excludes no more


def draw(generator: np.random.Generator, n: int, loss: float, discordance: float):
    before = (generator.random(n) < 0.8).astype(float)
    p_lost, p_gained = (discordance + loss) / 2 / 0.8, (discordance - loss) / 2 / 0.2
    u = generator.random(n)
    after = np.where(before == 1, np.where(u < p_lost, 0.0, 1.0), np.where(u < p_gained, 1.0, 0.0))
    key = ("code", "exact_match")
    metrics = {"code": ("exact_match",)}
    return of(arm("baseline", {key: before}, 1), arm("int4", {key: after}, 2), metrics=metrics)


@pytest.mark.parametrize(
    ("loss", "discordance", "approve", "block"),
    [
        pytest.param(0.0, 0.06, (0.93, 1), (0, 0.01), marks=pytest.mark.proof),
        (0.05, 0.08, (0, 0.10), (0, 0.10)),
        pytest.param(0.12, 0.14, (0, 0.01), (0.93, 1), marks=pytest.mark.proof),
    ],
)
def test_operating_characteristics(loss, discordance, approve, block) -> None:
    """A/A-like noise approves, a loss at the margin does neither, a loss of over twice the margin blocks. n = 400;
    limits are alpha or exact power with about 3 standard errors of 100 draws."""
    generator = np.random.default_rng(17)
    policy = rules(Rule(metric="exact_match", max_drop=0.05))
    words = [word(draw(generator, 400, loss, discordance), policy) for _ in range(100)]
    assert approve[0] <= words.count("approve") / 100 <= approve[1]
    assert block[0] <= words.count("block") / 100 <= block[1]


def test_fourteen_thousand_units_are_decided_quickly() -> None:
    """Goal 1.5 s on an idle core; the limit here leaves room for a busy machine."""
    metrics = {f"set{i}": ("exact_match", "json.valid") for i in range(7)}
    evidence = run(n=400, lost=0.01, gained=0.02, metrics=metrics)
    others = [
        replace(
            evidence.variants[0],
            name=f"v{i}",
            units=tuple(replace(u, key=replace(u.key, arm=f"v{i}")) for u in evidence.variants[0].units),
        )
        for i in range(3)
    ]
    whole = of(evidence.baseline, *evidence.variants, *others, metrics=metrics)
    assert len(whole.expected) == 14_000
    policy = rules(*(Rule(metric=m, scope=s, max_drop=0.05) for m in metrics["set0"] for s in ("pooled", "evalset")))
    start = process_time()
    verdicts = decide_plain(whole, policy)
    assert [v.word for v in verdicts] == ["approve"] * 4
    assert process_time() - start < 30


def test_too_few_passages_for_the_margin_are_told_how_many_there_must_be_at_least() -> None:
    def passages(units):
        return [replace(unit, cluster=f"p{int(unit.key.case_id.split('-')[1]) // 10}") for unit in units]

    evidence = with_units(with_units(run(n=400), "baseline", passages), "variant", passages)
    (verdict,) = decide_plain(evidence, rules(Rule(metric="exact_match", max_drop=0.02, evalset="code")))
    comparison = verdict.comparisons[0]
    assert comparison.status == "undecided"
    assert comparison.reason.endswith(
        "40 independent cases can prove no loss under 7.3 points; 149 would be needed at least"
    )
    (verdict,) = decide_plain(evidence, rules(Rule(metric="exact_match", max_drop=0.08, evalset="code")))
    comparison = verdict.comparisons[0]
    assert comparison.status == "proven"
