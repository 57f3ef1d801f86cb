"""Order tables of few pairs by their estimated p-values ("E + M").

With some hundred pairs one more table adds a point of error, at a discordance that differs from table to table. Ordered
by the score alone, the discordance of the largest error uses up alpha and all others stay far below. So a table's rank
is its estimated p-value on the normal scale: the chance of at least its evidence at the discordance most likely for it.
The test still uses the largest chance, over every discordance, of a table of at least that rank (Lloyd and Moldovan,
Statistics in Medicine 27, 2008). So the order may come from a grid of discordances, within a band around the evidence,
without any loss of exactness.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from qualgate.stats.paired.region import Region, edges, evidence, grid, log_ways, null_variance

ESTIMATED_MAX_N = 2000  # above, evidence alone orders as well to about a point of power, at a tenth of the time
_TIE = 1e-9  # ranks closer than this are equal: the same sum in another order
_BLOCK = 12  # discordances summed together


@dataclass(frozen=True, slots=True)
class Band:
    """Tables with evidence against `loss` between two values, and their ranks."""

    n: int
    loss: float
    inner: NDArray  # [n + 1] edge of the tables with more evidence
    lost: NDArray
    gained: NDArray
    rank: NDArray

    @classmethod
    def between(cls, n: int, loss: float, low: float, high: float) -> Band:
        """The tables with evidence from `low` to `high` against a loss of `loss`, −1..1."""
        outer, inner = edges(n, loss, np.array([low - _TIE, high + _TIE]))
        return cls._of(n, loss, inner, *_tables(n, outer, inner))

    @classmethod
    def _of(cls, n: int, loss: float, inner: NDArray, lost: NDArray, gained: NDArray) -> Band:
        return cls(n, loss, inner, lost, gained, _ranks(Region.from_edge(n, inner), loss, lost, gained))

    def region(self, rank: float) -> Region:
        """Every table of at least this rank, closed under fewer lost and more gained."""
        edge, chosen = self.inner.copy(), self.rank >= rank - _TIE
        np.minimum.at(edge, self.lost[chosen], self.gained[chosen])
        return Region.from_edge(self.n, np.minimum.accumulate(edge[::-1])[::-1])


@lru_cache(maxsize=1024)
def largest_region(n: int, loss: float, alpha: float) -> Region:
    """All tables from the lowest rank on that keeps alpha."""
    reach, aim = _reach(n), -float(ndtri(alpha))
    low, high, top_rank = aim - 0.1, aim + 0.2, float(evidence(0, n, n, loss)) + reach
    while True:
        band = Band.between(n, loss, low - reach, high + reach)
        over, under = band.region(high).largest_chance(loss), band.region(low).largest_chance(loss)
        if over > alpha:
            if high > top_rank:
                return Region.from_edge(n, np.full(n + 1, n + 1))  # not even the best table keeps alpha
            high += 2 * (high - low)
        elif under <= alpha:
            low -= 2 * (high - low)
        else:
            break
    ranks = np.unique(band.rank[(band.rank >= low) & (band.rank <= high)])
    first, last = 0, len(ranks)  # the lowest rank that keeps alpha is among these; `last`: none but what is above
    middle = int(np.searchsorted(ranks, high + aim + ndtri(max(over, 1e-300))))  # ranks are about calibrated
    while first < last:
        middle = min(max(middle, first), last - 1)
        chance = band.region(float(ranks[middle])).largest_chance(loss)
        rank = ranks[middle] + aim + ndtri(chance)
        first, last = (first, middle) if chance <= alpha else (middle + 1, last)
        middle = int(np.searchsorted(ranks, rank)) if last - first > 8 else (first + last) // 2
    return band.region(float(ranks[last]) if last < len(ranks) else high)


def _reach(n: int) -> float:
    """Largest distance of a rank from the evidence, in standard errors: larger for fewer pairs."""
    return min(1.0, 6 / sqrt(n), 60 / n)


def _rank(chance: NDArray, strength: NDArray, n: int) -> NDArray:
    normal = -ndtri(np.minimum(np.maximum(chance, 0.0), 1.0))
    return np.minimum(np.maximum(normal, strength - _reach(n)), strength + _reach(n))


def _tables(n: int, outer: NDArray, inner: NDArray) -> tuple[NDArray, NDArray]:
    """(lost, gained) of every table between two edges."""
    count = np.maximum(np.minimum(inner, n + 1 - np.arange(n + 1)) - outer, 0)
    lost = np.repeat(np.arange(n + 1), count)
    return lost, np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - outer, count)


@lru_cache(maxsize=256)
def _estimates(n: int, loss: float) -> tuple[NDArray, int]:
    """(discordances at which chances are estimated, inside |loss|..1; their stride in the region's grid)."""
    points = grid(n)
    stride = max(1, len(points) // 96)
    return abs(loss) + (1 - abs(loss)) * points[stride:-1:stride], stride


def _nearest(lost, gained, n: int, loss: float) -> NDArray:
    """Index among the estimates of the discordance most likely for a table."""
    discordance, stride = _estimates(n, loss)
    likely = null_variance(lost, gained, n, loss) / n + loss * loss
    share = np.clip((likely - abs(loss)) / (1 - abs(loss)), 0.0, 1.0)
    position = np.arcsin(np.sqrt(share)) / (np.pi / 2) * (len(grid(n)) - 1) / stride
    return np.clip(np.rint(position).astype(int) - 1, 0, len(discordance) - 1)


def _ranks(inner: Region, loss: float, lost: NDArray, gained: NDArray) -> NDArray:
    """Ranks of these tables; `inner` contains every table with more evidence than any of them.

    Chances are summed along the evidence; a block of discordances uses the tables within 6.5 standard deviations of the
    expected flips.
    """
    n, strength = inner.n, evidence(lost, gained, inner.n, loss)
    discordance, stride = _estimates(n, loss)
    nearest, inner_chances = _nearest(lost, gained, n, loss), inner.chances(loss)[stride:-1:stride]
    order = np.argsort(-strength, kind="stable")
    l, g, node = lost[order], gained[order], nearest[order]  # noqa: E741
    last = np.searchsorted(-strength[order], -strength[order] + _TIE, side="right")  # equal evidence counts together
    flips = l + g
    counts = np.stack([l, g, n - flips, log_ways(n, l, g)]).astype(float)
    logs = np.log(np.stack([(discordance + loss) / 2, (discordance - loss) / 2, 1 - discordance]))
    spread = 6.5 * np.sqrt(n * discordance * (1 - discordance)) + 8
    chance = np.zeros(len(l))
    for start in range(0, len(discordance), _BLOCK):
        block = slice(start, start + _BLOCK)
        in_block = (node >= start) & (node < start + _BLOCK)
        if not in_block.any():
            continue
        low, high = (n * discordance - spread)[block].min(), (n * discordance + spread)[block].max()
        near = np.flatnonzero((flips >= low) & (flips <= high))
        total = np.cumsum(np.exp(logs[:, block].T @ counts[:3, near] + counts[3, near]), axis=1)
        chance[in_block] = (
            inner_chances[node[in_block]] + total[node[in_block] - start, np.searchsorted(near, last[in_block]) - 1]
        )
    result = np.empty(len(l))
    result[order] = _rank(chance, strength[order], n)
    return result
