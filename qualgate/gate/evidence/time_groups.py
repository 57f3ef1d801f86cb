"""Which times may depend on each other: those of one batch share its stalls, whatever cases they are of.

Two arms with the same weights, of which one had a single stalled batch, differ surely if its answers count one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.formatting import counted
from qualgate.gate.evidence.duplicates import join
from qualgate.records import Policy, UnitEvidence
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.percentiles import groups_needed

TO_TELL = 3  # times the groups without which no percentile is told: about so many prove an equal variant


def groups_for(policy: Policy) -> int:
    """Groups of batches that the policy's rules on percentiles ask for; 0 without one."""
    asked = (groups_needed(rule.percentile, policy.alpha) for rule in policy.rules if rule.percentile)
    return TO_TELL * max(asked, default=0)


def timed_together(clusters: ArrayLike, *arms: Sequence[UnitEvidence]) -> tuple[NDArray, str]:
    """(a number for each case, equal where times may depend on each other; why nothing can be told, "" where it can).

    clusters: of the cases; arms: the units of each arm, in their order. Cases of one cluster, or of one batch in any
    arm, belong together, and whatever these belong together with.
    """
    labels = np.asarray(clusters).tolist()
    unknown = sum(unit.job is None for units in arms for unit in units)
    if unknown:
        return np.asarray(clusters), (
            f"which answers ran in one batch, and so share its time, was not recorded for {unknown} of "
            f"{counted(sum(map(len, arms)), 'answer')}: run again, or say `batch` in score rows"
        )
    first = join(
        (label, f"{arm} {unit.job}")
        for arm, units in enumerate(arms)
        for label, unit in zip(labels, units, strict=True)
    )
    together = np.array([first(label) for label in labels])
    if (groups := len(np.unique(together))) < MIN_CLUSTERS:
        return together, (
            f"{counted(len(labels), 'case')} ran in {counted(groups, 'group')} of batches that share no case, too few "
            f"to tell a slow arm from a slow moment ({MIN_CLUSTERS} needed)"
        )
    return together, ""
