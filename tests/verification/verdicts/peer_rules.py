"""Rows `peers.*`: how many cases peers' rules need at our errors, and how often they pass a true loss as they stand.

**Cases.** Each rule keeps its statistic; its threshold is retuned until a loss of exactly the margin passes with
probability alpha at most, and cases are added until an identical variant passes with probability `POWER`. A rule
that knows two means and n alone must hold its error for two samples that have nothing to do with each other, so its
threshold comes from independent arms, and so does the identical variant's reference (as a registered score does). Of
ours every table that can come is put to `decide`, and the chances are summed exactly.

**False passes.** Each rule as its project ships it and as `--peers` tells it of a run: drawn evidence with a true loss
of 3 points, 1,319 cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from qualgate.gate.peers import llm_compressor_recovery
from qualgate.gate.peers.registry import rules
from qualgate.gate.peers.said import what_peers_say
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, Cases, Rounds, Words

POWER = 0.8
LEVEL = 0.755  # the baseline's score
# Margin, disagreement. The goal's ratio is the normal approximation's: below `FEW` margins of disagreement flips are so
# rare that no test that holds its error gets by with so few cases, and those points are measured beside the goal.
GRID = ((0.02, 0.05), (0.02, 0.10), (0.02, 0.15), (0.03, 0.05), (0.03, 0.10), (0.01, 0.05), (0.02, 0.02), (0.03, 0.02))
QUICK = GRID[:1]
FEW = 1.5

LOSS, N, DISAGREEMENT = 0.03, 1319, 0.07
KNOWN = {  # 1 − P(block) in 20,000 draws, to two decimals unless it was told to three
    "vllm_rtol": (1.00, 0.005),
    "llm_compressor_recovery": (0.94, 0.005),
    "trt_hypothesis": (0.62, 0.005),
    "sglang_minus5": (0.996, 0.0005),
    "lm_eval_z": (0.68, 0.005),
}
KNOWN_DRAWS = 20_000
AS_SHIPPED = {*KNOWN, "nel_v1"}

Statistic = Callable[[NDArray, NDArray, int], NDArray]  # (baseline's mean, variant's mean, n) → large when it passes


def _z(baseline: NDArray, variant: NDArray, n: int) -> NDArray:
    spread = np.sqrt((baseline * (1 - baseline) + variant * (1 - variant)) / (n - 1))
    return -np.abs(variant - baseline) / np.maximum(spread, 1e-12)


UNPAIRED: dict[str, Statistic] = {
    "vllm_rtol": lambda b, v, n: v / b,
    "llm_compressor_recovery": lambda b, v, n: llm_compressor_recovery.recovery(b, v),
    "trt_hypothesis": lambda b, v, n: (v - b) / sqrt(2 * 0.5**2 / n),
    "sglang_minus5": lambda b, v, n: v - b,
    "lm_eval_z": _z,
}
"""What each rule holds against the threshold that is retuned: rtol, recovery, z(alpha), points, p-value."""


# ----------------------------------------------------------------------------------------------------- cases


@cache
def our_cases(margin: float, disagreement: float) -> int:
    """n at which the gate approves an identical variant with probability `POWER`, to about 1 %: by the secant through
    two n, as if the normal quantile of the chance rose with the root of n."""
    aim = ndtri(1 - ALPHA) + ndtri(POWER)
    n = ceil(aim**2 * disagreement / margin**2)
    for _ in range(2):
        n = ceil(n * (aim / (ndtri(1 - ALPHA) + ndtri(Words(n, margin).approves(0.0, disagreement)))) ** 2)
    return n


def peer_cases(statistic: Statistic, margin: float, draws: int, seed: int = 0) -> int | None:
    """Cases the retuned rule needs for an identical variant that answers other cases, to about 1 %.

    None when 400,000 cases are not enough, as where a statistic is rounded too coarsely to be retuned at all.
    """
    low, high = 50, 400_000

    def chance(n: int) -> float:
        g = np.random.default_rng([seed, n])
        base = g.binomial(n, LEVEL, draws) / n
        threshold = _threshold(statistic(base, g.binomial(n, LEVEL - margin, draws) / n, n))
        return float(np.mean(statistic(base, g.binomial(n, LEVEL, draws) / n, n) >= threshold))

    if chance(high) < POWER:
        return None
    while high > 1.01 * low:
        middle = round(sqrt(low * high))
        low, high = (low, middle) if chance(middle) >= POWER else (middle, high)
    return high


def _threshold(at_the_margin: NDArray) -> float:
    """The least threshold that at most alpha of these reach."""
    ordered = np.sort(at_the_margin)
    return float(np.nextafter(ordered[ceil((1 - ALPHA) * len(ordered)) - 1], np.inf))


# ---------------------------------------------------------------------------------------------- false passes


def drawn(n: int, loss: float, disagreement: float, g: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Both arms' scores of n cases."""
    lost, gained, u = (disagreement + loss) / 2, (disagreement - loss) / 2, g.random(n)
    return 1.0 * (u < LEVEL), 1.0 * ((u < LEVEL - lost) | (u > 1 - gained))


