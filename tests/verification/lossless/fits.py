"""Do draws fit a law, with a bound on how often those that do are said not to."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, fsum, inf, log
from typing import TypeVar

T = TypeVar("T")
ALARM = 1e-6


def chance_bound(statistic: float, cells: int) -> float:
    """At most this probable is a G statistic so large of draws that fit, whatever the law and their number.

    G = 2 n KL(seen, law), over `cells` cells. Agrawal (1904.02291), theorem 1.2: P(n KL >= x) <= (e x / k)^k exp(-x)
    for x > k = cells - 1. No approximation for large n, unlike the chi-square distribution's tail.
    """
    k, x = cells - 1, statistic / 2
    if x <= k:
        return 1.0
    if not k or x == inf:
        return 0.0
    return min(1.0, exp(k + k * log(x / k) - x))


def g_statistic(seen: Mapping[T, int], law: Mapping[T, float]) -> float:
    """2 Σ seen ln(seen / expected); inf where something was seen that cannot be."""
    count = sum(seen.values())
    if any(law.get(key, 0.0) <= 0.0 for key, times in seen.items() if times):
        return inf
    return 2 * fsum(times * log(times / (count * law[key])) for key, times in seen.items() if times)
