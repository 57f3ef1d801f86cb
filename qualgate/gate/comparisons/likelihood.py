"""Rules on perplexities: the variant's over the baseline's of the same texts, each of which is a case."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

import numpy as np

from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.result import Measured, bounded, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records.metrics import BITS, MOST_NATS
from qualgate.stats.likelihood_ratio import METHOD, LikelihoodRatio, least_texts, ratio_of
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.text.numbers import counted


def measure_likelihood(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """Measure a rule on perplexity. `baseline` and `variant` are as lm-eval computes them over all texts; `lower` and
    `upper` bound their ratio."""
    metric, n, clusters = slice_.rule.metric, len(pairs), clusters_of(pairs)
    limit, count = slice_.rule.max_ratio or 0.0, len(np.unique(clusters))
    sides = [(pair.baseline, pair.variant) for pair in pairs]
    nats = np.array([[unit.values.get(metric) for unit in pair] for pair in sides], float)  # None becomes NaN
    words = np.array([[unit.weights.get(metric) for unit in pair] for pair in sides], float)
    if unknown := int(np.count_nonzero(~np.isfinite(nats + words).all(axis=1))):
        return unmeasured(
            slice_,
            n,
            f"the log-likelihood, or what it is divided by, is not known of {unknown:,} of {counted(n, 'text')}; give "
            "lm-eval's logs to `qualgate intake`",
        )
    if other := int(np.count_nonzero((words[:, 0] != words[:, 1]) | (words[:, 0] < 0) | (words[:, 0] > MOST_NATS))):
        return unmeasured(slice_, n, f"{counted(other, 'text has', 'texts have')} other counts of words or bytes on "
                          "each side: not the same texts")  # fmt: skip
    (before, after), length = nats.T, float(words[:, 0].sum())
    divided = before if metric == BITS else words[:, 0]
    if not (length > 0 and divided.sum() > 0):
        return unmeasured(
            slice_, n, f"{slice_.base}'s log-likelihood is divided by nothing: no text has a word or byte"
        )
    least = least_texts(alpha)
    few = f"{counted(count, 'independent text is', 'independent texts are')} too few ({least} needed at least)"
    if count < MIN_CLUSTERS:
        return unmeasured(slice_, n, few, least)
    if not (isfinite(limit) and limit > 1):
        return unmeasured(slice_, n, f"a perplexity's `max_ratio` must be over 1, and is {limit:g}")
    ratio = LikelihoodRatio(after - before, divided, clusters, limit, alpha, logs=metric != BITS)
    bounds = ratio.bounds()
    rates = (float(side.sum()) / length for side in (before, after))
    baseline, variant = (rate / log(2) if metric == BITS else ratio_of(rate) for rate in rates)
    return bounded(
        slice_,
        n,
        bounds,
        obstacle=f"{slice_.head}: {few}" if count < least else "",
        needed=None if min(bounds.p_below, bounds.p_above) <= alpha else ratio.texts_needed(),
        baseline=baseline,
        variant=variant,
        method=METHOD,
    )
