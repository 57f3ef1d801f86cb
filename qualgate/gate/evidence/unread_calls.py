"""Decide whether tool calls that only another dialect reads are the parser's fault or the model's.

One answer cannot tell, so its score is null (`CALL_UNREAD`). The baseline's answers can: they had the same template, so
a parser that reads most of their calls is the right one, and calls that it cannot read in the variant are lost for the
variant's users. Where the parser reads few of the baseline's calls either, the scores stay null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qualgate.records import CALL_UNREAD, UnitEvidence

Measure = tuple[str, str]  # evalset, metric


def counted_as_wrong(baseline: Sequence[UnitEvidence], variant: Sequence[UnitEvidence]) -> list[UnitEvidence]:
    """Score the variant's unread calls as wrong where the baseline shows that the parser reads such calls.

    Shown: by the same metric on the same evalset, more of the baseline's answers are right than hold an unread call.
    """
    if not any(map(_unread, variant)):
        return list(variant)
    shown: Counter[Measure] = Counter()
    for unit in baseline:
        for metric, value in unit.values.items():
            shown[unit.key.evalset, metric] += (value == 1) - (unit.unsaid.get(metric) == CALL_UNREAD)
    units = []
    for unit in variant:
        lost = [name for name in _unread(unit) if shown[unit.key.evalset, name] > 0]
        units.append(replace(unit, values=unit.values | dict.fromkeys(lost, 0.0)) if lost else unit)
    return units


def lost_calls(variant: Sequence[UnitEvidence]) -> list[UnitEvidence]:
    """Answers that `counted_as_wrong` scored as wrong for an unread call."""
    return [unit for unit in variant if any(unit.values[name] is not None for name in _unread(unit))]


def _unread(unit: UnitEvidence) -> list[str]:
    return [name for name, why in unit.unsaid.items() if why == CALL_UNREAD] if unit.unsaid else []
