"""Test from the beginning of a closed list whether its sum will reach a bar, valid after every unit.

A bet as in `stats.betting`, but on the list itself rather than on its population: if the whole list's sum is the bar,
the unseen units have the mean m = (bar − sum so far) / units left, whatever came before; if it is more, at least that.
So Π (1 + λ (m − x)), with stakes λ ≥ 0 chosen before each unit, exceeds 1/alpha in at most alpha of the orders
(Waudby-Smith and Ramdas, NeurIPS 2020, on sampling without replacement). With λ = (m − q) / (m (1 − m)) and x of 0 or 1
it is the likelihood ratio of a rate q to m; q is the mean seen so far, started at a tenth of the bar's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_EXPECTED = 0.1  # of the bar's mean, before any unit is seen; a wrong value costs units, never validity
_WEIGHT = 2.0  # over the bar's mean: units that it weighs


def p_reached(seen: ArrayLike, bar: float, units: int, *, largest: float = 1.0) -> float:
    """The p-value of "the list's sum is at least the bar": small = it will stay below.

    seen: the first of the list's `units` values, in an order independent of them, each in 0..largest. Exact at the end
    of the list. ValueError: values out of range, more of them than units, or a bar that is not positive.
    """
    x = np.asarray(seen, float) / largest
    if len(x) > units or np.any(x < 0) or np.any(x > 1) or not bar > 0:
        raise ValueError("units seen must be within the list and its range, under a bar over 0")
    before = np.concatenate([[0.0], np.cumsum(x)])
    remaining = units - np.arange(len(x) + 1)
    missing = bar / largest - before
    if missing[-1] <= 1e-9:
        return 1.0
    if np.any(missing > remaining + 1e-9):
        return 0.0  # not if each unit to come were the largest
    m = np.minimum(missing[:-1] / remaining[:-1], 1 - 1e-12)
    start = bar / largest / units
    weight = _WEIGHT / start
    q = np.minimum((_EXPECTED * start * weight + before[:-1]) / (weight + np.arange(len(x))), m)
    growth = np.log1p(np.maximum((m - q) / (m * (1 - m)) * (m - x), -1 + 1e-300))
    return float(np.exp(-max(0.0, np.cumsum(growth).max(initial=0.0))))
