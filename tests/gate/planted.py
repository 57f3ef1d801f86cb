"""Run evidence with planted outcomes: what the store would hand the gate, made without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qualgate.records import ArmEvidence, ArmIdentity, Policy, Rule, RunEvidence, UnitEvidence, UnitKey

METRICS = {"code": ("exact_match",), "tools": ("exact_match", "tool_call.valid")}
POLICY = Policy(
    rules=(
        Rule(metric="exact_match", max_drop=0.05),
        Rule(metric="exact_match", scope="evalset", max_drop=0.10),
        Rule(metric="tool_call.valid", evalset="tools", max_drop=0.10),
    )
)


def identity(weights: str, **changes: str) -> ArmIdentity:
    fields = {"config": "c", "tokenizer": "t", "template": "p", "sampling": "s", "engine": "e"}
    return ArmIdentity(weights=weights, **(fields | changes))


def arm(name: str, outcomes: dict[tuple[str, str], np.ndarray], seed: int = 0) -> ArmEvidence:
    """outcomes: (evalset, metric) → 0/1 of each case."""
    generator = np.random.default_rng(seed)
    units = []
    for evalset in sorted({name for name, _ in outcomes}):
        columns = {metric: column for (of, metric), column in outcomes.items() if of == evalset}
        for index in range(len(next(iter(columns.values())))):
            units.append(
                UnitEvidence(
                    key=UnitKey(name, evalset, f"{evalset}-{index}"),
                    case_hash=f"sha {evalset} {index}",
                    status="done",
                    values={m: float(column[index]) for m, column in columns.items()}
                    | {
                        "latency.e2e": float(generator.lognormal(0, 0.1)),
                        "latency.tpot": 0.01,
                        "latency.max_gap": 0.03,
                    },
                    scorers={metric: f"{metric}/1" for metric in columns},
                    tokens=20,
                    job=len(units),
                    began=float(len(units)),
                    kl=() if name == "baseline" else tuple(generator.exponential(0.01, 20)),
                    top1_agreement=None if name == "baseline" else 0.98,
                )
            )
    return ArmEvidence(name=name, identity=identity(name), units=tuple(units))


def run(
    n: int = 120, right: float = 0.9, lost: dict | float = 0.0, gained: float = 0.0, seed: int = 1, metrics=METRICS
) -> RunEvidence:
    """One variant, "int4". lost: share of the n cases of a set that flip right → wrong, or that by (evalset, metric).

    The flips are exact counts, at the same cases for every seed-free call; baseline right on a share `right`.
    """
    generator = np.random.default_rng(seed)
    before, after = {}, {}
    for evalset, names in metrics.items():
        for metric in names:
            share = lost.get((evalset, metric), 0.0) if isinstance(lost, dict) else lost
            order = generator.permutation(n)
            base, k = np.zeros(n), round(right * n)
            base[order[:k]] = 1
            other = base.copy()
            other[order[: min(round(share * n), k)]] = 0
            other[order[k : k + round(gained * n)]] = 1
            before[evalset, metric], after[evalset, metric] = base, other
    return of(arm("baseline", before, 1), arm("int4", after, 2), metrics=metrics)


def repeated(**outcomes: list[list[int]] | np.ndarray) -> RunEvidence:
    """arm → for each case of the set `code` the outcome of each of its repeats."""
    arms = []
    for name, cases in outcomes.items():
        right = np.array(cases, float)
        made, k = arm(name, {("code", "exact_match"): right.ravel()}), right.shape[1]
        units = (
            replace(u, key=replace(u.key, case_id=f"c{i // k}", repeat=i % k), case_hash=f"h{i // k}")
            for i, u in enumerate(made.units)
        )
        arms.append(replace(made, units=tuple(units)))
    return of(*arms, metrics={"code": ("exact_match",)})


def of(baseline: ArmEvidence, *variants: ArmEvidence, metrics=METRICS) -> RunEvidence:
    """A run whose closed list is just what the arms hold."""
    return RunEvidence(
        run_id="r",
        expected=tuple(unit.key for one in (baseline, *variants) for unit in one.units),
        metrics=metrics,
        baseline=baseline,
        variants=variants,
        max_new_tokens={(unit.key.evalset, unit.key.case_id): 32 for unit in baseline.units},
    )


def witness(evidence: RunEvidence, suffix: str) -> ArmEvidence:
    """The variant's answers as those of the arm that is to tell of one part."""
    arm, name = evidence.variants[0], evidence.variants[0].name + suffix
    units = tuple(replace(unit, key=replace(unit.key, arm=name)) for unit in arm.units)
    return replace(arm, name=name, units=units)


def with_variant(evidence: RunEvidence, **changes) -> RunEvidence:
    return replace(evidence, variants=(replace(evidence.variants[0], **changes), *evidence.variants[1:]))


def with_units(evidence: RunEvidence, side: str, change) -> RunEvidence:
    """`change`: tuple of units → tuple of units, of the baseline or the (first) variant."""
    if side == "baseline":
        return replace(evidence, baseline=replace(evidence.baseline, units=tuple(change(evidence.baseline.units))))
    return with_variant(evidence, units=tuple(change(evidence.variants[0].units)))


def with_each(
    evidence: RunEvidence, side: str, change: Callable[[UnitEvidence], UnitEvidence] | None = None, **fields
) -> RunEvidence:
    """Every unit of the baseline, of "both" or else of the variant changed: by a function, or by these fields."""
    for one in ("baseline", "variant") if side == "both" else (side,):
        evidence = with_units(
            evidence, one, lambda units: [change(unit) if change else replace(unit, **fields) for unit in units]
        )
    return evidence


def with_unit(evidence: RunEvidence, side: str, index: int, **changes) -> RunEvidence:
    """One unit changed, counted round the list."""

    def change(units):
        at = index % max(len(units), 1)
        return (replace(unit, **changes) if i == at else unit for i, unit in enumerate(units))

    return with_units(evidence, side, change)
