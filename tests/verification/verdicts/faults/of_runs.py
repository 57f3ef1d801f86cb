"""Faults of a run's evidence and of the policy that judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

from qualgate.gate.evidence.checks import PAIRED_BY
from qualgate.records import (
    Policy,
    Rule,
)
from tests.verification.verdicts.faults.evidence import (
    SETS,
    Asked,
    Side,
    exchanged,
    identity,
    in_passages,
    on_both,
    one_rule,
    shuffled,
    sound,
    with_arm,
    with_every,
    with_policy,
    with_run,
    with_some,
    with_units,
    wrong_on,
)

ONE_SIDED: dict[str, Callable[[Asked, Side], Asked]] = {
    "no rows": lambda a, s: with_arm(a, s, units=()),
    "12 rows": lambda a, s: with_units(a, s, lambda u: u[:12]),
    "one row missing": lambda a, s: with_units(a, s, lambda u: (*u[:3], *u[4:])),
    "a row marked missing": lambda a, s: with_some(a, s, [3], status="missing"),
    "one row failed": lambda a, s: with_some(a, s, [3], status="error", error="worker died"),
    "every row failed": lambda a, s: with_every(a, s, status="error", error="NaN logits"),
    "a status nobody knows": lambda a, s: with_some(a, s, [3], status="skipped"),
    "a row twice": lambda a, s: with_units(a, s, lambda u: (*u, *u[5:6])),
    "a row twice in place of another": lambda a, s: with_units(a, s, lambda u: (*u[1:2], *u[1:])),
    "a row nobody planned": lambda a, s: with_units(
        a, s, lambda u: (*u, *(replace(one, key=replace(one.key, case_id="x")) for one in u[:1]))
    ),
    "a repeat nobody planned": lambda a, s: with_units(
        a, s, lambda us: [replace(u, key=replace(u.key, repeat=int(i == 3))) for i, u in enumerate(us)]
    ),
    "a row of a stranger's arm": lambda a, s: with_units(
        a, s, lambda us: [replace(u, key=replace(u.key, arm="other")) if i == 3 else u for i, u in enumerate(us)]
    ),
    "score NaN": lambda a, s: with_some(a, s, [3], values={"exact_match": nan}),
    "score infinite": lambda a, s: with_some(a, s, [3], values={"exact_match": inf}),
    "score above 1": lambda a, s: with_some(a, s, [3], values={"exact_match": 1.5}),
    "score below 0": lambda a, s: with_some(a, s, [3], values={"exact_match": -1.0}),
    "every score NaN": lambda a, s: with_every(a, s, values={"exact_match": nan}),
    "score absent": lambda a, s: with_some(a, s, [3], values={}),
    "the scorer could say nothing": lambda a, s: with_every(
        a, s, values={"exact_match": None, "tool_call.valid": None}
    ),
    "scorer not known": lambda a, s: with_every(a, s, scorers={}),
    "no case hash": lambda a, s: with_every(a, s, case_hash=""),
    "no job finished": lambda a, s: with_arm(a, s, identity=None),
    "latency negative": lambda a, s: with_some(a, s, [3], values={"latency.e2e": -1.0}),
    "latency NaN": lambda a, s: with_some(a, s, [3], values={"latency.e2e": nan}),
    "tokens negative": lambda a, s: with_some(a, s, [3], tokens=-1),
}
"""Each is three cases: on the baseline, on the variant, on both."""
CASES: dict[str, Callable[[Asked], Asked]] = {
    # Of the baseline alone it is no fault: taken as right where the variant is right, nothing is lost.
    "the scorer could not say of the variant": lambda a: with_some(
        a, "variant", range(0, 240, 8), values={"exact_match": None}
    ),
    "the scorer could not say of either": lambda a: on_both(
        a, lambda b, s: with_some(b, s, range(0, 240, 8), values={"exact_match": None})
    ),
    "nothing at all": lambda a: with_run(on_both(a, lambda b, s: with_arm(b, s, units=())), expected=()),
    "rows, but no closed list": lambda a: with_run(a, expected=()),
    "a unit planned twice": lambda a: with_run(a, expected=(*a.evidence.expected, *a.evidence.expected[-1:])),
    "planned for the baseline alone": lambda a: with_run(
        with_units(a, "variant", lambda u: u[1:]),
        expected=tuple(k for k in a.evidence.expected if (k.arm, k.case_id) != ("int4", "code-0000")),
    ),
    "a planned variant left nothing": lambda a: with_run(
        a, expected=(*a.evidence.expected, *(replace(k, arm="int2") for k in a.evidence.expected if k.arm == "int4"))
    ),
    "a set nobody listed": lambda a: with_run(a, metrics={"tools": SETS["tools"]}),
    "a listed set nobody asked": lambda a: with_run(a, metrics=SETS | {"void": ("exact_match",)}),
    "no set listed": lambda a: with_run(a, metrics={}),
    "no variant": lambda a: with_run(
        a, variants=(), expected=tuple(k for k in a.evidence.expected if k.arm == "baseline")
    ),
    "same alias for two weights": lambda a: with_run(
        a, variants=(*a.evidence.variants, replace(a.evidence.variants[0], identity=identity("int2")))
    ),
    "the variant is called baseline": lambda a: with_arm(a, "variant", name="baseline"),
    "a row's digest differs": lambda a: with_run(a, integrity=("row 7: sha256 differs",)),
    "weights changed since": lambda a: with_run(a, stale=("weights of int4 changed since the run",)),
    "re-versioned case": lambda a: with_some(a, "variant", [3], case_hash="sha other"),
    "re-versioned set": lambda a: with_every(a, "variant", case_hash="sha v2"),
    "two answers exchanged": lambda a: with_units(a, "variant", lambda u: exchanged(u, 0, 1)),
    "shuffled ids": lambda a: with_units(a, "variant", shuffled),
    "another passage on one side": lambda a: with_some(a, "variant", [3], cluster="x"),
    "another scorer version": lambda a: with_every(a, "variant", scorers={"exact_match": "exact_match/2"}),
    "another scorer version for one row": lambda a: with_some(
        a, "variant", [3], scorers={"exact_match": "exact_match/2"}
    ),
    **{
        f"another {field}": (
            lambda a, field=field: with_arm(a, "variant", identity=replace(identity("int4"), **{field: "x"}))
        )
        for field in PAIRED_BY
    },
    "two kernels in one arm": lambda a: with_some(
        with_every(a, "variant", kernel="c avx512"), "variant", [3], kernel="c avx2"
    ),
    "KL NaN": lambda a: with_some(a, "variant", [3], kl=(0.1, nan)),
    "KL negative": lambda a: with_some(a, "variant", [3], kl=(0.1, -0.2)),
    "agreement above 1": lambda a: with_some(a, "variant", [3], top1_agreement=1.2),
    "both arms truncated": lambda a: on_both(a, lambda b, s: with_every(b, s, truncated=True)),
    "baseline truncated": lambda a: with_every(a, "baseline", truncated=True),
    "both arms too long": lambda a: on_both(
        a,
        lambda b, s: with_every(b, s, truncated=True, tokens=4096, values={"exact_match": 0.0, "tool_call.valid": 0.0}),
    ),
    "baseline truncated on 7 %": lambda a: with_some(a, "baseline", range(0, 240, 14), truncated=True),
    "19 passages": lambda a: in_passages(a, 19),
    "one passage": lambda a: in_passages(a, 1),
    "baseline right on nothing": lambda a: sound(right=0.0),
    "baseline right on a fifth": lambda a: sound(right=0.2),
    "zero flips at n = 10": lambda a: sound(n=10, right=1.0),
    "one case": lambda a: sound(n=1, right=1.0),
    "no case": lambda a: sound(n=0),
    "variant wrong on all": lambda a: wrong_on(a, 1.0),
    "variant wrong on 30 %": lambda a: wrong_on(a, 0.3),
    "a loss at the margin": lambda a: sound(lost=0.05),
    "policy without a rule": lambda a: with_policy(a, rules=()),
    "advisory rules alone, variant wrong on all": lambda a: replace(wrong_on(a, 1), policy=one_rule(tier="advisory")),
    "supporting rules alone": lambda a: replace(a, policy=one_rule(tier="supporting")),
    "a critical drift rule alone": lambda a: replace(a, policy=Policy(rules=(Rule(metric="drift.kl_mean", max=1.0),))),
    "an unknown metric": lambda a: replace(a, policy=one_rule(metric="vibes")),
    "a metric no set carries": lambda a: replace(a, policy=one_rule(metric="json.valid")),
    "a rule on a set not run": lambda a: replace(a, policy=one_rule(evalset="math")),
    "two bounds in one rule": lambda a: replace(a, policy=one_rule(max_ratio=2.0)),
    "a person is asked for": lambda a: with_policy(a, review="always"),
    **{
        f"max_drop {drop:g}": (lambda a, drop=drop: replace(a, policy=one_rule(max_drop=drop)))
        for drop in (0, -1, 0.2, 1, inf, nan)
    },
    **{f"alpha {alpha:g}": (lambda a, alpha=alpha: with_policy(a, alpha=alpha)) for alpha in (0, -1, 0.5, 1, inf, nan)},
}
