"""Chances that a rule decides, as a function of the planned cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from numpy.typing import NDArray

from qualgate.stats.intervals import independent_clusters

UNTOLD = "no earlier run tells how much it varies"

Rate = Callable[[NDArray], float]  # of the cases in each cluster, [clusters]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """Chances of one slice. None: unknown."""

    approve: Rate | None = None  # P(proven) of an identical variant
    block: Rate | None = None  # P(broken) of one that breaks the rule by as much again as it allows
    note: str = UNTOLD  # what they rest on, or why they are not known


def whole_trials(sizes: NDArray, alpha: float) -> int:
    """Number of independent cases that clusters of these sizes are worth, at least one."""
    return max(1, floor(independent_clusters(sizes, alpha) + 1e-9))
