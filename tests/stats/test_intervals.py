"""Bounds of one quantity against scipy.stats, closed forms and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qualgate.stats.intervals import (
    binomial_lower,
    binomial_upper,
    bootstrap,
    clustered_percentile,
    clustered_ratio,
)
from qualgate.stats.latency import latency_ratio
from qualgate.stats.multiplicity import holm
from qualgate.stats.power import approval_region, chance_to_approve, pairs_needed


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_binomial_bounds_are_clopper_pearson(count: tuple[int, int]) -> None:
    successes, n = count
    oracle = stats.binomtest(successes, n).proportion_ci(0.9, method="exact")  # two-sided .9 = one-sided .95 each
    assert binomial_lower(successes, n) == pytest.approx(oracle.low, abs=1e-9)
    assert binomial_upper(successes, n) == pytest.approx(oracle.high, abs=1e-9)


def test_binomial_bounds_at_the_ends() -> None:
    assert binomial_lower(0, 10) == 0
    assert binomial_upper(10, 10) == 1
    assert binomial_upper(0, 0) == 1
    assert binomial_upper(0, 10) == pytest.approx(1 - 0.05 ** (1 / 10))


def test_mean_of_singletons_is_the_t_interval() -> None:
    x = np.random.default_rng(0).normal(0.3, 2, 37)
    bounds = clustered_ratio(x, np.ones(37), np.arange(37), 0.0)
    low, high = stats.t.interval(0.9, 36, x.mean(), stats.sem(x))
    assert (bounds.lower, bounds.upper) == pytest.approx((low, high))
    assert bounds.p_above == pytest.approx(stats.ttest_1samp(x, 0, alternative="greater").pvalue)
    assert bounds.p_below == pytest.approx(stats.ttest_1samp(x, 0, alternative="less").pvalue)


def test_equal_clusters_are_as_good_as_their_means() -> None:
    x = np.random.default_rng(1).normal(size=(30, 8)) + np.random.default_rng(2).normal(size=(30, 1))
    bounds = clustered_ratio(x.ravel(), np.ones(240), np.repeat(np.arange(30), 8), 0.0)
    low, high = stats.t.interval(0.9, 29, x.mean(), stats.sem(x.mean(axis=1)))
    assert (bounds.lower, bounds.upper) == pytest.approx((low, high))


def test_one_cluster_or_no_denominator_knows_nothing() -> None:
    for bounds in (clustered_ratio([1, 2], [1, 1], [0, 0], 0.0), clustered_ratio([0, 0], [0, 0], [0, 1], 0.0)):
        assert (bounds.lower, bounds.upper, bounds.p_above, bounds.p_below) == (-np.inf, np.inf, 1, 1)


def test_percentile_bounds_cover_under_clustering() -> None:
    generator, covered, draws = np.random.default_rng(4), 0, 300
    for _ in range(draws):
        x = generator.normal(size=(60, 10)) * 0.6 + generator.normal(size=(60, 1)) * 0.8  # standard normal
        bounds = clustered_percentile(x.ravel(), np.repeat(np.arange(60), 10), 90, stats.norm.ppf(0.9))
        covered += bounds.upper >= stats.norm.ppf(0.9)
        assert bounds.lower <= bounds.estimate <= bounds.upper
    assert covered / draws >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / draws)


def test_a_percentile_beyond_the_data_has_no_upper_bound() -> None:
    assert clustered_percentile(np.arange(50), np.arange(50), 99, 10).upper == np.inf


def test_bootstrap_covers_a_mean_and_repeats_itself() -> None:
    x = np.random.default_rng(5).exponential(size=200)

    def run():
        return bootstrap(lambda index: x[index].mean(axis=1), 200, 1.0, np.random.default_rng(9))

    low, high = stats.t.interval(0.9, 199, x.mean(), stats.sem(x))
    assert (run().lower, run().upper) == pytest.approx((low, high), abs=0.03)
    assert run() == run()


def test_latency_ratio_finds_a_slower_variant() -> None:
    generator = np.random.default_rng(6)
    base = generator.lognormal(size=400)
    noisy = base * generator.lognormal(0, 0.05, 400)
    same, slower = latency_ratio(base, noisy, 95, 1.1), latency_ratio(base, 1.3 * noisy, 95, 1.1)
    assert same.p_below <= 0.05
    assert slower.p_above <= 0.05
    assert slower.lower <= slower.estimate <= slower.upper
    assert latency_ratio(base, 2 * base, None, 1.1).estimate == pytest.approx(2)
    with pytest.raises(ValueError, match="same cases"):
        latency_ratio([], [], 95, 1.1)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()
    assert holm([0.9, 0.8]) == (1.0, 1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_raw_p_value_and_bonferroni(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p <= adjusted <= min(1, len(p_values) * p) + 1e-15


def test_the_needed_pairs_would_probably_decide() -> None:
    """Exact power at the announced size, for an identical variant and for one that lost twice the margin."""
    for lost, gained in ((4, 4), (10, 10)):
        needed = pairs_needed(lost, gained, 200, 0.05)
        assert needed is not None
        discordance = (lost + gained) / 200
        assert 0.75 <= chance_to_approve(max(needed, 60), 0.05, discordance) <= 0.99
    assert (pairs_needed(0, 0, 20, 0.05) or 0) >= 59
    assert pairs_needed(10, 0, 200, 0.05) is None
    assert approval_region(59, 0.05).edge[0] == 0  # no flip in 59 excludes 5 points, no flip in 58 does not
    assert approval_region(58, 0.05).edge[0] == 1
