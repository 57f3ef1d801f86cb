"""The exact paired test against enumeration written independently, against simulation, and in its properties."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import gammaln, ndtr

from qualgate.stats.paired.compare import (
    EXACT_MAX_N,
    METHOD_EXACT,
    METHOD_SCORE,
    compare_clustered_pairs,
    compare_pairs,
    proof,
)
from qualgate.stats.paired.estimated_p import ESTIMATED_MAX_N, Band
from qualgate.stats.paired.minimax_region import USUAL_ALPHA, chosen_region
from qualgate.stats.paired.region import Region, evidence, score
from qualgate.stats.power import approval_region, chance_to_approve, chance_to_block
from tests.depth import examples


def all_tables(n: int) -> list[tuple[int, int]]:
    return [(lost, gained) for lost in range(n + 1) for gained in range(n - lost + 1)]


def trinomial(n: int, p_lost, p_gained) -> np.ndarray:
    """[points, tables]: the probability of every table, by the textbook formula."""
    tables = all_tables(n)
    ways = np.array([float(comb(n, lost) * comb(n - lost, gained)) for lost, gained in tables])
    lost, gained = np.array(tables, float).T
    p_lost, p_gained = np.broadcast_arrays(np.atleast_1d(p_lost)[:, None], np.atleast_1d(p_gained)[:, None])
    rest = np.maximum(1 - p_lost - p_gained, 0)
    return ways * p_lost**lost * p_gained**gained * rest ** (n - lost - gained)


def closed(n: int, chosen: np.ndarray) -> np.ndarray:
    """The tables chosen and every one with fewer lost or more gained than one of them."""
    grid = np.zeros((n + 1, n + 1), bool)
    grid[tuple(np.array(all_tables(n)).T)] = chosen
    grid = np.maximum.accumulate(grid, axis=1)
    grid = np.maximum.accumulate(grid[::-1], axis=0)[::-1]
    return grid[tuple(np.array(all_tables(n)).T)]


@pytest.mark.parametrize("n", [1, 2, 7, 16])
@pytest.mark.parametrize("margin", [0.02, 0.1, 0.45])
def test_p_values_equal_brute_force_enumeration(n: int, margin: float) -> None:
    nuisance = np.linspace(0, (1 - margin) / 2, 400)
    pmf = trinomial(n, nuisance + margin, nuisance)
    lost, gained = np.array(all_tables(n)).T
    # The tables chosen come first, then all others; among each, more evidence before less.
    better = evidence(lost, gained, n, margin) + 1e6 * (gained >= chosen_region(n, margin).edge[lost])
    worse = evidence(gained, lost, n, -margin) + 1e6 * (lost >= chosen_region(n, -margin).edge[gained])
    for index in range(0, len(better), max(1, n // 3)):
        result = compare_pairs(*all_tables(n)[index], n, margin)
        not_worse = closed(n, better >= better[index] - 1e-9)
        swapped = np.array([all_tables(n).index((gained, lost)) for lost, gained in all_tables(n)])
        not_better = closed(n, (worse >= worse[index] - 1e-9)[swapped])[swapped]
        for found, tables in ((result.p_within, not_worse), (result.p_beyond, not_better)):
            brute = pmf[:, tables].sum(1).max()
            assert brute - 1e-9 <= found <= min(1, brute * 1.0055 + 1e-4)


@pytest.mark.parametrize(("n", "loss"), [(20, 0.1), (40, 0.05), (40, -0.1)])
def test_a_rank_is_the_p_value_at_the_likeliest_discordance(n: int, loss: float) -> None:
    """Likeliest among 2,000; against sums of the trinomial over the tables of no less evidence. The rank's grid is
    coarser than that and it keeps to a band around the evidence, hence a tolerance for most and none for a few."""
    lost, gained = np.array(all_tables(n)).T
    points = abs(loss) + (1 - abs(loss)) * np.linspace(1e-6, 1 - 1e-6, 2_000)
    pmf = trinomial(n, (points + loss) / 2, (points - loss) / 2)
    held, index_of = evidence(lost, gained, n, loss), {table: index for index, table in enumerate(all_tables(n))}
    band, off = Band.between(n, loss, 0.5, 3.0), []
    for lost, gained, rank in zip(band.lost[::7], band.gained[::7], band.rank[::7], strict=True):
        index = index_of[int(lost), int(gained)]
        chance = pmf[pmf[:, index].argmax(), held >= held[index] - 1e-9].sum()
        off.append(abs(ndtr(-rank) - chance) / chance)
    assert len(off) > 5
    assert np.median(off) < 0.02
    assert np.mean(np.array(off) < 0.1) > 0.8


@pytest.mark.parametrize(("n", "margin"), [(30, 0.1), (100, 0.05), (120, 0.03)])
def test_the_chosen_tables_err_at_most_alpha_and_are_closed(n: int, margin: float) -> None:
    for loss in (margin, -margin):
        region = chosen_region(n, loss)
        nuisance = margin + (1 - margin) * np.sin(np.linspace(0, np.pi / 2, 1_000)) ** 2
        assert 0.03 < max(region.chance(loss, d) for d in nuisance) <= USUAL_ALPHA
        assert (np.diff(region.edge) >= 0).all()


@pytest.mark.parametrize(("n", "margin"), [(10, 0.05), (10, 0.3), (30, 0.1)])
def test_neither_error_exceeds_alpha_at_the_margin_for_any_discordance(n: int, margin: float) -> None:
    """Every table is decided by its p-values; the errors are then summed by an independent trinomial."""
    alpha, tables = 0.05, all_tables(n)
    approved = np.array([proof(lost, gained, n, margin) <= alpha for lost, gained in tables])
    blocked = np.array([proof(gained, lost, n, -margin) <= alpha for lost, gained in tables])
    gained = (1 - margin) / 2 * np.sin(np.linspace(0, np.pi / 2, 400)) ** 2
    at_margin = trinomial(n, gained + margin, gained)
    assert at_margin[:, approved].sum(1).max() <= alpha
    assert at_margin[:, blocked].sum(1).max() <= alpha
    for loss in (margin + 0.03, margin + 0.2):  # inside the hypothesis, not only at its edge
        inner = (1 - loss) / 2 * np.linspace(0, 1, 100)
        assert trinomial(n, inner + loss, inner)[:, approved].sum(1).max() <= alpha
    for loss in (margin - 0.03, 0.0, -0.1):
        inner = max(0.0, -loss) + (1 - abs(loss)) / 2 * np.linspace(0, 1, 100)
        assert trinomial(n, inner + loss, inner)[:, blocked].sum(1).max() <= alpha


@pytest.mark.parametrize(("n", "margin"), [(400, 0.05), (800, 0.01)])
def test_error_at_the_margin_stays_below_alpha_for_large_n(n: int, margin: float) -> None:
    """Exact, by row sums of the binomial tail over a fine grid; the construction itself never uses those."""
    region = approval_region(n, margin)
    worst = max(region.chance(margin, margin + (1 - margin) * x**2) for x in np.linspace(0, 1, 150))
    assert 0.03 < worst <= 0.05


def test_power_at_four_hundred_cases() -> None:
    assert chance_to_approve(400, 0.05, 0.05) > 0.98
    assert chance_to_approve(400, 0.05, 0.10) > 0.91
    assert chance_to_approve(400, 0.05, 0.10, difference=-0.05) <= 0.05


@pytest.mark.parametrize(("n", "margin"), [(9, 0.07), (40, 0.02), (40, 0.3), (20, 0.8)])
def test_the_evidence_orders_tables_without_holes(n: int, margin: float) -> None:
    """The region's closure costs nothing: the corrected score falls with each loss and rises with each gain."""
    for lost, gained in all_tables(n):
        here = evidence(lost, gained, n, margin)
        assert here == pytest.approx(-evidence(gained, lost, n, -margin))
        if lost + gained < n:
            assert evidence(lost + 1, gained, n, margin) < here + 1e-9
            assert evidence(lost, gained + 1, n, margin) > here - 1e-9


