"""Two of the steps that an arm has to pass: quality, and the service level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qualgate.records import ArmStep, Comparison, FourArms, Policy, RuleStatus, Slo, UnitEvidence, Verdict
from qualgate.records.metrics import METRICS
from qualgate.stats.intervals import clustered_percentile
from qualgate.text.numbers import counted

SLO_PERCENTILE = 95.0


def quality_step(verdict: Verdict, same: bool, of_quantization: Sequence[ArmStep], arms: FourArms) -> ArmStep:
    """Judge the critical rules on quality, drift, coverage and stability. same: every answer is the target's.

    Equal answers excuse the arm from rules on what drafting could change. The rest is still judged: whether there are
    enough answers (sixty without a difference exclude no loss under five points) from a baseline that can lose some,
    whether they repeat, and the arm's own weights. Speculation alone has the baseline's weights.
    """
    name, rules = verdict.variant, rules_of_step(verdict, "quality")
    critical = [comparison for comparison in verdict.comparisons if comparison.tier == "critical"]
    if verdict.word == "undecided" and all(
        comparison.status == "proven" for comparison in critical
    ):  # by unfinished answers
        return ArmStep(arm=name, step="quality", status="undecided", reason=verdict.reasons[0])
    if not same:
        return _by_rules(name, "quality", rules)
    untold = ("quality", "stability") if name == arms.speculation else ("quality", "stability", "arm")
    own = _by_rules(name, "quality", [comparison for comparison in rules if METRICS[comparison.metric].kind in untold])
    if own.status != "proven":
        return own
    if name == arms.speculation:
        return ArmStep(arm=name, step="quality", status="proven", reason="the baseline's, by parity")
    target = next(step for step in of_quantization if step.step == "quality")
    but = "" if target.status == "proven" else f": {target.reason}"
    return replace(target, arm=name, reason=f"{arms.quantization}'s, by parity{but}")


def rules_of_step(verdict: Verdict, step: str) -> list[Comparison]:
    """The critical rules of a step: latency, cost, goodput and memory belong to `slo`, all others to quality."""

    def serves(metric: str) -> bool:
        return METRICS[metric].kind in ("latency", "cost", "service") or metric.startswith("memory.")

    return [
        comparison
        for comparison in verdict.comparisons
        if comparison.tier == "critical" and serves(comparison.metric) == (step == "slo")
    ]


def _by_rules(name: str, step: Literal["quality", "slo"], rules: Sequence[Comparison]) -> ArmStep:
    for status in ("broken", "undecided"):
        if chosen := [comparison for comparison in rules if comparison.status == status]:
            return ArmStep(arm=name, step=step, status=status, reason=chosen[0].reason)
    reason = f"all {len(rules)} critical rules proven" if len(rules) != 1 else "the critical rule is proven"
    return ArmStep(arm=name, step=step, status="proven", reason=reason if rules else "nothing asked")


def slo_step(
    verdict: Verdict, units: Sequence[UnitEvidence], clusters: NDArray, shared: str, policy: Policy
) -> ArmStep:
    """Judge critical rules on latency, cost, goodput and memory, then the 95th percentile of each time limit."""
    name, slo = verdict.variant, policy.slo or Slo()
    steps = [_by_rules(name, "slo", rules_of_step(verdict, "slo"))]
    for metric, limit in (("latency.ttft", slo.ttft), ("latency.tpot", slo.tpot), ("latency.e2e", slo.e2e)):
        if limit is not None:
            status, reason = (
                ("undecided", f"{metric}: {shared}")
                if shared
                else _within_limit(metric, limit, units, clusters, policy.alpha)
            )
            steps.append(ArmStep(arm=name, step="slo", status=status, reason=reason))
    for status in ("broken", "undecided"):
        if failing := next((step for step in steps if step.status == status), None):
            return failing
    return steps[-1]


def _within_limit(
    metric: str, limit: float, units: Sequence[UnitEvidence], clusters: NDArray, alpha: float
) -> tuple[RuleStatus, str]:
    """Check a percentile of an arm's times against its limit in seconds. Returns: (status, reason).

    clusters: of the units, joined where they share their time. Answers of 0 or 1 token have no time per token.
    """
    timed = [index for index, unit in enumerate(units) if metric != "latency.tpot" or unit.tokens not in (0, 1)]
    seconds = [units[index].values.get(metric) for index in timed]
    if not seconds or None in seconds:
        return (
            "undecided",
            f"{metric}: no time was recorded for {counted(sum(value is None for value in seconds), 'answer')}",
        )
    bounds = clustered_percentile(np.array(seconds, float), clusters[timed], SLO_PERCENTILE, limit, alpha)
    finding = f"{metric} p{SLO_PERCENTILE:g} is {bounds.estimate:.3g} s, and at most {limit:g} s is asked"
    if bounds.p_above <= alpha:
        return "broken", finding
    return (
        ("proven", finding)
        if bounds.p_below <= alpha
        else ("undecided", f"{finding}: too near, or too few cases, to tell")
    )
