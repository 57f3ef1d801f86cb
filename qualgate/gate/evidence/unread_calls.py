"""Calls that only another dialect reads: is the parser wrong, or the model?

An answer alone cannot tell, so its score is null (`CALL_UNREAD`). The baseline's answers can: they were asked with the
same template, so a parser that reads most of their calls is the right one, and what it does not read of the variant's
is what the variant lost: its users get no call. Where the parser reads few of the baseline's either, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qualgate.records import CALL_UNREAD, UnitEvidence

Measure = tuple[str, str]  # evalset, metric


def counted_as_wrong(baseline: Sequence[UnitEvidence], variant: Sequence[UnitEvidence]) -> list[UnitEvidence]:
    """The variant's answers; a call of its that was not read is wrong where the baseline shows that calls are.

    Shown: by the same metric on the same evalset, more of the baseline's answers are right than hold an unread call.
    """
    if not any(map(_unread, variant)):
        return list(variant)
    shown: Counter[Measure] = Counter()
    for unit in baseline:
        for metric, value in unit.values.items():
            shown[unit.key.evalset, metric] += (value == 1) - (unit.unsaid.get(metric) == CALL_UNREAD)
    found = []
    for unit in variant:
        lost = [name for name in _unread(unit) if shown[unit.key.evalset, name] > 0]
        found.append(replace(unit, values=unit.values | dict.fromkeys(lost, 0.0)) if lost else unit)
    return found


def lost_calls(variant: Sequence[UnitEvidence]) -> list[UnitEvidence]:
    """Those of `counted_as_wrong` that are: their calls went unread, and count."""
    return [unit for unit in variant if any(unit.values[name] is not None for name in _unread(unit))]


def _unread(unit: UnitEvidence) -> list[str]:
    return [name for name, why in unit.unsaid.items() if why == CALL_UNREAD] if unit.unsaid else []
