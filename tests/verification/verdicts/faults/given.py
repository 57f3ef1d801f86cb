"""What the gate is given, and evidence that it approves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qualgate.errors import QualgateError
from qualgate.gate.decide import decide
from qualgate.records import (
    ArmEvidence,
    ArmIdentity,
    Policy,
    Rule,
    RunEvidence,
    UnitEvidence,
    UnitKey,
)

SETS = {"code": ("exact_match",), "tools": ("exact_match", "tool_call.valid")}
POLICY = Policy(
    rules=(
        Rule(metric="exact_match", max_drop=0.05),
        Rule(metric="exact_match", scope="evalset", max_drop=0.10),
        Rule(metric="tool_call.valid", evalset="tools", max_drop=0.10),
    )
)
Side = Literal["baseline", "variant"]
SIDES: tuple[Side, ...] = ("baseline", "variant")
Units = Sequence[UnitEvidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the gate is given."""

    evidence: RunEvidence
    policy: Policy = POLICY


def exit_of(asked: Asked) -> int:
    """The code a pipeline would see. An exception that is no QualgateError is a crash, and passes through."""
    try:
        return int(decide(asked.evidence, asked.policy).exit)
    except QualgateError as error:
        return int(error.exit)


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
