"""Four arms: a planted interaction is found, and none where there is none; a choice of arms errs no more than one.

Exact where the test is exact: P("worse") is summed over every table. Beside it the very function that the gate calls is
run on simulated four-arm outcomes, and on clustered ones, for which there is nothing to enumerate. Planted is that
quantization is fine, speculation is fine, and both together are two points worse.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.interaction import chance_to_find, interaction
from qualgate.stats.multiplicity import held_together
from qualgate.stats.paired.compare import compare_pairs
from tests.verification.goals import DECISIONS

CASES, CHANGED, LOSS, ALPHA = 2500, 0.11, 0.02, 0.05
SEED = 20260106
GRID_N = (30, 59, 100, 200, 400, 1000, 2500)
GRID_CHANGED = (0.001, 0.01, 0.02, 0.05, 0.11, 0.15, 0.3, 1.0)


def outcomes(n: int, changed: float, loss: float, generator: np.random.Generator) -> NDArray:
    """[n, 4] scores of baseline, quantization, speculation, both.

    Quantization flips 5 % of the other cases and speculation 2 %, as often one way as the other, and `both` does what
    the two do; on a share `changed` of the cases it alone flips, so that its mean is `loss` lower.
    """
    kind = generator.random(n)
    lost, gained = kind < (changed + loss) / 2, (kind >= (changed + loss) / 2) & (kind < changed)
    quantized, drafted = (kind >= changed) & (kind < changed + 0.05), (kind >= changed + 0.05) & (kind < changed + 0.07)
    baseline = np.where(lost, 1, np.where(gained, 0, generator.random(n) < 0.75)).astype(float)
    coin = generator.random(n) < 0.5
    baseline[quantized | drafted] = coin[quantized | drafted]
    table = np.repeat(baseline[:, None], 4, axis=1)
    table[quantized, 1] = table[quantized, 3] = 1 - baseline[quantized]
    table[drafted, 2] = table[drafted, 3] = 1 - baseline[drafted]
    table[lost, 3], table[gained, 3] = 0, 1
    return table


def clustered(clusters: int, size: int, generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Scores without an interaction in which half of a changed cluster's cases flip the same way, and their labels."""
    table = np.repeat(generator.random((clusters * size, 1)) < 0.75, 4, axis=1).astype(float)
    labels = np.repeat(np.arange(clusters), size)
    way = generator.choice([-1, 0, 1], clusters, p=[0.15, 0.7, 0.15])[labels]
    flips = (way != 0) & (generator.random(len(labels)) < 0.5)
    table[flips] = np.where(way[flips] < 0, 1.0, 0.0)[:, None]
    table[flips, 3] = 1 - table[flips, 3]
    return table, labels


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows `interaction.*`."""
    return [], [_power(60 if quick else 1000), _silent(40 if quick else 600)]


def _power(draws: int) -> dict[str, Any]:
    exact = chance_to_find(CASES, CHANGED, LOSS, ALPHA)
    generator = np.random.default_rng(SEED)
    found = sum(
        interaction(outcomes(CASES, CHANGED, LOSS, generator), np.arange(CASES), ALPHA).p_worse <= ALPHA
        for _ in range(draws)
    )
    simulated, error = found / draws, 3 * sqrt(exact * (1 - exact) / draws)
    smallest = next(n for n in range(2000, CASES + 1, 20) if chance_to_find(n, CHANGED, LOSS, ALPHA) >= 0.9)
    measured = {
        "exact": exact, "simulated": simulated, "draws": draws, "cases_for_0.9": smallest,
        "by_changed": {f"{share:g}": chance_to_find(CASES, share, LOSS, ALPHA) for share in (0.02, 0.05, 0.08, 0.11)},
    }  # fmt: skip
    met = exact >= 0.9 and abs(simulated - exact) <= error
    return DECISIONS.row("interaction.power", measured, spread=error, met=met)


def _silent(draws: int) -> dict[str, Any]:
    exact = max(chance_to_find(n, changed, 0.0, ALPHA) for n in GRID_N for changed in GRID_CHANGED)
    generator, alarms = np.random.default_rng(SEED + 1), {}
    for clusters, size in ((20, 10), (60, 8)):
        found = 0
        for _ in range(draws):
            table, labels = clustered(clusters, size, generator)
            found += interaction(table, labels, ALPHA).p_worse <= ALPHA
        alarms[f"{clusters} clusters of {size}"] = found / draws
    error = 3 * sqrt(ALPHA * (1 - ALPHA) / draws)
    measured = {"exact_worst": exact, "clustered": alarms, "draws": draws}
    met = exact <= ALPHA and max(alarms.values()) <= ALPHA + error
    return DECISIONS.row("interaction.silent", measured, spread=error, met=met)


def choice(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Row `choice.margin`: P(some arm passes quality) where all three lose the margin, for arms that lose the same
    cases or others: each at alpha, and over the choice. No arm may be served, so every pass is wrong."""
    draws, cases, margin, seen = 1_000 if quick else 40_000, 400, 0.05, {}

    def among(lost: int, gained: int) -> int:
        if (lost, gained) not in seen:
            levels = [ALPHA / k for k in (1, 2, 3)]
            held = [compare_pairs(lost, gained, cases, margin, level).p_within <= level for level in levels]
            seen[lost, gained] = held.index(False) if False in held else 3
        return seen[lost, gained]

    generator, alone, together = np.random.default_rng(SEED + 2), {}, {}
    for overlap in (0.0, 0.5, 1.0):
        common = generator.multinomial(cases, (overlap * 0.06, overlap * 0.01, 1 - overlap * 0.07), draws)[:, :2]
        rest = (1 - overlap) * 0.06, (1 - overlap) * 0.01, 1 - (1 - overlap) * 0.07
        own = generator.multinomial(cases, rest, (draws, 3))[:, :, :2]
        passed = held = 0
        for counts in common[:, None] + own:
            proven = {str(arm): among(int(lost), int(gained)) for arm, (lost, gained) in enumerate(counts)}
            passed += any(proven.values())
            held += bool(held_together({arm: [arm] for arm in proven}, proven))
        alone[f"{overlap:g}"], together[f"{overlap:g}"] = passed / draws, held / draws
    error = 3 * sqrt(ALPHA * (1 - ALPHA) / draws)
    measured = {"each_at_alpha": alone, "over_the_choice": together, "draws": draws}
    met = max(together.values()) <= ALPHA + error
    return [], [DECISIONS.row("choice.margin", measured, spread=error, met=met)]
