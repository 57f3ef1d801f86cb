"""Quantiles with intervals of order statistics, held against sums of binomial terms and against simulation."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from qualgate.stats.order_statistics import interpolated, quantile, ranks

ROUNDS = 4_000


def at_most(k: int, n: int, p: Fraction) -> Fraction:
    return sum((comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k + 1)), Fraction(0))


@pytest.mark.parametrize("n", [1, 5, 20, 59, 60, 100, 250])
@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(19, 20), Fraction(99, 100)])
def test_the_ranks_are_the_closest_that_each_tail_allows(n, p):
    low, high = ranks(n, float(p), 0.95)
    tail = Fraction(25, 1000)
    assert low == 0 or at_most(low - 1, n, p) <= tail
    assert at_most(low, n, p) >= tail
    assert 1 - at_most(high - 1, n, p) <= tail
    assert high == 0 or 1 - at_most(high - 2, n, p) > tail


@pytest.mark.parametrize(("n", "p"), [(40, 0.5), (120, 0.95), (600, 0.99)])
def test_the_interval_holds_the_true_quantile_as_often_as_it_says(n, p):
    draws = np.random.default_rng(7).pareto(1.5, size=(ROUNDS, n))  # a tail without a variance
    truth = (1 - p) ** (-1 / 1.5) - 1
    held = 0
    for row in draws.tolist():
        found = quantile(row, p)
        assert found is not None
        held += (found.low is None or found.low <= truth) and (found.high is None or truth <= found.high)
    assert held / ROUNDS >= 0.95 - 3 * (0.05 * 0.95 / ROUNDS) ** 0.5


def test_the_value_is_the_smallest_that_enough_do_not_exceed():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    for p in (0.2, 0.21, 0.5, 0.8, 0.81, 0.95):
        found = quantile(values, p)
        assert found is not None
        assert found.value == min(v for v in values if sum(w <= v for w in values) >= p * len(values) - 1e-12)


def test_too_few_values_have_no_upper_bound_of_a_high_percentile():
    found = quantile([1.0] * 30 + [9.0], 0.99)
    assert found is not None
    assert (found.value, found.high) == (9.0, None)


def test_of_no_values_nothing_is_said():
    assert quantile([], 0.5) is None
    assert interpolated([], 0.5) is None


def test_between_two_values_the_other_quantile_goes_in_proportion():
    assert interpolated([1.0, 3.0], 0.75) == 2.5
