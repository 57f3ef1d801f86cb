"""Runs of a few cases or variants, to see whether everything works: trials, which decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from qualgate.config import GateFile
from qualgate.documents import nearest, quote
from qualgate.errors import UsageError
from qualgate.gate.early import seeded_order
from qualgate.records import Evalset, Policy, Trial


def with_few_cases(gate: GateFile, limit: int | None, only: Sequence[str] = ()) -> GateFile:
    """Return the gate file as a trial of `limit` cases of each evalset (None: all) and of these variants ((): all). The
    arms that they are held against stay.

    It has no looks, and compares four arms only if all are in it. Raises UsageError for an invalid limit or variant.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: a trial asks 1 case of each evalset or more.")
    names = [arm.name for arm in gate.variants if arm.name not in gate.policy.references]
    for name in only:
        if name not in names:
            raise UsageError(f"--only {quote(name)}: {gate.path.name} has no such variant{nearest(name, names)}")
    variants = tuple(arm for arm in gate.variants if not only or arm.name in (*only, *gate.policy.references))
    judged = len({*only} or names)
    trial = Trial(limit=limit, only=tuple(dict.fromkeys(only)), variants=(judged, len(names)))
    four_arm = gate.four_arm if judged == len(names) else None
    policy = replace(gate.policy, stop=None, trial=trial)
    return replace(gate, variants=variants, four_arm=four_arm, policy=policy)


def as_first_look(gate: GateFile, limit: int | None) -> GateFile:
    """Return the gate file as a trial whose rules are all advisory, so that nothing can be approved."""
    gate = with_few_cases(gate, limit)
    assert gate.policy.trial is not None, "made so"
    rules = tuple(replace(rule, tier="advisory") for rule in gate.policy.rules)
    trial = replace(gate.policy.trial, first_look=True)
    return replace(gate, policy=replace(gate.policy, rules=rules, trial=trial))


def choose_cases(policy: Policy, sets: Sequence[Evalset], seed: int) -> tuple[Policy, tuple[Evalset, ...]]:
    """Return the policy with its trial's case counts, and the sets with its cases; without a trial all cases."""
    if policy.trial is None:
        return policy, tuple(sets)
    limit = policy.trial.limit
    chosen = tuple(sets) if limit is None else tuple(_first(item, limit, seed) for item in sets)
    counts = sum(len(item.cases) for item in chosen), sum(len(item.cases) for item in sets)
    return replace(policy, trial=replace(policy.trial, asked=counts)), chosen


def key_of_few_cases(policy: Policy) -> dict[str, Any]:
    """Return the part of a run's key that a trial adds."""
    return {"trial": asdict(policy.trial)} if policy.trial is not None else {}


def _first(item: Evalset, limit: int, seed: int) -> Evalset:
    """Return the set with whole clusters of the seeded order, until `limit` cases are chosen."""
    chosen: set[str] = set()
    for cluster in seeded_order(item.cases, seed):
        if len(chosen) >= limit:
            break
        chosen.update(case for _, case, _ in cluster)
    return replace(item, cases=tuple(case for case in item.cases if case.id in chosen))