def test_evidence_is_normal_to_the_second_order() -> None:
    """Its mean cube is 0 where the score's is not: summed over every table of 200 pairs at the margin."""
    n, margin = 200, 0.05
    lost, gained = np.array(all_tables(n)).T
    for discordance in (0.1, 0.2):
        log_ways = gammaln(n + 1) - gammaln(lost + 1) - gammaln(gained + 1) - gammaln(n - lost - gained + 1)
        logs = np.log([(discordance + margin) / 2, (discordance - margin) / 2, 1 - discordance])
        chance = np.exp(log_ways + lost * logs[0] + gained * logs[1] + (n - lost - gained) * logs[2])
        skewed, even = (
            float(chance @ (x - chance @ x) ** 3) / float(chance @ (x - chance @ x) ** 2) ** 1.5
            for x in (score(lost, gained, n, margin), evidence(lost, gained, n, margin))
        )
        assert abs(even) < 0.4 * abs(skewed)


def test_more_pairs_do_not_lose_power_where_the_order_changes() -> None:
    before, after = ESTIMATED_MAX_N, ESTIMATED_MAX_N + 8
    for margin in (0.02, 0.05):
        assert chance_to_approve(after, margin, 0.05) > chance_to_approve(before, margin, 0.05) - 0.02
        at = 2 * margin
        assert chance_to_block(after, margin, at + 0.05, -at) > chance_to_block(before, margin, at + 0.05, -at) - 0.02


