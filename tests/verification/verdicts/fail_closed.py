"""Rows `fail_closed.*`: inputs of the gate with a fault in them. None may exit with 0, and none may crash.

Every fault starts from evidence that approves, so what stops the approval is the fault. What is faulted: the evidence
of a run (cases, numbers of an arm as a whole, the record of an early stop, four arms), the policy, nel's policy files,
and the score files that others bring. A mutation is a fault with drawn parameters (which side, which row, how much); a
paired one is two of them, one after the other. Values drawn for a mutation are never drawn twice, so that no second
fault undoes a first.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qualgate.errors import Exit, QualgateError
from qualgate.gate.decide import decide
from qualgate.gate.early import first_settled, order_of, planned_looks
from qualgate.gate.evidence.checks import PAIRED_BY
from qualgate.gate.peers.nel_policy import decide_by
from qualgate.gate.verdict import overall_exit
from qualgate.intake.nel_policy import read_nel_policy
from qualgate.intake.scores import judge, read_score_rows
from qualgate.records import (
    CACHE_TOKEN,
    ArmEvidence,
    ArmIdentity,
    Attempt,
    EarlyStop,
    FourArms,
    Policy,
    Prices,
    Rule,
    RunEvidence,
    Slo,
    UnitEvidence,
    UnitKey,
)

GOALS = {
    "fail_closed.cases": ">= 60 faulted evidences, policies and score files: 0 exit with 0",
    "fail_closed.mutations": ">= 500 single and paired mutations of what the gate is given: 0 exit with 0",
}
LEAST = {"fail_closed.cases": 60, "fail_closed.mutations": 500}
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


Draw = np.random.Generator
Mutation = Callable[[Asked, Side, Draw], Asked]


def exit_of(asked: Asked) -> int:
    """The code a pipeline would see. An exception that is no QualgateError is a crash, and passes through."""
    try:
        return int(decide(asked.evidence, asked.policy).exit)
    except QualgateError as error:
        return int(error.exit)


# ------------------------------------------------------------------------------------- evidence that approves


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
            )
            for place, (evalset, metrics) in enumerate(SETS.items())
            for index in range(n)
        ]
        arms.append(ArmEvidence(name=name, identity=_identity(name), units=tuple(units)))
    return Asked(
        evidence=RunEvidence(
            run_id="planted",
            expected=tuple(unit.key for arm in arms for unit in arm.units),
            metrics=SETS,
            baseline=arms[0],
            variants=(arms[1],),
        )
    )


def _identity(weights: str) -> ArmIdentity:
    return ArmIdentity(weights=weights, config="c", tokenizer="t", template="p", sampling="s", engine="e")


# ------------------------------------------------------------------------------------------ small changes


def _arm(asked: Asked, side: Side) -> ArmEvidence:
    return asked.evidence.baseline if side == "baseline" else asked.evidence.variants[0]


def _with_arm(asked: Asked, side: Side, **changes: Any) -> Asked:
    changed, e = replace(_arm(asked, side), **changes), asked.evidence
    into = {"baseline": changed} if side == "baseline" else {"variants": (changed, *e.variants[1:])}
    return replace(asked, evidence=replace(e, **into))


def _with_run(asked: Asked, **changes: Any) -> Asked:
    return replace(asked, evidence=replace(asked.evidence, **changes))


def _with_policy(asked: Asked, **changes: Any) -> Asked:
    return replace(asked, policy=replace(asked.policy, **changes))


def _units(asked: Asked, side: Side, change: Callable[[Units], Sequence[UnitEvidence]]) -> Asked:
    return _with_arm(asked, side, units=tuple(change(_arm(asked, side).units)))


def _some(asked: Asked, side: Side, at: Sequence[int], **changes: Any) -> Asked:
    """The units at these places changed; `values` and `scorers` are laid over what is there."""

    def one(unit: UnitEvidence) -> UnitEvidence:
        over = {key: getattr(unit, key) | changes[key] for key in ("values", "scorers") if changes.get(key)}
        return replace(unit, **changes | over)

    def change(units: Units) -> list[UnitEvidence]:
        places = {index % len(units) for index in at} if units else set()
        return [one(unit) if index in places else unit for index, unit in enumerate(units)]

    return _units(asked, side, change)


def _every(asked: Asked, side: Side, **changes: Any) -> Asked:
    return _some(asked, side, range(len(_arm(asked, side).units)), **changes)


def _wrong(asked: Asked, share: float) -> Asked:
    """The variant wrong on the first `share` of each set, where the baseline is right."""
    size = len(asked.evidence.baseline.units) // len(SETS)
    at = [index for index in range(len(SETS) * size) if index % size < share * size]
    return _some(asked, "variant", at, values={"exact_match": 0.0, "tool_call.valid": 0.0})


def _exchanged(units: Units, a: int, b: int) -> Sequence[UnitEvidence]:
    """Two answers under each other's id: the ids are all there, the cases are not those asked."""
    if len(units) < 2:
        return units
    a, b = a % len(units), b % len(units)
    b = (b + 1) % len(units) if a == b else b
    return [
        replace(units[b], key=unit.key) if i == a else replace(units[a], key=unit.key) if i == b else unit
        for i, unit in enumerate(units)
    ]


def _shuffled(units: Units) -> Sequence[UnitEvidence]:
    """Every set's answers under the ids of others of the set."""
    order = np.random.default_rng(7).permutation(len(units))
    turned = sorted(order, key=lambda index: units[index].key.evalset)  # stable: shuffled within each set
    return [replace(units[index], key=unit.key) for index, unit in zip(turned, units, strict=True)]


# ---------------------------------------------------------------------------------------------- the cases

