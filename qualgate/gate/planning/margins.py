"""Convert a relative margin to a share of all answers."""

from __future__ import annotations

from qualgate.gate.planning.power import Prediction
from qualgate.gate.rules import Slice
from qualgate.stats.intervals import binomial_lower
from qualgate.stats.relative import RATE_PART


def absolute_margin(model: Prediction, slice_: Slice, margin: float, cases: float) -> tuple[float, float]:
    """(margin as a share of all answers, alpha of its test); a relative margin spends alpha on the baseline's rate."""
    alpha = model.policy.alpha
    if slice_.rule.max_drop is not None:
        return margin, alpha
    right, spent = model.mean(slice_, model.assumed.right), RATE_PART * alpha
    return margin * binomial_lower(right * cases, cases, spent), alpha - spent  # type: ignore[arg-type]  # fractions
