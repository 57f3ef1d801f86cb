"""Words, order, reasons, Holm and sensitivity."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from qualgate.errors import Exit, UsageError
from qualgate.gate.rules import check_policy
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import Policy, Rule, Verdict
from qualgate.stats.multiplicity import holm
from tests.gate.planted import METRICS, POLICY, identity, run, with_each, with_unit, with_units, with_variant
from tests.tables import each_row

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
        == "exact_match [code]: 100 cases cannot exclude a loss of 5 points; about 414 would (5 lost, 5 gained)"
    )
    assert comparison.needed == 414
    assert decide_plain(run(n=414, lost=0.05, gained=0.05), policy)[0].word == "approve"


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


def test_overall_exit_takes_the_first_of_its_order() -> None:
    def of_codes(*codes: int) -> list[Verdict]:
        return [Verdict(variant="v", word="approve", exit=code, reasons=()) for code in codes]

    order = [14, 13, 10, 12, 11, 0]
    for index, code in enumerate(order):
        assert overall_exit(of_codes(*reversed(order[index:]))) == code


CRITICAL = Rule(metric="exact_match", max_drop=0.05)
ON_CALLS = Rule(metric="tool_call.valid", max_drop=0.05)
ON_CODE = rules(Rule(metric="exact_match", evalset="code", max_drop=0.05))
ALWAYS = replace(POLICY, review="always")
LOSSY, SMALL = run(n=400, lost={TOOLS: 0.25}), run(n=400, lost={TOOLS: 0.04})


@pytest.mark.parametrize(
    ("evidence", "policy", "expected"),
    [
        (LOSSY, rules(CRITICAL, ON_CALLS), "block"),
        (LOSSY, rules(CRITICAL, replace(ON_CALLS, tier="supporting")), "review"),
        (LOSSY, rules(CRITICAL, replace(ON_CALLS, tier="advisory")), "approve"),
        (SMALL, rules(CRITICAL, replace(ON_CALLS, tier="supporting")), "approve"),
        (run(), ALWAYS, "review"),
        (LOSSY, ALWAYS, "block"),
        (run(n=10), ALWAYS, "undecided"),
        (replace(LOSSY, integrity=("x",)), POLICY, "invalid"),
        (with_units(LOSSY, "variant", lambda units: units[1:]), POLICY, "invalid"),
        (with_variant(LOSSY, identity=identity("w", template="other")), POLICY, "undecided"),
        (LOSSY, rules(replace(CRITICAL, max_drop=0.001), *POLICY.rules), "block"),  # it outranks what cannot be decided
        (run(n=400, right=0.22), ON_CODE, "undecided"),  # too weak to approve
        (run(n=400, right=0.22, lost=0.2), ON_CODE, "block"),  # and not to block
    ],
)
def test_tiers_a_person_and_the_order_of_words_decide_the_word(evidence, policy, expected) -> None:
    assert word(evidence, policy) == expected


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
    for tier in ("advisory", "supporting"):  # only rules of one tier are counted together
        beside = tuple(replace(rule, tier=tier) for rule in others)
        assert word(evidence, rules(*alone.rules, *beside)) == "block"
    supporting = tuple(replace(rule, tier="supporting") for rule in (*alone.rules, *others, *others))
    (asked,) = decide_plain(evidence, rules(Rule(metric="exact_match", max_drop=0.15), *supporting))
    assert (asked.word, asked.comparisons[1].status) == ("approve", "undecided"), "these as well"


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


@each_row("metric", ["drift.kl_mean", "drift.kl_p99", "drift.kl_max"])
@each_row(
    ("kl", "known", "limit", "expected"),
    [
        (0.02, {"kl_eta": 0.0}, 0.03, "approve"),
        (0.02, {"kl_eta": 0.1}, 0.03, "undecided"),  # 0.005 + 0.105 x (0.02 + 0.2) = 0.028
        (0.02, {"kl_eta": 0.1}, 0.06, "approve"),
        (0.02, {"kl_eta": 0.0}, 0.01, "block"),
        (0.02, {"kl_eta": 0.1}, 0.01, "undecided"),
        (0.01, {"kl_upper": 0.02}, 0.03, "approve"),
        (0.01, {"kl_upper": 0.05}, 0.03, "undecided"),
        (0.04, {"kl_upper": 0.05}, 0.03, "block"),
        (0.0, {"kl_upper": inf}, 0.03, "undecided"),
        (0.04, {"kl_upper": inf}, 0.03, "block"),
        (0.02, {"kl_upper": 0.01}, 0.03, "invalid"),
        (0.02, {"kl_upper": nan}, 0.03, "invalid"),
    ],
)
def test_a_limit_inside_a_kl_s_certified_error_or_interval_decides_nothing(metric, kl, known, limit, expected) -> None:
    fields = {name: (value,) * 9 if name == "kl_upper" else value for name, value in known.items()}
    evidence = with_each(run(n=160), "variant", kl=(kl,) * 9, **fields)
    assert word(evidence, rules(Rule(metric="exact_match", max_drop=0.05), Rule(metric=metric, max=limit))) == expected


@pytest.mark.parametrize("most", [0.02, inf])
def test_a_kl_that_is_known_as_an_interval_is_not_shown_as_a_number(most) -> None:
    evidence = with_each(run(n=60), "variant", kl=(0.01,) * 9, kl_upper=(most,) * 9)
    (shown,) = decide_plain(evidence, rules(*POLICY.rules, Rule(metric="drift.kl_mean", max=0.5)))
    assert "drift.kl_mean" not in shown.drift
    assert shown.drift["drift.kl_mean_least"] == pytest.approx(0.01)
    assert shown.drift["drift.kl_mean_most"] == (pytest.approx(0.02) if most < inf else None)
    told = shown.comparisons[-1]
    assert (told.variant, told.upper is None) == (None, most == inf)
    assert told.lower == pytest.approx(0.01, rel=0.1)


def test_a_certified_error_is_shown_where_there_is_one() -> None:
    assert "drift.kl_error" not in decide_plain(run(n=60), POLICY)[0].drift
    (kept,) = decide_plain(with_each(run(n=60), "variant", kl_eta=1e-4), POLICY)
    assert 1e-6 < kept.drift["drift.kl_error"] < 1e-4


def test_agreement_everywhere_in_few_answers_proves_no_high_agreement() -> None:
    same = with_each(run(n=20), "variant", kl=(0.0,) * 9, top1_agreement=1.0)
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
        return with_each(run(n=100), "both", lambda unit: replace(unit, job=unit.job // size))  # two sets of them

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
        return replace(evidence, max_new_tokens=dict.fromkeys(evidence.max_new_tokens, tokens))

    assert decide_plain(with_budget(40), policy)[0].comparisons[-1].status == "proven"
    room = decide_plain(with_budget(2048), policy)[0].comparisons[-1]
    assert (room.status, room.upper > 2) == ("undecided", True)
    some = {case: tokens for case, tokens in evidence.max_new_tokens.items() if case[1] != "code-7"}
    (unknown,) = decide_plain(replace(evidence, max_new_tokens=some), policy)
    assert unknown.word == "undecided"
    assert "(`max_new_tokens`) is not known for 1 of 200 cases" in unknown.reasons[0]
    assert unknown.comparisons[-1].upper is None
    longer = with_each(evidence, "variant", tokens=60)
    untold = replace(longer, max_new_tokens={})
    assert word(untold, policy) == "block", "what is too long is so whatever else it could be"


@pytest.mark.parametrize("metric", ["drift.kl_mean", "drift.top1_agreement"])
def test_drift_that_was_not_recorded_is_undecided(metric: str) -> None:
    bare = with_unit(run(), "variant", 0, kl=())
    limit = {"max": 1.0} if metric == "drift.kl_mean" else {"min": 0.5}
    (verdict,) = decide_plain(bare, rules(*POLICY.rules, Rule(metric=metric, **limit)))
    assert verdict.word == "undecided"
    assert "no drift was recorded for 1 of 240" in verdict.reasons[0]
    (without_rule,) = decide_plain(bare, POLICY)
    assert without_rule.drift["drift.measured"] == 239 / 240
    assert "drift.measured" not in decide_plain(run(), POLICY)[0].drift


@pytest.mark.parametrize("metric", ["latency.tpot", "latency.max_gap"])
def test_time_between_tokens_of_one_token_answers_is_excused_other_gaps_are_not(metric: str) -> None:
    policy, evidence = rules(*POLICY.rules, Rule(metric=metric, max_ratio=1.3)), run()
    untimed = evidence.variants[0].units[0].values | {metric: None}
    for tokens, expected in ((1, "approve"), (9, "undecided")):
        assert word(with_unit(evidence, "variant", 0, values=untimed, tokens=tokens), policy) == expected


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
