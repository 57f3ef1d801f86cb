"""Bets on clusters: their error by enumeration that shares no code with them, their bounds, and when they are laid."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.stats.cluster_bets import bets_serve, proof_by_bets
from qualgate.stats.paired.compare import METHOD_BETS, METHOD_CLUSTERED, compare_clustered_pairs
from qualgate.stats.relative import compare_relative
from qualgate.stats.unseen_clusters import trials_needed
from tests.depth import examples


def tables(k: int, kinds: int):
    """How many of k clusters are of each kind."""
    if kinds == 1:
        yield (k,)
        return
    for first in range(k + 1):
        for rest in tables(k - first, kinds - 1):
            yield (first, *rest)


def ways(table) -> float:
    left, found = sum(table), 1
    for count in table:
        found, left = found * comb(left, count), left - count
    return float(found)


@pytest.mark.parametrize(("k", "margin", "losses"), [
    (36, 0.08, (1.0, 0.0, -1.0)), (60, 0.05, (0.5, 0.0, -1.0)), (30, 0.10, (1.0, 0.25, -0.25)),
    (19, 0.15, (0.5, 0.25, 0.0, -0.25)),
])  # fmt: skip
def test_the_error_is_at_most_alpha_whatever_a_clusters_losses_are(k, margin, losses) -> None:
    """Summed over every table of clusters of one size that lose these shares of it, at a mean loss of the margin."""
    each = np.array(list(tables(k, len(losses))))
    proven = [proof_by_bets(np.repeat(losses, one) * 20, np.full(k, 20), margin)[0] <= 0.05 for one in each]
    each = each[proven]
    many, worst, generator = np.array([ways(one) for one in each]), 0.0, np.random.default_rng(0)
    for chances in generator.dirichlet([0.5] * len(losses), 2_000):
        rest = chances[1:] / chances[1:].sum()
        mean = float(rest @ losses[1:])
        if mean < margin < losses[0]:  # the first kind makes up what is wanting
            first = (margin - mean) / (losses[0] - mean)
            truth = np.array([first, *((1 - first) * rest)])
            worst = max(worst, float((many * np.prod(truth**each, axis=1)).sum()))
    assert 0.005 < worst <= 0.05


@given(st.data())
@examples(60)
def test_the_bound_is_within_the_margin_just_when_that_is_proven_and_order_means_nothing(data) -> None:
    sizes = np.array(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=120)))
    loss = np.array([data.draw(st.integers(-size, size)) if data.draw(st.booleans()) else 0 for size in sizes])
    margin, alpha = data.draw(st.floats(0.02, 0.6)), data.draw(st.sampled_from([0.01, 0.05, 0.2]))
    p, most = proof_by_bets(loss, sizes, margin, alpha)
    assert (p <= alpha) == (most <= margin)
    assert loss.sum() / sizes.sum() <= most <= 1
    order = np.random.default_rng(0).permutation(len(sizes))
    assert proof_by_bets(loss[order], sizes[order], margin, alpha) == pytest.approx((p, most))
    if abs(most - margin) > 1e-9 and most < 1 - 1e-9:  # it stands where the test turns
        assert (
            proof_by_bets(loss, sizes, most + 1e-7, alpha)[0]
            <= alpha
            < proof_by_bets(loss, sizes, most - 1e-7, alpha)[0]
        )


def test_they_are_chosen_by_sizes_margin_and_alpha_alone() -> None:
    few, many = trials_needed(0.08), 2 * trials_needed(0.08)
    assert [bets_serve([8] * k, 0.08) for k in (few - 1, few, many, many + 1)] == [False, True, True, False]
    assert not bets_serve([8] * 150, 0.04)
    assert not bets_serve([1] * 60 + [2], 0.08)  # nearly all by themselves: exact tables tell more
    assert not bets_serve([10] * 60 + [100], 0.08)  # beside so large a cluster the others are hardly bet on
    generator = np.random.default_rng(2)
    labels, before = np.repeat(np.arange(50), 8), np.ones(400)
    for rate in (0.0, 0.3, 1.0):
        after = (generator.random(400) >= rate).astype(float)
        assert compare_clustered_pairs(before, after, labels, 0.08).method == METHOD_BETS
        unknown = compare_clustered_pairs(before, after, labels, 0.08, margin_known=False)
        assert unknown.method == METHOD_CLUSTERED
        # a margin that was estimated from the same outcomes chooses nothing
        relative = compare_relative(before, after, labels, 0.08)
        assert relative.p_beyond == pytest.approx(min(1.0, unknown.p_beyond + 0.001), abs=0.02)