ONE_SIDED: dict[str, Callable[[Asked, Side], Asked]] = {
    "no rows": lambda a, s: _with_arm(a, s, units=()),
    "12 rows": lambda a, s: _units(a, s, lambda u: u[:12]),
    "one row missing": lambda a, s: _units(a, s, lambda u: u[1:]),
    "a row marked missing": lambda a, s: _some(a, s, [3], status="missing"),
    "one row failed": lambda a, s: _some(a, s, [3], status="error", error="worker died"),
    "every row failed": lambda a, s: _every(a, s, status="error", error="NaN logits"),
    "a status nobody knows": lambda a, s: _some(a, s, [3], status="skipped"),
    "a row twice": lambda a, s: _units(a, s, lambda u: (*u, u[5])),
    "a row twice in place of another": lambda a, s: _units(a, s, lambda u: (u[1], *u[1:])),
    "a row nobody planned": lambda a, s: _units(
        a, s, lambda u: (*u, replace(u[0], key=replace(u[0].key, case_id="x")))
    ),
    "a repeat nobody planned": lambda a, s: _some(a, s, [3], key=replace(_arm(a, s).units[3].key, repeat=1)),
    "a row of a stranger's arm": lambda a, s: _some(a, s, [3], key=replace(_arm(a, s).units[3].key, arm="other")),
    "score NaN": lambda a, s: _some(a, s, [3], values={"exact_match": nan}),
    "score infinite": lambda a, s: _some(a, s, [3], values={"exact_match": inf}),
    "score above 1": lambda a, s: _some(a, s, [3], values={"exact_match": 1.5}),
    "score below 0": lambda a, s: _some(a, s, [3], values={"exact_match": -1.0}),
    "every score NaN": lambda a, s: _every(a, s, values={"exact_match": nan}),
    "score absent": lambda a, s: _some(a, s, [3], values={}),
    "the scorer could not say": lambda a, s: _some(a, s, [3], values={"exact_match": None}),
    "the scorer could say nothing": lambda a, s: _every(a, s, values={"exact_match": None, "tool_call.valid": None}),
    "scorer not known": lambda a, s: _every(a, s, scorers={}),
    "no case hash": lambda a, s: _every(a, s, case_hash=""),
    "no job finished": lambda a, s: _with_arm(a, s, identity=None),
    "latency negative": lambda a, s: _some(a, s, [3], values={"latency.e2e": -1.0}),
    "latency NaN": lambda a, s: _some(a, s, [3], values={"latency.e2e": nan}),
    "tokens negative": lambda a, s: _some(a, s, [3], tokens=-1),
}
"""Each is three cases: on the baseline, on the variant, on both."""


def _both(asked: Asked, change: Callable[[Asked, Side], Asked]) -> Asked:
    return change(change(asked, "baseline"), "variant")


def _passages(asked: Asked, count: int) -> Asked:
    """The same passages on both sides, too few to compare."""
    return _both(
        asked, lambda a, s: _units(a, s, lambda us: [replace(u, cluster=f"c{i % count}") for i, u in enumerate(us)])
    )


def _rule(**given: Any) -> Policy:
    return Policy(rules=(Rule(**({"metric": "exact_match", "max_drop": 0.05} | given)),))


CASES: dict[str, Callable[[Asked], Asked]] = {
    "nothing at all": lambda a: _with_run(_both(a, lambda b, s: _with_arm(b, s, units=())), expected=()),
    "rows, but no closed list": lambda a: _with_run(a, expected=()),
    "a unit planned twice": lambda a: _with_run(a, expected=(*a.evidence.expected, a.evidence.expected[-1])),
    "planned for the baseline alone": lambda a: _with_run(
        _units(a, "variant", lambda u: u[1:]),
        expected=tuple(k for k in a.evidence.expected if (k.arm, k.case_id) != ("int4", "code-0000")),
    ),
    "a planned variant left nothing": lambda a: _with_run(
        a, expected=(*a.evidence.expected, *(replace(k, arm="int2") for k in a.evidence.expected if k.arm == "int4"))
    ),
    "a set nobody listed": lambda a: _with_run(a, metrics={"tools": SETS["tools"]}),
    "a listed set nobody asked": lambda a: _with_run(a, metrics=SETS | {"void": ("exact_match",)}),
    "no set listed": lambda a: _with_run(a, metrics={}),
    "no variant": lambda a: _with_run(
        a, variants=(), expected=tuple(k for k in a.evidence.expected if k.arm == "baseline")
    ),
    "same alias for two weights": lambda a: _with_run(
        a, variants=(*a.evidence.variants, replace(a.evidence.variants[0], identity=_identity("int2")))
    ),
    "the variant is called baseline": lambda a: _with_arm(a, "variant", name="baseline"),
    "a row's digest differs": lambda a: _with_run(a, integrity=("row 7: sha256 differs",)),
    "weights changed since": lambda a: _with_run(a, stale=("weights of int4 changed since the run",)),
    "re-versioned case": lambda a: _some(a, "variant", [3], case_hash="sha other"),
    "re-versioned set": lambda a: _every(a, "variant", case_hash="sha v2"),
    "two answers exchanged": lambda a: _units(a, "variant", lambda u: _exchanged(u, 0, 1)),
    "shuffled ids": lambda a: _units(a, "variant", _shuffled),
    "another passage on one side": lambda a: _some(a, "variant", [3], cluster="x"),
    "another scorer version": lambda a: _every(a, "variant", scorers={"exact_match": "exact_match/2"}),
    "another scorer version for one row": lambda a: _some(a, "variant", [3], scorers={"exact_match": "exact_match/2"}),
    **{
        f"another {field}": (
            lambda a, field=field: _with_arm(a, "variant", identity=replace(_identity("int4"), **{field: "x"}))
        )
        for field in PAIRED_BY
    },
    "two kernels in one arm": lambda a: _some(_every(a, "variant", kernel="c avx512"), "variant", [3], kernel="c avx2"),
    "KL NaN": lambda a: _some(a, "variant", [3], kl=(0.1, nan)),
    "KL negative": lambda a: _some(a, "variant", [3], kl=(0.1, -0.2)),
    "agreement above 1": lambda a: _some(a, "variant", [3], top1_agreement=1.2),
    "both arms truncated": lambda a: _both(a, lambda b, s: _every(b, s, truncated=True)),
    "baseline truncated": lambda a: _every(a, "baseline", truncated=True),
    "both arms too long": lambda a: _both(
        a, lambda b, s: _every(b, s, truncated=True, tokens=4096, values={"exact_match": 0.0, "tool_call.valid": 0.0})
    ),
    "baseline truncated on 7 %": lambda a: _some(a, "baseline", range(0, 240, 14), truncated=True),
    "19 passages": lambda a: _passages(a, 19),
    "one passage": lambda a: _passages(a, 1),
    "baseline right on nothing": lambda a: sound(right=0.0),
    "baseline right on a fifth": lambda a: sound(right=0.2),
    "zero flips at n = 10": lambda a: sound(n=10, right=1.0),
    "one case": lambda a: sound(n=1, right=1.0),
    "no case": lambda a: sound(n=0),
    "variant wrong on all": lambda a: _wrong(a, 1.0),
    "variant wrong on 30 %": lambda a: _wrong(a, 0.3),
    "a loss at the margin": lambda a: sound(lost=0.05),
    "policy without a rule": lambda a: _with_policy(a, rules=()),
    "advisory rules alone, variant wrong on all": lambda a: replace(_wrong(a, 1), policy=_rule(tier="advisory")),
    "supporting rules alone": lambda a: replace(a, policy=_rule(tier="supporting")),
    "a critical drift rule alone": lambda a: replace(a, policy=Policy(rules=(Rule(metric="drift.kl_mean", max=1.0),))),
    "an unknown metric": lambda a: replace(a, policy=_rule(metric="vibes")),
    "a metric no set carries": lambda a: replace(a, policy=_rule(metric="json.valid")),
    "a rule on a set not run": lambda a: replace(a, policy=_rule(evalset="math")),
    "two bounds in one rule": lambda a: replace(a, policy=_rule(max_ratio=2.0)),
    "a person is asked for": lambda a: _with_policy(a, review="always"),
    **{
        f"max_drop {drop:g}": (lambda a, drop=drop: replace(a, policy=_rule(max_drop=drop)))
        for drop in (0, -1, 0.2, 1, inf, nan)
    },
    **{
        f"alpha {alpha:g}": (lambda a, alpha=alpha: _with_policy(a, alpha=alpha)) for alpha in (0, -1, 0.5, 1, inf, nan)
    },
}


