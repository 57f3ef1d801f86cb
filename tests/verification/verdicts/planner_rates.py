"""Does the planner predict what the gate does? Rows `planner.rates` and `planner.decidable` of the decisions.

python -m tests.verification.verdicts.planner_rates [--quick] [--kept FILE.jsonl]    goes on with what the file holds
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import sqrt
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from qualgate.gate.planning.planner import plan_policy
from tests.verification.verdicts.planned_policies import PLAIN, Case, policies
from tests.verification.verdicts.row import Row
from tests.verification.verdicts.simulated_verdicts import simulated


def measured_rows(*, quick: bool, kept: Path | None = None) -> tuple[Row, Row]:
    if not quick:
        return planner_rates(policies(), kept=kept)
    return planner_rates(policies()[1:6] + policies()[PLAIN : PLAIN + 4], 4_000, kept)


def planner_rates(cases: Sequence[Case], draws: int = 22_500, kept: Path | None = None) -> tuple[Row, Row]:
    """`planner.rates` and `planner.decidable`: predicted against simulated, before and after the printed change.

    kept: a file of JSON lines, one for each policy as it is done; what it holds already is not measured again. `error`
    of a policy: three standard errors that a simulated rate can have, at most.
    """
    done = (
        {one["policy"]: one for one in map(json.loads, kept.read_text().splitlines())} if kept and kept.exists() else {}
    )
    for case in cases:
        if case.name not in done:
            done[case.name] = _round(case, draws)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(done[case.name]) + "\n")
    rounds = [done[case.name] for case in cases]
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


def _round(case: Case, draws: int) -> dict[str, Any]:
    started = process_time()
    planned = plan_policy(case.sets, case.policy, case.assumed)
    seconds = process_time() - started
    found = simulated(case.sets, case.policy, case.assumed, draws)
    entry = {"policy": case.name, "draws": found.draws, "error": 1.5 / sqrt(found.draws),
             "approve": [planned.approve, found.approve],
             "block": [planned.block, found.block], "change": None, "after": None, "refused": planned.refused,
             "seconds": seconds, "checked": found.checked, "differing": found.differing}  # fmt: skip
    if planned.changes:
        change = planned.changes[0]
        after = simulated(change.sets, change.policy, case.assumed, draws, block=False)
        entry |= {"change": change.kind, "after": [change.approve, after.approve],
                  "checked": found.checked + after.checked, "differing": found.differing + after.differing}  # fmt: skip
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted rates of policies against simulation.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kept", type=Path, help="JSON lines of policies that were measured; they are not again")
    arguments = parser.parse_args()
    rows = measured_rows(quick=arguments.quick, kept=arguments.kept)
    print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
