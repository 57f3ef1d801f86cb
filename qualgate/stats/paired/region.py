"""Regions of paired binary outcomes, and their largest probability over the discordance.

n pairs fall into lost (baseline right, variant wrong), gained (the reverse) and unchanged: a trinomial with
loss = P(lost) − P(gained) and one nuisance parameter, discordance = P(lost) + P(gained).

A region closed under "one lost fewer" and "one gained more" is likelier the smaller the loss at any P(gained), so its
probability over every loss beyond a margin peaks at the margin; what remains is the maximum over the discordance.

**Computing that maximum.** The probability is a polynomial of degree n in the discordance. Its derivative is a sum
over the region's edge alone; taken at Chebyshev nodes and integrated term by term it gives the polynomial itself. Its
maximum over a grid 64 times as fine bounds the true one within 1/cos(π/128), 0.03 % of the p-value, which is added
(Ehlich and Zeller, Math. Zeitschrift 86, 1964). Above n = 35 the series stops at degree 6√n; what is left out is of the
order of exp(−18), because a probability cannot change over less than 1/√n of the arcsine scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, gammaln

_OVERSAMPLING = 16  # points per term of the series, to compare chances
_FINE = 64  # likewise, to prove their maximum
_MOST_BEND = 1.0  # of the correction for skewness, where less than one loss is expected
_TIE = 1e-9  # statistics closer than this are equal: the same fraction reached in another order of operations
_SMALLEST_P = 1e-9  # below it rounding and truncation of the series would show


def score(lost: NDArray | float, gained: NDArray | float, n: int, margin: float) -> NDArray:
    """Tango's statistic of "loss = margin", margin in (−1, 1): standard normal for large n, large when less was
    lost."""
    lost, gained = np.asarray(lost, float), np.asarray(gained, float)
    spread = np.sqrt(null_variance(lost, gained, n, margin))
    excess = gained - lost + n * margin
    return np.where(spread > 1e-12, excess / np.maximum(spread, 1e-12), np.sign(excess) * 1e6)


def null_variance(lost, gained, n: NDArray | float, margin: NDArray | float):
    """Variance of gained − lost under loss = margin, at the maximum likelihood estimate of P(gained) given that."""
    b = lost * (1 + margin) + gained * (1 - margin) - 2 * n * margin
    p_gained = (b + np.sqrt(np.maximum(b * b + 8 * n * gained * margin * (1 - margin), 0))) / (4 * n)
    return n * np.maximum(2 * np.maximum(p_gained, np.maximum(0.0, -margin)) + margin - margin * margin, 0)


def evidence(lost: NDArray | float, gained: NDArray | float, n: NDArray | float, margin: NDArray | float) -> NDArray:
    """The score corrected for skewness, by which tables are ordered: its error is even over the discordances.

    Few flips are skewed (their mean is a loss), so the score alone errs most where almost nothing is gained and is too
    strict elsewhere. The cubic is the second-order correction made monotone (Hall, JRSS B 54, 1992).
    """
    lost, gained = np.asarray(lost, float), np.asarray(gained, float)
    variance = null_variance(lost, gained, n, margin)
    spread = np.sqrt(np.maximum(variance, 1e-12))
    z = np.minimum(np.maximum((gained - lost + n * margin) / spread, -1e3), 1e3)
    # −skewness / (6 √n) of one pair's gain − loss: its third central moment is margin (3 variance + margin² − 1). Of a
    # margin over one half the sign could turn; no correction is made there.
    third = margin * np.maximum(n * (1 - margin * margin) - 3 * variance, 0)
    bend = np.minimum(np.maximum(third / (6 * spread * spread * spread), -_MOST_BEND), _MOST_BEND)
    return z + bend * (z * z - 1) + (bend * bend / 3) * z * z * z


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
        """Every table with evidence of at least `threshold` against a loss of `margin`."""
        return cls.from_edge(n, edges(n, margin, np.array([threshold]))[0])

    @classmethod
    def around(cls, lost: int, gained: int, n: int, loss: float, first: Region | None = None) -> Region:
        """Every table of no less evidence than this one; with `first`, the tables of which come before all others."""
        edge = edges(n, loss, np.array([float(evidence(lost, gained, n, loss)) - _TIE]))[0]
        if first is not None:
            edge = (np.maximum if gained >= first.edge[lost] else np.minimum)(edge, first.edge)
        return cls.from_edge(n, edge)

    @classmethod
    def from_edge(cls, n: int, edge: NDArray) -> Region:
        """edge: int [n + 1], never falling, as in the field."""
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
        # n times the trinomial coefficient of n − 1 pairs
        return cls(n, edge, l, g, weight, log_ways(n, l, g) + np.log(np.maximum(n - l - g, 1)))

    def chance(self, loss: float, discordance: float) -> float:
        """P(table in region), summed table row by table row. 0 ≤ |loss| ≤ discordance ≤ 1."""
        p_lost, p_gained = (discordance + loss) / 2, (discordance - loss) / 2
        lost = np.arange(self.n + 1)
        pmf = bdtr(lost, self.n, p_lost) - np.concatenate([[0.0], bdtr(lost[:-1], self.n, p_lost)])
        remaining = self.n - lost
        needed = self.edge
        p_gained_of_rest = p_gained / (1 - p_lost) if p_lost < 1 else 0.0
        tail = bdtrc(np.clip(needed - 1, 0, remaining).astype(float), remaining, min(p_gained_of_rest, 1.0))
        return float(np.sum(pmf * np.where(needed <= 0, 1.0, np.where(needed > remaining, 0.0, tail))))

    def largest_chance(self, loss: float) -> float:
        """Supremum of P(table in region | loss) over the discordance, from above."""
        return _from_above(self.chances(loss, _FINE).max())

    def chances(self, loss: float, oversampling: int = _OVERSAMPLING) -> NDArray:
        """P(table in region) over discordances |loss| + (1 − |loss|) · `grid`."""
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
        points = 2 * oversampling * terms
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


def edges(n: int, margin: float, thresholds: NDArray) -> NDArray:
    """[thresholds, n + 1] fewest gained at which the evidence beside so many lost reaches each threshold."""
    lost = np.arange(n + 1)
    # By bisection, for the evidence rises with gained. The variance is at most n, so the edge lies near a line.
    line, reach = lost - n * margin, np.minimum((3 * np.abs(thresholds) + 3) * sqrt(n), 2 * n)[:, None] + 2
    low, high = (np.clip(line + side, 0, n - lost + 1).astype(int) for side in (-reach, reach))
    while np.any(low < high):
        middle = (low + high) // 2
        reached = evidence(lost, np.minimum(middle, n - lost), n, margin) >= thresholds[:, None]
        inside = reached & (middle <= n - lost)
        high = np.where(inside, middle, high)
        low = np.where(inside, low, np.minimum(middle + 1, high))
    return np.maximum.accumulate(low, axis=1)


def _from_above(chance: float) -> float:
    return min(1.0, max(float(chance) / cos(pi / 2 / _FINE), _SMALLEST_P))


def log_ways(n: int, lost: NDArray, gained: NDArray) -> NDArray:
    """Log of the number of ways in which n pairs give each table."""
    log_factorial = _log_factorials(n)
    return log_factorial[n] - log_factorial[lost] - log_factorial[gained] - log_factorial[n - lost - gained]


@lru_cache(maxsize=64)
def grid(n: int) -> NDArray:
    """sin²θ at the points where `Region.chances` answers: θ evenly spaced over 0..π/2."""
    return np.sin(np.linspace(0, pi / 2, _OVERSAMPLING * _nodes(n)[2] + 1)) ** 2


@lru_cache(maxsize=64)
def _log_factorials(n: int) -> NDArray:
    return gammaln(np.arange(n + 1) + 1.0)


@lru_cache(maxsize=64)
def _nodes(n: int) -> tuple[NDArray, NDArray, int]:
    """sin²θ and its derivative at the inner Chebyshev nodes, and the number of terms of the series."""
    terms = min(n, ceil(6 * sqrt(n))) + 1
    theta = np.arange(1, terms) * pi / (2 * terms)
    return np.sin(theta) ** 2, np.sin(2 * theta), terms
