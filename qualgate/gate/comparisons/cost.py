"""Rules on cost: the variant's cost per accepted answer over the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from qualgate.gate.comparisons.acceptance import Terms
from qualgate.gate.comparisons.ledger import heard_in_each, ledger
from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.comparisons.result import Measured, bounded, few_cases, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.stats.cost_ratio import METHOD_RATIO, accepted_cost_ratio, cost_per_accepted
from qualgate.stats.paired.compare import MIN_CLUSTERS


def measure_cost(slice_: Slice, pairs: Sequence[Pair], alpha: float, terms: Terms | None) -> Measured:
    """`baseline` and `variant` are costs per accepted answer (None: nothing was accepted), the bounds their ratio's."""
    if terms is None:
        return unmeasured(slice_, len(pairs), "nothing says what an answer costs")
    before = ledger("baseline", [pair.baseline for pair in pairs], terms)
    after = ledger("variant", [pair.variant for pair in pairs], terms)
    if missing := (*before.unavailable, *after.unavailable):
        return unmeasured(slice_, len(pairs), f"unavailable: {missing[0]}")
    heard, uneven = heard_in_each(before, after)
    if uneven:
        return unmeasured(slice_, len(pairs), f"unavailable: {uneven}")
    of_heard = "" if heard.all() else f" among those that users were heard on in both arms, of {len(pairs)}"
    pairs = [pair for pair, known in zip(pairs, heard, strict=True) if known]
    clusters = clusters_of(pairs)
    if (count := len(np.unique(clusters))) < MIN_CLUSTERS:
        return unmeasured(slice_, len(pairs), f"{few_cases(count)}{of_heard}")
    together, shared = time_groups_of(pairs) if terms.timed else (clusters, "")
    if shared:
        return unmeasured(slice_, len(pairs), shared)
    baseline, variant = ((book.costs[heard], book.accepted[heard]) for book in (before, after))
    per_baseline, per_variant = cost_per_accepted(*baseline), cost_per_accepted(*variant)
    if not isfinite(per_baseline) or per_baseline <= 0:
        return unmeasured(slice_, len(pairs), f"{slice_.base} has no accepted answer, or none that costs anything")
    bounds = accepted_cost_ratio(baseline, variant, together, clusters).bounds(slice_.rule.max_ratio or 0.0, alpha)
    return bounded(
        slice_,
        len(pairs),
        bounds,
        baseline=per_baseline,
        variant=per_variant if isfinite(per_variant) else None,
        method=METHOD_RATIO,
    )
