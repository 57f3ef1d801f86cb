"""A comparison before its status, and how one is begun or given up."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from qualgate.formatting import counted
from qualgate.gate.rules import Slice
from qualgate.records import Comparison
from qualgate.stats.intervals import Bounds
from qualgate.stats.paired.compare import MIN_CLUSTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A comparison before its status: the numbers, both tests, and what forbids proving it."""

    slice: Slice
    comparison: Comparison
    p_within: float = 1.0  # of "the limit is breached"; small = proven to be kept
    obstacle: str = ""  # a reason why this slice can prove nothing, in words for the user
    unsaid: str = ""  # how many scores nobody could give, in words; "" = none


def unmeasured(slice_: Slice, n: int, why: str, needed: int | None = None) -> Measured:
    """A slice about which nothing can be said."""
    return Measured(slice=slice_, comparison=comparison(slice_, n=n, needed=needed), obstacle=f"{slice_.head}: {why}")


def observed(slice_: Slice, n: int, value: float, *, kept: bool, method: str, **numbers) -> Measured:
    """A fact about what was seen, which no chance enters: kept or broken, with bounds that are the value itself."""
    found = comparison(slice_, n=n, **{"variant": value, "lower": value, "upper": value} | numbers,
                       p_broken=float(kept), method=method)  # fmt: skip
    return Measured(slice=slice_, comparison=found, p_within=float(not kept))


def bounded(slice_: Slice, n: int, bounds: Bounds, *, obstacle: str = "", **numbers) -> Measured:
    """From the bounds of what the rule limits: kept above a `min`, else below a `max` or a `max_ratio`.

    n: cases; numbers: the comparison's other fields. A bound that is not finite is left out.
    """
    p_within, p_broken = bounds.p_below, bounds.p_above
    if slice_.rule.min is not None:
        p_within, p_broken = p_broken, p_within
    found = comparison(
        slice_,
        n=n,
        clusters=None if bounds.clusters == n else bounds.clusters,
        lower=bounds.lower if isfinite(bounds.lower) else None,
        upper=bounds.upper if isfinite(bounds.upper) else None,
        p_broken=p_broken,
        **numbers,
    )
    return Measured(slice=slice_, comparison=found, p_within=p_within, obstacle=obstacle)


def comparison(slice_: Slice, n: int, **numbers) -> Comparison:
    """The slice's comparison, undecided so far. n: cases; numbers: its other fields."""
    rule = slice_.rule
    return Comparison(
        rule=rule.id, metric=rule.metric, slice=slice_.name, tier=rule.tier, status="undecided", n=n, **numbers
    )


def few_cases(clusters: int) -> str:
    """That so many independent cases are too few to compare, in words."""
    return f"{counted(clusters, 'independent case is', 'independent cases are')} too few ({MIN_CLUSTERS} needed)"
