"""Rules on goodput: the share of answers within the service level objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qualgate.gate.comparisons.acceptance import late
from qualgate.gate.comparisons.agreement import share_of_cases
from qualgate.gate.comparisons.pairs import clusters_of, time_groups_of
from qualgate.gate.comparisons.quality import measure_quality
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.rules import Slice
from qualgate.records import Slo
from qualgate.text.numbers import counted


def measure_goodput(slice_: Slice, pairs: Sequence[Pair], alpha: float, slo: Slo) -> Measured:
    """Measure answers in time or late: by `max_drop` compared as quality is, by `min` the variant's own share."""
    n, by_drop = len(pairs), slice_.rule.max_drop is not None
    if slo == Slo():
        return unmeasured(slice_, n, "no `slo` says how slow an answer may be")
    missed = [(late(pair.baseline, slo), late(pair.variant, slo)) for pair in pairs]
    untimed = sum(variant is None or (by_drop and baseline is None) for baseline, variant in missed)
    if untimed:
        return unmeasured(slice_, n, f"no time was recorded for {untimed} of {counted(n, 'case')}")
    # The variant's own share is compared with no other arm, so the time of day does not matter.
    alone = timed_together(clusters_of(pairs), [pair.variant for pair in pairs])
    together, shared = time_groups_of(pairs) if by_drop else alone
    if shared:
        return unmeasured(slice_, n, shared)
    if not by_drop:
        return share_of_cases(slice_, np.array([not variant for _, variant in missed], float), together, alpha)
    timed = zip(pairs, missed, together.tolist(), strict=True)
    return measure_quality(
        slice_, [replace(_in_time(pair, *each), cluster=group) for pair, each, group in timed], alpha
    )


def _in_time(pair: Pair, baseline: bool | None, variant: bool | None) -> Pair:
    return replace(
        pair,
        baseline=replace(pair.baseline, values={"goodput": float(not baseline)}),
        variant=replace(pair.variant, values={"goodput": float(not variant)}),
    )
