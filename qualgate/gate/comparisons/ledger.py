"""Cost per accepted answer of one arm: every attempt is paid for, and only what a user could keep counts.

Unrecorded numbers are unavailable with a reason, never 0: one attempt of unknown cost leaves the whole sum unknown.
With feedback, an answer without any is neither accepted nor refused, and arms are compared over the answers that have
feedback in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.acceptance import Acceptance, Terms, accepted, late
from qualgate.records import ArmService, Attempt, Prices, Slo, UnitEvidence
from qualgate.stats.cost_ratio import cost_per_accepted
from qualgate.text.numbers import counted

SECONDS = Prices(version="none: seconds of the answers themselves", currency="s", device_second=1.0)
MOST_UNEVEN = 1.25  # times as many answers heard on in one arm as in another: then who speaks depends on the arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One arm's units, in the order given. The arrays mean nothing where `unavailable` is not empty."""

    costs: NDArray  # of all attempts at each unit
    accepted: NDArray  # 0 or 1
    heard: NDArray  # whether a user spoke of it; all where no feedback is asked for
    service: ArmService

    @property
    def unavailable(self) -> tuple[str, ...]:
        """Why the arm has no cost per accepted answer."""
        return self.service.unavailable


def heard_in_each(*books: Ledger) -> tuple[NDArray, str]:
    """The units by which these ledgers of the same cases can be compared, and why they cannot ("" where they can).

    Missing feedback is neither success nor failure: units without feedback in every arm do not count, and arms with
    unequal shares of feedback are not compared.
    """
    heard = np.logical_and.reduce([book.heard for book in books])
    heard_count = {book.service.arm: int(book.heard.sum()) for book in books}
    if max(heard_count.values()) <= MOST_UNEVEN * min(heard_count.values()):
        return heard, ""
    heard_by_arm = ", ".join(f"{count} of {arm}" for arm, count in heard_count.items())
    return heard, f"users were heard on different shares of {counted(len(heard), 'answer')}: {heard_by_arm}"


