"""Group times that may depend on each other: answers of one batch share its stalls.

If answers counted one by one, a single stalled batch would make two identical arms differ significantly.

Neighbouring batches are not independent either: a machine is slow for a while. So one *turn* is one observation: every
arm's batch of the same cases, one right after the other, in random order. A slow moment then hits either arm with equal
chance, however long it lasts and however heavy its tails. Start times show which batches took turns. Where one arm ran
for long before the other began, that is one long turn: nothing in such times tells a slow arm from a slow hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.gate.evidence.duplicates import join
from qualgate.records import Policy, UnitEvidence
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.percentiles import groups_needed
from qualgate.text.numbers import counted

TO_TELL = 3  # times the groups that a percentile needs at least: about so many prove an equal variant


def groups_for(policy: Policy) -> int:
    """Groups of batches that the policy's rules on percentiles ask for; 0 without one."""
    needed = (groups_needed(rule.percentile, policy.alpha) for rule in policy.rules if rule.percentile)
    return TO_TELL * max(needed, default=0)


def timed_together(clusters: ArrayLike, *arms: Sequence[UnitEvidence]) -> tuple[NDArray, str]:
    """(group number of each case, equal where times may depend on each other; why no test is possible, "" where it is).

    clusters: of the cases; arms: the units of each arm, in their order. Cases of one cluster, of one batch in any arm,
    or of one turn belong together, and whatever these belong together with. An arm by itself takes no turns.
    """
    labels = np.asarray(clusters).tolist()
    unknown = sum(unit.job is None for units in arms for unit in units)
    if unknown:
        return np.asarray(clusters), (
            f"which answers ran in one batch, and so share its time, was not recorded for {unknown} of "
            f"{counted(sum(map(len, arms)), 'answer')}: run again, or say `batch` in score rows"
        )
    units = [(case, arm, unit) for arm, of_arm in enumerate(arms) for case, unit in enumerate(of_arm)]
    batch = join((case, f"{arm} {unit.job}") for case, arm, unit in units)
    groups, turns = [batch(case) for case in range(len(labels))], None
    if len(arms) > 1:
        if unknown := sum(unit.began is None for _, _, unit in units):
            return np.asarray(clusters), (
                f"when its batch began, and so whether the arms took turns, was not recorded for {unknown} of "
                f"{counted(len(units), 'answer')}: run again, or say `started` in score rows"
            )
        turns = _turns((groups[case], unit.began) for case, _, unit in units if unit.began is not None)
    first = join((label, f"{turns[group] if turns else group}") for label, group in zip(labels, groups, strict=True))
    together = np.array([first(label) for label in labels])
    count = len(np.unique(together))
    if count >= MIN_CLUSTERS:
        return together, ""
    if turns and len(set(turns.values())) == count < len(turns):
        return together, (
            f"{counted(len(turns), 'batch', 'batches')} of each arm ran in {counted(count, 'turn')}, too few to tell a "
            f"slow arm from a slow moment ({MIN_CLUSTERS} needed): let the arms take turns batch by batch"
        )
    return together, (
        f"{counted(len(labels), 'case')} ran in {counted(count, 'group')} of batches that share no case, too few to "
        f"tell a slow arm from a slow moment ({MIN_CLUSTERS} needed)"
    )


def _turns(began: Iterable[tuple[int, float]]) -> dict[int, int]:
    """Group of batches → its turn: groups that overlap in time are in one turn.

    began: (group, start of one of its batches), at least once for each batch.
    """
    spans: dict[int, tuple[float, float]] = {}
    for group, batch_start in began:
        start, end = spans.get(group, (batch_start, batch_start))
        spans[group] = min(start, batch_start), max(end, batch_start)
    turns, turn, through = dict[int, int](), -1, -inf
    for group, (start, end) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        turn += start > through
        through = max(through, end)
        turns[group] = turn
    return turns
