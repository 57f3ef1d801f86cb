"""Predict the rates of a rule on a share of cases: parity of answers, stability, goodput by `min`.

The gate's test counts a cluster as one trial, so the chances are binomial.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from qualgate.gate.planning.from_earlier_run.chances import Chances, whole_trials
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun
from qualgate.gate.rules import Slice
from qualgate.stats.paired.compare import MIN_CLUSTERS

ALL_OR_NOTHING = "a single answer that differs breaks it"


def share_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Chances of a rule by `min`. strict: the alpha of a block."""
    limit, metric = slice_.rule.min or 0.0, slice_.rule.metric
    fact = limit == 1 and metric != "goodput"  # decided by what was seen, without a test
    good, note = _expected(slice_, before)

    def chance(sizes: NDArray, share: float, proven: bool) -> float:
        """Return P(proven) or, if not `proven`, P(blocked) where answers agree with chance `share`. sizes: cases by
        cluster.
        """
        if len(sizes) < MIN_CLUSTERS and not fact:
            return 0.0
        n = whole_trials(sizes, alpha)
        hits = np.arange(n + 1)
        if fact:
            decided = (hits == n) == proven
        else:
            decided = _reached(hits, n, limit) <= alpha if proven else bdtr(hits, n, limit) <= strict
        return float(np.diff(bdtr(hits, n, share), prepend=0.0).clip(0) @ decided)

    silent = good is None and bool(before.arms)  # such a run measures no share
    return Chances(
        approve=None if good is None else lambda sizes: chance(sizes, good, True),
        block=None if silent or limit == 1 else lambda sizes: chance(sizes, max(0.0, 2 * limit - 1), False),
        note=f"{note}; {ALL_OR_NOTHING}" if fact else note,
    )


def _expected(slice_: Slice, before: EarlierRun) -> tuple[float | None, str]:
    """Return (share of an identical variant, its source); (None, reason) if it is unknown."""
    if slice_.rule.metric in ("parity.tokens", "parity.scores"):
        return 1.0, "an identical variant says the same"
    own = before.itself(slice_)
    if own is None or own.comparison.variant is None:
        return None, before.silence(slice_, own)
    observed, n = own.comparison.variant, own.comparison.n
    # Half a case is added, so that none missed is not taken for none ever.
    return (observed * n + 0.5) / (n + 1), f"the baseline itself: {observed:.1%} in run {before.run}"


def _reached(hits: NDArray, n: int, share: float) -> NDArray:
    """P(at least so many hits of n)."""
    return np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), n, share), 1.0)
