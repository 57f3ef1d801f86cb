"""Skip slices on which the baseline has almost nothing to lose (`skip: below_floor`): shown, not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qualgate.gate.advice import enough_right
from qualgate.gate.comparisons.result import Measured
from qualgate.text.numbers import counted


def skip_below_floor(slices: Sequence[Measured]) -> list[Measured]:
    """Make the slices to skip advisory. A rule keeps all of its slices if none would remain."""
    remaining = {measured.slice.rule.id for measured in slices if not _is_below_floor(measured)}
    return [
        _skipped(measured) if _is_below_floor(measured) and measured.slice.rule.id in remaining else measured
        for measured in slices
    ]


def _is_below_floor(measured: Measured) -> bool:
    """Whether no number of such cases could prove the rule, and the variant shows no loss beyond what it allows."""
    rule, comparison = measured.slice.rule, measured.comparison
    if rule.skip != "below_floor" or comparison.baseline is None or comparison.variant is None or measured.unsaid:
        return False
    allowed = rule.max_drop or (rule.max_relative_drop or 0.0) * comparison.baseline
    return (
        comparison.baseline <= enough_right(rule, rule.max_drop or 0.0)
        and comparison.baseline - comparison.variant <= allowed
    )


def _skipped(measured: Measured) -> Measured:
    comparison = measured.comparison
    reason = (
        f"{measured.slice.head}: skipped: {measured.slice.base} is right on {comparison.baseline:.1%} of "
        f"{counted(comparison.n, 'case')}, the variant on {comparison.variant:.1%}"
    )
    return replace(measured, comparison=replace(comparison, tier="advisory"), obstacle=reason)