def ledger(arm: str, units: Sequence[UnitEvidence], terms: Terms) -> Ledger:
    """Sum up what the arm's units cost and which of their answers were accepted."""
    entries = _Entries.of(arm, units, terms)
    return Ledger(
        costs=entries.costs,
        accepted=entries.accepted,
        heard=entries.heard,
        service=_summed_service(entries, terms, _unavailable(entries, terms)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """Cost and acceptance of each of an arm's units, in their order, before anything is summed."""

    arm: str
    units: Sequence[UnitEvidence]
    known_costs: list[float | None]  # None: an attempt's tokens or seconds were not recorded, or nothing has a price
    judged: list[Acceptance]
    heard: NDArray  # whether a user spoke of it; all where no feedback is at hand

    @classmethod
    def of(cls, arm: str, units: Sequence[UnitEvidence], terms: Terms) -> _Entries:
        """Price and judge every unit of an arm. Without feedback at hand all units count as heard."""
        return cls(
            arm=arm,
            units=units,
            known_costs=[_cost(unit.attempts, terms.prices) if terms.prices else None for unit in units],
            judged=[accepted(unit, terms) for unit in units],
            heard=np.array([terms.corrected is None or unit.key in terms.corrected for unit in units], bool),
        )

    @property
    def costs(self) -> NDArray:
        """0 where a cost is not known."""
        return np.array([0.0 if cost is None else cost for cost in self.known_costs])

    @property
    def accepted(self) -> NDArray:
        """0 or 1; 0 for what no user was heard on."""
        return np.array([acceptance == Acceptance() for acceptance in self.judged], float) * self.heard

    @property
    def unpriced(self) -> list[UnitEvidence]:
        return [unit for unit, cost in zip(self.units, self.known_costs, strict=True) if cost is None]

    @property
    def unjudged(self) -> Counter[str]:
        """Reason why acceptance is unknown → answers."""
        return Counter(acceptance.unknown for acceptance in self.judged if acceptance.unknown)

    @property
    def refused(self) -> Counter[str]:
        """First reason to refuse an answer with feedback → answers."""
        return Counter(
            acceptance.refused
            for acceptance, heard in zip(self.judged, self.heard, strict=True)
            if acceptance.refused and heard
        )


def _unavailable(entries: _Entries, terms: Terms) -> tuple[str, ...]:
    """List why the arm has no cost per accepted answer: no prices, feedback or judgements. () if it has one."""
    arm, units, why = entries.arm, entries.units, []
    if terms.prices is None:
        why.append("no price table: name one with `prices: FILE`")
    if terms.feedback_asked and terms.corrected is None:
        why.append("the feedback file of this policy is not at hand: decide with the gate file that names it")
    if terms.prices and (unpriced := entries.unpriced):
        why.append(
            f"{arm}: {len(unpriced)} of {counted(len(units), 'unit')} have an attempt whose tokens or seconds were not "
            f"recorded, {unpriced[0].key.evalset}/{unpriced[0].key.case_id} among them"
        )
    why += [
        f"{arm}: {count} of {counted(len(units), 'answer')}: {reason}"
        for reason, count in sorted(entries.unjudged.items())
    ]
    if len(entries.heard) and not entries.heard.any():
        why.append(
            f"{arm}: no user was heard on any of {counted(len(units), 'answer')} (no event of the feedback file names "
            "one with this run's id or the sha256 of its text)"
        )
    return tuple(why)


def _summed_service(entries: _Entries, terms: Terms, unavailable: tuple[str, ...]) -> ArmService:
    """Sum up the arm's attempts, costs and accepted answers; a sum is None if one of its terms is unknown."""
    units, costs, heard = entries.units, entries.costs, entries.heard
    recorded = all(unit.attempts for unit in units)
    corrected = terms.corrected or {}
    answered = [corrected[unit.key] for unit in units if unit.key in corrected]
    per = cost_per_accepted(costs[heard], entries.accepted) if not unavailable and units else None
    return ArmService(
        arm=entries.arm,
        units=len(units),
        attempts=sum(len(unit.attempts) for unit in units) if recorded else None,
        accepted=int(entries.accepted.sum()) if not entries.unjudged and (heard.any() or not units) else None,
        refused=dict(sorted(entries.refused.items())),
        cost=float(costs.sum()) if terms.prices and not entries.unpriced else None,
        per_accepted=per if per is not None and np.isfinite(per) else None,
        prices=f"{terms.prices.currency}, version {terms.prices.version}" if terms.prices else "",
        retries=_retries(units) if recorded and units else None,
        within_slo=_within(units, terms.slo),
        correction_rate=sum(answered) / len(answered) if answered else None,
        feedback=len(answered) if terms.corrected is not None else None,
        unavailable=unavailable,
        slo_asked=terms.slo != Slo(),
        feedback_asked=terms.feedback_asked or terms.corrected is not None,
    )


def _retries(units: Sequence[UnitEvidence]) -> dict[str, float]:
    """Cause → attempts beyond the first, per unit."""
    again = Counter(attempt.cause or "not said" for unit in units for attempt in unit.attempts[:-1])
    return {cause: count / len(units) for cause, count in sorted(again.items())}


def _within(units: Sequence[UnitEvidence], slo: Slo) -> float | None:
    """Share of the answers within the objective; None where none is asked for, or a time was not recorded."""
    missed = [late(unit, slo) for unit in units] if slo != Slo() else []
    return sum(is_late is False for is_late in missed) / len(missed) if missed and None not in missed else None


def _cost(attempts: Sequence[Attempt], prices: Prices) -> float | None:
    """The cost of all attempts; None if a priced quantity of one, or every attempt, was not recorded.

    0 seconds beside output tokens mean that no clock was read.
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
