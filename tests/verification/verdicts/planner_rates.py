"""Does the planner predict what the gate does? Rows `planner.rates`, `planner.decidable` and `undecided.planned`.

Predicted against what `decide` says of drawn runs (`simulated_verdicts`), for policies of every kind, before and after
the printed change. And of identical variants, at the cases that `plan` asks for, how many stay undecided: seeded
policies on one or two sets, half of them of passages. The planner foretells each as it stands; where it can hardly
decide, the first change that it prints is made. Beside the undecided stand both errors: approvals of a variant that
loses each set's smallest critical margin, and blocks of the same variant, which loses no more than is allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.records import Policy
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.planned_policies import PLAIN, SEEDED, Case, policies, seeded
from tests.verification.verdicts.simulated_verdicts import simulated
from tests.verification.verdicts.tables import ALPHA, Rounds

WITHIN, MOST_UNDECIDED = 0.02, 0.10
PLANNED = 2_000  # draws of the planner
DRAWN, LEAST, MOST = 200_000, 100, 2_000  # cases drawn for a policy and truth, and into how many runs they are made
# Of the first 12, before clusters were bet on and `plan` asked for the cases that 9 of 10 identical variants need.
BEFORE = {"policies": 12, "undecided": 0.0546, "approve": 0.0177, "block": 0.0246, "cases": 671.8}
Pair = tuple[float, float, float]


def measure(quick: bool) -> tuple[Rounds, Rounds]:
    chosen, drawn, count = (policies(), DRAWN, SEEDED) if not quick else (
        policies()[5:6] + policies()[PLAIN + 1 : PLAIN + 2], 0, 3)  # fmt: skip
    rates, planned = predicted(chosen, drawn), at_planned_cases(seeded(count), drawn // 4)
    return rates + planned, [*planner_rates(rates), undecided(planned)]


def runs_of(sets: Sequence[PlannedSet], drawn: int) -> int:
    return max(LEAST, min(MOST, drawn // sum(one.cases * one.repeats for one in sets)))


def predicted(cases: Sequence[Case], drawn: int) -> Rounds:
    """[predicted, simulated, standard error] of each policy, as it is and after the printed change.

    Where answers to a question are taken together no single loss is planned for, so no block is simulated. There, and
    where a set has two metrics, the planner takes rules for independent, which can only help an approval: of these an
    approval more often than predicted counts as right.
    """
    rounds = []
    for case in cases:
        planned = plan_policy(case.sets, case.policy, case.assumed)
        change = planned.changes[0] if planned.changes else None
        together = any(rule.repeats != "mean" for rule in case.policy.rules)

        def beside(predicted: float, word: str, sets: Sequence[PlannedSet], policy: Policy, case: Case = case) -> Pair:
            times = 2.0 if word == "block" else 0.0
            found = simulated(sets, policy, case.assumed, runs_of(sets, drawn), times=times)
            rate = getattr(found, word)
            return predicted, rate, sqrt(max(rate * (1 - rate), 1 / found.draws) / found.draws)

        rounds.append({
            "policy": case.name, "together": together, "refused": planned.refused, "change": change and change.kind,
            "approve": beside(planned.approve, "approve", case.sets, case.policy),
            "block": None if together else beside(planned.block, "block", case.sets, case.policy),
            "after": change and beside(change.approve, "approve", change.sets, change.policy),
        })  # fmt: skip
    return rounds


def planner_rates(rounds: Rounds) -> tuple[dict[str, Any], dict[str, Any]]:
    """Predicted against simulated, before and after the printed change. Off is what 3.5 standard errors leave."""
    found = [(one["together"], *one[what]) for one in rounds for what in ("approve", "block", "after") if one[what]]
    by = [max(0.0, told - rate) if together else abs(told - rate) for together, told, rate, _ in found]
    off = [max(0.0, one - 3.5 * error) for one, (*_, error) in zip(by, found, strict=True)]
    both_ways = [(told - rate, error) for together, told, rate, error in found if not together]
    bias = abs(float(np.mean([one for one, _ in both_ways])))
    bias_error = sqrt(sum(error**2 for _, error in both_ways)) / len(both_ways)
    reached = sum((one["after"] or one["approve"])[1] >= 0.8 for one in rounds)
    refused = sum(one["refused"] for one in rounds)
    measured = {"reach": reached / len(rounds), "refused": refused / len(rounds), "policies": len(rounds),
                "before": sum(one["approve"][1] >= 0.8 for one in rounds) / len(rounds),
                "changes": dict(Counter(one["change"] for one in rounds if one["change"]))}  # fmt: skip
    few = f"{len(rounds)} of 50 policies, {LEAST} runs of each or more" if len(rounds) < 50 else None
    rates = {"most": max(by), "surely": max(off), "bias": bias, "bias_error": bias_error}
    most = max(max(off), bias - 3.5 * bias_error)
    decidable = reached >= 0.95 * len(rounds) and reached + refused == len(rounds)
    return (
        DECISIONS.row("planner.rates", rates, spread=max(error for *_, error in found), met=most <= WITHIN, few=few),
        DECISIONS.row("planner.decidable", measured, met=decidable, few=few),
    )


def at_planned_cases(cases: Sequence[Case], drawn: int) -> Rounds:
    """`undecided`: of identical variants; `approve` and `block`: of one that loses the margins."""
    rounds = []
    for case in cases:
        planned = plan_policy(case.sets, case.policy, case.assumed, draws=PLANNED)
        change = planned.changes[0] if planned.changes else None
        sets, policy = (change.sets, change.policy) if change else (case.sets, case.policy)
        draws = runs_of(sets, drawn)
        same, worse = (simulated(sets, policy, case.assumed, draws, times=times) for times in (0.0, 1.0))
        rounds.append({
            "policy": case.name, "change": change and change.kind, "refused": planned.refused, "draws": draws,
            "cases": sum(one.cases for one in sets), "foretold": (change or planned).approve,
            "undecided": same.undecided, "approve": worse.approve, "block": worse.block,
        })  # fmt: skip
    return rounds


def undecided(rounds: Rounds) -> dict[str, Any]:
    """Shares over all policies. `over`: policies of which an error lies more than 3.5 standard errors over alpha."""
    decidable = [one for one in rounds if not one["refused"]]

    def bar(draws: int) -> float:
        return ALPHA + 3.5 * sqrt(ALPHA * (1 - ALPHA) / draws)

    measured: dict[str, Any] = {
        name: float(np.mean([one[name] for one in decidable])) for name in ("undecided", "approve", "block", "cases")
    }
    over = sum(max(one["approve"], one["block"]) > bar(one["draws"]) for one in decidable)
    measured |= {
        "policies": len(rounds), "refused": len(rounds) - len(decidable), "over": over, "before": BEFORE,
        "changed": sum(one["change"] is not None for one in decidable),
    }  # fmt: skip
    met = (
        measured["undecided"] <= MOST_UNDECIDED
        and max(measured["approve"], measured["block"]) <= bar(sum(one["draws"] for one in decidable))
        and not over
        and measured["refused"] <= 0.02 * len(rounds)
    )
    spread = float(np.std([one["undecided"] for one in decidable]))
    few = f"{len(rounds)} of {SEEDED} policies, {LEAST} runs of each or more" if len(rounds) < SEEDED else None
    return DECISIONS.row("undecided.planned", measured, spread=spread, met=met, few=few)
