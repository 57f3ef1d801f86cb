"""Rows `peers.*`: how many cases peers' rules need at our errors, and how often they pass a true loss as they stand.

**Cases.** Each rule keeps its statistic; its threshold is retuned until a loss of exactly the margin passes with
probability alpha at most, and cases are added until an identical variant passes with probability `POWER`. A rule
that knows two means and n alone must hold its error for two samples that have nothing to do with each other, so its
threshold comes from independent arms, and so does the identical variant's reference (as a registered score does). Ours
is counted exactly, without simulation.

**False passes.** Each rule as its project ships it, on paired outcomes with a true loss of 3 points, 1,319 cases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.peers import llm_compressor_recovery, lm_eval_z, nel_v1, sglang_minus5, trt_hypothesis, vllm_rtol
from qualgate.gate.peers.rule import Outcomes, PeerVerdict, Sample
from qualgate.stats.power import chance_to_approve
from tests.verification.goals import DECISIONS

ALPHA, POWER = 0.05, 0.8
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
def our_cases(margin: float, disagreement: float, alpha: float = ALPHA, power: float = POWER) -> int:
    """n at which our exact test approves an identical variant with this probability, exactly counted.

    By bisection; the chance rises with n but for small steps back, so a slightly smaller n may do as well.
    """
    guess = (1.645 + 0.842) ** 2 * disagreement / margin**2
    low, high = ceil(0.5 * guess), ceil(3 * guess) + 50
    while high - low > 1:
        middle = (low + high) // 2
        if chance_to_approve(middle, margin, disagreement, alpha=alpha) >= power:
            high = middle
        else:
            low = middle
    return high


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


def _tables(n: int, loss: float, disagreement: float, draws: int, g: np.random.Generator) -> tuple[NDArray, ...]:
    """(lost, gained, right on both) of n cases."""
    lost, gained = (disagreement + loss) / 2, (disagreement - loss) / 2
    cells = [lost, gained, LEVEL - lost, 1 - LEVEL - gained]
    drawn = g.multinomial(n, cells, draws)
    return drawn[:, 0], drawn[:, 1], drawn[:, 2]


# ---------------------------------------------------------------------------------------------- false passes


def false_pass(judge: Callable[[Outcomes], PeerVerdict], draws: int, seed: int = 0) -> float:
    """Share of draws at the true loss that the rule passes. Equal tables are judged once."""
    g = np.random.default_rng(seed)
    tables = np.stack(_tables(N, LOSS, DISAGREEMENT, draws, g), axis=1)
    distinct, counts = np.unique(tables, axis=0, return_counts=True)
    passed = [judge(outcomes(*map(int, row))).says == "pass" for row in distinct]
    return float(np.dot(passed, counts) / draws)


def outcomes(lost: int, gained: int, both: int, n: int = N) -> Outcomes:
    """The outcomes of binary pairs by their table."""
    before, after, moved = (both + lost) / n, (both + gained) / n, (gained - lost) / n
    return Outcomes(
        evalset="made",
        metric="exact_match",
        baseline=_binary(before, n),
        variant=_binary(after, n),
        difference=Sample(n=n, mean=moved, sd=sqrt(max(((lost + gained) / n - moved**2) * n / (n - 1), 0.0))),
        paired_level=before,
        lost=lost,
        gained=gained,
    )


def _binary(mean: float, n: int) -> Sample:
    return Sample(n=n, mean=mean, sd=sqrt(max(mean * (1 - mean) * n / (n - 1), 0.0)))


AS_SHIPPED: dict[str, Callable[[Outcomes], PeerVerdict]] = {
    "vllm_rtol": vllm_rtol.judge,
    "llm_compressor_recovery": llm_compressor_recovery.judge,
    "trt_hypothesis": trt_hypothesis.judge,
    "sglang_minus5": sglang_minus5.judge,
    "lm_eval_z": lm_eval_z.judge,
    "nel_v1": nel_v1.judge,
}


# ------------------------------------------------------------------------------------------------------ rows


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
    passes, off = [], []
    for name, judge in AS_SHIPPED.items():
        share = false_pass(judge, draws)
        known, rounding = KNOWN.get(name, (None, 0.0))
        passes.append({"rule": name, "false_pass": share, "known": known})
        if known is not None:
            middle = min(max((share + known) / 2, 1 / draws), 1 - 1 / draws)
            error = sqrt(middle * (1 - middle) * (1 / draws + 1 / KNOWN_DRAWS))
            off.append(max(abs(share - known) - rounding, 0.0) / error)
    return rounds + passes, [
        _row(
            "peers.cases",
            {
                "least_share_of_2pq_over_disagreement": min(ratios),
                "the_same_where_flips_are_rare": min(rare, default=None),
            },
            [min(ratios), max(ratios)],
            min(ratios) >= 0.9,
            quick,
        ),
        _row("peers.false_pass", {"most_standard_errors_off": max(off)}, None, max(off) <= 3, quick),
    ]


def _row(id: str, measured: dict[str, Any], spread: Any, met: bool, quick: bool) -> dict[str, Any]:
    row = DECISIONS.row(id, measured, spread=spread, met=met)
    return row | {"met": None, "reason": "fewer draws, one margin and disagreement"} if quick and met else row
