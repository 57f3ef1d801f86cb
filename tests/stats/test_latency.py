"""At the limit a ratio of sums is proven to be below it in at most alpha of draws, whichever tail makes it so."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.stats.latency import cases_needed, latency_ratio

DRAWS = 150


def proven(n: int, factors) -> float:
    """Share of draws. factors: generator → the variant's seconds / the baseline's, of each of n cases."""
    generator, every, found = np.random.default_rng(n), np.arange(n), 0
    for _ in range(DRAWS):
        base = generator.lognormal(0, 0.3, n)
        found += latency_ratio(base, base * factors(generator, n), every, None, 1.10).p_below <= 0.05
    return found / DRAWS


def stalls(share: float, times: float):
    return lambda g, n: np.where(g.random(n) < share, times, 1.0) * g.lognormal(-(0.05**2) / 2, 0.05, n)


def lognormal(sigma: float, mean: float):
    return lambda g, n: mean * g.lognormal(-(sigma**2) / 2, sigma, n)


@pytest.mark.parametrize(
    "factors",
    [stalls(0.02, 6), stalls(0.05, 3), lognormal(1.5, 1.1)],
    ids=["2 % x 6", "5 % x 3", "sigma 1.5"],
)
def test_a_ratio_at_the_limit_is_rarely_proven_to_be_below_it(factors):
    assert proven(60, factors) <= 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5


def test_an_equally_fast_variant_is_proven_by_enough_cases_and_never_by_fewer():
    assert proven(300, lognormal(0.05, 1.0)) >= 0.95
    needed = cases_needed(1.10, 1.0)
    assert needed is not None
    ones = np.ones(needed)
    assert latency_ratio(ones, ones, np.arange(needed), None, 1.10).p_below <= 0.05
    assert latency_ratio(ones[1:], ones[1:], np.arange(needed - 1), None, 1.10).p_below > 0.05
    assert cases_needed(1.0, 1.0) is None
