"""Gaffke's bound of a bounded mean: against Clopper and Pearson, drawn weights, and its errors by simulation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from qualgate.stats.bounded import bounded_mean
from qualgate.stats.intervals import binomial_lower, binomial_upper
from qualgate.stats.paired.compare import METHOD_BOUNDED, METHOD_CLUSTERED, compare_clustered_pairs


@pytest.mark.parametrize(("right", "n"), [(0, 20), (20, 20), (3, 100), (49, 50), (150, 200)])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(right, n):
    found = bounded_mean(np.repeat([1.0, 0.0], [right, n - right]), np.arange(n), 0.4, ends=(0.0, 1.0))
    assert found.lower == pytest.approx(binomial_lower(right, n), abs=1e-6)
    assert found.upper == pytest.approx(binomial_upper(right, n), abs=1e-6)


def test_the_p_value_is_the_share_of_drawn_weights():
    generator = np.random.default_rng(3)
    sizes = generator.integers(1, 4, 40)
    labels = np.repeat(np.arange(40), sizes)
    x = np.clip(generator.normal(-0.03, 0.25, len(labels)), -1, 1)
    weights = generator.standard_exponential((100_000, 41))
    for limit in (-0.2, -0.12, -0.05):
        excess = np.append(np.bincount(labels, x - limit), (-1 - limit) * sizes.max())
        drawn = float((weights @ excess <= 0).mean())
        assert bounded_mean(x, labels, limit).p_above == pytest.approx(drawn, abs=4 * (drawn / 100_000) ** 0.5)
        mirrored = bounded_mean(-x, labels, -limit)
        assert mirrored.p_below == pytest.approx(bounded_mean(x, labels, limit).p_above, abs=1e-9)


def test_bounds_and_p_values_never_contradict_each_other():
    generator = np.random.default_rng(4)
    for n in (2, 5, 30, 200):
        x = generator.choice([-1, -0.5, 0, 0.25, 1], n, p=[0.1, 0.2, 0.4, 0.2, 0.1])
        found = [bounded_mean(x, np.arange(n), limit) for limit in (-0.6, -0.2, -0.05, 0.0, 0.1, 0.5)]
        assert all(before.p_above <= after.p_above for before, after in pairwise(found))
        for limit, one in zip((-0.6, -0.2, -0.05, 0.0, 0.1, 0.5), found, strict=True):
            assert (one.p_above <= 0.05) == (one.lower >= limit)
            assert (one.p_below <= 0.05) == (one.upper <= limit)
            assert -1 <= one.lower <= one.estimate <= one.upper <= 1


def test_equal_clusters_count_as_one_case_each():
    x = np.random.default_rng(7).choice([-1.0, -0.5, 0.0, 0.5], 25, p=[0.1, 0.1, 0.6, 0.2])
    alone = bounded_mean(x, np.arange(25), -0.2)
    many = bounded_mean(np.repeat(x, 8), np.repeat(np.arange(25), 8), -0.2)
    assert (many.p_above, many.lower) == (pytest.approx(alone.p_above), pytest.approx(alone.lower, abs=1e-6))


def test_many_distinct_values_are_rounded_against_the_claim_and_hardly_at_all():
    generator = np.random.default_rng(8)
    x = np.clip(generator.normal(-0.01, 0.1, 6000), -1, 1)
    found, few = bounded_mean(x, np.arange(6000), -0.013), bounded_mean(x.round(2), np.arange(6000), -0.013)
    assert found.lower == pytest.approx(few.lower, abs=5e-4)
    assert found.upper == pytest.approx(few.upper, abs=5e-4)


def test_the_method_says_which_test_it_was():
    base = np.full(40, 0.5)
    assert compare_clustered_pairs(base, base - 0.1, np.arange(40), 0.05).method == METHOD_BOUNDED
    assert compare_clustered_pairs(base, base, np.arange(40), 0.05).method == METHOD_CLUSTERED


def test_what_lies_beyond_the_ends_is_refused():
    for x, limit in (([1.5], 0.0), ([0.5], -1.0), ([0.5], 1.0), ([], 0.0)):
        with pytest.raises(ValueError, match="must lie between"):
            bounded_mean(x, np.arange(len(x)), limit)
