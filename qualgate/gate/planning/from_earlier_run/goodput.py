"""Predict the rates of a rule on goodput: by `max_drop` an answer in time is compared as a right one is."""

from __future__ import annotations

from qualgate.gate.planning.from_earlier_run.agreement import share_chances
from qualgate.gate.planning.from_earlier_run.chances import Chances, whole_trials
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun
from qualgate.gate.rules import Slice
from qualgate.stats.power import chance_to_approve, chance_to_block


def goodput_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Chances by `max_drop`, or by `min` as a share of cases. strict: the alpha of a block."""
    margin = slice_.rule.max_drop
    if margin is None:
        return share_chances(slice_, before, alpha, strict)
    arm, measured = next(before.measured(slice_), (None, None))
    if arm is None or measured is None or measured.comparison.lost is None or measured.comparison.gained is None:
        return Chances(note=before.silence(slice_, measured))
    if measured.obstacle:
        return Chances(approve=lambda sizes: 0.0, note=measured.obstacle.removeprefix(f"{slice_.head}: "))
    flips = (measured.comparison.lost + measured.comparison.gained + 1) / (measured.comparison.n + 1)
    losing = flips + 2 * margin
    return Chances(
        approve=lambda sizes: chance_to_approve(whole_trials(sizes, alpha), margin, flips, 0.0, alpha),
        block=lambda sizes: chance_to_block(whole_trials(sizes, alpha), margin, losing, -2 * margin, strict),
        note=f"in time as {arm.variant} was in run {before.run}",
    )
