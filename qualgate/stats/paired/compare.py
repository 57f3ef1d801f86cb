"""Test whether the loss between two paired binary outcomes is within a margin or beyond it.

**Exact unconditional test.** Tables are ordered by their evidence: the score statistic (Tango, Statistics in Medicine
17, 1998: the difference from the margin over its standard error at the restricted maximum likelihood) freed of its
skewness. To 400 pairs the tables of a region chosen from n and the margin come first (`minimax_region`): the test at
the usual alpha. The p-value of a table is the largest probability, over every discordance, of a table at least as
extreme: the error is at most alpha whatever the truth. It serves to n = 20,000, for Tango's normal limit alone lets
through 6.1 % instead of 5 % at n = 801 and a margin of 0.35 points, and still 5.2 % at n = 12,000 and 1 point. "The
loss is at most the margin" is the same test of the arms swapped.

**Bounds** invert the test (Chan and Zhang, Biometrics 55, 1999): the losses that it does not exclude, found to a
twentieth of a standard error and kept on the p-value's side of the margin. At every loss the tables chosen for the
margin come first: any fixed order is exact, and this one excludes the margin with all beyond it. They are never of zero
width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, isfinite, nextafter, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from qualgate.stats.bounded import bounded_mean
from qualgate.stats.cluster_bets import bets_serve, proof_by_bets
from qualgate.stats.intervals import Bounds, clustered_ratio, independent_trials
from qualgate.stats.paired.estimated_p import ESTIMATED_MAX_N
from qualgate.stats.paired.minimax_region import chosen_region
from qualgate.stats.paired.region import Region, null_variance, score
from qualgate.stats.unseen_clusters import clustered_mean

METHOD_EXACT = "paired_exact_unconditional/4"
METHOD_SCORE = "paired_score_tango/1"
METHOD_CLUSTERED = "paired_clustered/3"
METHOD_BETS = "paired_cluster_bets/1"  # of a loss within the margin; of one beyond it METHOD_CLUSTERED
METHOD_BOUNDED = "paired_t_and_gaffke/1"  # of scores that are not right or wrong
MIN_CLUSTERS = 20  # fewer say too little about the spread between clusters
TRUSTED_CLUSTERS = 60  # clusters with flips that suffice to estimate the clustering; below, it is trusted step by step:
# an abrupt change of the effective size by one more flip would move a bound by up to 0.9 margins (row `monotone`)
EXACT_MAX_N = 20_000  # a p-value takes about 0.1 s there; above, the score test with continuity correction


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedResult:
    """Variant − baseline for n pairs, against a loss of `margin`."""

    n: int
    lost: int
    gained: int
    difference: float  # (gained − lost) / n, −1..1
    lower: float  # one-sided bounds of the difference, confidence 1 − alpha each
    upper: float
    p_within: float  # of "the loss is at least the margin": small = the loss is proven smaller
    p_beyond: float  # of "the loss is at most the margin": small = the loss is proven larger
    method: str


def compare_pairs(lost: int, gained: int, n: int, margin: float, alpha: float = 0.05) -> PairedResult:
    """Run both one-sided tests of the loss against `margin`, with bounds that agree with them.

    lost, gained: counts, lost + gained ≤ n; n ≥ 1. margin: 0 < margin < 1. alpha: one-sided, 0 < alpha < 0.5.
    Both p-values cannot be at most alpha. ValueError outside these ranges.
    """
    if n < 1 or lost < 0 or gained < 0 or lost + gained > n:
        raise ValueError(f"{lost} lost and {gained} gained of {n} pairs is not a table")
    if not 0 < margin < 1 or not 0 < alpha < 0.5:
        raise ValueError(f"margin {margin} must be in (0, 1) and alpha {alpha} in (0, 0.5)")
    return _compare_pairs(int(lost), int(gained), int(n), float(margin), float(alpha))


def _compare_pairs(lost: int, gained: int, n: int, margin: float, alpha: float) -> PairedResult:
    """Test a checked table of independent pairs on both sides of the margin."""
    within = _excluded(lost, gained, n, margin, alpha)
    beyond = _excluded(gained, lost, n, -margin, alpha)  # at most the margin lost is at least −margin gained
    return PairedResult(
        n=n,
        lost=lost,
        gained=gained,
        difference=(gained - lost) / n,
        lower=-within.most,
        upper=beyond.most,
        p_within=within.p,
        p_beyond=beyond.p,
        method=METHOD_EXACT if n <= EXACT_MAX_N else METHOD_SCORE,
    )


@dataclass(frozen=True, slots=True)
class _Excluded:
    """Result of one side of the test."""

    p: float  # of "the loss is at least `loss`"
    most: float  # upper bound of the loss, confidence 1 − alpha; at most `loss` just when p is at most alpha


@lru_cache(maxsize=8192)
def _excluded(lost: int, gained: int, n: int, margin: float, alpha: float, plainly: bool = False) -> _Excluded:
    """Test "the loss is at least `margin`", and bound the loss from above by the same test.

    plainly: see `proof`. The bound is exact up to `EXACT_MAX_N` pairs, else of the score test; it always agrees with
    the p-value about the margin.
    """
    p = proof(lost, gained, n, margin, plainly=plainly)
    upper_bound = _score_bound(lost, gained, n, alpha)
    if n <= EXACT_MAX_N and lost < n:
        step = -max(sqrt(null_variance(lost, gained, n, min(max(upper_bound, -0.999), 0.999))), 1.0) / n
        upper_bound = _crossing(
            lambda loss: proof(lost, gained, n, loss, margin, plainly=plainly), upper_bound, alpha, step, tolerance=0.05
        )
    # The search stops within a twentieth of a standard error: keep its answer on the p-value's side.
    return _Excluded(p, min(upper_bound, margin) if p <= alpha else max(upper_bound, nextafter(margin, 2)))


def proof(lost: int, gained: int, n: int, loss: float, margin: float | None = None, *, plainly: bool = False) -> float:
    """P-value of "the loss is at least `loss`", −1..1; with the arms swapped and −loss, of "at most".

    margin: the loss for which tables are chosen, by default `loss`. plainly: order tables by evidence alone, in a tenth
    of the time.
    """
    if n > EXACT_MAX_N:
        return float(ndtr(-score(lost + 0.5, gained, n, loss)))  # Tango's, with half a pair of continuity correction
    first = chosen_region(n, loss if margin is None else margin) if n <= ESTIMATED_MAX_N and not plainly else None
    return Region.around(lost, gained, n, loss, first).largest_chance(loss)


def _crossing(chance: Callable[[float], float], start: float, alpha: float, step: float, tolerance: float) -> float:
    """The loss at which `chance` crosses alpha, to `tolerance` standard errors; about linear on the normal scale.

    step: the standard error, negative when the p-value falls as the loss grows. Newton steps until both sides are
    known, then regula falsi (Illinois); the last point is corrected by its own step.
    """
    aim = float(ndtri(alpha))
    low, f_low, high, f_high = -1.0, inf, 1.0, inf
    loss = min(max(start, -0.999), 0.999)
    for _ in range(25):
        f = float(ndtri(min(max(chance(loss), 1e-12), 1 - 1e-12))) - aim
        if (f > 0) == (step > 0):
            high, f_high, f_low = loss, f, f_low / 2
        else:
            low, f_low, f_high = loss, f, f_high / 2
        newton = loss - f * step
        if abs(f) < tolerance:
            return min(max(newton, low), high)
        if high - low < 1e-5:
            break
        if isfinite(f_low) and isfinite(f_high):
            loss = low - f_low * (high - low) / (f_high - f_low)
        else:
            loss = min(max(newton, (low + loss) / 2), (high + loss) / 2)
    return loss


def _score_bound(lost: int, gained: int, n: int, alpha: float) -> float:
    """The largest loss that Tango's test with continuity correction does not exclude."""
    if lost == n:
        return 1.0
    start = (lost - gained) / n
    step = -max(sqrt(null_variance(lost, gained, n, start * 0.999)), 1.0) / n
    return _crossing(lambda loss: float(ndtr(-score(lost + 0.5, gained, n, loss))), start, alpha, step, 1e-3)


