"""Is the loss between two paired binary outcomes within a margin, beyond it, or can n pairs not tell?

The n pairs fall into three kinds: lost (baseline right, variant wrong), gained (the reverse) and unchanged, a trinomial
with loss = P(lost) − P(gained) and one nuisance parameter, the discordance P(lost) + P(gained).

**Exact unconditional test.** Tables are ordered by the score statistic (Tango, Statistics in Medicine 17, 1998: the
difference from the margin over its standard error at the restricted maximum likelihood). The p-value of a table is the
largest probability, over every discordance, of a table at least as extreme. A region closed under "one lost fewer" and
"one gained more" is likelier the smaller the loss, so its probability over a composite hypothesis peaks at the margin.

**Bounds** invert the test (Chan and Zhang, Biometrics 55, 1999): the losses that it does not exclude, found to a
twentieth of a standard error and kept on the p-value's side of the margin. They are never of zero width.

**How the maximum is found.** The probability is a polynomial of degree n in the discordance. Its derivative is a sum
over the region's edge alone; taken at Chebyshev nodes and integrated term by term it gives the polynomial itself. Its
maximum over a grid 16 times as fine bounds the true one within 1/cos(π/32), 0.5 % of the p-value, which is added
(Ehlich and Zeller, Math. Zeitschrift 86, 1964). Above n = 35 the series stops at degree 6√n; what is left out is of the
order of exp(−18), because a probability cannot change over less than 1/√n of the arcsine scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, inf, isfinite, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, gammaln, ndtr, ndtri

from qualgate.stats.intervals import clustered_ratio

METHOD_EXACT = "paired_exact_unconditional/1"
METHOD_SCORE = "paired_score_tango/1"
METHOD_CLUSTERED = "paired_clustered/1"
MIN_CLUSTERS = 20  # fewer say too little about the spread between clusters
EXACT_MAX_N = 20_000  # a p-value takes about 0.1 s there; above, the score test with continuity correction

_TIE = 1e-9  # statistics closer than this are equal: the same fraction reached in another order of operations
_OVERSAMPLING = 16
_SMALLEST_P = 1e-9  # below it rounding and truncation of the series would show


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
    """Both one-sided tests of the loss against `margin`, and the bounds that agree with them.

    lost, gained: counts, lost + gained ≤ n; n ≥ 1. margin: 0 < margin < 1. alpha: one-sided, 0 < alpha < 0.5.
    Both p-values cannot be at most alpha. ValueError outside these ranges.
    """
    if n < 1 or lost < 0 or gained < 0 or lost + gained > n:
        raise ValueError(f"{lost} lost and {gained} gained of {n} pairs is not a table")
    if not 0 < margin < 1 or not 0 < alpha < 0.5:
        raise ValueError(f"margin {margin} must be in (0, 1) and alpha {alpha} in (0, 0.5)")
    return _compare_pairs(int(lost), int(gained), int(n), float(margin), float(alpha))


@lru_cache(maxsize=4096)
def _compare_pairs(lost: int, gained: int, n: int, margin: float, alpha: float) -> PairedResult:
    if n > EXACT_MAX_N:
        return _score_test(lost, gained, n, margin, alpha)
    p_within, p_beyond = _p_within(lost, gained, n, margin), _p_beyond(lost, gained, n, margin)
    most, least = _score_bounds(lost, gained, n, alpha)
    step = max(sqrt(_null_variance(lost, gained, n, margin)), 1.0) / n
    if lost < n:
        most = _crossing(lambda loss: _p_within(lost, gained, n, loss), most, alpha, -step, tolerance=0.05)
    if gained < n:
        least = _crossing(lambda loss: _p_beyond(lost, gained, n, loss), least, alpha, step, tolerance=0.05)
    # The search stops within a twentieth of a standard error: keep its answer on the p-value's side.
    most = min(most, margin) if p_within <= alpha else max(most, margin)
    least = max(least, margin) if p_beyond <= alpha else min(least, margin)
    return _result(lost, gained, n, most, least, p_within, p_beyond, METHOD_EXACT)


def _result(lost, gained, n, most, least, p_within, p_beyond, method) -> PairedResult:
    return PairedResult(
        n=n,
        lost=lost,
        gained=gained,
        difference=(gained - lost) / n,
        lower=-most,
        upper=-least,
        p_within=p_within,
        p_beyond=p_beyond,
        method=method,
    )


def _p_within(lost: int, gained: int, n: int, loss: float) -> float:
    """P-value of "the loss is at least `loss`"."""
    threshold = float(score(lost, gained, n, loss)) - _TIE
    return Region.at_least(n, loss, threshold).largest_chance(loss)


def _p_beyond(lost: int, gained: int, n: int, loss: float) -> float:
    """P-value of "the loss is at most `loss`": the complement is every table that scores better."""
    threshold = float(score(lost, gained, n, loss)) + _TIE
    return Region.at_least(n, loss, threshold).largest_chance_outside(loss)


def score(lost: NDArray | float, gained: NDArray | float, n: int, margin: float) -> NDArray:
    """Tango's statistic of "loss = margin", in (−1, 1): standard normal for large n, large when less was lost."""
    lost, gained = np.asarray(lost, float), np.asarray(gained, float)
    spread = np.sqrt(_null_variance(lost, gained, n, margin))
    excess = gained - lost + n * margin
    return np.where(spread > 1e-12, excess / np.maximum(spread, 1e-12), np.sign(excess) * 1e6)


