"""Margins of quality rules: what a baseline must have to lose one, and what it is of all answers."""

from __future__ import annotations

from qualgate.gate.comparisons.quality import LEAST_BASELINE_RATE
from qualgate.gate.planning.power import Prediction
from qualgate.gate.rules import Slice
from qualgate.metrics import MARGINS_OF_BASELINE
from qualgate.records import Rule
from qualgate.stats.intervals import binomial_lower
from qualgate.stats.relative import RATE_PART


def bound_of(rule: Rule) -> tuple[str, float]:
    """Which bound of a quality rule is set, and to what; of other rules any name and 0."""
    return ("max_relative_drop", rule.max_relative_drop) if rule.max_relative_drop else ("max_drop", rule.max_drop or 0)


def enough_right(rule: Rule, margin: float) -> float:
    """The rate that the baseline must surely have to lose the margin."""
    return max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin if rule.max_drop is not None else 0.0)


def absolute_margin(model: Prediction, slice_: Slice, margin: float, cases: float) -> tuple[float, float]:
    """The margin as a share of all answers, and the alpha that its test has: a relative one's rests on a rate."""
    alpha = model.policy.alpha
    if slice_.rule.max_drop is not None:
        return margin, alpha
    right, spent = model.mean(slice_, model.assumed.right), RATE_PART * alpha
    return margin * binomial_lower(right * cases, cases, spent), alpha - spent  # type: ignore[arg-type]  # fractions
