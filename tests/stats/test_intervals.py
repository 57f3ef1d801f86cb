"""Bounds of one quantity against scipy.stats, closed forms and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qualgate.gate.comparisons.drift import UNSEEN_KL
from qualgate.gate.comparisons.lengths import length_bounds
from qualgate.stats.intervals import (
    binomial_lower,
    binomial_upper,
    bootstrap,
    clustered_error,
    clustered_percentile,
    clustered_ratio,
    clustered_share,
    independent_clusters,
    nonnegative_ratio,
)
from qualgate.stats.latency import clusters_needed, latency_ratio
from qualgate.stats.multiplicity import holm
from qualgate.stats.percentiles import groups_needed
from qualgate.stats.power import approval_region, chance_to_approve, pairs_needed


@given(st.integers(0, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_binomial_bounds_are_clopper_pearson(count: tuple[int, int]) -> None:
    successes, n = count
    if not n:
        assert binomial_upper(0, 0) == 1
        return
    oracle = stats.binomtest(successes, n).proportion_ci(0.9, method="exact")  # two-sided .9 = one-sided .95 each
    assert binomial_lower(successes, n) == pytest.approx(oracle.low, abs=1e-9)
    assert binomial_upper(successes, n) == pytest.approx(oracle.high, abs=1e-9)


def test_clustered_error_of_singletons_is_the_usual_one_and_one_cluster_has_none() -> None:
    values = np.random.default_rng(2).standard_normal(500)
    assert clustered_error(values, np.arange(500)) == pytest.approx(values.std(ddof=1) / np.sqrt(500))
    assert clustered_error(values, np.zeros(500)) is None


def test_clustered_error_covers_the_mean_of_values_that_depend_on_each_other() -> None:
    random, inside, naive = np.random.default_rng(0), 0, 0
    clusters = np.repeat(np.arange(25), 50)
    for _ in range(400):
        values = np.repeat(random.gamma(4.0, 0.25, 25), 50) * random.gamma(4.0, 0.25, 25 * 50)  # mean 1
        error = clustered_error(values, clusters)
        assert error is not None
        inside += abs(values.mean() - 1) <= stats.t.ppf(0.975, 24) * error
        naive += abs(values.mean() - 1) <= 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert inside / 400 > 0.91  # 95 % less skewness's cost and three errors of 400 draws
    assert naive / 400 < 0.6


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
    generator, covered, draws = np.random.default_rng(4), 0, 100
    for _ in range(draws):
        x = generator.normal(size=(60, 10)) * 0.6 + generator.normal(size=(60, 1)) * 0.8  # standard normal
        bounds = clustered_percentile(x.ravel(), np.repeat(np.arange(60), 10), 90, stats.norm.ppf(0.9))
        covered += bounds.upper >= stats.norm.ppf(0.9)
        assert bounds.lower <= bounds.estimate <= bounds.upper
    assert covered / draws >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / draws)


def test_a_percentile_beyond_the_data_has_no_upper_bound() -> None:
    assert clustered_percentile(np.arange(50), np.arange(50), 99, 10).upper == np.inf


def test_a_percentile_is_proven_exactly_where_its_upper_bound_keeps_the_limit() -> None:
    generator = np.random.default_rng(7)
    for limit in np.linspace(0.5, 6, 12):
        x = generator.exponential(size=(400, 5))
        bounds = clustered_percentile(x.ravel(), np.repeat(np.arange(400), 5), 95, limit)
        assert (bounds.p_below <= 0.05) == (bounds.upper <= limit)
        assert (bounds.p_above <= 0.05) == (bounds.lower > limit)


def test_a_share_of_equal_all_or_nothing_clusters_is_clopper_pearson() -> None:
    hits = np.repeat([9, 0], [27, 3])
    bounds = clustered_share(hits, np.full(30, 9), np.arange(30), 0.8)
    assert (bounds.lower, bounds.upper) == pytest.approx((binomial_lower(27, 30), binomial_upper(27, 30)))
    assert bounds.p_above == pytest.approx(stats.binom.sf(26, 30, 0.8))
    assert bounds.p_below == pytest.approx(stats.binom.cdf(27, 30, 0.8))


def test_equal_values_are_no_certainty() -> None:
    ones = np.ones(40)
    for value in (0.0, 0.01):
        few, many = (nonnegative_ratio(np.full(n, value), np.ones(n), np.arange(n), 0.05) for n in (20, 400))
        assert few.upper > many.upper > value >= many.lower >= few.lower
        assert few.p_below <= 0.05
    assert nonnegative_ratio(0 * ones, ones, np.arange(40), 0.0).p_below > 0.05
    assert nonnegative_ratio(0.051 * ones, ones, np.arange(40), 0.05).p_above > 0.05  # a seventh unseen could be 0
    assert clustered_share(ones, ones, np.arange(40), 0.9999).p_above > 0.05


HEAVY = {  # value of a case, and its true mean
    "lognormal, sigma 2": (lambda g, n: g.lognormal(0, 2, n), np.exp(2)),
    "Pareto, index 1.5": (lambda g, n: g.pareto(1.5, n), 2.0),
    "one in twenty": (lambda g, n: 20.0 * (g.random(n) < 0.05), 1.0),
}


@pytest.mark.parametrize(("kind", "clusters"), [*zip(HEAVY, (70, 300, 20), strict=True)])
def test_a_heavy_tailed_mean_at_its_limit_is_rarely_proven(kind: str, clusters: int) -> None:
    """A third of the cases come in two halves of unequal length, which changes nothing."""
    draw, mean = HEAVY[kind]
    generator, draws, proven = np.random.default_rng(21), 400, 0
    labels = np.concatenate([np.arange(clusters), np.arange(clusters // 3)])
    lengths = np.where(labels < clusters // 3, np.where(np.arange(len(labels)) < clusters, 3.0, 1.0), 4.0)
    for _ in range(draws):
        bounds = nonnegative_ratio(draw(generator, clusters)[labels] * lengths, lengths, labels, mean, **UNSEEN_KL)
        proven += bounds.p_below <= 0.05
        assert (bounds.p_below <= 0.05) == (bounds.upper <= mean)
    assert proven / draws <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)
    assert proven == 0 or clusters >= clusters_needed(95)


def test_equal_lengths_are_proven_by_enough_cases_for_what_an_answer_may_take() -> None:
    """What a user pays for a `max_new_tokens` of 6.4 times, or 102 times, the mean answer."""
    for most, limit, enough in ((6.4, 1.2, 80), (6.4, 1.5, 31), (102.4, 1.5, 607)):
        for n in (enough - 1, enough):
            same = np.full(n, 10)
            assert (length_bounds(same, same, np.arange(n), limit, 0.05, most).p_below <= 0.05) == (n == enough), n


def test_bootstrap_covers_a_mean_and_repeats_itself() -> None:
    x = np.random.default_rng(5).exponential(size=200)

    def run():
        return bootstrap(lambda index: x[index].mean(axis=1), 200, np.random.default_rng(9)).bounds(1.0)

    low, high = stats.t.interval(0.9, 199, x.mean(), stats.sem(x))
    assert (run().lower, run().upper) == pytest.approx((low, high), abs=0.03)
    assert run() == run()


def test_latency_ratio_finds_a_slower_variant() -> None:
    generator = np.random.default_rng(6)
    base = generator.lognormal(size=400)
    noisy = base * generator.lognormal(0, 0.05, 400)
    alone = np.arange(400)
    same, slower = latency_ratio(base, noisy, alone, 95, 1.5), latency_ratio(base, 2.2 * noisy, alone, 95, 1.1)
    assert same.p_below <= 0.05
    assert slower.p_above <= 0.05
    assert slower.lower <= slower.estimate <= slower.upper
    assert latency_ratio(base, 2 * base, alone, None, 1.1).estimate == pytest.approx(2)
    with pytest.raises(ValueError, match="same cases"):
        latency_ratio([], [], [], 95, 1.1)


def test_latencies_of_one_cluster_are_drawn_together() -> None:
    generator = np.random.default_rng(13)
    base, clusters = np.ones(400), np.repeat(np.arange(40), 10)
    other = base * generator.lognormal(0, 0.3, 40)[clusters]
    whole, alone = (latency_ratio(base, other, labels, None, 1.1) for labels in (clusters, np.arange(400)))
    assert whole.upper - whole.lower > 2 * (alone.upper - alone.lower)


def test_a_percentile_needs_a_case_beyond_it() -> None:
    assert [clusters_needed(p) for p in (50, 95, 99, 5)] == [5, 59, 299, 59]
    assert [groups_needed(p) for p in (50, 95, 99, 5)] == [7, 82, 418, 82], "more: the baseline's is not known either"
    assert clusters_needed(95, alpha=0.01) == 90


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()
    assert holm([0.9, 0.8]) == (1.0, 1.0)


def test_the_needed_pairs_would_probably_decide() -> None:
    """Exact power at the announced size, for an identical variant and for one that lost twice the margin."""
    for lost, gained in ((4, 4), (10, 10)):
        needed = pairs_needed(lost, gained, 200, 0.05)
        assert needed is not None
        discordance = (lost + gained) / 200
        assert 0.75 <= chance_to_approve(max(needed, 60), 0.05, discordance) <= 0.99
    assert (pairs_needed(0, 0, 20, 0.05) or 0) >= 59
    assert pairs_needed(10, 0, 200, 0.05) is None
    assert 0 < (pairs_needed(11, 0, 400, 0.03) or 0) < 40_000
    assert pairs_needed(26, 5, 1200, 0.0174) is None, "within a million, and no advice"
    assert approval_region(59, 0.05).edge[0] == 0  # no flip in 59 excludes 5 points, no flip in 58 does not
    assert approval_region(58, 0.05).edge[0] == 1


@pytest.mark.parametrize(("large", "singles", "floor"), [(200, 200, 0.9), (40, 100, 0.95), (20, 19, 0.9)])
def test_a_floor_of_a_share_is_rarely_broken_by_one_large_cluster(large, singles, floor):
    """Each cluster fails as a whole with the chance that the floor allows; exact over all outcomes."""
    labels, wrong = np.append(np.zeros(large, int), np.arange(1, singles + 1)), 0.0
    for lost in (0, 1):
        for few in range(singles + 1):
            chance = stats.binom.pmf(few, singles, 1 - floor) * (floor, 1 - floor)[lost]
            if chance > 1e-9:
                hits = np.append(np.full(large, 1.0 - lost), np.arange(singles) >= few)
                wrong += chance * (clustered_share(hits, np.ones(len(hits)), labels, floor).p_below <= 0.05)
    assert wrong <= 0.05


def test_unequal_clusters_count_as_those_of_one_size_that_miss_as_much():
    """Against a search over chances to fail: none misses a larger share of failures as often as alpha."""
    generator = np.random.default_rng(4)
    for sizes in ([40] * 6 + [1] * 1000, [1, 2, 3, 5, 8] * 12, [2] + [1] * 50, [7, 1]):
        weights, k = np.array(sizes) / sum(sizes), independent_clusters(sizes, 0.05)
        missed = 1 - 0.05 ** (1 / k)
        best = 0.0
        for _ in range(2000):
            logs = np.where(generator.random(len(sizes)) < generator.random(), generator.exponential(1, len(sizes)), 0)
            logs = np.where(weights >= generator.choice(weights), logs * weights ** generator.uniform(0, 2), 0)
            if logs.sum() > 0:
                chances = 1 - np.exp(np.log(0.05) * logs / logs.sum())  # none fails with a chance of alpha
                best = max(best, float(weights @ chances))
        assert best <= missed + 1e-9
        assert best > 0.8 * missed
    assert independent_clusters([4] * 30) == 30
    assert independent_clusters([]) == 0
