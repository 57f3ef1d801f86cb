"""Faults of the record of an early stop, and of the policy that it was taken by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from qualgate.gate.early import first_settled, order_of, planned_looks
from qualgate.records import (
    EarlyStop,
    UnitEvidence,
)
from tests.verification.verdicts.faults.evidence import (
    Asked,
    arm_of,
    one_rule,
    sound,
    with_arm,
    with_run,
    with_units,
    wrong_on,
)
from tests.verification.verdicts.faults.of_runs import CASES


@lru_cache(maxsize=1)
def stopped() -> Asked:
    """An equal variant whose generation ended at the first look that settled it."""
    whole = sound(n=300)
    order = order_of(whole.evidence, 1)
    policy = replace(one_rule(), stop=EarlyStop(seed=1, looks=planned_looks(order, one_rule())))
    assert policy.stop is not None, "just given"
    found = first_settled(whole.evidence, policy, "int4", order, range(1, len(policy.stop.looks)))
    assert found is not None, "equal variants settle"
    seen = set([question for cluster in order for question in cluster][: found.seen])
    asked = with_units(whole, "variant", lambda units: [u for u in units if _question(u) in seen])
    return replace(with_arm(asked, "variant", stopped=found), policy=policy)


def _question(unit: UnitEvidence) -> tuple[str, str, int]:
    return unit.key.evalset, unit.key.case_id, unit.key.repeat


def _record(asked: Asked, **changes: Any) -> Asked:
    record = arm_of(asked, "variant").stopped
    assert record is not None, "evidence that stopped"
    return with_arm(asked, "variant", stopped=replace(record, **changes))


def _other_look(asked: Asked, by: int) -> Asked:
    """The record of another planned look, itself without a contradiction."""
    record, stop = arm_of(asked, "variant").stopped, asked.policy.stop
    assert record is not None, "evidence that stopped"
    assert stop is not None, "by a policy that does"
    return _record(asked, look=record.look + by, seen=stop.looks[record.look - 1 + by])


def _judged_by(asked: Asked, **changes: Any) -> Asked:
    """By another policy than the one that looked; its plan of looks is the same, where it has one."""
    return replace(asked, policy=replace(asked.policy, **changes))


def _looking(asked: Asked, **changes: Any) -> Asked:
    """By a policy that looks otherwise, forged into the record as well."""
    stop = asked.policy.stop
    assert stop is not None, "a policy that stops early"
    policy = replace(asked.policy, stop=replace(stop, **changes))
    return replace(_record(asked, policy=policy), policy=policy)


STOPPED: dict[str, Callable[[Asked], Asked]] = {
    "no record": lambda a: with_arm(a, "variant", stopped=None),
    "the baseline lacks one of the cases": lambda a: with_units(
        a, "baseline", lambda us: [u for u in us if _question(u) != _question(arm_of(a, "variant").units[3])]
    ),
    "more cases than there are rows": lambda a: _other_look(a, 1),
    "an earlier look, which settled nothing": lambda a: _other_look(a, -1),
    "another number of the look": lambda a: _record(a, look=9),
    "a number of cases that is no look": lambda a: _record(a, seen=_seen(a) + 1),
    "no cases": lambda a: _record(a, seen=0),
    "less than no cases": lambda a: _record(a, seen=-1),
    "all cases": lambda a: _record(a, seen=600),
    "another word": lambda a: _record(a, word="block"),
    "a word that is none": lambda a: _record(a, word="fine"),
    "approved though wrong on 30 %": lambda a: wrong_on(a, 0.3),
    "another order": lambda a: _record(a, order="0" * 64),
    "no order": lambda a: _record(a, order=""),
    "another policy's record": lambda a: _record(a, policy=replace(a.policy, alpha=0.1)),
    "a record of a policy that never stops": lambda a: _record(a, policy=one_rule()),
    "judged by a policy that never stops": lambda a: _judged_by(a, stop=None),
    "judged by a wider margin": lambda a: _judged_by(a, rules=one_rule(max_drop=0.1).rules),
    "judged at a larger alpha": lambda a: _judged_by(a, alpha=0.2),
    "judged with another seed": lambda a: _looking(a, seed=2),
    "judged without a look": lambda a: _looking(a, looks=()),
    "one look alone, at the looked-at cases": lambda a: _looking(a, looks=(_seen(a),)),
    "a planned variant left nothing": CASES["a planned variant left nothing"],
    "same alias for two weights": lambda a: with_run(
        a, variants=(*a.evidence.variants, replace(a.evidence.variants[0], stopped=None))
    ),
}


def _seen(asked: Asked) -> int:
    record = arm_of(asked, "variant").stopped
    assert record is not None, "evidence that stopped"
    return record.seen
