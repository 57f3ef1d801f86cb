"""Rules on times: the variant's over the baseline's, by their sums or by one percentile of each."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.comparisons.result import Measured, bounded, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records.metrics import BETWEEN_TOKENS
from qualgate.stats.latency import METHOD_SUMS, cases_needed, latency_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.percentiles import METHOD as METHOD_PERCENTILES
from qualgate.stats.percentiles import groups_needed
from qualgate.text.numbers import counted


def measure_latency(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """`baseline` and `variant` are seconds, `lower` and `upper` bounds of their ratio."""
    rule, n, limit = slice_.rule, len(pairs), slice_.rule.max_ratio or 0.0
    untimed = sum(None in _times(rule.metric, pair) and not _excused(rule.metric, pair) for pair in pairs)
    if untimed:
        return unmeasured(slice_, n, f"no time was recorded for {untimed} of {counted(n, 'case')}")
    timed, seconds = timed_pairs(rule.metric, pairs)
    cases = clusters_of(timed)
    count, needed = len(np.unique(cases)), least_groups(rule.percentile, alpha)
    if count < needed:
        return unmeasured(slice_, n, f"{count} independent timed cases are too few ({needed} needed)", needed)
    if seconds[:, 0].sum() <= 0:
        return unmeasured(slice_, n, f"{slice_.base}'s times are all zero")
    together, shared = time_groups_of(timed)
    if shared:
        return unmeasured(slice_, n, shared)
    groups = len(np.unique(together))
    if groups < needed:
        return unmeasured(
            slice_,
            n,
            f"{counted(len(timed), 'timed case')} ran in {counted(groups, 'group')} of batches that share no case, and "
            f"p{rule.percentile:g} needs {needed}: more cases, or smaller batches",
            ceil(needed * len(timed) / groups),
        )
    bounds = latency_ratio(seconds[:, 0], seconds[:, 1], together, rule.percentile, limit, alpha, cases)
    if rule.percentile is not None:
        level, wanted, method = np.percentile(seconds, rule.percentile, axis=0), None, METHOD_PERCENTILES
    else:
        level, wanted, method = seconds.mean(axis=0), cases_needed(limit, bounds.estimate, alpha), METHOD_SUMS
    undecided_for_lack = wanted is not None and count < wanted and min(bounds.p_below, bounds.p_above) > alpha
    return bounded(
        slice_,
        len(timed),
        bounds,
        needed=wanted if undecided_for_lack else None,
        baseline=float(level[0]),
        variant=float(level[1]),
        method=method,
    )


def timed_pairs(metric: str, pairs: Sequence[Pair]) -> tuple[list[Pair], NDArray]:
    """The pairs that have both times, and these: [pairs, (baseline, variant)], seconds."""
    timed = [pair for pair in pairs if None not in _times(metric, pair)]
    return timed, np.array([_times(metric, pair) for pair in timed], float).reshape(-1, 2)


def least_groups(percentile: float | None, alpha: float = 0.05) -> int:
    """Independent groups of cases without which a rule on times, or on a percentile of them, says nothing."""
    return MIN_CLUSTERS if percentile is None else max(MIN_CLUSTERS, groups_needed(percentile, alpha))


def _times(metric: str, pair: Pair) -> tuple[float | None, float | None]:
    return pair.baseline.values.get(metric), pair.variant.values.get(metric)


def _excused(metric: str, pair: Pair) -> bool:
    """An answer of one token has no time between tokens."""
    return metric in BETWEEN_TOKENS and bool({0, 1} & {pair.baseline.tokens, pair.variant.tokens})
