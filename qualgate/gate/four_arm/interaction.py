"""Test whether two changes, such as quantization and speculation, together lose or cost more than each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.folded import Folding
from qualgate.gate.comparisons.ledger import Ledger, heard_in_each
from qualgate.gate.four_arm.parity import critical_quality
from qualgate.gate.rules import Slice
from qualgate.records import ArmStep, FourArms, Interaction, Policy, UnitEvidence
from qualgate.stats.cost_ratio import METHOD_INTERACTION, cost_interaction
from qualgate.stats.interaction import Interacting, interaction
from qualgate.stats.multiplicity import holm
from qualgate.stats.paired.compare import MIN_CLUSTERS

_LEAST = np.array([1.0, 0.0, 0.0, 1.0])  # baseline, one change, the other, both: scores least like an interaction


def interactions(
    slices: Sequence[Slice],
    units: Mapping[str, list[UnitEvidence]],
    order: Sequence[str],
    clusters: NDArray,
    policy: Policy,
) -> tuple[Interaction, ...]:
    """Test every critical quality metric and slice of the policy, Holm-corrected. order: baseline, either change alone,
    both.

    A null score counts as it speaks least for an interaction; for the lower bound, as it speaks most.
    """
    tested = []
    chosen = {(slice_.rule.metric, slice_.name): slice_ for slice_ in critical_quality(slices) if not slice_.obstacle}
    for (metric, name), slice_ in chosen.items():
        rows = [index for index, unit in enumerate(units[order[0]]) if slice_.holds(unit.key.evalset, unit.key.case_id)]
        scores = np.array([[units[arm][index].values.get(metric) for arm in order] for index in rows], float)
        null = np.isnan(scores)
        if not rows or null.all(axis=1).any():
            continue
        try:
            folding = Folding(replace(slice_.rule, repeats="mean"), [units[order[0]][index].key for index in rows])
        except ValueError:  # its rule gives the reason, and decides nothing
            continue

        def test(scores: NDArray, rows: list[int] = rows, folding: Folding = folding) -> Interacting:
            whole = np.stack([folding.scores(of_an_arm) for of_an_arm in scores.T], axis=1)
            return interaction(whole, folding.clusters(clusters[rows]), policy.alpha)

        effect = test(np.where(null, _LEAST, scores))
        if null.any():
            upper_filled = test(np.where(null, 1 - _LEAST, scores))
            effect = replace(effect, lower=upper_filled.lower)
        tested.append((metric, name, effect))
    adjusted = holm([effect.p_worse for _, _, effect in tested])
    return tuple(
        Interaction(
            metric=metric, slice=name, estimate=effect.estimate, lower=effect.lower, upper=effect.upper,
            found=p <= policy.alpha, n=effect.n, clusters=effect.clusters, method=effect.method,
        )
        for (metric, name, effect), p in zip(tested, adjusted, strict=True)
    )  # fmt: skip


def with_interaction(parity: ArmStep, effects: Sequence[Interaction], arms: FourArms, *, lossy: bool) -> ArmStep:
    """Break the parity step on an interaction: lossless speculation loses nothing on either target. lossy: whether one
    of the drafting arms promises no parity."""
    worse = next((effect for effect in effects if effect.found), None)
    if worse is None or lossy:
        return parity
    defect = (
        f"{arms.both} is defective: {worse.metric} [{worse.slice}] loses {-100 * worse.estimate:.1f} points beyond "
        f"what {arms.quantization} and {arms.speculation} lose by themselves "
        f"(bound: at least {-100 * (worse.upper or 0):.1f})"
    )
    return replace(
        parity, status="broken", reason=f"{defect}; {parity.reason}" if parity.status == "broken" else defect
    )


def interaction_of_costs(
    books: dict[str, Ledger], order: Sequence[str], clusters: NDArray, alpha: float
) -> Interaction | None:
    """ln (cost of both / cost that the two savings promise), for display: above 0 it explains a lost saving."""
    heard, uneven = heard_in_each(*(books[name] for name in order))
    clusters = clusters[heard]
    if uneven or any(books[name].unavailable for name in order) or len(np.unique(clusters)) < MIN_CLUSTERS:
        return None
    bounds = cost_interaction(
        tuple((books[name].costs[heard], books[name].accepted[heard]) for name in order), clusters, alpha
    )
    if bounds is None:
        return None
    return Interaction(
        metric="cost_per_accepted_answer", slice="pooled", estimate=bounds.estimate, lower=_finite(bounds.lower),
        upper=_finite(bounds.upper), found=bounds.lower > 0, n=len(clusters), clusters=bounds.clusters,
        method=METHOD_INTERACTION,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
