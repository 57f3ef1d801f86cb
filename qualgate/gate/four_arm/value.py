"""Decide whether an arm saves enough: its cost per accepted answer against the baseline's and the simpler arms'."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.ledger import Ledger, heard_in_each
from qualgate.records import ArmStep, FourArms, RuleStatus
from qualgate.stats.cost_ratio import CostRatio, accepted_cost_ratio, cost_per_accepted
from qualgate.stats.paired.compare import MIN_CLUSTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Every arm's ledger over the same cases, for any alpha."""

    books: dict[str, Ledger]
    clusters: NDArray  # of the cases
    together: NDArray  # the same, joined with those that share their time (see `timed_together`)
    shared: str  # why these are unknown; "" where they are known
    drawn: dict[tuple[str, str], CostRatio | None] = field(default_factory=dict)  # what `ratio` has drawn

    def missing(self, *names: str) -> str:
        """Say why these arms' costs cannot be compared; "" where they can."""
        if len(np.unique(self.clusters)) < MIN_CLUSTERS:
            return f"fewer than {MIN_CLUSTERS} independent cases"
        if self.shared:
            return self.shared
        return next((why for name in names for why in self.books[name].unavailable), "") or self._unheard()

    def _unheard(self) -> str:
        heard, uneven = heard_in_each(*self.books.values())
        if uneven or len(np.unique(self.together[heard])) >= MIN_CLUSTERS:
            return uneven
        return f"fewer than {MIN_CLUSTERS} independent cases that users were heard on in all four arms"

    def _compared(self, name: str) -> tuple[NDArray, NDArray]:
        """(costs, accepted) of the cases that count in every arm."""
        heard, _ = heard_in_each(*self.books.values())
        return self.books[name].costs[heard], self.books[name].accepted[heard]

    def ratio(self, name: str, to: str) -> CostRatio | None:
        """Cost per accepted answer of `name` / that of `to`; None where `to` accepted nothing or costs nothing."""
        if (name, to) not in self.drawn:
            base, other = self._compared(to), self._compared(name)
            heard, _ = heard_in_each(*self.books.values())
            together, cases = self.together[heard], self.clusters[heard]
            nothing = base[0].sum() <= 0 or base[1].sum() <= 0
            self.drawn[name, to] = None if nothing else accepted_cost_ratio(base, other, together, cases)
        return self.drawn[name, to]

    def each(self, name: str) -> float:
        """The arm's cost per accepted answer."""
        return cost_per_accepted(*self._compared(name))


def value_step(name: str, base: str, arms: FourArms, costs: Costs, barred: Collection[str], alpha: float) -> ArmStep:
    """Require an arm to be surely cheaper than the baseline by `min_saving`, and `both` than the better single arm."""

    def step(status: RuleStatus, reason: str) -> ArmStep:
        return ArmStep(arm=name, step="value", status=status, reason=reason)

    limit = 1 - arms.min_saving
    rivals = [(base, limit)]
    if name == arms.both:
        # Surely below both singles is surely below the better one, whichever that is. An arm that may not be served is
        # no rival.
        rivals += [(single, 1.0) for single in (arms.quantization, arms.speculation) if single not in barred]
    if why := costs.missing(name, *(other for other, _ in rivals)):
        return step("undecided", f"its cost per accepted answer cannot be compared: {why}")
    ratios = []
    for other, most_ratio in rivals:
        ratio_estimate = costs.ratio(name, other)
        if ratio_estimate is None:
            if other == base:
                return step("undecided", f"{other} has no accepted answer that costs anything to compare with")
            continue  # a single arm that accepts nothing is no rival
        bounds = ratio_estimate.bounds(most_ratio, alpha)
        upper = f"{bounds.upper:#.3g}" if isfinite(bounds.upper) else "unknown"
        ratio = (
            f"{bounds.estimate:#.3g} times {other}'s cost per accepted answer (bounds {bounds.lower:#.3g} to {upper})"
        )
        if bounds.p_above <= alpha:
            return step("broken", f"{ratio}; at most {most_ratio:g} is worth it" + _simpler(other, base))
        if not bounds.p_below <= alpha:
            return step("undecided", f"{ratio}; not surely below {most_ratio:g}" + _simpler(other, base))
        ratios.append(ratio)
    return step("proven", "; ".join(ratios))


def _simpler(other: str, base: str) -> str:
    return "" if other == base else f": {other} alone is the simpler choice"
