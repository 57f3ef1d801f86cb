"""Do draws fit a law, with a bound on how often those that do are said not to."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, fsum, inf, log
from typing import Any, TypeVar

from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

T = TypeVar("T")
ALARM, POWER = 1e-6, 0.999


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


def answers_to_find(found: Mapping[T, float], law: Mapping[T, float]) -> float:
    """How many draws of `found` a chi-square test against `law` needs to reject at 1e-6 with power 0.999; 1 where it
    says what cannot be. In the limit of many draws."""
    if any(law.get(key, 0.0) <= 0.0 for key, probability in found.items() if probability > 0.0):
        return 1.0
    far = fsum((found.get(key, 0.0) - p) ** 2 / p for key, p in law.items() if p)
    cells = sum(p > 0.0 for p in law.values())
    limit = chi2.isf(ALARM, cells - 1)
    needed: Any = brentq(lambda shift: ncx2.cdf(limit, cells - 1, shift) - (1 - POWER), 1.0, 1e5)
    return max(1.0, float(needed) / far)
