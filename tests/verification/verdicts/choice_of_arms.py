"""One of three arms is chosen: how often does any pass where all of them lose the margin?"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from qualgate.stats.multiplicity import held_together
from qualgate.stats.paired.compare import compare_pairs
from tests.verification.goals import DECISIONS

ALPHA, SEED = 0.05, 2026


def rows(quick: bool, draws: int = 40_000) -> list[dict[str, Any]]:
    """P(some arm passes quality) where all three lose the margin, for arms that lose the same cases or others: each at
    alpha, and over the choice. No arm may be served, so every pass is wrong."""
    draws = 1_000 if quick else draws
    cases, margin, seen = 400, 0.05, {}

    def among(lost: int, gained: int) -> int:
        if (lost, gained) not in seen:
            levels = [ALPHA / k for k in (1, 2, 3)]
            held = [compare_pairs(lost, gained, cases, margin, level).p_within <= level for level in levels]
            seen[lost, gained] = held.index(False) if False in held else 3
        return seen[lost, gained]

    generator, alone, together = np.random.default_rng(SEED), {}, {}
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
    return [DECISIONS.row("choice.margin", measured, spread=error, met=max(together.values()) <= ALPHA + error)]
