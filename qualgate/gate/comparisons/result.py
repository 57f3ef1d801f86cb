"""Comparisons before they have a status, and the ways to make one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from qualgate.gate.rules import Slice
from qualgate.records import Comparison
from qualgate.stats.intervals import Bounds
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A comparison before its status: the numbers, both tests, and what forbids proving it."""

    slice: Slice
    comparison: Comparison
    p_within: float = 1.0  # of "the limit is breached"; small = proven to be kept
    obstacle: str = ""  # a reason why this slice can prove nothing, in words for the user
    unsaid: str = ""  # how many scores nobody could give, in words; "" = none


def unmeasured(slice_: Slice, n: int, why: str, needed: int | None = None) -> Measured:
    """A slice that gives no number, and why."""
    return Measured(slice=slice_, comparison=comparison(slice_, n=n, needed=needed), obstacle=f"{slice_.head}: {why}")


def observed(slice_: Slice, n: int, value: float, *, within_limit: bool, method: str, **numbers) -> Measured:
    """A fact that involves no chance: kept or broken, with bounds equal to the value."""
    compared = comparison(slice_, n=n, **{"variant": value, "lower": value, "upper": value} | numbers,
                       p_broken=float(within_limit), method=method)  # fmt: skip
    return Measured(slice=slice_, comparison=compared, p_within=float(not within_limit))


def bounded(slice_: Slice, n: int, bounds: Bounds, *, obstacle: str = "", **numbers) -> Measured:
    """A comparison from bounds of the limited quantity: kept above a `min`, else below a `max` or a `max_ratio`.

    n: cases; numbers: the comparison's other fields. A bound that is not finite is left out.
    """
    p_within, p_broken = bounds.p_below, bounds.p_above
    if slice_.rule.min is not None:
        p_within, p_broken = p_broken, p_within
    compared = comparison(
        slice_,
        n=n,
        clusters=None if bounds.clusters == n else bounds.clusters,
        lower=bounds.lower if isfinite(bounds.lower) else None,
        upper=bounds.upper if isfinite(bounds.upper) else None,
        p_broken=p_broken,
        **numbers,
    )
    return Measured(slice=slice_, comparison=compared, p_within=p_within, obstacle=obstacle)


def comparison(slice_: Slice, n: int, **numbers) -> Comparison:
    """The slice's comparison, undecided so far. n: cases; numbers: its other fields."""
    rule = slice_.rule
    return Comparison(
        rule=rule.id, metric=rule.metric, slice=slice_.name, tier=rule.tier, status="undecided", n=n,
        against=rule.against, **numbers,
    )  # fmt: skip


def few_cases(clusters: int) -> str:
    """Say that so many independent cases are too few to compare."""
    return f"{counted(clusters, 'independent case is', 'independent cases are')} too few ({MIN_CLUSTERS} needed)"