def cases() -> dict[str, Asked]:
    """Every faulted evidence and policy, by name."""
    good = sound()
    found = {name: fault(good) for name, fault in CASES.items()}
    for name, fault in ONE_SIDED.items():
        found |= {f"{name}, {side}": fault(good, side) for side in SIDES}
        found[f"{name}, both"] = _both(good, fault)
    for kind, start, faults in (("whole", weighed, WEIGHED), ("stopped", stopped, STOPPED), ("four arms", four, FOUR)):
        given = start()
        found |= {f"{kind}: {name}": fault(given) for name, fault in faults.items()}
    return found


# ------------------------------------------------------------------------- numbers of an arm as a whole, and goodput

FACTS = {
    "memory.weights": 1e6, CACHE_TOKEN: 10.0, "coverage.range": 0.9995, "coverage.outliers": 0.99,
    "coverage.clipped_energy": 1e-5, "coverage.unigrams": 0.999, "coverage.strata": 0.9, "stability.steady": 1.0,
    "stability.saturated": 0.0, "stability.sqnr": 30.0,
}  # fmt: skip
OF_BASELINE = {"memory.weights": 4e6, CACHE_TOKEN: 10.0}
LIMITS: dict[str, dict[str, float]] = {
    "memory.weights": {"max_ratio": 0.5}, "memory.peak": {"max_ratio": 0.6}, "coverage.range": {"min": 0.999},
    "coverage.outliers": {"min": 0.95}, "coverage.clipped_energy": {"max": 1e-4}, "coverage.unigrams": {"min": 0.99},
    "coverage.strata": {"min": 0.25}, "stability.steady": {"min": 1.0}, "stability.saturated": {"max": 1e-6},
    "stability.sqnr": {"min": 20.0}, "goodput": {"min": 0.5},
}  # fmt: skip


def weighed() -> Asked:
    """With every number that a rule on a variant as a whole may name, and a time of every answer."""
    asked = _both(sound(), lambda a, s: _every(a, s, prompt_tokens=30))
    asked = _with_arm(_with_arm(asked, "baseline", facts=OF_BASELINE), "variant", facts=FACTS)
    rules = tuple(Rule(metric=name, **limit) for name, limit in LIMITS.items())  # type: ignore[arg-type]  # limits alone
    return _with_policy(asked, rules=(*asked.policy.rules, *rules), slo=Slo(e2e=100.0))


def _fact(asked: Asked, side: Side, name: str, value: Any) -> Asked:
    facts = {key: known for key, known in _arm(asked, side).facts.items() if key != name}
    return _with_arm(asked, side, facts=facts if value is ... else facts | {name: value})


WEIGHED: dict[str, Callable[[Asked], Asked]] = {
    **{
        f"{name} {'missing' if value is ... else value}, {side}": (
            lambda a, side=side, name=name, value=value: _fact(a, side, name, value)
        )
        for side, facts in zip(SIDES, (OF_BASELINE, FACTS), strict=True)
        for name in facts
        for value in (nan, inf, -inf, -1.0, None, "1", ...)
    },
    **{
        f"a {name} that nothing could have": lambda a, name=name, value=value: _fact(a, "variant", name, value)
        for name, value in (("memory.weights", 0.0), ("coverage.range", 1.5), ("stability.steady", 2.0))
    },
    "the baseline's sizes": lambda a: _with_arm(a, "variant", facts=FACTS | OF_BASELINE),
    "no size of the baseline's": lambda a: _with_arm(a, "baseline", facts={}),
    "a size of a prompt that nobody counted": lambda a: _some(a, "variant", [3], prompt_tokens=None),
    "a prompt of less than nothing": lambda a: _some(a, "variant", [3], prompt_tokens=-(10**6)),
    "numbers from before the weights changed": lambda a: _with_run(a, stale=("weights of int4 changed",)),
    "a layer of NaN": lambda a: _with_arm(
        _fact(a, "variant", "stability.sqnr", ...), "variant", unmeasured={"stability.sqnr": "1 of 9 layers is NaN"}
    ),
    "no limit to be late by": lambda a: _with_policy(a, slo=None),
    "every answer late": lambda a: _with_policy(a, slo=Slo(e2e=1e-3)),
    **{f"a limit of {limit} s": lambda a, limit=limit: _with_policy(a, slo=Slo(e2e=limit)) for limit in (nan, inf, -1)},
    **{
        f"an answer after {seconds} s, {side}": lambda a, side=side, seconds=seconds: _some(
            a, side, [3], values={"latency.e2e": seconds}
        )
        for side in SIDES
        for seconds in (nan, inf, -1.0)
    },
    "an answer after nobody knows how long": lambda a: _some(a, "variant", [3], values={"latency.e2e": None}),
}


