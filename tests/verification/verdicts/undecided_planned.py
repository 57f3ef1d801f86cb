"""Row `undecided.planned`: of identical variants, at the cases that `plan` asks for, how many stay undecided.

Seeded policies on one or two sets, half of them of passages. The planner foretells each as it stands; where it can
hardly decide, the first change that it prints is made. Then every answer is drawn by the planner's oracle
(`simulated_verdicts`), and beside the undecided stand both errors: approvals of a variant that loses each set's
smallest critical margin, and blocks of the same variant, which loses no more than is allowed.

python -m tests.verification.verdicts.undecided_planned [--quick] [--kept FILE.jsonl]   goes on with what it holds
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.records import Policy, Rule
from tests.verification.verdicts.planned_policies import METRIC, Case
from tests.verification.verdicts.row import Row
from tests.verification.verdicts.simulated_verdicts import simulated

POLICIES = 250
PLANNED = 2_000  # draws of the planner
DRAWS = 400  # of each policy and truth
ALPHA = 0.05
MOST_UNDECIDED = 0.10
# Of the first 12, before clusters were bet on and `plan` asked for the cases that 9 of 10 identical variants need.
BEFORE = {"policies": 12, "undecided": 0.0546, "approve": 0.0177, "block": 0.0246, "cases": 671.8}


def seeded(count: int = POLICIES, seed: int = 17) -> list[Case]:
    """The first of them are the same for every count."""
    generator = np.random.default_rng(seed)
    return [_drawn(f"seeded {number}", generator) for number in range(count)]


def _drawn(name: str, generator: np.random.Generator) -> Case:
    def pick(*choices: Any) -> Any:
        return choices[generator.integers(len(choices))]

    sets, flips = [], {}
    for index in range(pick(1, 1, 2)):
        one = f"set{index}"
        clusters = (pick(3, 4, 6, 8, 12),) * pick(24, 40, 60, 80) if generator.random() < 0.5 else ()
        cases = sum(clusters) or pick(60, 100, 164, 198, 300, 400)
        sets.append(PlannedSet(name=one, metrics=(METRIC,), cases=cases, clusters=clusters))
        flips[METRIC, one] = pick(0.01, 0.02, 0.05, 0.05, 0.08)
    margin = pick(0.03, 0.05, 0.05, 0.08, 0.10)
    rules = [Rule(metric=METRIC, max_drop=margin)]
    if len(sets) > 1:
        rules.append(Rule(metric=METRIC, scope="evalset", max_drop=pick(0.08, 0.10)))
    assumed = Assumed(disagreement=flips, default_baseline=pick(0.7, 0.8, 0.9))
    return Case(name=name, sets=tuple(sets), policy=Policy(rules=tuple(rules)), assumed=assumed)


def measured_rows(*, quick: bool, kept: Path | None = None) -> tuple[Row]:
    return (undecided(seeded(4 if quick else POLICIES), kept),)


def undecided(cases: Sequence[Case], kept: Path | None = None) -> Row:
    """Shares over all policies. kept: JSON lines, one for each policy as it is done; none is measured again.

    `over`: policies of which an error lies more than 3.5 standard errors over alpha.
    """
    lines = kept.read_text().splitlines() if kept and kept.exists() else ()
    done = {one["policy"]: one for one in map(json.loads, lines)}
    for case in cases:
        if case.name not in done:
            done[case.name] = _round(case)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(done[case.name]) + "\n")
    rounds = [done[case.name] for case in cases]
    decidable = [one for one in rounds if not one["refused"]]
    bar = ALPHA + 3.5 * sqrt(ALPHA * (1 - ALPHA) / DRAWS)
    measured: dict[str, Any] = {
        name: float(np.mean([one[name] for one in decidable])) for name in ("undecided", "approve", "block")
    }
    over = sum(max(one["approve"], one["block"]) > bar for one in decidable)
    measured |= {
        "policies": len(rounds), "refused": len(rounds) - len(decidable), "over": over,
        "changed": sum(one["change"] is not None for one in decidable),
        "differing": sum(one["differing"] for one in rounds), "checked": sum(one["checked"] for one in rounds),
        "cases": float(np.mean([one["cases"] for one in decidable])), "before": BEFORE,
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


def _round(case: Case) -> dict[str, Any]:
    """`undecided`: of identical variants; `approve` and `block`: of one that loses the margins."""
    planned = plan_policy(case.sets, case.policy, case.assumed, draws=PLANNED)
    change = planned.changes[0] if planned.changes else None
    sets, policy = (change.sets, change.policy) if change else (case.sets, case.policy)
    entry: dict[str, Any] = {"policy": case.name, "change": change.kind if change else None,
                             "refused": planned.refused, "cases": sum(one.cases for one in sets),
                             "foretold": (change or planned).approve}  # fmt: skip
    found = simulated(sets, policy, case.assumed, DRAWS, times=1.0)
    return entry | {"undecided": found.undecided, "approve": found.passed, "block": found.block,
                    "checked": found.checked, "differing": found.differing}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Undecided identical variants at the planner's numbers of cases.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kept", type=Path, help="JSON lines of policies that were measured; they are not again")
    arguments = parser.parse_args()
    print(json.dumps([asdict(row) for row in measured_rows(quick=arguments.quick, kept=arguments.kept)], indent=1))


if __name__ == "__main__":
    main()
