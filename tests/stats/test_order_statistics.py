"""Quantiles with intervals of order statistics, held against sums of binomial terms and against simulation."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from qualgate.stats.order_statistics import interpolated, quantile, ranks
from tests.tables import each_row


def at_most(k: int, n: int, p: Fraction) -> Fraction:
    return sum((comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1)), Fraction(0))


@each_row("n", [1, 5, 20, 59, 60, 100, 250])
@each_row("p", [Fraction(1, 2), Fraction(19, 20), Fraction(99, 100)])
def test_the_ranks_are_the_closest_that_each_tail_allows(n, p):
    low, high = ranks(n, float(p), 0.95)
    tail = Fraction(25, 1000)
    assert low == 0 or at_most(low - 1, n, p) <= tail
    assert at_most(low, n, p) >= tail
    assert 1 - at_most(high - 1, n, p) <= tail
    assert high == 0 or 1 - at_most(high - 2, n, p) > tail


def test_the_value_is_the_smallest_that_enough_do_not_exceed_between_its_ranks():
    values = [5.0, 1.0, 4.0, 2.0, 3.0] * 12
    for p in (0.2, 0.21, 0.5, 0.8, 0.81, 0.95):
        found, (low, high) = quantile(values, p), ranks(60, p, 0.95)
        assert found is not None
        assert found.value == min(v for v in values if sum(w <= v for w in values) >= p * len(values) - 1e-12)
        assert found.low == (sorted(values)[low - 1] if low else None)
        assert found.high == (sorted(values)[high - 1] if high <= 60 else None)
    few = quantile([1.0] * 30 + [9.0], 0.99)
    assert few is not None
    assert (few.value, few.high) == (9.0, None), "too few for an upper bound"
    assert quantile([], 0.5) is None
    assert interpolated([], 0.5) is None
    assert interpolated([1.0, 3.0], 0.75) == 2.5
