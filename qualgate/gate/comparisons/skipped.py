"""Slices of a rule with `skip: below_floor` on which the baseline has next to nothing to lose: shown, not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qualgate.formatting import counted
from qualgate.gate.advice import enough_right
from qualgate.gate.comparisons.result import Measured


def skip_below_floor(measured: Sequence[Measured]) -> list[Measured]:
    """The same slices, those to be skipped as advisory ones. A rule keeps all of its slices if none would remain."""
    remaining = {one.slice.rule.id for one in measured if not _is_below_floor(one)}
    return [_skipped(one) if _is_below_floor(one) and one.slice.rule.id in remaining else one for one in measured]


def _is_below_floor(one: Measured) -> bool:
    """Whether no number of such cases could prove the rule, and the variant shows no loss beyond what it allows."""
    rule, found = one.slice.rule, one.comparison
    if rule.skip != "below_floor" or found.baseline is None or found.variant is None or one.unsaid:
        return False
    allowed = rule.max_drop or (rule.max_relative_drop or 0.0) * found.baseline
    return found.baseline <= enough_right(rule, rule.max_drop or 0.0) and found.baseline - found.variant <= allowed


def _skipped(one: Measured) -> Measured:
    found = one.comparison
    reason = (
        f"{one.slice.head}: skipped: the baseline is right on {found.baseline:.1%} of {counted(found.n, 'case')}, the "
        f"variant on {found.variant:.1%}"
    )
    return replace(one, comparison=replace(found, tier="advisory"), obstacle=reason)