def false_passes(draws: int, seed: int = 0) -> dict[str, float]:
    """Rule → share of draws at the true loss that it passes."""
    g, cases = np.random.default_rng(seed), Cases({"drawn": N})
    asked = [rule for rule in rules() if rule.name in AS_SHIPPED]
    passed = Counter[str]()
    for _ in range(draws):
        said = what_peers_say(cases.evidence(*drawn(N, LOSS, DISAGREEMENT, g)), asked)
        passed.update(one.verdict.name for one in said if one.verdict.says == "pass")
    return {rule.name: passed[rule.name] / draws for rule in asked}


# ------------------------------------------------------------------------------------------------------ rows


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """(rounds: one a rule, margin and disagreement, and one a rule for false passes; goal rows).

    quick: one margin and disagreement, fewer draws.
    """
    grid, draws = (QUICK, 4_000) if quick else (GRID, 40_000)
    rounds, ratios, rare = [], [], []
    for name, statistic in UNPAIRED.items():
        cases = {margin: peer_cases(statistic, margin, draws) for margin in {margin for margin, _ in grid}}
        for margin, disagreement in grid:
            ours, theirs = our_cases(margin, disagreement), cases[margin]
            due = 2 * LEVEL * (1 - LEVEL) / disagreement
            share = theirs / ours / due if theirs else None
            rounds.append({"rule": name, "margin": margin, "disagreement": disagreement, "our_cases": ours,
                           "cases": theirs, "of_2pq_over_disagreement": share})  # fmt: skip
            if share is not None:
                (ratios if disagreement >= FEW * margin else rare).append(share)
    draws = 2_000 if quick else 20_000
    shares = false_passes(draws)
    passes = [
        {"rule": name, "false_pass": share, "known": KNOWN.get(name, (None,))[0]} for name, share in shares.items()
    ]
    off = []
    for name, (known, rounding) in KNOWN.items():
        middle = min(max((shares[name] + known) / 2, 1 / draws), 1 - 1 / draws)
        error = sqrt(middle * (1 - middle) * (1 / draws + 1 / KNOWN_DRAWS))
        off.append(max(abs(shares[name] - known) - rounding, 0.0) / error)
    few = f"{draws} of 20,000, and one margin and disagreement" if quick else None
    measured = {
        "least_share_of_2pq_over_disagreement": min(ratios),
        "the_same_where_flips_are_rare": min(rare, default=None),
    }
    spread = [min(ratios), max(ratios)]
    return rounds + passes, [
        DECISIONS.row("peers.cases", measured, spread=spread, met=min(ratios) >= 0.9, few=few),
        DECISIONS.row("peers.false_pass", {"most_standard_errors_off": max(off)}, met=max(off) <= 3, few=few),
    ]
