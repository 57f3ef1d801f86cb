"""Four arms with planted answers, scores, times and attempts: what a store or another engine's file would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from qualgate.records import (
    ArmEvidence,
    Attempt,
    FourArms,
    Policy,
    Prices,
    Rule,
    RunEvidence,
    UnitEvidence,
    UnitKey,
)  # fmt: skip
from tests.gate.planted import identity

ARMS = FourArms(quantization="int4", speculation="drafted", both="int4+drafted")
PRICES = Prices(version="2026-11", currency="EUR", device_second=1.0)
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),), prices=PRICES, four_arm=ARMS)
NAMES = ("baseline", "int4", "drafted", "int4+drafted")


def evidence(
    right: dict[str, np.ndarray],
    seconds: dict[str, float],
    answers: dict[str, list[tuple[int, ...]]] | None = None,
    margins: float = 3.0,
    ttft: float = 0.1,
) -> RunEvidence:
    """right: 0/1 of each case by arm. seconds: of every answer of an arm. answers: by default drafting changes none."""
    n = len(right["baseline"])
    said = {name: [(*range(19), hash_of(name)) for _ in range(n)] for name in NAMES} | (answers or {})
    arms = [
        ArmEvidence(
            name=name,
            identity=identity(name),
            units=tuple(
                UnitEvidence(
                    key=UnitKey(name, "code", f"c-{index:04d}"),
                    case_hash=f"sha {index}",
                    status="done",
                    values={
                        "exact_match": float(right[name][index]), "latency.ttft": ttft * seconds[name],
                        "latency.e2e": seconds[name] * (1 + index % 7 / 10), "latency.tpot": 0.01,
                    },
                    scorers={"exact_match": "exact_match/1"},
                    tokens=len(said[name][index]),
                    finished=True,
                    attempts=(
                        Attempt(outcome="done", prompt_tokens=10, output_tokens=20,
                                seconds=seconds[name] * (1 + index % 7 / 10)),
                    ),
                    answer=np.array(said[name][index], "<i4").tobytes(),
                    margins=np.full(len(said[name][index]), margins).tobytes(),
                    text_sha256="0" * 63 + str(len(name) % 10),
                    job=index,
                    draft_proposed=40 if "drafted" in name else None,
                    draft_accepted=15 if "drafted" in name else None,
                    began=float(index),
                )
                for index in range(n)
            ),
        )
        for name in NAMES
    ]  # fmt: skip
    return RunEvidence(
        run_id="r",
        expected=tuple(unit.key for arm in arms for unit in arm.units),
        metrics={"code": ("exact_match",)},
        baseline=arms[0],
        variants=tuple(arms[1:]),
    )


def hash_of(name: str) -> int:
    """The token in which int4's answers differ from the baseline's; drafting changes none."""
    return 100 + ("int4" in name)


def alike(n: int = 400, right: float = 0.9) -> dict[str, np.ndarray]:
    scores = (np.arange(n) >= (1 - right) * n).astype(float)
    return dict.fromkeys(NAMES, scores)


def with_units(given: RunEvidence, arm: str, change) -> RunEvidence:
    """`change`: unit → unit, of one variant or the baseline."""

    def changed(found: ArmEvidence) -> ArmEvidence:
        return replace(found, units=tuple(map(change, found.units))) if found.name == arm else found

    return replace(given, baseline=changed(given.baseline), variants=tuple(map(changed, given.variants)))


def asked_again(
    given: RunEvidence, repeats: int, tokens: Callable[[str, int, int], Sequence[int] | np.ndarray]
) -> RunEvidence:
    """Every arm answers each case so many times. tokens: of (arm, number of the case, repeat)."""

    def again(found: ArmEvidence) -> ArmEvidence:
        units = []
        for case, unit in enumerate(found.units):
            for repeat in range(repeats):
                said = np.asarray(tokens(found.name, case, repeat), "<i4").tobytes()
                key = replace(unit.key, repeat=repeat)
                units.append(replace(unit, key=key, answer=said, text_sha256=sha256(said).hexdigest()))
        return replace(found, units=tuple(units))

    baseline, *variants = map(again, (given.baseline, *given.variants))
    expected = tuple(unit.key for arm in (baseline, *variants) for unit in arm.units)
    return replace(given, baseline=baseline, variants=tuple(variants), expected=expected)