def compare_clustered_pairs(
    baseline: ArrayLike,
    variant: ArrayLike,
    clusters: ArrayLike,
    margin: float,
    alpha: float = 0.05,
    *,
    margin_known: bool = True,
) -> PairedResult:
    """Run the tests of `compare_pairs` for pairs that depend on each other within clusters; outcomes in 0..1.

    For binary outcomes, few clusters and a wide margin, exact bets on their sums prove "within" (`cluster_bets`);
    sizes, margin and alpha decide when. margin_known: the margin was fixed before the data, so it may take part in that
    choice.

    Otherwise the weaker of two tests on each side. For scores between 0 and 1: the cluster-robust t of the mean
    difference, and Gaffke's bound, which holds for few or skewed scores (see `bounded_mean`). For binary outcomes: the
    t with an allowance for undrawn clusters that fail as a whole (`clustered_mean`), and the exact test at the
    effective sample size (right if few or none flip; Korn and Graubard, Survey Methodology 24, 1998). Flips in fewer
    than `MIN_CLUSTERS` clusters cannot estimate the clustering: the effective size is then the number of clusters, less
    if their sizes are unequal. Callers refuse fewer than `MIN_CLUSTERS` clusters.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    difference, n = other - base, len(base)
    lost, gained = int(np.count_nonzero(difference < 0)), int(np.count_nonzero(difference > 0))
    mean = clustered_ratio(difference, np.ones(n), clusters, -margin, alpha)
    lower, upper, p_within, p_beyond = mean.lower, mean.upper, mean.p_above, mean.p_below
    if np.isin(difference, (-1.0, 0.0, 1.0)).all():
        _, members = np.unique(np.asarray(clusters), return_inverse=True)
        sizes = np.bincount(members)
        within, beyond = _at_effective_size(difference, members, mean, float(margin), float(alpha))
        unseen = clustered_mean(difference, members, -margin, alpha)
        upper, p_beyond = max(unseen.upper, beyond.most), max(unseen.p_below, beyond.p)
        if margin_known and bets_serve(sizes, margin, alpha):
            p_within, loss_bound = proof_by_bets(np.bincount(members, -difference), sizes, margin, alpha)
            lower, method = -loss_bound, METHOD_BETS
        else:
            lower, p_within = min(unseen.lower, -within.most), max(unseen.p_above, within.p)
            method = METHOD_CLUSTERED
    else:
        bounded = bounded_mean(difference, clusters, -margin, alpha)
        lower, upper = min(lower, bounded.lower), max(upper, bounded.upper)
        p_within, p_beyond = max(p_within, bounded.p_above), max(p_beyond, bounded.p_below)
        method = METHOD_BOUNDED
    return PairedResult(
        n=n,
        lost=lost,
        gained=gained,
        difference=mean.estimate,
        lower=lower,
        upper=upper,
        p_within=p_within,
        p_beyond=p_beyond,
        method=method,
    )


def _at_effective_size(
    difference: NDArray, members: NDArray, mean: Bounds, margin: float, alpha: float
) -> tuple[_Excluded, _Excluded]:
    """The exact tests of "within" and of "beyond" at the effective number of pairs.

    Flips in fewer than `MIN_CLUSTERS` clusters cannot estimate the clustering, which is then assumed at its worst;
    flips in `TRUSTED_CLUSTERS` can. In between both tests are joined on the normal scale, never below the second.
    """
    flipped = len(np.unique(members[difference != 0]))
    trust = min(max((flipped - MIN_CLUSTERS + 1) / (TRUSTED_CLUSTERS - MIN_CLUSTERS + 1), 0.0), 1.0)
    unclustered = len(difference) / independent_trials(np.ones(len(difference)), members, alpha)
    effects = [unclustered] * (trust < 1) + [_design_effect(difference, mean, alpha, unclustered)] * (trust > 0)
    tests = [_both_sides(difference, max(int(len(difference) / effect), 1), margin, alpha) for effect in effects]
    if len(tests) == 1 or tests[0] == tests[1]:
        return tests[0]
    (worst, better), (best, surer) = zip(*tests, strict=True)
    return _joined(worst, better, trust, margin, alpha), _joined(best, surer, trust, -margin, alpha)


def _both_sides(difference: NDArray, size: int, margin: float, alpha: float) -> tuple[_Excluded, _Excluded]:
    """Test both sides with counts scaled to `size` pairs, rounded against each; `plainly`, as the size is
    approximate."""
    lost, gained = (np.count_nonzero(flip) * size / len(difference) for flip in (difference < 0, difference > 0))
    worst = min(ceil(lost), size - int(gained)), int(gained)
    best = int(lost), min(ceil(gained), size - int(lost))
    return (
        _excluded(*worst, size, margin, alpha, plainly=True),
        _excluded(*reversed(best), size, -margin, alpha, plainly=True),
    )


def _joined(first: _Excluded, second: _Excluded, trust: float, margin: float, alpha: float) -> _Excluded:
    """Interpolate two tests of one side, `trust` of the way from the first to the second; never below the second's
    p."""
    z = [float(ndtri(min(max(test.p, 1e-12), 1 - 1e-12))) for test in (first, second)]
    p = max(float(ndtr(z[0] + trust * (z[1] - z[0]))), second.p)
    upper_bound = max(first.most + trust * (second.most - first.most), second.most)
    return _Excluded(p, min(upper_bound, margin) if p <= alpha else max(upper_bound, nextafter(margin, 2)))


def _design_effect(difference: NDArray, mean: Bounds, alpha: float, most: float) -> float:
    """Design effect from the flips: pairs per independent pair, from 1 to `most`."""
    n = len(difference)
    independent = clustered_ratio(difference, np.ones(n), np.arange(n), 0.0, alpha)
    width, plain = mean.upper - mean.lower, independent.upper - independent.lower
    # Pairs that all flip alike show no spread to compare: the effective size stays the number of clusters.
    return min(max((width / plain) ** 2, 1.0), most) if plain > 0 else most