def _null_variance(lost, gained, n: int, margin: float):
    """Variance of gained − lost under loss = margin, at the maximum likelihood estimate of P(gained) given that."""
    b = lost * (1 + margin) + gained * (1 - margin) - 2 * n * margin
    p_gained = (b + np.sqrt(np.maximum(b * b + 8 * n * gained * margin * (1 - margin), 0))) / (4 * n)
    return n * np.maximum(2 * np.maximum(p_gained, max(0.0, -margin)) + margin - margin * margin, 0)


@dataclass(frozen=True, slots=True)
class Region:
    """The tables (l lost, g gained) with g ≥ edge[l], edge never falling: closed under fewer lost and more gained."""

    n: int
    edge: NDArray  # int [n + 1]; n − l + 1 or more when no table with l lost belongs
    lost: NDArray  # tables of n − 1 pairs that one more pair carries over the edge: gained into, or lost out of
    gained: NDArray
    weight: NDArray  # +½ in by a gain, −½ out by a loss
    log_ways: NDArray  # log of n times the trinomial coefficient of each

    @classmethod
    def at_least(cls, n: int, margin: float, threshold: float) -> Region:
        """Every table whose score against `margin` is at least `threshold`."""
        lost = np.arange(n + 1)
        # The edge by bisection, for the score rises with gained. Its variance is at most n, so it lies near a line.
        line, reach = lost - n * margin, min(abs(threshold) * sqrt(n), 2 * n) + 2
        low, high = (np.clip(line + side, 0, n - lost + 1).astype(int) for side in (-reach, reach))
        while np.any(low < high):
            middle = (low + high) // 2
            inside = (score(lost, np.minimum(middle, n - lost), n, margin) >= threshold) & (middle <= n - lost)
            high = np.where(inside, middle, high)
            low = np.where(inside, low, np.minimum(middle + 1, high))
        return cls.from_edge(n, np.maximum.accumulate(low))

    @classmethod
    def from_edge(cls, n: int, edge: NDArray) -> Region:
        lost = np.arange(n)
        room = n - 1 - lost  # most gains a table of n − 1 pairs can hold beside `lost`
        into = (edge[:-1] >= 1) & (edge[:-1] - 1 <= room)
        out = np.maximum(np.minimum(edge[1:], room + 1) - edge[:-1], 0)  # gains at which one more loss leaves
        first = np.cumsum(out) - out
        l = np.concatenate([lost[into], np.repeat(lost, out)])  # noqa: E741
        g = np.concatenate([edge[:-1][into] - 1, np.arange(out.sum()) + np.repeat(edge[:-1] - first, out)])
        weight = np.concatenate([np.full(into.sum(), 0.5), np.full(out.sum(), -0.5)])
        order = np.argsort(l + g, kind="stable")
        l, g, weight = l[order], g[order], weight[order]  # noqa: E741
        log_factorial = _log_factorials(n)
        ways = log_factorial[n] - log_factorial[l] - log_factorial[g] - log_factorial[n - 1 - l - g]
        return cls(n, edge, l, g, weight, ways)

    def chance(self, loss: float, discordance: float) -> float:
        """P(table in region), summed table row by table row. 0 ≤ |loss| ≤ discordance ≤ 1."""
        p_lost, p_gained = (discordance + loss) / 2, (discordance - loss) / 2
        lost = np.arange(self.n + 1)
        pmf = bdtr(lost, self.n, p_lost) - np.concatenate([[0.0], bdtr(lost[:-1], self.n, p_lost)])
        rest = self.n - lost
        needed = self.edge
        given = p_gained / (1 - p_lost) if p_lost < 1 else 0.0
        tail = bdtrc(np.clip(needed - 1, 0, rest).astype(float), rest, min(given, 1.0))
        return float(np.sum(pmf * np.where(needed <= 0, 1.0, np.where(needed > rest, 0.0, tail))))

    def largest_chance(self, loss: float) -> float:
        """Supremum of P(table in region | loss) over the discordance, from above."""
        return _from_above(self._chances(loss).max())

    def largest_chance_outside(self, loss: float) -> float:
        """Supremum of P(table outside region | loss) over the discordance, from above."""
        return _from_above(1.0 - self._chances(loss).min())

    def _chances(self, loss: float) -> NDArray:
        """P(table in region) over discordances |loss| + (1 − |loss|) sin²θ, θ evenly spaced over 0..π/2."""
        n, floor = self.n, abs(loss)
        sine2, slope, terms = _nodes(n)
        discordance = floor + (1 - floor) * sine2
        derivative = self._derivative(loss, discordance) * (1 - floor) * slope  # of P by θ: Σ b_k sin 2kθ
        odd = np.concatenate([[0.0], derivative, [0.0], -derivative[::-1]])
        b = -np.fft.rfft(odd).imag[1:terms] / terms
        a = -b / (2 * np.arange(1, terms))  # P = a₀ + Σ a_k cos 2kθ
        if loss >= 0:  # θ = 0: nothing can be gained
            start = float(bdtr(np.count_nonzero(self.edge <= 0) - 1.0, n, floor)) if self.edge[0] <= 0 else 0.0
        else:  # nothing can be lost
            start = float(bdtrc(self.edge[0] - 1.0, n, floor)) if self.edge[0] > 0 else 1.0
        points = 2 * _OVERSAMPLING * terms
        spectrum = np.concatenate([[start - a.sum()], a / 2]) * points
        return np.clip(np.fft.irfft(spectrum, points)[: points // 2 + 1], 0.0, 1.0)

    def _derivative(self, loss: float, discordance: NDArray) -> NDArray:
        """dP/d(discordance): n × the trinomial mass of n − 1 pairs on the edge, with its signs.

        Edge tables are sorted by their number of flips: a block of nodes needs those within 8 standard deviations.
        """
        n = self.n
        logs = np.log(np.stack([(discordance + loss) / 2, (discordance - loss) / 2, 1 - discordance]))
        flips = self.lost + self.gained
        counts = np.stack([self.lost, self.gained, n - 1 - flips, np.ones_like(flips)]).astype(float)
        counts[3] = self.log_ways
        mean, reach = n * discordance, 8 * np.sqrt(n * discordance * (1 - discordance)) + 8
        result = np.empty(len(discordance))
        for start in range(0, len(discordance), 16):
            block = slice(start, start + 16)
            low, high = np.searchsorted(flips, [(mean - reach)[block].min(), (mean + reach)[block].max()])
            exponent = counts[:3, low:high].T @ logs[:, block] + counts[3, low:high, None]
            result[block] = self.weight[low:high] @ np.exp(exponent)
        return result


def _from_above(chance: float) -> float:
    return min(1.0, max(float(chance) / cos(pi / 2 / _OVERSAMPLING), _SMALLEST_P))


@lru_cache(maxsize=64)
def _log_factorials(n: int) -> NDArray:
    return gammaln(np.arange(n + 1) + 1.0)


@lru_cache(maxsize=64)
def _nodes(n: int) -> tuple[NDArray, NDArray, int]:
    """sin²θ and its derivative at the inner Chebyshev nodes, and the number of terms of the series."""
    terms = min(n, ceil(6 * sqrt(n))) + 1
    theta = np.arange(1, terms) * pi / (2 * terms)
    return np.sin(theta) ** 2, np.sin(2 * theta), terms


def _crossing(p_value: Callable[[float], float], start: float, alpha: float, step: float, tolerance: float) -> float:
    """The loss at which `p_value` passes alpha, to `tolerance` standard errors; about linear on the normal scale.

    step: the standard error, negative when the p-value falls as the loss grows. Newton steps until both sides are
    known, then regula falsi (Illinois); the last point is corrected by its own step.
    """
    aim = float(ndtri(alpha))
    low, f_low, high, f_high = -1.0, inf, 1.0, inf
    loss = min(max(start, -0.999), 0.999)
    for _ in range(25):
        f = float(ndtri(min(max(p_value(loss), 1e-12), 1 - 1e-12))) - aim
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


def _score_bounds(lost: int, gained: int, n: int, alpha: float) -> tuple[float, float]:
    """Largest and smallest loss that Tango's test with continuity correction does not exclude."""
    step = max(sqrt(_null_variance(lost, gained, n, (lost - gained) / n * 0.999)), 1.0) / n
    most = _crossing(lambda loss: _score_p_within(lost, gained, n, loss), (lost - gained) / n, alpha, -step, 1e-3)
    least = _crossing(lambda loss: _score_p_beyond(lost, gained, n, loss), (lost - gained) / n, alpha, step, 1e-3)
    return (1.0 if lost == n else most), (-1.0 if gained == n else least)


def _score_p_within(lost: int, gained: int, n: int, loss: float) -> float:
    return float(ndtr(-score(lost + 0.5, gained, n, loss)))


def _score_p_beyond(lost: int, gained: int, n: int, loss: float) -> float:
    return float(ndtr(score(lost, gained + 0.5, n, loss)))


def _score_test(lost: int, gained: int, n: int, margin: float, alpha: float) -> PairedResult:
    """Tango's test with half a pair of continuity correction against the claim, for n beyond the exact test."""
    most, least = _score_bounds(lost, gained, n, alpha)
    p_within, p_beyond = _score_p_within(lost, gained, n, margin), _score_p_beyond(lost, gained, n, margin)
    return _result(lost, gained, n, most, least, p_within, p_beyond, METHOD_SCORE)


def compare_clustered_pairs(
    baseline: ArrayLike, variant: ArrayLike, clusters: ArrayLike, margin: float, alpha: float = 0.05
) -> PairedResult:
    """The tests of `compare_pairs` when pairs of one cluster depend on each other; outcomes in 0..1.

    The weaker of two answers on each side: the cluster-robust t of the mean difference (right when many clusters
    flip), and for binary outcomes the exact test at the effective sample size (right when few or none flip; Korn and
    Graubard, Survey Methodology 24, 1998). Flips in fewer than `MIN_CLUSTERS` clusters tell too little about the
    clustering: the effective size is then the number of clusters. Callers refuse fewer clusters than that altogether.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    difference, n = other - base, len(base)
    lost, gained = int(np.count_nonzero(difference < 0)), int(np.count_nonzero(difference > 0))
    mean = clustered_ratio(difference, np.ones(n), clusters, -margin, alpha)
    lower, upper, p_within, p_beyond = mean.lower, mean.upper, mean.p_above, mean.p_below
    if np.isin(difference, (-1.0, 0.0, 1.0)).all():
        independent = clustered_ratio(difference, np.ones(n), np.arange(n), -margin, alpha)
        width, plain = mean.upper - mean.lower, independent.upper - independent.lower
        design_effect = n / mean.clusters
        if len(np.unique(np.asarray(clusters)[difference != 0])) >= MIN_CLUSTERS:
            design_effect = min(max((width / plain) ** 2, 1.0), design_effect)
        size = max(int(n / design_effect), 1)
        share = size / n
        worst = compare_pairs(
            min(ceil(lost * share), size - int(gained * share)), int(gained * share), size, margin, alpha
        )
        best = compare_pairs(
            int(lost * share), min(ceil(gained * share), size - int(lost * share)), size, margin, alpha
        )
        lower, upper = min(lower, worst.lower), max(upper, best.upper)
        p_within, p_beyond = max(p_within, worst.p_within), max(p_beyond, best.p_beyond)
    return PairedResult(
        n=n,
        lost=lost,
        gained=gained,
        difference=mean.estimate,
        lower=lower,
        upper=upper,
        p_within=p_within,
        p_beyond=p_beyond,
        method=METHOD_CLUSTERED,
    )
