"""Faults with drawn parameters (which side, which row, how much), one or two of them, one after the other.

Values drawn for a mutation are never drawn twice, so that no second fault undoes a first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np

from qualgate.gate.evidence.checks import PAIRED_BY
from qualgate.records import (
    Rule,
    UnitKey,
)
from tests.verification.verdicts.faults.changes import (
    arm_of,
    exchanged,
    in_passages,
    on_both,
    with_arm,
    with_every,
    with_policy,
    with_run,
    with_some,
    with_units,
    wrong_on,
)
from tests.verification.verdicts.faults.given import SIDES, Asked, Side, identity, sound

Draw = np.random.Generator
Mutation = Callable[[Asked, Side, Draw], Asked]


def _fresh(g: Draw) -> str:
    return f"drawn {g.integers(2**62)}"


def _rows(g: Draw) -> list[int]:
    """One row, a few, or many."""
    return [int(index) for index in g.integers(10_000, size=int(g.choice([1, 3, 40])))]


def _of(g: Draw, *values: Any) -> Any:
    return values[int(g.integers(len(values)))]


MUTATIONS: dict[str, Mutation] = {
    "drop rows": lambda a, s, g: with_units(a, s, lambda u: u[int(g.integers(1, 60)) :]),
    "keep few": lambda a, s, g: with_units(a, s, lambda u: u[: int(g.integers(100))]),
    "double rows": lambda a, s, g: with_units(a, s, lambda u: (*u, *u[-int(g.integers(1, 9)) :])),
    "fail rows": lambda a, s, g: with_some(
        a, s, _rows(g), status=_of(g, "error", "missing", "skipped"), error=_fresh(g)
    ),
    "fail all": lambda a, s, g: with_every(a, s, status="error", error=_fresh(g)),
    "stray row": lambda a, s, g: with_units(
        a, s, lambda u: (*u, *(replace(unit, key=replace(unit.key, case_id=_fresh(g))) for unit in u[:1]))
    ),
    "rename rows": lambda a, s, g: with_units(
        a, s, lambda u: (*(replace(unit, key=replace(unit.key, case_id=_fresh(g))) for unit in u[:3]), *u[3:])
    ),
    "exchange answers": lambda a, s, g: with_units(
        a, s, lambda u: exchanged(u, int(g.integers(1, 9999)), int(g.integers(9999)))
    ),
    "other case": lambda a, s, g: with_some(a, s, _rows(g), case_hash=_of(g, "", _fresh(g))),
    "other set": lambda a, s, g: with_every(a, s, case_hash=_fresh(g)),
    "other passage": lambda a, s, g: with_some(a, s, _rows(g), cluster=_fresh(g)),
    "other scorer": lambda a, s, g: with_some(a, s, _rows(g), scorers={"exact_match": _fresh(g)}),
    "unknown scorer": lambda a, s, g: with_some(a, s, _rows(g), scorers={}),
    "no number": lambda a, s, g: with_some(
        a, s, _rows(g), values={"exact_match": _of(g, nan, inf, -inf, 1.0001, -1e-9, 7.0, 1e308)}
    ),
    "no score": lambda a, s, g: with_some(a, s, _rows(g), values={}),
    "cannot say": lambda a, s, g: with_some(  # a few, or the baseline's alone, lose no more than the margin at worst
        a, "variant", range(0, 240, int(g.integers(2, 9))), values={"exact_match": None}
    ),
    "no time": lambda a, s, g: with_some(a, s, _rows(g), values={"latency.e2e": _of(g, nan, inf, -0.1)}),
    "no drift": lambda a, s, g: with_some(a, s, _rows(g), kl=(0.1, _of(g, nan, inf, -0.1))),
    "no agreement": lambda a, s, g: with_some(a, s, _rows(g), top1_agreement=_of(g, nan, -0.1, 1.1)),
    "kernels": lambda a, s, g: with_some(a, "variant", _rows(g)[:1], kernel=_fresh(g)),
    "truncate": lambda a, s, g: with_some(a, "baseline", range(int(g.integers(20, 240))), truncated=True),
    "truncate both": lambda a, s, g: on_both(a, lambda b, side: with_every(b, side, truncated=True)),
    "lose": lambda a, s, g: wrong_on(a, float(g.uniform(0.15, 1))),
    "all wrong on both": lambda a, s, g: on_both(
        a, lambda b, side: with_every(b, side, values={"exact_match": 0.0, "tool_call.valid": 0.0})
    ),
    "few passages": lambda a, s, g: in_passages(a, int(g.integers(1, 20))),
    "identity": lambda a, s, g: with_arm(
        a, s, identity=replace(arm_of(a, s).identity or identity("x"), **{_of(g, *PAIRED_BY): _fresh(g)})
    ),
    "no identity": lambda a, s, g: with_arm(a, s, identity=None),
    "alias": lambda a, s, g: with_run(a, variants=a.evidence.variants * 2),
    "called baseline": lambda a, s, g: with_arm(a, "variant", name="baseline"),
    "integrity": lambda a, s, g: with_run(a, integrity=(*a.evidence.integrity, _fresh(g))),
    "stale": lambda a, s, g: with_run(a, stale=(*a.evidence.stale, _fresh(g))),
    "plan twice": lambda a, s, g: with_run(a, expected=(*a.evidence.expected, *a.evidence.expected[-1:])),
    "plan less": lambda a, s, g: with_run(a, expected=a.evidence.expected[int(g.integers(1, 9)) :]),
    "plan more": lambda a, s, g: with_run(
        a, expected=(*a.evidence.expected, UnitKey(_of(g, "baseline", "int4", "int2"), "code", _fresh(g)))
    ),
    "forget a set": lambda a, s, g: with_run(a, metrics={_of(g, "code", "tools"): ("exact_match",)}),
    "a set of nothing": lambda a, s, g: with_run(a, metrics=a.evidence.metrics | {_fresh(g): ("exact_match",)}),
    "no rule": lambda a, s, g: with_policy(a, rules=()),
    "no critical rule": lambda a, s, g: with_policy(
        a, rules=tuple(replace(rule, tier=_of(g, "supporting", "advisory")) for rule in a.policy.rules)
    ),
    "unfit margin": lambda a, s, g: with_policy(
        a, rules=(*a.policy.rules, Rule(metric="exact_match", max_drop=_of(g, nan, inf, 0.0, -0.1, 0.2, 1.0)))
    ),
    "unfit alpha": lambda a, s, g: with_policy(a, alpha=_of(g, nan, inf, 0.0, -0.05, 0.5, 1.0)),
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
