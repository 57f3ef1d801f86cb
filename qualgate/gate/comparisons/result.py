"""A comparison before its status, and how one is begun or given up."""

from __future__ import annotations

from dataclasses import dataclass

from qualgate.gate.rules import Slice
from qualgate.records import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A comparison before its status: the numbers, both tests, and what forbids proving it."""

    slice: Slice
    comparison: Comparison
    p_within: float = 1.0  # of "the limit is breached"; small = proven to be kept
    obstacle: str = ""  # a reason why this slice can prove nothing, in words for the user


def unmeasured(part: Slice, n: int, why: str, needed: int | None = None) -> Measured:
    """A slice about which nothing can be said."""
    return Measured(slice=part, comparison=comparison(part, n=n, needed=needed), obstacle=f"{part.head}: {why}")


def observed(part: Slice, n: int, value: float, *, kept: bool, method: str, **numbers) -> Measured:
    """A fact about what was seen, which no chance enters: kept or broken, with bounds that are the value itself."""
    found = comparison(part, n=n, **{"variant": value, "lower": value, "upper": value} | numbers,
                       p_broken=float(kept), method=method)  # fmt: skip
    return Measured(slice=part, comparison=found, p_within=float(not kept))


def comparison(part: Slice, n: int, **numbers) -> Comparison:
    rule = part.rule
    return Comparison(
        rule=rule.id, metric=rule.metric, slice=part.name, tier=rule.tier, status="undecided", n=n, **numbers
    )