# ------------------------------------------------------------------------------------------ records of early stops


def stopped() -> Asked:
    """An equal variant whose generation ended at the first look that settled it."""
    whole = sound(n=300)
    order = order_of(whole.evidence, 1)
    policy = replace(_rule(), stop=EarlyStop(seed=1, looks=planned_looks(order, _rule())))
    assert policy.stop is not None, "just given"
    found = first_settled(whole.evidence, policy, "int4", order, range(1, len(policy.stop.looks)))
    assert found is not None, "equal variants settle"
    seen = set([question for cluster in order for question in cluster][: found.seen])
    asked = _units(whole, "variant", lambda units: [u for u in units if _question(u) in seen])
    return replace(_with_arm(asked, "variant", stopped=found), policy=policy)


def _question(unit: UnitEvidence) -> tuple[str, str, int]:
    return unit.key.evalset, unit.key.case_id, unit.key.repeat


def _record(asked: Asked, **changes: Any) -> Asked:
    record = _arm(asked, "variant").stopped
    assert record is not None, "evidence that stopped"
    return _with_arm(asked, "variant", stopped=replace(record, **changes))


def _other_look(asked: Asked, by: int) -> Asked:
    """The record of another planned look, itself without a contradiction."""
    record, stop = _arm(asked, "variant").stopped, asked.policy.stop
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
    "no record": lambda a: _with_arm(a, "variant", stopped=None),
    "a row of the looked-at cases missing": lambda a: _units(a, "variant", lambda u: u[1:]),
    "a row of the looked-at cases failed": lambda a: _some(a, "variant", [3], status="error", error="died"),
    "a row of the looked-at cases twice": lambda a: _units(a, "variant", lambda u: (*u, u[3])),
    "a score of the looked-at cases NaN": lambda a: _some(a, "variant", [3], values={"exact_match": nan}),
    "no row at all": lambda a: _units(a, "variant", lambda u: ()),
    "12 rows": lambda a: _units(a, "variant", lambda u: u[:12]),
    "the baseline has none of the cases": lambda a: _units(a, "baseline", lambda u: ()),
    "the baseline lacks one of the cases": lambda a: _units(
        a, "baseline", lambda us: [u for u in us if _question(u) != _question(_arm(a, "variant").units[3])]
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
    "approved though wrong on 30 %": lambda a: _wrong(a, 0.3),
    "another order": lambda a: _record(a, order="0" * 64),
    "no order": lambda a: _record(a, order=""),
    "another policy's record": lambda a: _record(a, policy=replace(a.policy, alpha=0.1)),
    "a record of a policy that never stops": lambda a: _record(a, policy=_rule()),
    "judged by a policy that never stops": lambda a: _judged_by(a, stop=None),
    "judged by a wider margin": lambda a: _judged_by(a, rules=_rule(max_drop=0.1).rules),
    "judged at a larger alpha": lambda a: _judged_by(a, alpha=0.2),
    "judged with another seed": lambda a: _looking(a, seed=2),
    "judged without a look": lambda a: _looking(a, looks=()),
    "one look alone, at the looked-at cases": lambda a: _looking(a, looks=(_seen(a),)),
    "weights changed since": lambda a: _with_run(a, stale=("weights of int4 changed",)),
    "a row's digest differs": lambda a: _with_run(a, integrity=("row 7: sha256 differs",)),
    "same alias for two weights": lambda a: _with_run(
        a, variants=(*a.evidence.variants, replace(a.evidence.variants[0], stopped=None))
    ),
    "another tokenizer": lambda a: _with_arm(a, "variant", identity=replace(_identity("int4"), tokenizer="another")),
    "a planned variant left nothing": CASES["a planned variant left nothing"],
}


def _seen(asked: Asked) -> int:
    record = _arm(asked, "variant").stopped
    assert record is not None, "evidence that stopped"
    return record.seen


# ------------------------------------------------------------------------------------------------------- four arms

ROLES = ("int4", "drafted", "both")


def four(n: int = 100) -> Asked:
    """Speculation changes no answer, quantization no score; each costs less than the baseline, and both least."""
    found = sound(n).evidence.baseline
    arms = []
    for name, seconds in zip(("baseline", *ROLES), (10.0, 8.0, 7.0, 4.0), strict=True):
        answer = np.array([1, 2, 3 if name in ("int4", "both") else 4], "<i4").tobytes()
        units = [
            replace(
                unit, key=replace(unit.key, arm=name), answer=answer, finished=True,
                attempts=(Attempt(outcome="done", prompt_tokens=9, output_tokens=3, seconds=seconds + index % 7 / 10),),
            )
            for index, unit in enumerate(found.units)
        ]  # fmt: skip
        arms.append(ArmEvidence(name=name, identity=_identity(name), units=tuple(units)))
    return Asked(
        evidence=RunEvidence(
            run_id="four", expected=tuple(unit.key for arm in arms for unit in arm.units), metrics=SETS,
            baseline=arms[0], variants=tuple(arms[1:]),
        ),
        policy=replace(POLICY, four_arm=FourArms(quantization="int4", speculation="drafted", both="both")),
    )  # fmt: skip


def _named(asked: Asked, name: str, change: Callable[[ArmEvidence], ArmEvidence]) -> Asked:
    e = asked.evidence
    arms = [change(arm) if arm.name == name else arm for arm in (e.baseline, *e.variants)]
    return _with_run(asked, baseline=arms[0], variants=tuple(arms[1:]))


