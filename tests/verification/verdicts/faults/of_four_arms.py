"""Faults of four arms: of each one's rows and attempts, and of who they are said to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import inf, nan
from typing import Any

import numpy as np

from qualgate.records import (
    ArmEvidence,
    Attempt,
    FourArms,
    Rule,
    RunEvidence,
    Slo,
)
from tests.verification.verdicts.faults.evidence import (
    POLICY,
    SETS,
    Asked,
    arm_of,
    identity,
    one_rule,
    sound,
    with_every,
    with_policy,
    with_run,
    with_some,
)

ROLES = ("int4", "drafted", "both")
DRAFTING = ROLES[1:]


@lru_cache(maxsize=2)
def four(n: int = 100) -> Asked:
    """Speculation changes no answer, quantization no score; each costs less than the baseline, and both least."""
    found = sound(n).evidence.baseline
    arms = []
    for name, seconds in zip(("baseline", *ROLES), (10.0, 8.0, 7.0, 4.0), strict=True):
        answer = np.array([1, 2, 3 if name in ("int4", "both") else 4], "<i4").tobytes()
        units = [
            replace(
                unit, key=replace(unit.key, arm=name), answer=answer, finished=True,
                draft_proposed=3 if name in DRAFTING else None, draft_accepted=1 if name in DRAFTING else None,
                attempts=(Attempt(outcome="done", prompt_tokens=9, output_tokens=3, seconds=seconds + index % 7 / 10),),
            )
            for index, unit in enumerate(found.units)
        ]  # fmt: skip
        arms.append(ArmEvidence(name=name, identity=identity(name), units=tuple(units)))
    return Asked(
        evidence=RunEvidence(
            run_id="four", expected=tuple(unit.key for arm in arms for unit in arm.units), metrics=SETS,
            baseline=arms[0], variants=tuple(arms[1:]),
        ),
        policy=replace(POLICY, four_arm=FourArms(quantization="int4", speculation="drafted", both="both")),
    )  # fmt: skip


def _tried(**changes: Any) -> dict[str, Any]:
    return {"attempts": (Attempt(outcome="done", prompt_tokens=9, output_tokens=3, **changes),)}


def _without_arm(asked: Asked, name: str, *, planned: bool) -> Asked:
    e = asked.evidence
    expected = e.expected if planned else tuple(key for key in e.expected if key.arm != name)
    return with_run(asked, variants=tuple(arm for arm in e.variants if arm.name != name), expected=expected)


_OF_EACH: dict[str, Callable[[Asked, str], Asked]] = {
    **{
        f"{seconds} s of an attempt": lambda a, name, s=seconds: with_some(a, name, [3], **_tried(seconds=s))
        for seconds in (nan, inf, -1e9)
    },
    "an attempt of less than no tokens": lambda a, name: with_some(a, name, [3], attempts=(
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
        f"{name} under two weights": lambda a, name=name: with_run(a, variants=(*a.evidence.variants, arm_of(a, name)))
        for name in ROLES
    },
    "the baseline in a role": lambda a: replace(
        a, policy=replace(a.policy, four_arm=FourArms(quantization="int4", speculation="baseline", both="both"))
    ),
    "a supporting rule broken by every arm": lambda a: with_policy(
        a, rules=(*a.policy.rules, Rule(metric="latency.e2e", max_ratio=0.5, tier="supporting"))
    ),
    "no critical rule": lambda a: with_policy(a, rules=one_rule(tier="advisory").rules),
    "a rule on an A/A arm that did not run": lambda a: with_policy(
        a, rules=(*a.policy.rules, Rule(metric="stability.rerun", min=1.0))
    ),
    "a critical rule that nobody measured": lambda a: with_policy(
        a, rules=(*a.policy.rules, Rule(metric="memory.weights", max=1e12))
    ),
    "no arm within the SLO": lambda a: with_policy(a, slo=Slo(e2e=1e-3)),
    **{
        f"a limit of {limit} s": lambda a, limit=limit: with_policy(a, slo=Slo(e2e=limit)) for limit in (nan, inf, -1.0)
    },
    "half a token": lambda a: with_some(a, "drafted", [3], answer=b"\x01"),
    "half a margin": lambda a: with_some(a, "baseline", [3], margins=b"\x01"),
    "what the baseline cost is not known": lambda a: with_every(a, "baseline", attempts=()),
    "10 cases": lambda a: four(5),
}
