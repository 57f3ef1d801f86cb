"""Cost per accepted answer of one arm: every attempt is paid for, and only what a user could keep counts.

Accepted: finished by itself, right by every quality metric of its set (its schema among them), within the service
level objective, and not corrected. What is not recorded is unavailable with its reason, never 0: one attempt of
unknown cost leaves the whole sum unknown, and where feedback is asked for, an answer that no user spoke of is neither
accepted nor refused: arms are compared over what users were heard on in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qualgate.formatting import counted
from qualgate.metrics import METRICS
from qualgate.records import ArmService, Attempt, Policy, Prices, RunEvidence, Slo, UnitEvidence, UnitKey
from qualgate.stats.cost_ratio import cost_per_accepted

SECONDS = Prices(version="none: seconds of the answers themselves", currency="s", device_second=1.0)
MOST_UNEVEN = 1.25  # times as many answers heard on in one arm as in another: then who speaks depends on the arm
WRONG, CUT, LATE, CORRECTED = "wrong", "not finished", "outside the SLO", "corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """By what answers are priced and accepted."""

    prices: Prices | None
    slo: Slo
    metrics: dict[str, tuple[str, ...]]  # evalset → what its answers are right by
    corrected: dict[UnitKey, bool] | None
    feedback_asked: bool

    @property
    def timed(self) -> bool:
        """Whether what an answer costs, or whether it is accepted, rests on a time."""
        return self.slo != Slo() or (self.prices is not None and self.prices.device_second > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One arm's units, in the order given. The arrays mean nothing where `unavailable` is not empty."""

    costs: NDArray  # of all attempts at each unit
    accepted: NDArray  # 0 or 1
    heard: NDArray  # whether a user spoke of it; all where no feedback is asked for
    service: ArmService

    @property
    def unavailable(self) -> tuple[str, ...]:
        return self.service.unavailable


def heard_in_each(*books: Ledger) -> tuple[NDArray, str]:
    """The units by which these ledgers of the same cases can be compared, and why they cannot ("" where they can).

    Missing feedback is not success, and no failure either: what users were not heard on in every arm does not count,
    and arms of which users speak to a different extent are not compared.
    """
    heard = np.logical_and.reduce([book.heard for book in books])
    counts = {book.service.arm: int(book.heard.sum()) for book in books}
    if max(counts.values()) <= MOST_UNEVEN * min(counts.values()):
        return heard, ""
    said = ", ".join(f"{count} of {arm}" for arm, count in counts.items())
    return heard, f"users were heard on different shares of {counted(len(heard), 'answer')}: {said}"


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


def ledger(arm: str, units: Sequence[UnitEvidence], terms: Terms) -> Ledger:
    """What the arm's units cost and which of their answers were accepted."""
    unavailable = []
    if terms.prices is None:
        unavailable.append("no price table: name one with `prices: FILE`")
    if terms.feedback_asked and terms.corrected is None:
        unavailable.append("the feedback file of this policy is not at hand: decide with the gate file that names it")
    costs = [_cost(unit.attempts, terms.prices) if terms.prices else None for unit in units]
    unknown = sum(cost is None for cost in costs)
    if terms.prices and unknown:
        example = next(unit.key for unit, cost in zip(units, costs, strict=True) if cost is None)
        unavailable.append(
            f"{arm}: {unknown} of {counted(len(units), 'unit')} have an attempt whose tokens or seconds were not "
            "recorded, "
            f"{example.evalset}/{example.case_id} among them"
        )
    judged = [_refusal(unit, terms) for unit in units]
    unjudged = Counter(why for refused, why in judged if refused is None)
    unavailable += [
        f"{arm}: {count} of {counted(len(units), 'answer')}: {why}" for why, count in sorted(unjudged.items())
    ]
    heard = np.array([terms.corrected is None or unit.key in terms.corrected for unit in units], bool)
    if len(heard) and not heard.any():
        unavailable.append(
            f"{arm}: no user was heard on any of {counted(len(units), 'answer')} (no event of the feedback file names "
            "one with this run's id or the sha256 of its text)"
        )
    accepted = np.array([refused == "" for refused, _ in judged], float) * heard
    total = np.array([0.0 if cost is None else cost for cost in costs])
    return Ledger(
        costs=total,
        accepted=accepted,
        heard=heard,
        service=_service(arm, units, terms, total, accepted, heard, judged, unknown, unjudged, tuple(unavailable)),
    )


def _service(arm, units, terms, total, accepted, heard, judged, unknown, unjudged, unavailable) -> ArmService:
    recorded = all(unit.attempts for unit in units)
    again = Counter(attempt.cause or "not said" for unit in units for attempt in unit.attempts[:-1])
    said = [(terms.corrected or {})[unit.key] for unit in units if unit.key in (terms.corrected or {})]
    priced, known = bool(terms.prices) and not unknown, not unjudged and (heard.any() or not units)
    timed = [late(unit, terms.slo) for unit in units] if terms.slo != Slo() else []
    per = cost_per_accepted(total[heard], accepted) if not unavailable and units else None
    refused = Counter(refused for (refused, _), known in zip(judged, heard, strict=True) if refused and known)
    return ArmService(
        arm=arm,
        units=len(units),
        attempts=sum(len(unit.attempts) for unit in units) if recorded else None,
        accepted=int(accepted.sum()) if known else None,
        refused=dict(sorted(refused.items())),
        cost=float(total.sum()) if priced else None,
        per_accepted=per if per is not None and np.isfinite(per) else None,
        prices=f"{terms.prices.currency}, version {terms.prices.version}" if terms.prices else "",
        retries={cause: count / len(units) for cause, count in sorted(again.items())} if recorded and units else None,
        within_slo=sum(one is False for one in timed) / len(timed) if timed and None not in timed else None,
        correction_rate=sum(said) / len(said) if said else None,
        feedback=len(said) if terms.corrected is not None else None,
        unavailable=unavailable,
        slo_asked=terms.slo != Slo(),
        feedback_asked=terms.feedback_asked or terms.corrected is not None,
    )


def _cost(attempts: Sequence[Attempt], prices: Prices) -> float | None:
    """Of every attempt; None where one has a price and no recorded quantity, or where none was recorded at all.

    Tokens do not come in no time: 0 seconds beside any is a clock that was not read.
    """
    if not attempts:
        return None
    total = 0.0
    for attempt in attempts:
        seconds = None if attempt.seconds == 0 and attempt.output_tokens else attempt.seconds
        for quantity, price in (
            (attempt.prompt_tokens, prices.prompt_token),
            (attempt.output_tokens, prices.output_token),
            (seconds, prices.device_second / prices.concurrency),
        ):
            if price and quantity is None:
                return None
            total += price * (quantity or 0)
    return total


def _refusal(unit: UnitEvidence, terms: Terms) -> tuple[str | None, str]:
    """("", "") where the answer is accepted, (reason, "") where not, (None, why) where it cannot be said."""
    scores = [unit.values.get(metric) for metric in terms.metrics.get(unit.key.evalset, ())]
    is_late = late(unit, terms.slo)
    if unit.finished is False or unit.truncated:
        return CUT, ""
    if any(score is not None and score < 1 for score in scores):
        return WRONG, ""
    if is_late:
        return LATE, ""
    if (terms.corrected or {}).get(unit.key):
        return CORRECTED, ""
    if unit.finished is None:
        return None, "whether they finished was not recorded"
    if not scores or None in scores:
        return None, "no scorer could say whether they are right"
    if is_late is None:
        return None, "no time was recorded, and `slo` asks for one"
    return "", ""


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