def _fourth(asked: Asked, name: str, **changes: Any) -> Asked:
    """The fourth row of the arm of this name changed."""

    def change(arm: ArmEvidence) -> ArmEvidence:
        units = [replace(unit, **changes) if index == 3 else unit for index, unit in enumerate(arm.units)]
        return replace(arm, units=tuple(units))

    return _named(asked, name, change)


def _tried(**changes: Any) -> dict[str, Any]:
    return {"attempts": (Attempt(outcome="done", prompt_tokens=9, output_tokens=3, **changes),)}


def _without_arm(asked: Asked, name: str, *, planned: bool) -> Asked:
    e = asked.evidence
    expected = e.expected if planned else tuple(key for key in e.expected if key.arm != name)
    return _with_run(asked, variants=tuple(arm for arm in e.variants if arm.name != name), expected=expected)


def _arms_are(asked: Asked, **changes: Any) -> Asked:
    assert asked.policy.four_arm is not None, "a policy of four arms"
    return _with_policy(asked, four_arm=replace(asked.policy.four_arm, **changes))


_OF_EACH: dict[str, Callable[[Asked, str], Asked]] = {
    "a row missing": lambda a, name: _named(a, name, lambda arm: replace(arm, units=arm.units[1:])),
    "no rows": lambda a, name: _named(a, name, lambda arm: replace(arm, units=())),
    "a row twice": lambda a, name: _named(a, name, lambda arm: replace(arm, units=(*arm.units, arm.units[5]))),
    "a row failed": lambda a, name: _fourth(a, name, status="error", error="worker died"),
    "a score NaN": lambda a, name: _fourth(a, name, values={"exact_match": nan, "tool_call.valid": 1.0}),
    "another case": lambda a, name: _fourth(a, name, case_hash="another"),
    "another tokenizer": lambda a, name: _named(
        a, name, lambda arm: replace(arm, identity=replace(_identity(name), tokenizer="another"))
    ),
    "no job finished": lambda a, name: _named(a, name, lambda arm: replace(arm, identity=None)),
    **{
        f"{seconds} s of an attempt": lambda a, name, seconds=seconds: _fourth(a, name, **_tried(seconds=seconds))
        for seconds in (nan, inf, -1e9)
    },
    "an attempt of less than no tokens": lambda a, name: _fourth(a, name, attempts=(
        Attempt(outcome="done", prompt_tokens=9, output_tokens=-(10**9), seconds=1.0),)),
}  # fmt: skip

FOUR: dict[str, Callable[[Asked], Asked]] = {
    **{
        f"{fault}, {name}": lambda a, change=change, name=name: change(a, name)
        for fault, change in _OF_EACH.items()
        for name in ("baseline", *ROLES)
    },
    **{f"no {name}": lambda a, name=name: _without_arm(a, name, planned=True) for name in ROLES},
    **{f"{name} was never planned": lambda a, name=name: _without_arm(a, name, planned=False) for name in ROLES},
    **{
        f"{name} under two weights": lambda a, name=name: _with_run(
            a, variants=(*a.evidence.variants, next(arm for arm in a.evidence.variants if arm.name == name))
        )
        for name in ROLES
    },
    "one arm in two roles": lambda a: _arms_are(a, both="int4"),
    "the baseline in a role": lambda a: _arms_are(a, speculation="baseline"),
    "a role of an arm that is not there": lambda a: _arms_are(a, both="prod"),
    "a role of nobody": lambda a: _arms_are(a, both=""),
    "evidence of before": lambda a: _with_run(a, stale=("weights of both changed",)),
    "a row's digest differs": lambda a: _with_run(a, integrity=("row 7: sha256 differs",)),
    "a person is asked for": lambda a: _with_policy(a, review="always"),
    "a supporting rule broken by every arm": lambda a: _with_policy(
        a, rules=(*a.policy.rules, Rule(metric="latency.e2e", max_ratio=0.5, tier="supporting"))
    ),
    "no critical rule": lambda a: _with_policy(a, rules=_rule(tier="advisory").rules),
    "a rule on an A/A arm that did not run": lambda a: _with_policy(
        a, rules=(*a.policy.rules, Rule(metric="stability.rerun", min=1.0))
    ),
    "a critical rule that nobody measured": lambda a: _with_policy(
        a, rules=(*a.policy.rules, Rule(metric="memory.weights", max=1e12))
    ),
    "no arm within the SLO": lambda a: _with_policy(a, slo=Slo(e2e=1e-3)),
    **{
        f"a limit of {limit} s": lambda a, limit=limit: _with_policy(a, slo=Slo(e2e=limit))
        for limit in (nan, inf, -1.0)
    },
    **{
        f"a price of {price}": lambda a, price=price: _with_policy(
            a, prices=Prices(version="1", currency="EUR", device_second=price)
        )
        for price in (nan, inf, -1.0)
    },
    "as many answers at a time as none": lambda a: _with_policy(
        a, prices=Prices(version="1", currency="EUR", device_second=1.0, concurrency=0)
    ),
    **{
        f"a saving of {saving}": lambda a, saving=saving: _arms_are(a, min_saving=saving)
        for saving in (nan, inf, -1.0, 1.0)
    },
    "half a token": lambda a: _fourth(a, "drafted", answer=b"\x01"),
    "half a margin": lambda a: _fourth(a, "baseline", margins=b"\x01"),
    "a saving that no arm has": lambda a: _arms_are(a, min_saving=0.9),
    "what the baseline cost is not known": lambda a: _named(
        a, "baseline", lambda arm: replace(arm, units=tuple(replace(unit, attempts=()) for unit in arm.units))
    ),
    "10 cases": lambda a: four(5),
}


# ---------------------------------------------------------------------------------------------- score files


def _twice(text: str) -> tuple[str, str]:
    return text, text


def _line(case: int, **over: Any) -> str:
    row = {"id": f"q{case}", "metric": "exact_match", "value": float(case % 10 > 0), "case_hash": f"h{case}"}
    row = {key: value for key, value in (row | {"scorer": "exact_match/1"} | over).items() if value is not ...}
    return json.dumps(row) + "\n"


