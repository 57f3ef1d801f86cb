"""How many pairs a rule needs, and how often it would approve a variant that is truly as good."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log

from qualgate.stats.intervals import normal_quantile
from qualgate.stats.region import Region

METHOD_NEEDED = "paired_normal/1"
MOST_PAIRS = 1_000_000


def pairs_needed(lost: int, gained: int, n: int, margin: float, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Pairs at which the rule would decide with probability `power`, if what was seen so far is the truth.

    n = (z_alpha + z_power)² (d − δ²) / (δ + margin)², d the discordance with one flip added, so that none seen is not
    taken for none ever, and δ the difference; at least ln(alpha) / ln(1 − margin), the pairs that exclude the margin
    without a flip. None when the difference sits so near the margin that a million pairs would not decide.
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
    return max(pairs, n + 1) if pairs <= MOST_PAIRS else None


@lru_cache(maxsize=256)
def approval_region(n: int, margin: float, alpha: float = 0.05) -> Region:
    """Every table of n pairs at which "loss ≥ margin" is rejected by the exact test."""
    low, high = -8.0, 8.0 + n  # score thresholds: too weak, surely strong enough
    for _ in range(60):
        middle = (low + high) / 2
        if Region.at_least(n, margin, middle).largest_chance(margin) <= alpha:
            high = middle
        else:
            low = middle
        if high - low < 1e-7 * max(1.0, abs(high)):
            break
    return Region.at_least(n, margin, high)


def chance_to_approve(n: int, margin: float, discordance: float, difference: float = 0.0, alpha: float = 0.05) -> float:
    """Exact P(approve) at n pairs when the truth has this discordance and difference (0 = an identical variant)."""
    return approval_region(n, margin, alpha).chance(-difference, discordance)
