"""Row `power`: how much a better exact test could decide than the gate does, asked table by table through `decide`.

The rivals order the tables by the score (computed anew), the likelihood ratio, Wald's statistic, or the score's p-value
at the estimated discordance (E + M, Lloyd 2008). Each is made exact by its largest p-value over a grid of discordances,
which is never above the true supremum and so favours these rivals.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, Rounds, Words

MARGINS = (0.01, 0.02, 0.03, 0.05, 0.10)
DISAGREEMENTS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.2)
SHORTFALL = 0.02  # allowed behind the best exact test
SIZES, QUICK = (30, 50, 75, 100, 141, 164, 198, 200, 250, 290, 333, 350, 400, 600), (50, 200)


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """(rounds, row): chance to approve an identical variant and to block twice the margin."""
    rounds: Rounds = []
    for n in QUICK if quick else SIZES:
        for margin in (0.03, 0.10) if quick else MARGINS:
            rivals, ours = rival_regions(n, margin), Words(n, margin)
            for loss, blocks in ((0.0, False), (2 * margin, True)):
                chance = ours.blocks if blocks else ours.approves
                for disagreement in (d for d in DISAGREEMENTS if d >= loss):
                    p = chances(n, loss, disagreement)
                    found = {name: float(p[pair[blocks]].sum()) for name, pair in rivals.items()}
                    best = max(found, key=found.__getitem__)
                    rounds.append(
                        {
                            "n": n, "margin": margin, "disagreement": disagreement,
                            "of": "block at twice the margin" if blocks else "approve an identical variant",
                            "ours": chance(loss, disagreement), "best": found[best], "by": best,
                        }
                    )  # fmt: skip
    behind = [one["best"] - one["ours"] for one in rounds]
    measured = {
        "worst_shortfall": max(behind),
        "at": rounds[int(np.argmax(behind))],
        "cells": len(behind),
        "cells_beyond_goal": sum(one > SHORTFALL for one in behind),
        "mean_shortfall": float(np.mean(behind)),
    }
    few = f"{len(rounds)} cells, of {len(QUICK)} sizes" if quick else None
    return rounds, [DECISIONS.row("power", measured, met=max(behind) <= SHORTFALL, few=few)]


@lru_cache(maxsize=2)
def ways(n: int) -> NDArray:
    """[n + 1, n + 1] log trinomial coefficient of (lost, gained); −inf where they are more than n."""
    lost, gained = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    rest = n - lost - gained
    logs = gammaln(n + 1) - gammaln(lost + 1) - gammaln(gained + 1) - gammaln(np.maximum(rest, 0) + 1)
    return np.where(rest >= 0, logs, -np.inf)


def chances(n: int, loss: float, disagreement: float) -> NDArray:
    """[n + 1, n + 1] probability of each table (lost, gained)."""
    k = np.arange(n + 1)
    rest = np.maximum(n - k[:, None] - k[None, :], 0)
    lost, gained = (disagreement + loss) / 2, (disagreement - loss) / 2
    return np.exp(ways(n) + xlogy(k, lost)[:, None] + xlogy(k, gained)[None, :] + xlogy(rest, 1 - disagreement))


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