def test_maximum_over_the_nuisance_is_found() -> None:
    """Against 400 directly summed points, for regions of every shape."""
    generator = np.random.default_rng(3)
    for n in (12, 50, 150):
        for _ in range(2):
            margin = float(generator.uniform(0.01, 0.2))
            region = Region.at_least(n, margin, float(generator.uniform(-1.5, 2.5)))
            for loss in (margin, margin / 3, -0.02):
                points = abs(loss) + (1 - abs(loss)) * np.sin(np.linspace(0, np.pi / 2, 400)) ** 2
                direct = np.array([region.chance(loss, d) for d in points])
                assert direct.max() - 1e-9 <= region.largest_chance(loss) <= direct.max() * 1.0055 + 1e-4


counts = st.integers(1, 120).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n)).flatmap(
        lambda nl: st.tuples(st.just(nl[0]), st.just(nl[1]), st.integers(0, nl[0] - nl[1]))
    )
)


@examples(30)
@given(counts, st.sampled_from([0.01, 0.05, 0.2]))
@example((80, 35, 21), 0.01)  # p-value a hair over alpha: the bound may not touch the margin
@example((12, 3, 1), 0.999)
def test_bounds_contain_the_estimate_and_agree_with_the_tests(table: tuple[int, int, int], margin: float) -> None:
    n, lost, gained = table
    r = compare_pairs(lost, gained, n, margin)
    assert -1 <= r.lower <= r.difference <= r.upper <= 1
    assert r.upper - r.lower > 1e-6
    assert (r.p_within <= 0.05) == (r.lower >= -margin)
    assert (r.p_beyond <= 0.05) == (r.upper <= -margin)
    assert not (r.p_within <= 0.05 and r.p_beyond <= 0.05)


def test_beyond_the_exact_range_the_score_test_takes_over() -> None:
    n = EXACT_MAX_N + 1
    large, exact = compare_pairs(500, 400, n, 0.01), compare_pairs(500, 400, n - 1, 0.01)
    assert (large.method, exact.method) == (METHOD_SCORE, METHOD_EXACT)
    assert large.lower == pytest.approx(exact.lower, abs=2e-4)
    assert large.upper == pytest.approx(exact.upper, abs=2e-4)


@pytest.mark.parametrize("bad", [(-1, 0, 5, 0.1), (3, 3, 5, 0.1), (0, 0, 0, 0.1), (0, 0, 5, 0.0), (0, 0, 5, 1.0)])
def test_what_is_no_table_is_refused(bad: tuple[int, int, int, float]) -> None:
    with pytest.raises(ValueError, match=r"not a table|margin"):
        compare_pairs(*bad)


# ---------------------------------------------------------------------------------------------- clustered


def test_clusters_without_a_flip_count_once_each() -> None:
    right = np.ones(400)
    result = compare_clustered_pairs(right, right, np.repeat(np.arange(40), 10), 0.05)
    alone = compare_pairs(0, 0, 40, 0.05)
    assert result.lower == alone.lower
    assert result.p_within == pytest.approx(alone.p_within)
    assert alone.p_within > 0.05


def test_pairs_that_all_flip_alike_count_once_a_cluster() -> None:
    right, wrong, clusters = np.ones(60), np.zeros(60), np.repeat(np.arange(30), 2)
    lost, gained = (compare_clustered_pairs(*arms, clusters, 0.05) for arms in ((right, wrong), (wrong, right)))
    assert (lost.p_beyond, lost.upper) == (
        compare_pairs(30, 0, 30, 0.05).p_beyond,
        compare_pairs(30, 0, 30, 0.05).upper,
    )
    assert lost.p_beyond <= 0.05 < lost.p_within
    assert gained.p_within <= 0.05 < gained.p_beyond
    assert gained.lower == compare_pairs(0, 30, 30, 0.05).lower < 1
