"""Evidence that the gate approves, and small changes of it which faults are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from qualgate.gate.decide import decide
from qualgate.records import ArmEvidence, ArmIdentity, Policy, Rule, RunEvidence, UnitEvidence, UnitKey
from tests.verification.verdicts.attempts import Code, exit_code

SETS = {"code": ("exact_match",), "tools": ("exact_match", "tool_call.valid")}
POLICY = Policy(
    rules=(
        Rule(metric="exact_match", max_drop=0.05),
        Rule(metric="exact_match", scope="evalset", max_drop=0.10),
        Rule(metric="tool_call.valid", evalset="tools", max_drop=0.10),
    )
)
Side = str  # an arm's name; "variant" is the first, whatever it is called
SIDES: tuple[Side, ...] = ("baseline", "variant")
Units = Sequence[UnitEvidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the gate is given."""

    evidence: RunEvidence
    policy: Policy = POLICY


def exit_of(asked: Asked) -> Code:
    return exit_code(lambda: decide(asked.evidence, asked.policy).exit)


@lru_cache(maxsize=16)
def sound(n: int = 120, right: float = 0.9, lost: float = 0.0) -> Asked:
    """n cases a set; the baseline right on a share `right` of them, the variant wrong on a share `lost` more."""
    arms = []
    for name in ("baseline", "int4"):
        wrong_from = round((right if name == "baseline" else right - lost) * n)
        units = [
            UnitEvidence(
                key=UnitKey(name, evalset, f"{evalset}-{index:04}"),
                case_hash=f"sha {evalset} {index}",
                status="done",
                values={"latency.e2e": 0.5 + index / n, **dict.fromkeys(metrics, float(index < wrong_from))},
                scorers={metric: f"{metric}/1" for metric in metrics},
                tokens=20,
                kl=() if name == "baseline" else (0.01, 0.02),
                top1_agreement=None if name == "baseline" else 0.98,
                job=place * n + index,
                began=float(place * n + index),
            )
            for place, (evalset, metrics) in enumerate(SETS.items())
            for index in range(n)
        ]
        arms.append(ArmEvidence(name=name, identity=identity(name), units=tuple(units)))
    return Asked(
        evidence=RunEvidence(
            run_id="planted",
            expected=tuple(unit.key for arm in arms for unit in arm.units),
            metrics=SETS,
            baseline=arms[0],
            variants=(arms[1],),
        )
    )


def identity(weights: str) -> ArmIdentity:
    return ArmIdentity(weights=weights, config="c", tokenizer="t", template="p", sampling="s", engine="e")


def one_rule(**given: Any) -> Policy:
    return Policy(rules=(Rule(**({"metric": "exact_match", "max_drop": 0.05} | given)),))


def arm_of(asked: Asked, side: Side) -> ArmEvidence:
    e = asked.evidence
    return e.variants[0] if side == "variant" else next(arm for arm in (e.baseline, *e.variants) if arm.name == side)


def with_arm(asked: Asked, side: Side, **changes: Any) -> Asked:
    old, e = arm_of(asked, side), asked.evidence
    arms = [replace(arm, **changes) if arm is old else arm for arm in (e.baseline, *e.variants)]
    return replace(asked, evidence=replace(e, baseline=arms[0], variants=tuple(arms[1:])))


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
