"""Sample size and power of a rule: pairs needed, and the chance to approve an identical variant."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import normal_quantile
from qualgate.stats.paired.compare import EXACT_MAX_N
from qualgate.stats.paired.estimated_p import ESTIMATED_MAX_N
from qualgate.stats.paired.minimax_region import chosen_region
from qualgate.stats.paired.region import Region, edges, evidence

MOST_PAIRS = 1_000_000
MOST_TIMES = 100  # times the present pairs: so near the margin an estimate means nothing
EXACT_SETTLED = 800  # pairs up to which thresholds are found to the last digit


def pairs_needed(
    lost: float, gained: float, n: int, margin: float, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Pairs at which the rule would decide with probability `power`, if the observed rates are the truth.

    n = (z_alpha + z_power)² (d − δ²) / (δ + margin)², d the discordance with one flip added, so that it is never 0, and
    δ the difference; at least ln(alpha) / ln(1 − margin), the pairs that exclude the margin without a flip. None if the
    difference is so near the margin that 100 times the pairs would not decide.
    Miettinen, Biometrics 24 (1968), with a margin.
    """
    discordance = (lost + gained + 1) / (n + 1)
    difference = (gained - lost) / n
    spread = max(discordance - difference**2, 1 / (n + 1))
    distance = abs(difference + margin)
    if distance == 0:
        return None
    pairs = (normal_quantile(1 - alpha) + normal_quantile(power)) ** 2 * spread / distance**2
    pairs = ceil(max(pairs, log(alpha) / log(1 - margin)))
    return max(pairs, n + 1) if pairs <= MOST_TIMES * n else None


@lru_cache(maxsize=32_768)  # a number each
def evidence_threshold(n: int, loss: float, alpha: float = 0.05, *, roughly: bool = False) -> float:
    """The evidence from which "the loss is at least `loss`" is rejected, with tables ordered by evidence alone.

    roughly, and above `EXACT_SETTLED` pairs: to 0.002 standard errors, which moves a rate of decisions by 0.1 point.
    """
    if n > EXACT_MAX_N:
        return normal_quantile(1 - alpha)
    roughly = roughly or n > EXACT_SETTLED
    return _least_threshold(lambda least: Region.at_least(n, loss, least).largest_chance(loss) <= alpha, alpha, roughly)


def _least_threshold(keeps: Callable[[float], bool], alpha: float, roughly: bool) -> float:
    """Find the least threshold of evidence that keeps alpha, by bisection.

    keeps: whether a threshold does. roughly: to 0.002 standard errors instead of 1e-7.
    """
    aim, reach = normal_quantile(1 - alpha), 0.8
    while not keeps(aim + reach) and reach < 8 + EXACT_MAX_N:  # beyond, no table is left
        reach *= 2
    low, high = aim - max(reach, 8.0 if keeps(aim - reach) else 0.0), aim + reach
    precision = 0.002 if roughly else 1e-7
    while high - low > precision * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)  # draws of clusters have about as many effective sizes
def rejection_region(n: int, loss: float, alpha: float = 0.05, *, settled: bool = False) -> Region:
    """Every table of n pairs at which "the loss is at least `loss`" is rejected, −1 < loss < 1. settled: exact to the
    last table above `EXACT_SETTLED` pairs, too."""
    roughly = n > EXACT_SETTLED and not settled
    if n > ESTIMATED_MAX_N:
        keeps = lambda least: Region.at_least(n, loss, least).largest_chance(loss) <= alpha  # noqa: E731
        return Region.at_least(
            n, loss, evidence_threshold(n, loss, alpha) if roughly else _least_threshold(keeps, alpha, False)
        )
    first = chosen_region(n, loss)  # these before all others, among them and among the others by evidence
    joined = np.minimum if first.largest_chance(loss) <= alpha else np.maximum

    def region(least: float) -> Region:
        return Region.from_edge(n, joined(edges(n, loss, np.array([least]))[0], first.edge))

    return region(_least_threshold(lambda least: region(least).largest_chance(loss) <= alpha, alpha, roughly))


def approval_region(n: int, margin: float, alpha: float = 0.05) -> Region:
    """Every table at which a loss of the margin or more is rejected."""
    return rejection_region(n, margin, alpha)


def blocking_region(n: int, margin: float, alpha: float = 0.05) -> Region:
    """Every table (gained, lost), in this order, at which a loss of the margin or less is rejected."""
    return rejection_region(n, -margin, alpha)


def approved(lost: ArrayLike, gained: ArrayLike, n: int, margin: float, alpha: float = 0.05) -> NDArray:
    """Whether each table of n pairs proves a loss within the margin."""
    return _rejected(np.asarray(lost, int), np.asarray(gained, int), n, margin, alpha)


def blocked(lost: ArrayLike, gained: ArrayLike, n: int, margin: float, alpha: float = 0.05) -> NDArray:
    """Whether each table of n pairs proves a loss beyond the margin."""
    return _rejected(np.asarray(gained, int), np.asarray(lost, int), n, -margin, alpha)


def _rejected(lost: NDArray, gained: NDArray, n: int, loss: float, alpha: float) -> NDArray:
    if n <= EXACT_MAX_N:
        return gained >= rejection_region(n, loss, alpha).edge[lost]
    return evidence(lost, gained, n, loss) >= evidence_threshold(n, loss, alpha)


def chance_to_approve(n: int, margin: float, discordance: float, difference: float = 0.0, alpha: float = 0.05) -> float:
    """P(approve) at n pairs when the truth has this discordance and difference (0 = an identical variant)."""
    return approval_region(n, margin, alpha).chance(-difference, discordance)


def chance_to_block(n: int, margin: float, discordance: float, difference: float, alpha: float = 0.05) -> float:
    """P(a loss beyond the margin is proven) at n pairs, likewise. difference: gained − lost, below 0 for a loss."""
    return blocking_region(n, margin, alpha).chance(difference, discordance)


def pairs_to_approve(margin: float, discordance: float, power: float, alpha: float = 0.05) -> int | None:
    """Pairs at which an identical variant is approved with probability `power` or more, to 1 %; None above a million.

    Exact to `EXACT_MAX_N` pairs, beyond by n = (z_alpha + z_power)² d / margin², which is right to 1 % there.
    """
    z = normal_quantile(1 - alpha) + normal_quantile(power)
    estimate = ceil(z * z * discordance / margin**2 + 4 / margin)
    if estimate > EXACT_MAX_N:
        return estimate if estimate <= MOST_PAIRS else None
    low, high = ceil(log(alpha) / log(1 - margin)) - 1, 2 * estimate
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        reached = chance_to_approve(middle, margin, discordance, 0.0, alpha) >= power
        low, high = (low, middle) if reached else (middle, high)
    return high
