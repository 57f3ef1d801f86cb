"""Rules on the length of answers or thoughts: Σ tokens of the variant's / Σ tokens of the baseline's.

`variant`, `lower` and `upper` are the ratio and its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.result import Measured, bounded, few_cases, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records import UNCOUNTED, UnitEvidence
from qualgate.records.metrics import THOUGHT
from qualgate.stats.intervals import Bounds, nonnegative_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.text.numbers import counted

LENGTHS = ("drift.length_ratio", THOUGHT)
METHODS = {"drift.length_ratio": "length_ratio_clustered_t/4", THOUGHT: "thought_ratio_clustered_t/1"}


def measure_lengths(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """A rule on the length of answers, or of their thoughts in cases that have `reasoning`."""
    metric, obstacle = slice_.rule.metric, ""
    pairs = having(metric, pairs)
    n, clusters, what = len(pairs), clusters_of(pairs), "thoughts" if metric == THOUGHT else "answers"
    if not pairs:
        return unmeasured(slice_, 0, "no thought was counted: no case has `reasoning`, or the run is older than that")
    before, after = ([tokens(metric, getattr(pair, arm)) for pair in pairs] for arm in ("baseline", "variant"))
    if None in before or None in after:
        return unmeasured(slice_, n, f"the tokens of some {what} were not counted")
    if not any(before):
        return unmeasured(slice_, n, f"the baseline's {what} have no token")
    if (count := len(np.unique(clusters))) < MIN_CLUSTERS:
        return unmeasured(slice_, n, few_cases(count))
    longest_ratio = longest(metric, pairs)
    if longest_ratio is None:
        unknown = sum(pair.max_new_tokens is None for pair in pairs)
        obstacle = (
            f"{slice_.head}: how long an answer may become (`max_new_tokens`) is not known for {unknown} of "
            f"{counted(n, 'case')}, so one that never ends could have been missed: judge a run, or keep the "
            "evalset where the gate file names it"
        )
    token_counts = np.array([before, after], float)
    bounds = length_bounds(token_counts[1], token_counts[0], clusters, slice_.rule.max or 0.0, alpha, longest_ratio)
    return bounded(slice_, n, bounds, variant=bounds.estimate, method=METHODS[metric], obstacle=obstacle)


def having(metric: str, pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The pairs that the metric covers: all, or for thoughts those whose case has `reasoning`."""
    if metric != THOUGHT:
        return pairs
    return [pair for pair in pairs if (pair.baseline.thought, pair.variant.thought) != (None, None)]


def tokens(metric: str, unit: UnitEvidence) -> int | None:
    """Tokens of an answer, or of its thought; None if they were not counted."""
    if metric != THOUGHT:
        return unit.tokens
    return None if unit.thought == UNCOUNTED else unit.thought


def longest(metric: str, pairs: Sequence[Pair]) -> float | None:
    """How long an answer (or thought) may become, as a multiple of the baseline's mean; None if unknown.

    An answer that never ends takes all of its case's `max_new_tokens`, perhaps a hundred times the mean. The largest
    limit counts, since any case might be the one.
    """
    pairs = having(metric, pairs)
    limits = [pair.max_new_tokens for pair in pairs if pair.max_new_tokens is not None]
    baseline_tokens = sum(tokens(metric, pair.baseline) or 0 for pair in pairs)
    if len(limits) < len(pairs) or not baseline_tokens:
        return None
    return max(*limits, *(tokens(metric, pair.variant) or 0 for pair in pairs)) * len(pairs) / baseline_tokens


def length_bounds(
    after: ArrayLike, before: ArrayLike, clusters: ArrayLike, limit: float, alpha: float, longest_ratio: float | None
) -> Bounds:
    """Bound Σ after / Σ before, tokens of the same cases in the same order.

    longest_ratio: `longest`; None gives no upper bound.
    """
    of_limit = (longest_ratio or 0.0) / limit if limit > 0 else 1.0
    bounds = nonnegative_ratio(after, before, clusters, limit, alpha, of_limit=of_limit, of_largest=0.0)
    return bounds if longest_ratio is not None and limit > 0 else replace(bounds, upper=inf, p_below=1.0)
