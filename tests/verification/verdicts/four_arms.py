"""Four arms: a planted interaction is found, and none where there is none; a choice of arms errs no more than one.

P("worse") is summed over every table of a planted interaction: quantization is fine, speculation is fine, and both
together are two points worse. That the sums are the test's own is held by the tests of `stats.interaction`, which also
put drawn scores, clustered and graded ones, to it.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from qualgate.stats.interaction import chance_to_find
from qualgate.stats.multiplicity import held_together
from qualgate.stats.paired.compare import compare_pairs
from tests.verification.goals import DECISIONS

CASES, CHANGED, LOSS, ALPHA = 2500, 0.11, 0.02, 0.05
SEED = 20260106
GRID_N = (30, 59, 100, 200, 400, 1000, 2500)
GRID_CHANGED = (0.001, 0.01, 0.02, 0.05, 0.11, 0.15, 0.3, 1.0)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows `interaction.*`, exact either way."""
    found = chance_to_find(CASES, CHANGED, LOSS, ALPHA)
    measured = {
        "exact": found,
        "cases_for_0.9": next(n for n in range(2000, CASES + 1, 20) if chance_to_find(n, CHANGED, LOSS, ALPHA) >= 0.9),
        "by_changed": {f"{share:g}": chance_to_find(CASES, share, LOSS, ALPHA) for share in (0.02, 0.05, 0.08, 0.11)},
    }
    worst = max(chance_to_find(n, changed, 0.0, ALPHA) for n in GRID_N for changed in GRID_CHANGED)
    return [], [
        DECISIONS.row("interaction.power", measured, met=found >= 0.9),
        DECISIONS.row("interaction.silent", {"exact_worst": worst}, met=worst <= ALPHA),
    ]


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
