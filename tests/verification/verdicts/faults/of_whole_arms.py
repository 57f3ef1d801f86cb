"""Faults of numbers that an arm has as a whole, and of the limit that goodput counts by."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf, nan
from typing import Any

from qualgate.records import (
    CACHE_TOKEN,
    Rule,
    Slo,
)
from tests.verification.verdicts.faults.evidence import (
    SIDES,
    Asked,
    Side,
    arm_of,
    on_both,
    sound,
    with_arm,
    with_every,
    with_policy,
    with_run,
    with_some,
)

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


@lru_cache(maxsize=1)
def weighed() -> Asked:
    """With every number that a rule on a variant as a whole may name, and a time of every answer."""
    asked = on_both(sound(), lambda a, s: with_every(a, s, prompt_tokens=30))
    asked = with_arm(with_arm(asked, "baseline", facts=OF_BASELINE), "variant", facts=FACTS)
    rules = tuple(Rule(metric=name, **limit) for name, limit in LIMITS.items())  # type: ignore[arg-type]  # limits alone
    return with_policy(asked, rules=(*asked.policy.rules, *rules), slo=Slo(e2e=100.0))


def _fact(asked: Asked, side: Side, name: str, value: Any) -> Asked:
    facts = {key: known for key, known in arm_of(asked, side).facts.items() if key != name}
    return with_arm(asked, side, facts=facts if value is ... else facts | {name: value})


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
    "the baseline's sizes": lambda a: with_arm(a, "variant", facts=FACTS | OF_BASELINE),
    "no size of the baseline's": lambda a: with_arm(a, "baseline", facts={}),
    "a size of a prompt that nobody counted": lambda a: with_some(a, "variant", [3], prompt_tokens=None),
    "a prompt of less than nothing": lambda a: with_some(a, "variant", [3], prompt_tokens=-(10**6)),
    "numbers from before the weights changed": lambda a: with_run(a, stale=("weights of int4 changed",)),
    "a layer of NaN": lambda a: with_arm(
        _fact(a, "variant", "stability.sqnr", ...), "variant", unmeasured={"stability.sqnr": "1 of 9 layers is NaN"}
    ),
    "no limit to be late by": lambda a: with_policy(a, slo=None),
    "every answer late": lambda a: with_policy(a, slo=Slo(e2e=1e-3)),
    **{f"a limit of {limit} s": lambda a, limit=limit: with_policy(a, slo=Slo(e2e=limit)) for limit in (nan, inf, -1)},
    **{
        f"an answer after {seconds} s, {side}": lambda a, side=side, seconds=seconds: with_some(
            a, side, [3], values={"latency.e2e": seconds}
        )
        for side in SIDES
        for seconds in (nan, inf, -1.0)
    },
    "an answer after nobody knows how long": lambda a: with_some(a, "variant", [3], values={"latency.e2e": None}),
}
