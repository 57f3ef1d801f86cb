"""Apply all peer rules to a run, variant by variant, metric by metric.

Rows that are missing, failed or not a number are left out, as the peers' own files would leave them out. The table
shows that a rule passes such evidence, beside qualgate's own verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from statistics import fmean
from typing import get_args

from qualgate.gate.peers.passed_loss import PassedLoss, passed_loss
from qualgate.gate.peers.registry import rules
from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, Says, cannot
from qualgate.records import NOISE, TWIN, ArmEvidence, RunEvidence
from qualgate.records.metrics import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSaid:
    """Answer of one peer's rule on one variant, evalset and metric."""

    variant: str
    evalset: str
    metric: str
    n: int  # cases that both arms answered
    baseline: float  # means of what each arm answered
    candidate: float
    verdict: PeerVerdict
    passes: PassedLoss | None = None  # losses that the rule lets pass on such evidence; None: not drawn, or unknown


def what_peers_say(
    evidence: RunEvidence, peer_rules: Sequence[PeerRule] | None = None, *, losses: bool = False
) -> tuple[PeerSaid, ...]:
    """One entry for each variant, evalset, metric and rule, in that order.

    peer_rules: None applies every rule. losses: draw which losses each rule lets pass, about a third of a second each.
    """
    return tuple(
        PeerSaid(
            variant=variant.name,
            evalset=outcome.evalset,
            metric=outcome.metric,
            n=outcome.difference.n,
            baseline=outcome.baseline.mean,
            candidate=outcome.variant.mean,
            verdict=_ask(rule, outcome),
            passes=passed_loss(partial(_ask, rule), outcome) if losses else None,
        )
        for variant in evidence.variants
        if not variant.name.endswith((TWIN, NOISE))
        for outcome in outcomes(evidence, variant)
        for rule in (rules() if peer_rules is None else peer_rules)
    )


def outcomes(evidence: RunEvidence, variant: ArmEvidence) -> tuple[Outcomes, ...]:
    """Outcomes of each evalset's quality metrics on the baseline and this variant."""
    return tuple(
        Outcomes.of(evalset, metric, _by_case(evidence.baseline, evalset, metric), _by_case(variant, evalset, metric))
        for evalset in sorted(evidence.metrics)
        for metric in evidence.metrics[evalset]
        if metric in METRICS and METRICS[metric].kind == "quality"
    )


def _by_case(arm: ArmEvidence, evalset: str, metric: str) -> dict[str, float]:
    repeats: dict[str, list[float]] = {}
    for unit in sorted(arm.units, key=lambda unit: unit.key):
        value = unit.values.get(metric)
        if unit.key.evalset == evalset and unit.status == "done" and value is not None and isfinite(value):
            repeats.setdefault(unit.key.case_id, []).append(value)
    return {case: fmean(values) for case, values in repeats.items()}


def _ask(rule: PeerRule, outcome: Outcomes) -> PeerVerdict:
    """Apply a rule. A plug-in is third-party code: its errors appear in its line and never cost the verdict."""
    try:
        verdict = rule.judge(outcome)
    except (Exception, SystemExit) as error:
        return cannot(rule.name, rule.source, f"the rule failed: {type(error).__name__}: {error}")
    if not isinstance(verdict, PeerVerdict) or verdict.says not in get_args(Says):
        return cannot(rule.name, rule.source, f"the rule gave no verdict but {verdict!r:.80}")
    numbers = (verdict.statistic, verdict.threshold)
    if any(not isinstance(words, str) for words in (verdict.name, verdict.why, verdict.source)):
        return cannot(rule.name, rule.source, f"the rule's name, reason or source is no text: {verdict!r:.80}")
    if any(number is not None and not isinstance(number, (int, float)) for number in numbers):
        return cannot(rule.name, rule.source, f"the rule's numbers are none: {numbers!r:.80}")
    if any(number is not None and not isfinite(number) for number in numbers):
        return cannot(rule.name, rule.source, f"the rule's numbers are not finite: {numbers}")
    return verdict
