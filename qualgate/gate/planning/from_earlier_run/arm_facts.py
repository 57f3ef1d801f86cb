"""Predict a rule on an arm as a whole: bytes and coverage are counted, so no chance enters."""

from __future__ import annotations

from dataclasses import replace

from qualgate.gate.planning.from_earlier_run.chances import Chances
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun, same_weights
from qualgate.gate.rules import Slice
from qualgate.records.metrics import METRICS

NO_CHANCE = "counted, so no chance enters: kept or broken as the variant is"


def arm_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Certain where the number is measured; no prediction if no earlier run measured it."""
    rule, sure = slice_.rule, Chances(approve=lambda sizes: 1.0, block=lambda sizes: 1.0, note=NO_CHANCE)
    if rule.max_ratio is not None:
        return sure
    measured = None
    for arm, measured in before.measured(slice_):
        if measured.comparison.variant is not None and not same_weights(arm):
            value = f"{measured.comparison.variant:.4g} {METRICS[rule.metric].unit}"
            return replace(sure, note=f"{NO_CHANCE}; {arm.variant} had {value} in run {before.run}")
    return Chances(note=before.silence(slice_, measured) if measured is not None else "no earlier run has measured it")
