"""At the limit a ratio of percentiles is proven to be below it, or above it, in at most alpha of draws."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.stats import percentiles
from qualgate.stats.percentiles import groups_needed, p_above, p_below, percentile_ratio

DRAWS = 80
MOST = 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5


def stalled(generator, groups: int, width: int, before: float, after: float):
    """Three times as slow in so large a share of batches, by chance in each arm."""
    sides = [
        generator.lognormal(0, 0.05, (groups, width)) * np.where(generator.random((groups, 1)) < share, 3.0, 1.0)
        for share in (before, after)
    ]
    return sides[0].ravel(), sides[1].ravel(), np.repeat(np.arange(groups), width)


@pytest.mark.parametrize(("percentile", "times", "width"), [(90, 1, 4), (95, 3, 1), (99, 1, 1)])
def test_stalls_just_beyond_the_percentile_are_not_proven_away(percentile, times, width) -> None:
    """The variant's percentile lies among its stalls and is three times the baseline's, which has few or nearly as
    many: a bootstrap approved 17 to 27 % of such draws, and up to 38 % where batches stall as a whole."""
    share, groups = 1 - percentile / 100, times * groups_needed(percentile)
    for before in (0.0, 0.9 * share):
        generator, below, above = np.random.default_rng(groups), 0, 0
        for _ in range(DRAWS):
            base, other, labels = stalled(generator, groups, width, before, 1.1 * share)
            below += p_below(base, other, labels, percentile, 2.2, 0.01) <= 0.05
            above += p_above(other, base, labels, percentile, 1 / 2.2, 0.01) <= 0.05
        assert max(below, above) / DRAWS <= MOST


def equal(generator, groups, times=1.0, width=8):
    """Answers of unequal length, eight a batch."""
    long = generator.lognormal(0, 0.6, groups * width)
    noise = [generator.lognormal(0, 0.05, groups * width) for _ in range(2)]
    return long * noise[0], times * long * noise[1], np.repeat(np.arange(groups), width)


@pytest.mark.parametrize(("percentile", "groups"), [(50, 60), (90, 150), (95, 250)])
def test_three_times_the_least_groups_tell_an_equal_variant_and_a_slow_one(percentile, groups) -> None:
    generator = np.random.default_rng(3)
    draws = [equal(generator, groups) for _ in range(10)]
    slow = [equal(generator, groups, 1.6) for _ in range(10)]
    assert sum(p_below(*one, percentile, 1.25, 0.05) <= 0.05 for one in draws) >= 8
    assert sum(p_above(*one, percentile, 1.25, 0.05) <= 0.05 for one in slow) >= 8


@pytest.mark.parametrize("percentile", [50, 90, 95, 99, 5])
def test_fewer_groups_than_needed_prove_nothing_and_as_many_can(percentile) -> None:
    needed = max(2, groups_needed(percentile))
    base, other = 2.0 * np.ones(needed), np.ones(needed)
    assert p_below(base, other, np.arange(needed), percentile, 1.0, 0.0) <= 0.05
    if percentile > 50:
        few = np.arange(needed - 1)
        assert p_below(base[1:], other[1:], few, percentile, 1.0, 0.0) > 0.05
        assert percentile_ratio(base[1:], other[1:], few, percentile, 1.0).upper == np.inf


def test_a_proof_never_stands_beside_a_bound_beyond_the_limit() -> None:
    generator = np.random.default_rng(5)
    found = [percentile_ratio(*equal(generator, 40, times, 4), 50, 1.25) for times in (0.6, 1.0, 1.2, 1.3, 1.6, 3.0)]
    assert {bounds.p_below <= 0.05 for bounds in found} == {True, False}
    for bounds in found:
        assert (bounds.p_below <= 0.05) == (bounds.upper <= 1.25)
        assert (bounds.p_above <= 0.05) == (bounds.lower >= 1.25)
        assert bounds.lower <= bounds.estimate <= bounds.upper


def test_where_levels_are_skipped_no_less_is_needed(monkeypatch) -> None:
    sides = equal(np.random.default_rng(6), 200, width=2)
    whole = [p(*sides, 90, limit, 0.0) for p, limit in ((p_below, 1.2), (p_above, 0.8))]
    monkeypatch.setattr(percentiles, "_LEVELS", 12)
    some = [p(*sides, 90, limit, 0.0) for p, limit in ((p_below, 1.2), (p_above, 0.8))]
    assert all(a <= b for a, b in zip(whole, some, strict=True))
    assert some != whole


def test_the_order_and_the_names_of_clusters_change_nothing() -> None:
    base, other, labels = equal(np.random.default_rng(7), 60, width=3)
    order = np.random.default_rng(8).permutation(len(base))
    first = percentile_ratio(base, other, labels, 90, 1.25)
    assert percentile_ratio(base[order], other[order], 1000 - labels[order], 90, 1.25) == first


def test_no_time_at_all_is_never_proven_to_be_kept() -> None:
    ones = np.ones(100)
    assert p_below(ones, ones, np.arange(100), 50, 0.0, 0.0) > 0.05
    assert p_above(ones, ones, np.arange(100), 50, 0.0, 0.0) <= 0.05
