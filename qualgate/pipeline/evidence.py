"""A run's evidence as the gate is given it: the store's, with the evalsets' labels and other readings of answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from qualgate.formatting import counted
from qualgate.records import Evalset, Plan, Policy, RunEvidence, UnitEvidence
from qualgate.scoring import reasoning
from qualgate.scoring.structure import json_scores
from qualgate.scoring.tools.dialects.blame import blame as read_elsewhere
from qualgate.scoring.tools.strict import AUTO, dialect_of
from qualgate.store import queries, runs
from qualgate.store.database import Store
from qualgate.store.evidence import case_bodies


def known(store: Store, run_id: str, *, answers: bool = False) -> RunEvidence:
    """A run's evidence; where no tool call or JSON could be read in an answer, also how else one can be."""
    found = with_readers(store, runs.evidence(store, run_id, answers=answers))
    return replace(found, judged_before=queries.judged_before(store, run_id))


def asked_again(store: Store, run_id: str, policy: Policy) -> Iterator[str]:
    """Before generating, a line for each variant about which nothing will be decided: see `gate.decide`."""
    if policy.trial is None:
        for variant, before in queries.judged_before(store, run_id).items():
            yield (
                f"{variant} was judged before at {counted(before, 'answer')} of this list, by another test or when it "
                "held less or more: this run will decide nothing (12). Ask cases that no look has seen, as an evalset "
                "of their own in a gate file of its own"
            )


def with_readers(store: Store, evidence: RunEvidence) -> RunEvidence:
    """The same, saying of each answer in which no call or JSON could be read how else one can be."""
    asked = {unit.case_hash for arm in evidence.variants for unit in arm.units if unit.raw}
    bodies = case_bodies(store, asked)
    return replace(
        evidence,
        variants=tuple(
            replace(arm, units=tuple(_read_elsewhere(unit, bodies) if unit.raw else unit for unit in arm.units))
            for arm in evidence.variants
        ),
    )


def _read_elsewhere(unit: UnitEvidence, bodies: dict[str, dict[str, Any]]) -> UnitEvidence:
    """Calls in another dialect; or JSON in a code fence, where it is all that the case asks of it."""
    body = bodies.get(unit.case_hash, {})
    raw = reasoning.apart(body, unit.raw).answer
    if not any(name.startswith("tool_call.") for name in unit.values):
        fenced = json_scores(body, raw, ("code_fence",)).values()
        return replace(unit, misread="JSON in a code fence") if all(score.verdict for score in fenced) else unit
    if (declared := dialect_of(body)) == AUTO:  # every dialect was tried when it was scored
        return unit
    found = read_elsewhere(raw, declared, body.get("tools", ()))
    return replace(unit, misread=found.readers[0]) if found.culprit == "parser" else unit


def reads_answers(policy: Policy) -> bool:
    """Parity compares tokens, and feedback names an answer by its text's hash."""
    return policy.four_arm is not None or bool(policy.feedback)


def with_labels(evidence: RunEvidence, plan: Plan) -> RunEvidence:
    """The same, with the tasks and tags that the plan's evalsets give their cases."""
    return replace(evidence, labels=labels_of(plan.evalsets))


def labels_of(sets: Iterable[Evalset]) -> dict[tuple[str, str], tuple[str, ...]]:
    """(evalset, case) → its task and tags."""
    return {(item.name, case.id): case.labels for item in sets for case in item.cases}
