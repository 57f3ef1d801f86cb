"""Score files that grow, asked at each length: is any look approved more often than alpha allows?"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from qualgate.stats.betting import capital, presume
from qualgate.stats.power import approval_region
from tests.verification.verdicts.early_stopping import ALPHA, losses
from tests.verification.verdicts.row import Row

LOOKS = tuple(range(100, 1_001, 100))  # cases in the files each time they are asked


def measured_rows(*, quick: bool) -> tuple[Row]:
    return (growing(2_000) if quick else growing(),)


def growing(lists: int = 40_000, seed: int = 17) -> Row:
    """Score files at the margin itself, asked ten times as they grow: the share that is approved at any of the looks.

    forgetful: the fixed test each time, as without memory. fixed: the fixed test with memory, so at the first look
    alone. early: `stop: early` at each look, stakes by the first look's list. both: the fixed test at the first look,
    `stop: early` from then on, which is said to err up to twice alpha.
    """
    rounds = []
    for cell, (margin, flips) in enumerate(((0.02, 0.02), (0.05, 0.0), (0.05, 0.05), (0.05, 0.10), (0.10, 0.10))):
        generator = np.random.default_rng([seed, cell])
        x = losses(generator, (lists, LOOKS[-1]), margin + flips / 2, flips / 2)
        lost, gained = (np.cumsum(side, axis=1)[:, np.array(LOOKS) - 1] for side in (x > 0, x < 0))
        edges = [np.array(approval_region(n, margin, ALPHA).edge) for n in LOOKS]
        fixed = np.stack([gained[:, k] >= edge[lost[:, k]] for k, edge in enumerate(edges)], axis=1)
        # What counts at a look is the largest capital so far, and it was there before the look as well.
        early = capital(x, margin, presumed=presume(margin, LOOKS[0], ALPHA)).max(axis=1) >= -log(ALPHA)
        said = {"forgetful": fixed.any(axis=1), "fixed": fixed[:, 0], "early": early, "both": fixed[:, 0] | early}
        rounds.append({"margin": margin, "flips": flips, **{name: float(one.mean()) for name, one in said.items()}})
    worst = {name: max(one[name] for one in rounds) for name in ("forgetful", "fixed", "early", "both")}
    error = sqrt(ALPHA * (1 - ALPHA) / lists)
    met = max(worst["fixed"], worst["early"]) <= ALPHA + 3 * error and worst["both"] <= 2 * ALPHA + 3 * error
    return Row(
        id="peeking.files", measured=worst | {"lists": lists * len(rounds)}, spread=error, met=met, rounds=rounds
    )
