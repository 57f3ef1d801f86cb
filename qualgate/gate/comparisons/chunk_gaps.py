"""Measure how long a reader waits between two deliveries of tokens: with drafts they come in bursts, pass by pass.

Percentiles of single tokens' waits would say nothing: tokens of one pass come at once, so most waits are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from qualgate.gate.comparisons.latency import least_groups, timed_pairs
from qualgate.gate.comparisons.pairs import time_groups_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import Rate
from qualgate.stats.percentiles import percentile_ratio
from qualgate.text.numbers import counted

METRIC, PERCENTILE = "latency.max_gap", 95


def gaps_of(pairs: Sequence[Pair], alpha: float) -> Rate:
    """The percentile of answers' longest waits (seconds), the arm's over its target's."""
    timed, seconds = timed_pairs(METRIC, pairs)
    if not timed:
        return Rate(numerator=0, denominator=0, value=None, reason="no wait between tokens was recorded")
    before, after = (float(level) for level in np.percentile(seconds, PERCENTILE, axis=0))
    if not before > 0:
        return Rate(numerator=after, denominator=before, value=None, reason="the target's tokens come at once")
    together, shared = time_groups_of(timed)
    groups, needed = len(np.unique(together)), least_groups(PERCENTILE, alpha)
    why = shared or (f"{counted(groups, 'group')} of batches, {needed} needed" if groups < needed else "")
    if why:
        return Rate(numerator=after, denominator=before, value=after / before, reason=why)
    bounds = percentile_ratio(seconds[:, 0], seconds[:, 1], together, PERCENTILE, 1.0, alpha)
    lower, upper = (bounds.lower, bounds.upper) if bounds.lower > 0 and bounds.upper < inf else (None, None)
    return Rate(numerator=after, denominator=before, value=after / before, lower=lower, upper=upper)
