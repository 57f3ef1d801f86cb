"""The gate's decisions at n pairs, and how likely they are.

The decisions are two sets of tables (lost, gained): those it approves, those it blocks, as `stats.power` finds them;
tables on both sides of the edge are put to `compare_pairs` itself to see that the set is the gate's. Their
probabilities are summed here, not by `stats.region`: table by table of the trinomial to n = 400, above that row by row
of two binomials, still exact, so no draw is needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, gammaln, xlogy

from qualgate.stats.paired.compare import compare_pairs
from qualgate.stats.paired.region import Region
from qualgate.stats.power import rejection_region

ALPHA = 0.05
EXACT_N = 400  # every n from 30 up to it
MARGINS = (0.01, 0.02, 0.03, 0.05, 0.10)
DISAGREEMENTS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15)
Rounds = list[dict[str, Any]]


@lru_cache(maxsize=64)
def approval_region(n: int, loss: float, alpha: float) -> Region:
    """The gate's own tables, in the planner's words, to the last one."""
    return rejection_region(n, loss, alpha, settled=True)


def unblocked_region(n: int, margin: float, alpha: float) -> Region:
    """Every table that is *not* blocked at this alpha. The gate tells the fewest lost beside so many gained that block;
    here it is turned into the fewest gained beside so many lost that do not."""
    blocks = approval_region(n, -margin, alpha).edge  # by gained, which never falls: the arms swapped
    return Region.from_edge(n, np.searchsorted(blocks, np.arange(n + 1), side="right"))


def not_the_gates(n: int, margin: float, generator: np.random.Generator, tables: int = 2) -> int:
    """How many tables at the edges of the two regions `compare_pairs` decides otherwise."""
    wrong = 0
    for region, blocks in ((approval_region(n, margin, ALPHA), False), (unblocked_region(n, margin, ALPHA), True)):
        at_edge = np.flatnonzero((region.edge > 0) & (region.edge <= n - np.arange(n + 1)))
        for lost in generator.choice(at_edge, min(tables, len(at_edge)), replace=False) if len(at_edge) else ():
            for gained, inside in ((region.edge[lost], True), (region.edge[lost] - 1, False)):
                result = compare_pairs(int(lost), int(gained), n, margin, ALPHA)
                decided = result.p_beyond <= ALPHA if blocks else result.p_within <= ALPHA
                wrong += decided != (inside != blocks)
    return wrong


@lru_cache(maxsize=2)
def ways(n: int) -> NDArray:
    """[n + 1, n + 1] log trinomial coefficient of (lost, gained); −inf where they are more than n."""
    lost, gained = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    rest = n - lost - gained
    logs = gammaln(n + 1) - gammaln(lost + 1) - gammaln(gained + 1) - gammaln(np.maximum(rest, 0) + 1)
    return np.where(rest >= 0, logs, -np.inf)


def chances(n: int, loss: float, disagreement: float) -> NDArray:
    """[n + 1, n + 1] probability of each table (lost, gained)."""
    k = np.arange(n + 1)
    rest = np.maximum(n - k[:, None] - k[None, :], 0)
    lost, gained = (disagreement + loss) / 2, (disagreement - loss) / 2
    return np.exp(ways(n) + xlogy(k, lost)[:, None] + xlogy(k, gained)[None, :] + xlogy(rest, 1 - disagreement))


def inside(region: Region, loss: float, disagreement: float) -> float:
    """P(table in region), summed exactly."""
    n = region.n
    if n <= EXACT_N:
        chosen = np.arange(n + 1)[None, :] >= region.edge[:, None]
        return float(chances(n, loss, disagreement)[chosen].sum())
    # Gained first, then lost among the rest: the other order than `Region.chance`.
    lost, gained = (disagreement + loss) / 2, (disagreement - loss) / 2
    k = np.arange(n + 1)
    share = bdtr(k, n, gained) - np.concatenate([[0.0], bdtr(k[:-1], n, gained)])
    upper = bdtrc(np.maximum(k - 1, 0), n, gained)  # by the tail from above, where the sum from below has rounded off
    share = np.where(k > n * gained, upper - np.concatenate([upper[1:], [0.0]]), share)
    most = np.searchsorted(region.edge, k, side="right") - 1.0  # most lost beside so many gained
    given = min(lost / (1 - gained), 1.0) if gained < 1 else 0.0
    below = np.where(most >= n - k, 1.0, bdtr(np.clip(most, 0, n - k), n - k, given))
    return float(np.sum(share * np.where(most < 0, 0.0, below)))
