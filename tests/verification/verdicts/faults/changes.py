"""Small changes of what the gate is given, which faults are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qualgate.records import (
    ArmEvidence,
    UnitEvidence,
)
from tests.verification.verdicts.faults.given import SETS, Asked, Side, Units


def arm_of(asked: Asked, side: Side) -> ArmEvidence:
    return asked.evidence.baseline if side == "baseline" else asked.evidence.variants[0]


def with_arm(asked: Asked, side: Side, **changes: Any) -> Asked:
    changed, e = replace(arm_of(asked, side), **changes), asked.evidence
    into = {"baseline": changed} if side == "baseline" else {"variants": (changed, *e.variants[1:])}
    return replace(asked, evidence=replace(e, **into))


def with_run(asked: Asked, **changes: Any) -> Asked:
    return replace(asked, evidence=replace(asked.evidence, **changes))


def with_policy(asked: Asked, **changes: Any) -> Asked:
    return replace(asked, policy=replace(asked.policy, **changes))


def with_units(asked: Asked, side: Side, change: Callable[[Units], Sequence[UnitEvidence]]) -> Asked:
    return with_arm(asked, side, units=tuple(change(arm_of(asked, side).units)))


def with_some(asked: Asked, side: Side, at: Sequence[int], **changes: Any) -> Asked:
    """The units at these places changed; `values` and `scorers` are laid over what is there."""

    def one(unit: UnitEvidence) -> UnitEvidence:
        over = {key: getattr(unit, key) | changes[key] for key in ("values", "scorers") if changes.get(key)}
        return replace(unit, **changes | over)

    def change(units: Units) -> list[UnitEvidence]:
        places = {index % len(units) for index in at} if units else set()
        return [one(unit) if index in places else unit for index, unit in enumerate(units)]

    return with_units(asked, side, change)


def with_every(asked: Asked, side: Side, **changes: Any) -> Asked:
    return with_some(asked, side, range(len(arm_of(asked, side).units)), **changes)


def wrong_on(asked: Asked, share: float) -> Asked:
    """The variant wrong on the first `share` of each set, where the baseline is right."""
    size = len(asked.evidence.baseline.units) // len(SETS)
    at = [index for index in range(len(SETS) * size) if index % size < share * size]
    return with_some(asked, "variant", at, values={"exact_match": 0.0, "tool_call.valid": 0.0})


def exchanged(units: Units, a: int, b: int) -> Sequence[UnitEvidence]:
    """Two answers under each other's id: the ids are all there, the cases are not those asked."""
    if len(units) < 2:
        return units
    a, b = a % len(units), b % len(units)
    b = (b + 1) % len(units) if a == b else b
    return [
        replace(units[b], key=unit.key) if i == a else replace(units[a], key=unit.key) if i == b else unit
        for i, unit in enumerate(units)
    ]


def shuffled(units: Units) -> Sequence[UnitEvidence]:
    """Every set's answers under the ids of others of the set."""
    order = np.random.default_rng(7).permutation(len(units))
    turned = sorted(order, key=lambda index: units[index].key.evalset)  # stable: shuffled within each set
    return [replace(units[index], key=unit.key) for index, unit in zip(turned, units, strict=True)]


def on_both(asked: Asked, change: Callable[[Asked, Side], Asked]) -> Asked:
    return change(change(asked, "baseline"), "variant")


def in_passages(asked: Asked, count: int) -> Asked:
    """The same passages on both sides, too few to compare."""
    return on_both(
        asked, lambda a, s: with_units(a, s, lambda us: [replace(u, cluster=f"c{i % count}") for i, u in enumerate(us)])
    )
