"""Choose the rejection region at the usual alpha: of a few candidates, the one of least regret.

With some hundred pairs one table is worth points of power, and no single order of tables is near the best test at every
discordance. So up to `GROWN_MAX_N` pairs the region of the usual alpha is chosen before the data, from n and the loss
alone. The candidates are the region of `estimated_p` and some that grow table by table: next comes the table that most
reduces, over a list of discordances, the share of harmless variants (or of those that lose twice the margin) still
missed, per share of the remaining error that it takes. A candidate's regret is its largest deficit of power to the
others over the discordances. None may err more than alpha at any discordance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from qualgate.stats.paired.estimated_p import largest_region
from qualgate.stats.paired.region import Region, grid, log_ways

USUAL_ALPHA = 0.05
GROWN_MAX_N = 400  # above, the region of `estimated_p` is hardly behind the best of other tests
_FEW = 160  # pairs up to which a coarse list of discordances suffices
_COARSE = np.array([1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 17, 20, 25, 30, 50]) / 100
_FINE = np.sort(np.concatenate([_COARSE, np.array([2.5, 3.5, 4.25, 4.5, 5.5, 6.5]) / 100]))
_EXPECTED = 0.2  # few variants disagree more often: above, regret counts half
_ROOM = {True: 0.9985, False: 0.9975}  # of alpha, by "few": a growing region's error is tracked at some points only
_FOLLOWED = 256
_NEGLIGIBLE = 1e-7  # chance of a table that no list of discordances could ever notice


@lru_cache(maxsize=1024)
def chosen_region(n: int, loss: float) -> Region:
    """Tables at which "the loss is at least `loss`" is rejected at `USUAL_ALPHA`; n at most `ESTIMATED_MAX_N`."""
    estimated = largest_region(n, loss, USUAL_ALPHA)
    truth = loss - abs(loss)  # no loss at all, or twice the margin
    few = n <= _FEW
    listed = _COARSE if few else _FINE
    discordance = listed[-truth <= listed]
    # A loss of less than a quarter of a pair is almost none.
    if n > GROWN_MAX_N or n * abs(loss) < 0.25 or not len(discordance):
        return estimated
    core = _Growing.start(n, loss, discordance, USUAL_ALPHA * _ROOM[few])
    expected = discordance <= _EXPECTED
    grown = []
    for weights in [np.isin(discordance, _COARSE)] + [np.ones(len(discordance), bool)] * (not few):
        grown += [core.by(weights * 1.0, np.max), core.by(weights * np.where(expected, 1.0, 0.3), np.sum)]
    sound = [(estimated, np.array([estimated.chance(truth, d) for d in discordance]))]
    sound += [(region, power) for region, power in grown if region.largest_chance(loss) <= USUAL_ALPHA]
    power = np.array([power for _, power in sound])
    regret = (power.max(axis=0) - power) * np.where(expected, 1.0, 0.5)
    return sound[int(np.argmin(regret.max(axis=1)))][0]


@dataclass(frozen=True, slots=True)
class _Growing:
    """A region with a quarter of alpha as its error, and the effect of the next table of each row."""

    n: int
    edge: NDArray  # [n + 1]; the next table of a row has one gained less
    left: NDArray  # [followed] of alpha, at each discordance followed
    missed: NDArray  # [discordances] 1 − power
    takes: NDArray  # [n + 1, followed] chance of the next table where the loss is to be rejected
    gives: NDArray  # [n + 1, discordances] and where it should be
    takes_more: NDArray  # one gained less is so many times as likely, times gained / (unchanged + 1)
    gives_more: NDArray

    @classmethod
    def start(cls, n: int, loss: float, discordance: NDArray, alpha: float) -> _Growing:
        """Begin with a region that takes a quarter of alpha, and the error that it leaves at each discordance followed.

        discordance: values at which the power counts. alpha: allowed chance of the region where the loss is `loss`.
        Begins with the empty region if the first one exceeds alpha anywhere.
        """
        truth, stride = loss - abs(loss), max(1, len(grid(n)) // _FOLLOWED)
        followed = abs(loss) + (1 - abs(loss)) * grid(n)[stride:-1:stride]
        region = Region.at_least(n, loss, -float(ndtri(USUAL_ALPHA / 4)))
        remaining = alpha - region.chances(loss)[stride:-1:stride]
        if remaining.min() <= 0:
            region = Region.from_edge(n, np.full(n + 1, n + 1))
            remaining = np.full(len(followed), alpha)
        lost = np.arange(n + 1)
        edge = np.minimum(region.edge, n + 1 - lost)
        gained = np.maximum(edge - 1, 0)
        counts, ways = np.stack([lost, gained, n - lost - gained], 1), log_ways(n, lost, gained)[:, None]

        def chances(at: float, d: NDArray) -> NDArray:
            with np.errstate(divide="ignore"):
                logs = np.maximum(np.log(np.stack([(d + at) / 2, (d - at) / 2, 1 - d])), -1e4)
            return np.exp(counts @ logs + ways)

        return cls(
            n,
            edge,
            remaining,
            np.maximum([1 - region.chance(truth, d) for d in discordance], 1e-12),
            chances(loss, followed),
            chances(truth, discordance),
            2 * (1 - followed) / (followed - loss),
            2 * (1 - discordance) / (discordance - truth),
        )

    def by(self, weight: NDArray, price: Callable[..., NDArray]) -> tuple[Region, NDArray]:
        """(region grown until no table fits, its power). weight: of the missed share at each discordance. price: maps
        the shares of the remaining error that a table takes, one per tracked discordance, to one number."""
        n, remaining, missed = self.n, self.left, self.missed
        edge, takes, gives = self.edge.copy(), self.takes.copy(), self.gives.copy()
        largest_gain = gives.max(axis=1)
        while True:
            closed = np.concatenate([[True], edge[:-1] < edge[1:]]) & (edge > 0)  # the table with one lost fewer is in
            rows = np.flatnonzero(closed & (largest_gain > _NEGLIGIBLE))
            rows = rows[(takes[rows] <= remaining).all(axis=1)]
            if not len(rows):
                return Region.from_edge(n, np.maximum.accumulate(edge)), 1 - missed
            worth = gives[rows] @ (weight / missed)
            row = int(rows[np.argmax(worth / np.maximum(price(takes[rows] / remaining, axis=1), 1e-300))])
            remaining, missed = remaining - takes[row], np.maximum(missed - gives[row], 1e-12)
            edge[row] -= 1
            ways = edge[row] / (n - row - edge[row] + 1)
            takes[row] *= self.takes_more * ways
            gives[row] *= self.gives_more * ways
            largest_gain[row] = gives[row].max()