GOOD_FILE = "".join(_line(case) for case in range(240))


def _first(**over: Any) -> str:
    """The file with something else in its first row, whose value is 0."""
    return _line(0, **over) + GOOD_FILE.partition("\n")[2]


FILES: dict[str, tuple[str | bytes, str | bytes]] = {
    "both empty": ("", ""),
    "baseline empty": ("", GOOD_FILE),
    "variant empty": (GOOD_FILE, ""),
    "blank lines alone": ("\n\n", "\n\n"),
    "variant cut inside a line": (GOOD_FILE, GOOD_FILE[:-20]),
    "variant cut between lines": (GOOD_FILE, "".join(_line(case) for case in range(12))),
    "baseline cut between lines": ("".join(_line(case) for case in range(12)), GOOD_FILE),
    "not UTF-8": (GOOD_FILE, GOOD_FILE.encode() + b"\xff\xfe\n"),
    "an array": (GOOD_FILE, "[]\n"),
    "a row twice": (GOOD_FILE, GOOD_FILE + _line(3)),
    "a row twice, better the second time": (GOOD_FILE, GOOD_FILE + _line(10, value=1.0)),
    "a key twice": (GOOD_FILE, GOOD_FILE.replace('{"id"', '{"value": 1, "id"', 1)),
    "NaN": (GOOD_FILE, "".join(_line(case, value=nan) for case in range(240))),
    "one NaN": (GOOD_FILE, _line(0, value=nan) + GOOD_FILE.partition("\n")[2]),
    "a score of 1e999": (GOOD_FILE, GOOD_FILE.replace("1.0", "1e999", 1)),
    "a score of 7": (GOOD_FILE, _line(0, value=7.0) + GOOD_FILE.partition("\n")[2]),
    "a score in words": (GOOD_FILE, _line(0, value="1.0") + GOOD_FILE.partition("\n")[2]),
    "null scores": (GOOD_FILE, "".join(_line(case, value=None) for case in range(240))),
    "no scores": (GOOD_FILE, "".join(_line(case, value=...) for case in range(240))),
    "no ids": (GOOD_FILE, "".join(_line(case, id=...) for case in range(240))),
    "no hashes on one side": (GOOD_FILE, "".join(_line(case, case_hash=...) for case in range(240))),
    "no hashes on both": _twice("".join(_line(case, case_hash=...) for case in range(240))),
    "hashes of another version": (GOOD_FILE, "".join(_line(case, case_hash=f"v2 {case}") for case in range(240))),
    "shifted ids": (GOOD_FILE, "".join(_line(case, id=f"q{(case + 1) % 240}") for case in range(240))),
    "another metric": (GOOD_FILE, "".join(_line(case, metric="json.valid") for case in range(240))),
    "another scorer": (GOOD_FILE, "".join(_line(case, scorer="exact_match/2") for case in range(240))),
    "ten rows, no flip": _twice("".join(_line(case, value=1.0) for case in range(10))),
    "all wrong on both": _twice("".join(_line(case, value=0.0) for case in range(240))),
    "12 cases under 20 ids each": _twice("".join(_line(case, case_hash=f"h{case % 12}") for case in range(240))),
    "12 cases under 20 ids and in 20 clusters": _twice(
        "".join(_line(case, case_hash=f"h{case % 12}", cluster=f"c{case // 12}") for case in range(240))
    ),
    "12 cases in 20 evalsets": _twice("".join(_line(case % 12, evalset=f"s{case // 12}") for case in range(240))),
    "12 cases 20 times each": _twice("".join(_line(case % 12, repeat=case // 12) for case in range(240))),
    "ids in another letter case": (GOOD_FILE, GOOD_FILE.replace('"id": "q', '"id": "Q')),
    "ids composed and decomposed": (GOOD_FILE.replace('"q', '"\u00e9'), GOOD_FILE.replace('"q', '"e\u0301')),
    "ids with a space after": (GOOD_FILE, GOOD_FILE.replace('", "metric', ' ", "metric')),
    "an evalset of times alone": _twice(
        GOOD_FILE + "".join(_line(case, evalset="b", metric="latency.e2e", value=1.0) for case in range(240, 300))
    ),
    "a time below nothing": (GOOD_FILE, GOOD_FILE + _line(0, metric="latency.e2e", value=-1)),
    "a repeat below nothing": (GOOD_FILE, GOOD_FILE + _line(0, repeat=-1)),
    "a score in a list": (GOOD_FILE, _line(0, value=[1.0]) + GOOD_FILE.partition("\n")[2]),
    "a whole number beyond a double": (GOOD_FILE, GOOD_FILE.replace("1.0", "1" + "0" * 400, 1)),
    "a line nested too deep": (GOOD_FILE, "[" * 10**5 + "\n" + GOOD_FILE),
    **{
        f"{fault}, {side}": (_first(**over), GOOD_FILE) if side == "baseline" else (GOOD_FILE, _first(**over))
        for fault, over in {
            "a verdict of null": {"verdict": None},
            "a verdict of null and a crash": {"verdict": None, "error_type": "scorer_crashed"},
            "a verdict against its value": {"verdict": True},
            "a verdict in words": {"verdict": "false"},
            "an error type": {"error_type": "truncated"},
            "an error's status": {"status": "error"},
            "a status nobody knows": {"status": "skipped"},
            "an error": {"error": "connection refused"},
            "a fraction of right": {"value": 0.5},
            "an end nobody knows": {"finish_reason": "lenght"},
            "an end by the server": {"finish_reason": "abort"},
            "an end by a content filter": {"finish_reason": "content_filter"},
        }.items()
        for side in SIDES
    },
    "baseline cut off": ("".join(_line(case, finish_reason="length") for case in range(240)), GOOD_FILE),
    "compressed": (GOOD_FILE, gzip.compress(GOOD_FILE.encode(), mtime=0)),
    "UTF-16": (GOOD_FILE, GOOD_FILE.encode("utf-16")),
    "a blank line inside": (GOOD_FILE, GOOD_FILE.replace("\n", "\n\n", 1)),
    "all wrong on the variant": (GOOD_FILE, "".join(_line(case, value=0.0) for case in range(240))),
}
"""name → the baseline's and the variant's file of score rows."""


def file_exit(baseline: str | bytes, variant: str | bytes, folder: Path) -> int:
    """The code for two files of score rows, judged with the margin of 5 points."""
    paths = (folder / "baseline.jsonl", folder / "variant.jsonl")
    for path, text in zip(paths, (baseline, variant), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        baseline_rows, variant_rows = map(read_score_rows, paths)
        _, verdicts, _, _ = judge(baseline_rows, variant_rows, _rule(), evalset="code")
        return int(overall_exit(verdicts))
    except QualgateError as error:
        return int(error.exit)


# ------------------------------------------------------------------------------------------------ nel's policies

GOOD_NEL = "version: 1\ndefaults: {tier: critical, metric: mean_reward, max_drop: 0.1}\n"
NEL: dict[str, str | bytes] = {
    "empty": "",
    "a comment alone": "# nothing\n",
    "null": "null\n",
    "a list": "- 1\n",
    "a text": "GO\n",
    "not UTF-8": b"version: 1\n# \xff\xfe\n",
    "a NUL": GOOD_NEL + "\0",
    "cut": GOOD_NEL[:-4],
    "version 2": GOOD_NEL.replace("1", "2", 1),
    "version in words": GOOD_NEL.replace("1", "one", 1),
    "an unknown key": GOOD_NEL + "approve: true\n",
    "an unknown key of the defaults": GOOD_NEL.replace("max_drop", "max_drp"),
    "a key twice": GOOD_NEL + "defaults: {tier: advisory}\n",
    "an unknown tier": GOOD_NEL.replace("critical", "optional"),
    "an unknown metric": GOOD_NEL + "benchmarks: {code: {tier: critical, metric: vibes}}\n",
    "a benchmark without a metric": "benchmarks: {code: {tier: critical}}\n",
    "a benchmark that did not run": GOOD_NEL + "benchmarks: {math: {tier: critical}}\n",
    "lower is better": GOOD_NEL + "benchmarks: {code: {direction: lower_is_better}}\n",
    "advisory alone": GOOD_NEL.replace("critical", "advisory"),
    "pass@1 of a word that is none": GOOD_NEL.replace("mean_reward", "pass@one"),
    **{
        f"a drop of {drop}": GOOD_NEL.replace("0.1", drop)
        for drop in ("0", "-0.1", ".nan", ".inf", "-.inf", "1", "0.2", "1e300", "yes", "[0.1]", "null")
    },
    **{
        f"a relative drop of {drop}": GOOD_NEL.replace("max_drop: 0.1", f"max_drop: 0.1, max_relative_drop: {drop}")
        for drop in ("-1", ".nan", "0")
    },
    "an anchor": "a: &a [x]\nb: *a\n" + GOOD_NEL,
    "a bomb of aliases": "\n".join(
        ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), GOOD_NEL]
    ),
    "a tag": "!!python/object/apply:os.system [exit]\n",
    "nested too deep": "benchmarks: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
    "two documents": GOOD_NEL + "---\n" + GOOD_NEL,
}
"""name → what a file holds that should be a policy, version 1, of a NeMo Evaluator."""


def nel_exit(text: str | bytes, folder: Path) -> int:
    """The code for evidence that approves, decided by this policy file."""
    path = folder / "nel.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return int(overall_exit(decide_by(read_nel_policy(path), sound(400).evidence)[0]))
    except QualgateError as error:
        return int(error.exit)


# ------------------------------------------------------------------------------------------------ mutations


def _fresh(g: Draw) -> str:
    return f"drawn {g.integers(2**62)}"


def _rows(g: Draw) -> list[int]:
    """One row, a few, or many."""
    return [int(index) for index in g.integers(10_000, size=int(g.choice([1, 3, 40])))]


def _of(g: Draw, *values: Any) -> Any:
    return values[int(g.integers(len(values)))]


MUTATIONS: dict[str, Mutation] = {
    "drop rows": lambda a, s, g: _units(a, s, lambda u: u[int(g.integers(1, 60)) :]),
    "keep few": lambda a, s, g: _units(a, s, lambda u: u[: int(g.integers(100))]),
    "double rows": lambda a, s, g: _units(a, s, lambda u: (*u, *u[-int(g.integers(1, 9)) :])),
    "fail rows": lambda a, s, g: _some(a, s, _rows(g), status=_of(g, "error", "missing", "skipped"), error=_fresh(g)),
    "fail all": lambda a, s, g: _every(a, s, status="error", error=_fresh(g)),
    "stray row": lambda a, s, g: _units(
        a, s, lambda u: (*u, *(replace(unit, key=replace(unit.key, case_id=_fresh(g))) for unit in u[:1]))
    ),
    "rename rows": lambda a, s, g: _units(
        a, s, lambda u: (*(replace(unit, key=replace(unit.key, case_id=_fresh(g))) for unit in u[:3]), *u[3:])
    ),
    "exchange answers": lambda a, s, g: _units(
        a, s, lambda u: _exchanged(u, int(g.integers(1, 9999)), int(g.integers(9999)))
    ),
    "other case": lambda a, s, g: _some(a, s, _rows(g), case_hash=_of(g, "", _fresh(g))),
    "other set": lambda a, s, g: _every(a, s, case_hash=_fresh(g)),
    "other passage": lambda a, s, g: _some(a, s, _rows(g), cluster=_fresh(g)),
    "other scorer": lambda a, s, g: _some(a, s, _rows(g), scorers={"exact_match": _fresh(g)}),
    "unknown scorer": lambda a, s, g: _some(a, s, _rows(g), scorers={}),
    "no number": lambda a, s, g: _some(
        a, s, _rows(g), values={"exact_match": _of(g, nan, inf, -inf, 1.0001, -1e-9, 7.0, 1e308)}
    ),
    "no score": lambda a, s, g: _some(a, s, _rows(g), values={}),
    "cannot say": lambda a, s, g: _some(a, s, _rows(g), values={"exact_match": None}),
    "no time": lambda a, s, g: _some(a, s, _rows(g), values={"latency.e2e": _of(g, nan, inf, -0.1)}),
    "no drift": lambda a, s, g: _some(a, s, _rows(g), kl=(0.1, _of(g, nan, inf, -0.1))),
    "no agreement": lambda a, s, g: _some(a, s, _rows(g), top1_agreement=_of(g, nan, -0.1, 1.1)),
    "kernels": lambda a, s, g: _some(a, "variant", _rows(g)[:1], kernel=_fresh(g)),
    "truncate": lambda a, s, g: _some(a, "baseline", range(int(g.integers(20, 240))), truncated=True),
    "truncate both": lambda a, s, g: _both(a, lambda b, side: _every(b, side, truncated=True)),
    "lose": lambda a, s, g: _wrong(a, float(g.uniform(0.15, 1))),
    "all wrong on both": lambda a, s, g: _both(
        a, lambda b, side: _every(b, side, values={"exact_match": 0.0, "tool_call.valid": 0.0})
    ),
    "few passages": lambda a, s, g: _passages(a, int(g.integers(1, 20))),
    "identity": lambda a, s, g: _with_arm(
        a, s, identity=replace(_arm(a, s).identity or _identity("x"), **{_of(g, *PAIRED_BY): _fresh(g)})
    ),
    "no identity": lambda a, s, g: _with_arm(a, s, identity=None),
    "alias": lambda a, s, g: _with_run(a, variants=a.evidence.variants * 2),
    "called baseline": lambda a, s, g: _with_arm(a, "variant", name="baseline"),
    "integrity": lambda a, s, g: _with_run(a, integrity=(*a.evidence.integrity, _fresh(g))),
    "stale": lambda a, s, g: _with_run(a, stale=(*a.evidence.stale, _fresh(g))),
    "plan twice": lambda a, s, g: _with_run(a, expected=(*a.evidence.expected, *a.evidence.expected[-1:])),
    "plan less": lambda a, s, g: _with_run(a, expected=a.evidence.expected[int(g.integers(1, 9)) :]),
    "plan more": lambda a, s, g: _with_run(
        a, expected=(*a.evidence.expected, UnitKey(_of(g, "baseline", "int4", "int2"), "code", _fresh(g)))
    ),
    "forget a set": lambda a, s, g: _with_run(a, metrics={_of(g, "code", "tools"): ("exact_match",)}),
    "a set of nothing": lambda a, s, g: _with_run(a, metrics=a.evidence.metrics | {_fresh(g): ("exact_match",)}),
    "no rule": lambda a, s, g: _with_policy(a, rules=()),
    "no critical rule": lambda a, s, g: _with_policy(
        a, rules=tuple(replace(rule, tier=_of(g, "supporting", "advisory")) for rule in a.policy.rules)
    ),
    "unfit margin": lambda a, s, g: _with_policy(
        a, rules=(*a.policy.rules, Rule(metric="exact_match", max_drop=_of(g, nan, inf, 0.0, -0.1, 0.2, 1.0)))
    ),
    "unfit alpha": lambda a, s, g: _with_policy(a, alpha=_of(g, nan, inf, 0.0, -0.05, 0.5, 1.0)),
}


def mutated(singles: int, pairs: int, seed: int = 2026) -> Iterator[tuple[tuple[str, ...], Asked]]:
    """(names, input): every mutation in turn until `singles` were drawn, then `pairs` of two different ones."""
    g, good, names = np.random.default_rng(seed), sound(), tuple(MUTATIONS)
    drawn = [(names[index % len(names)],) for index in range(singles)]
    drawn += [tuple(names[i] for i in g.choice(len(names), 2, replace=False)) for _ in range(pairs)]
    for chosen in drawn:
        asked = good
        for name in chosen:
            asked = MUTATIONS[name](asked, _of(g, *SIDES), g)
        yield chosen, asked


# ------------------------------------------------------------------------------------------------------ rows


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: how often each exit code came out, goal rows in the shape of `bench.shape`).

    quick: every case, but each mutation once and 120 pairs, so `fail_closed.mutations` has no verdict.
    """
    for start in (sound, weighed, stopped, four):
        if (code := exit_of(start())) != Exit.APPROVE:
            raise AssertionError(f"the {start.__name__} evidence that faults start from exits with {code}, not 0")
    singles, pairs = (len(MUTATIONS), 120) if quick else (7 * len(MUTATIONS), 400)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if file_exit(GOOD_FILE, GOOD_FILE, folder) != Exit.APPROVE:
            raise AssertionError("the score files that the faults start from must approve")
        if nel_exit(GOOD_NEL, folder) != Exit.APPROVE:
            raise AssertionError("the nel policy that the faults start from must approve")
        found = [outcome(file_exit, *files, folder) for files in FILES.values()]
        found += [outcome(nel_exit, text, folder) for text in NEL.values()]
    found += [outcome(exit_of, asked) for asked in cases().values()]
    drawn = [outcome(exit_of, asked) for _, asked in mutated(singles, pairs)]
    outcomes: dict[str, list[int | str]] = {"fail_closed.cases": found, "fail_closed.mutations": drawn}
    rounds = [
        {"of": id, "exit": code, "count": found.count(code)}
        for id, found in outcomes.items()
        for code in sorted(set(found), key=str)
    ]
    return rounds, [_row(id, found) for id, found in outcomes.items()]


def _row(id: str, found: Sequence[int | str]) -> dict[str, Any]:
    approved, crashed = found.count(0), sum(isinstance(code, str) for code in found)
    measured = {"tried": len(found), "approved": approved, "crashed": crashed}
    row = {"id": id, "goal": GOALS[id], "measured": measured, "spread": None, "met": not approved and not crashed}
    if row["met"] and len(found) < LEAST[id]:
        row |= {"met": None, "reason": f"only {len(found)} were tried"}
    return row


def outcome(ask: Callable[..., int], *given: Any) -> int | str:
    """The exit code, or the name of what crashed: the contract knows no traceback."""
    try:
        return ask(*given)
    except Exception as error:
        return type(error).__name__
