"""Evidence of a run as the gate reads it: the store's, with labels and alternative readings of answers added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from qualgate.pipeline.score_sample import differing_scores
from qualgate.records import Evalset, Plan, Policy, RunEvidence, UnitEvidence
from qualgate.scoring import reasoning
from qualgate.scoring.structure import json_scores
from qualgate.scoring.tools.dialects.detect import other_readings
from qualgate.scoring.tools.dialects.registry import AUTO
from qualgate.scoring.tools.strict import dialect_of
from qualgate.store import queries, runs
from qualgate.store.database import Store
from qualgate.store.evidence import case_bodies
from qualgate.text.numbers import counted


def known(store: Store, run_id: str, *, answers: bool = False, sampled: bool = False) -> RunEvidence:
    """Return a run's evidence, with alternative readings of answers in which no tool call or JSON was found. sampled:
    score a sample of its answers again; a difference is a fault of its integrity."""
    evidence = with_readers(store, runs.evidence(store, run_id, answers=answers))
    if sampled and not evidence.integrity:
        evidence = replace(evidence, integrity=tuple(differing_scores(store, run_id)))
    return replace(evidence, judged_before=queries.judged_before(store, run_id))


def asked_again(store: Store, run_id: str, policy: Policy) -> Iterator[str]:
    """Yield a warning for each variant that was judged before on these answers: see `gate.decide`."""
    if not policy.decides_nothing:
        for variant, before in queries.judged_before(store, run_id).items():
            yield (
                f"{variant} was judged before at {counted(before, 'answer')} of this list, by another test or when it "
                "held less or more: this run will decide nothing (12). Ask cases that no look has seen, as an evalset "
                "of their own in a gate file of its own"
            )


def with_readers(store: Store, evidence: RunEvidence) -> RunEvidence:
    """Add to each answer in which no call or JSON was found how it can be read otherwise."""
    case_hashes = {unit.case_hash for arm in evidence.variants for unit in arm.units if unit.raw}
    bodies = case_bodies(store, case_hashes)
    return replace(
        evidence,
        variants=tuple(
            replace(arm, units=tuple(_read_elsewhere(unit, bodies) if unit.raw else unit for unit in arm.units))
            for arm in evidence.variants
        ),
    )


def _read_elsewhere(unit: UnitEvidence, bodies: dict[str, dict[str, Any]]) -> UnitEvidence:
    """Note a call in another dialect, or JSON in a code fence if the case asks for JSON alone."""
    body = bodies.get(unit.case_hash, {})
    raw = reasoning.apart(body, unit.raw).answer
    if not any(name.startswith("tool_call.") for name in unit.values):
        fenced = json_scores(body, raw, ("code_fence",)).values()
        return replace(unit, misread="JSON in a code fence") if all(score.verdict for score in fenced) else unit
    if (declared := dialect_of(body)) == AUTO:  # every dialect was tried when it was scored
        return unit
    readers = other_readings(raw, declared, body.get("tools", ()))
    return replace(unit, misread=next(iter(readers))) if readers else unit


def reads_answers(policy: Policy) -> bool:
    """Whether the policy needs answers' tokens or text hashes: to choose an arm by parity, or for feedback."""
    return policy.chooses or bool(policy.feedback)


def with_labels(evidence: RunEvidence, plan: Plan) -> RunEvidence:
    """Return the evidence with the tasks and tags of the plan's cases."""
    return replace(evidence, labels=labels_of(plan.evalsets))


def labels_of(sets: Iterable[Evalset]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return (evalset, case) → its task and tags."""
    return {(item.name, case.id): case.labels for item in sets for case in item.cases}
