"""Does the planner predict what the gate does? Rows `planner.rates`, `planner.decidable` and `undecided.planned`.

Predicted against simulated (`simulated_verdicts`), for policies of every kind, before and after the printed change. And
of identical variants, at the cases that `plan` asks for, how many stay undecided: seeded policies on one or two sets,
half of them of passages. The planner foretells each as it stands; where it can hardly decide, the first change that it
prints is made. Beside the undecided stand both errors: approvals of a variant that loses each set's smallest critical
margin, and blocks of the same variant, which loses no more than is allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from qualgate.gate.planning.planner import plan_policy
from tests.verification.verdicts.planned_policies import PLAIN, SEEDED, Case, policies, seeded
from tests.verification.verdicts.row import Row
from tests.verification.verdicts.simulated_verdicts import simulated

ALPHA = 0.05
MOST_UNDECIDED = 0.10
PLANNED, DRAWS = 2_000, 400  # draws of the planner, and of each seeded policy and truth
# Of the first 12, before clusters were bet on and `plan` asked for the cases that 9 of 10 identical variants need.
BEFORE = {"policies": 12, "undecided": 0.0546, "approve": 0.0177, "block": 0.0246, "cases": 671.8}
Rounds = list[dict[str, Any]]


def measured_rows(*, quick: bool) -> tuple[Row, ...]:
    if not quick:
        return *planner_rates(predicted(policies(), 22_500)), undecided(at_planned_cases(seeded(SEEDED)))
    chosen = policies()[3:6] + policies()[PLAIN : PLAIN + 3]
    return *planner_rates(predicted(chosen, 3_000)), undecided(at_planned_cases(seeded(5)))


def predicted(cases: Sequence[Case], draws: int) -> Rounds:
    """[predicted, simulated] of each policy. `error`: three standard errors that a simulated rate can have, at most."""
    rounds = []
    for case in cases:
        planned = plan_policy(case.sets, case.policy, case.assumed)
        found = simulated(case.sets, case.policy, case.assumed, draws)
        one: dict[str, Any] = {
            "policy": case.name, "draws": found.draws, "error": 1.5 / sqrt(found.draws),
            "approve": [planned.approve, found.approve], "block": [planned.block, found.block], "change": None,
            "after": None, "refused": planned.refused, "checked": found.checked, "differing": found.differing,
        }  # fmt: skip
        if planned.changes:
            change = planned.changes[0]
            after = simulated(change.sets, change.policy, case.assumed, draws, block=False)
            one |= {"change": change.kind, "after": [change.approve, after.approve]}
            one["checked"] += after.checked
            one["differing"] += after.differing
        rounds.append(one)
    return rounds


def planner_rates(rounds: Rounds) -> tuple[Row, Row]:
    """Predicted against simulated, before and after the printed change."""
    off = [abs(one[what][0] - one[what][1]) for one in rounds for what in ("approve", "block", "after") if one[what]]
    reached = sum((one["after"] or one["approve"])[1] >= 0.8 for one in rounds)
    refused = sum(one["refused"] for one in rounds)
    told = sum(one["checked"] for one in rounds), sum(one["differing"] for one in rounds)
    measured = {"reach": reached / len(rounds), "refused": refused / len(rounds), "policies": len(rounds),
                "before": sum(one["approve"][1] >= 0.8 for one in rounds) / len(rounds),
                "changes": dict(Counter(one["change"] for one in rounds if one["change"])),
                "checked": told[0], "differing": told[1]}  # fmt: skip
    return (
        Row(id="planner.rates", measured=max(off), spread=float(np.median(off)),
            met=max(off) <= 0.02 and told[1] <= 0.01 * told[0], rounds=rounds),
        Row(id="planner.decidable", measured=measured, spread=None,
            met=reached >= 0.95 * len(rounds) and reached + refused == len(rounds), rounds=[]),
    )  # fmt: skip


def at_planned_cases(cases: Sequence[Case]) -> Rounds:
    """`undecided`: of identical variants; `approve` and `block`: of one that loses the margins."""
    rounds = []
    for case in cases:
        planned = plan_policy(case.sets, case.policy, case.assumed, draws=PLANNED)
        change = planned.changes[0] if planned.changes else None
        sets, policy = (change.sets, change.policy) if change else (case.sets, case.policy)
        found = simulated(sets, policy, case.assumed, DRAWS, times=1.0)
        rounds.append({
            "policy": case.name, "change": change.kind if change else None, "refused": planned.refused,
            "cases": sum(one.cases for one in sets), "foretold": (change or planned).approve,
            "undecided": found.undecided, "approve": found.passed, "block": found.block, "checked": found.checked,
            "differing": found.differing,
        })  # fmt: skip
    return rounds


def undecided(rounds: Rounds) -> Row:
    """Shares over all policies. `over`: policies of which an error lies more than 3.5 standard errors over alpha."""
    decidable = [one for one in rounds if not one["refused"]]
    bar = ALPHA + 3.5 * sqrt(ALPHA * (1 - ALPHA) / DRAWS)
    measured: dict[str, Any] = {
        name: float(np.mean([one[name] for one in decidable])) for name in ("undecided", "approve", "block", "cases")
    }
    over = sum(max(one["approve"], one["block"]) > bar for one in decidable)
    measured |= {
        "policies": len(rounds), "refused": len(rounds) - len(decidable), "over": over, "before": BEFORE,
        "changed": sum(one["change"] is not None for one in decidable),
        "differing": sum(one["differing"] for one in rounds), "checked": sum(one["checked"] for one in rounds),
    }  # fmt: skip
    met = (
        measured["undecided"] <= MOST_UNDECIDED
        and max(measured["approve"], measured["block"]) <= ALPHA
        and not over
        and not measured["differing"]
        and measured["refused"] <= 0.02 * len(rounds)
    )
    spread = float(np.std([one["undecided"] for one in decidable]))
    return Row(id="undecided.planned", measured=measured, spread=spread, met=met, rounds=rounds)
