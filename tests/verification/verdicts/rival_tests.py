"""How much a better exact test could decide: the gate's power beside that of tests that order the tables otherwise.

They order by the score (computed anew), the likelihood ratio, Wald's statistic, or the score's p-value at the estimated
discordance (E + M, Lloyd 2008). Each is made exact by its largest p-value over a grid of discordances, which is never
above the true supremum and so favours these rivals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from tests.verification.verdicts.exact_chances import (
    ALPHA,
    DISAGREEMENTS,
    MARGINS,
    Rounds,
    approval_region,
    chances,
    unblocked_region,
    ways,
)

SHORTFALL = 0.02  # allowed behind the best exact test
POWER_N, QUICK_N = (30, 50, 75, 100, 141, 164, 198, 200, 250, 290, 333, 350, 400, 600), (50, 400)


def power(quick: bool) -> tuple[Rounds, dict[str, Any], bool]:
    """(rounds, measured, met): chance to approve an identical variant and to block twice the margin."""
    rounds: Rounds = []
    for n in QUICK_N if quick else POWER_N:
        for margin in (0.03, 0.10) if quick else MARGINS:
            rivals = rival_regions(n, margin)
            for loss, blocks in ((0.0, False), (2 * margin, True)):
                mine = unblocked_region(n, margin, ALPHA) if blocks else approval_region(n, margin, ALPHA)
                chosen = (np.arange(n + 1)[None, :] >= mine.edge[:, None]) != blocks
                for disagreement in (d for d in (*DISAGREEMENTS, 0.2) if d >= loss):
                    p = chances(n, loss, disagreement)
                    found = {name: float(p[pair[blocks]].sum()) for name, pair in rivals.items()}
                    best = max(found, key=found.__getitem__)
                    rounds.append(
                        {
                            "n": n, "margin": margin, "disagreement": disagreement,
                            "of": "block at twice the margin" if blocks else "approve an identical variant",
                            "ours": float(p[chosen].sum()), "best": found[best], "by": best,
                        }
                    )  # fmt: skip
    behind = [one["best"] - one["ours"] for one in rounds]
    worst = rounds[int(np.argmax(behind))]
    measured = {
        "worst_shortfall": max(behind),
        "at": worst,
        "cells": len(behind),
        "cells_beyond_goal": sum(one > SHORTFALL for one in behind),
        "mean_shortfall": float(np.mean(behind)),
    }
    return rounds, measured, max(behind) <= SHORTFALL


def rival_regions(n: int, margin: float, grid: int = 200) -> dict[str, tuple[NDArray, NDArray]]:
    """Ordering → (approved, blocked): [n + 1, n + 1] masks of the tables where its exact test rejects."""
    lost, gained = np.nonzero(np.isfinite(ways(n)))
    # Discordances dense where probabilities change fast: even on the arcsine scale, margin..1.
    truths = margin + (1 - margin) * np.sin(np.linspace(0, np.pi / 2, grid)) ** 2
    p = np.stack([chances(n, margin, truth)[lost, gained].astype(np.float32) for truth in truths])
    null = (np.abs(truths[:, None] - _null_discordance(lost, gained, n, margin)[None, :])).argmin(axis=0)
    found = {}
    for name, statistic in _statistics(lost, gained, n, margin).items():
        for suffix, estimate in (("", False), (", E + M", True)):
            if estimate and name != "score":
                continue
            masks = []
            for sign in (1, -1):  # approval wants it large, block wants it small
                order = sign * statistic
                if estimate:
                    order = -_tails(order, p)[null, np.arange(len(lost))]
                rejected = _tails(order, p).max(axis=0) <= ALPHA
                mask = np.zeros((n + 1, n + 1), bool)
                mask[lost[rejected], gained[rejected]] = True
                masks.append(mask)
            found[name + suffix] = tuple(masks)
    return found


def _tails(order: NDArray, p: NDArray) -> NDArray:
    """[grid, tables] P(a table at least as extreme), equal ones counted together."""
    by = np.argsort(-order, kind="stable")
    ranked = np.round(order[by], 9)
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    result = np.empty_like(p)
    for row, chance in zip(result, p, strict=True):
        row[by] = np.cumsum(chance[by], dtype=float)[last]
    return result


def _null_discordance(lost: NDArray, gained: NDArray, n: int, margin: float) -> NDArray:
    """Maximum likelihood of lost + gained's share given loss = margin, by bisection on the likelihood's slope."""
    low, high = np.full(len(lost), margin), np.ones(len(lost))
    rest = n - lost - gained
    for _ in range(40):
        d = (low + high) / 2
        gain = np.maximum(d - margin, 1e-12)
        rising = lost / (d + margin) + gained / gain > rest / np.maximum(1 - d, 1e-12)
        low, high = np.where(rising, d, low), np.where(rising, high, d)
    return (low + high) / 2


def _statistics(lost: NDArray, gained: NDArray, n: int, margin: float) -> dict[str, NDArray]:
    """Name → statistic of each table, large the less was lost."""
    d = _null_discordance(lost, gained, n, margin)
    excess = (gained - lost) / n + margin
    wald = excess / np.sqrt(np.maximum((lost + gained + 1) / n - ((gained - lost) / n) ** 2, 1e-9) / n)
    rest = n - lost - gained

    def log_likelihood(p_lost: NDArray, p_gained: NDArray) -> NDArray:
        tiny = 1e-300
        return (
            xlogy(lost, np.maximum(p_lost, tiny))
            + xlogy(gained, np.maximum(p_gained, tiny))
            + xlogy(rest, np.maximum(1 - p_lost - p_gained, tiny))
        )

    ratio = log_likelihood(lost / n, gained / n) - log_likelihood((d + margin) / 2, (d - margin) / 2)
    return {
        "score": excess / np.sqrt(np.maximum(d - margin**2, 1e-12) / n),
        "likelihood ratio": np.sign(excess) * np.sqrt(np.maximum(2 * ratio, 0.0)),
        "Wald": wald,
    }
