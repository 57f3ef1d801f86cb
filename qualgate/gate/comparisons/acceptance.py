"""Decide which answers a user could keep, and by what terms they are priced.

Accepted: finished by itself, right by every quality metric of its set (its schema among them), within the service
level objective, and not corrected. What was not recorded counts as neither accepted nor refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from qualgate.records import Policy, Prices, RunEvidence, Slo, UnitEvidence, UnitKey
from qualgate.records.metrics import METRICS

WRONG, CUT, LATE, CORRECTED = "wrong", "not finished", "outside the SLO", "corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms by which answers are priced and accepted."""

    prices: Prices | None
    slo: Slo
    metrics: dict[str, tuple[str, ...]]  # evalset → what its answers are right by
    corrected: dict[UnitKey, bool] | None
    feedback_asked: bool

    @property
    def timed(self) -> bool:
        """Whether what an answer costs, or whether it is accepted, rests on a time."""
        return self.slo != Slo() or (self.prices is not None and self.prices.device_second > 0)


def terms_of(evidence: RunEvidence, policy: Policy, prices: Prices | None = None) -> Terms:
    """The policy's terms; `prices` where it has none."""
    return Terms(
        prices=policy.prices or prices,
        slo=policy.slo or Slo(),
        metrics={
            name: tuple(metric for metric in metrics if metric in METRICS and METRICS[metric].kind == "quality")
            for name, metrics in evidence.metrics.items()
        },
        corrected=evidence.corrected,
        feedback_asked=bool(policy.feedback),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Whether one answer is accepted: so if both fields are empty."""

    refused: str = ""  # the first reason for which it is not
    unknown: str = ""  # why it cannot be said


def accepted(unit: UnitEvidence, terms: Terms) -> Acceptance:
    """Decide on one answer. A known reason to refuse it wins over anything unknown."""
    scores = [unit.values.get(metric) for metric in terms.metrics.get(unit.key.evalset, ())]
    is_late = late(unit, terms.slo)
    if unit.finished is False or unit.truncated:
        return Acceptance(refused=CUT)
    if any(score is not None and score < 1 for score in scores):
        return Acceptance(refused=WRONG)
    if is_late:
        return Acceptance(refused=LATE)
    if (terms.corrected or {}).get(unit.key):
        return Acceptance(refused=CORRECTED)
    if unit.finished is None:
        return Acceptance(unknown="whether they finished was not recorded")
    if not scores or None in scores:
        return Acceptance(unknown="no scorer could say whether they are right")
    if is_late is None:
        return Acceptance(unknown="no time was recorded, and `slo` asks for one")
    return Acceptance()


def late(unit: UnitEvidence, slo: Slo) -> bool | None:
    """Whether a limit was missed; None where a time that is asked for was not recorded. An answer of one token has
    no time per further token."""
    unknown = False
    for metric, limit in (("latency.ttft", slo.ttft), ("latency.tpot", slo.tpot), ("latency.e2e", slo.e2e)):
        if limit is None or (metric == "latency.tpot" and unit.tokens in (0, 1)):
            continue
        seconds = unit.values.get(metric)
        if seconds is None:
            unknown = True
        elif seconds > limit:
            return True
    return None if unknown else False
