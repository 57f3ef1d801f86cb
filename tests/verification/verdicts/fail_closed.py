"""Rows `fail_closed.*`: inputs of the gate with a fault in them. None may exit with 0, and none may crash.

Every fault of `faults/` starts from evidence that approves, so what stops the approval is the fault. What is faulted:
the evidence of a run (cases, numbers of an arm as a whole, the record of an early stop, four arms), the policy, nel's
policy files, and the score files that others bring.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qualgate.errors import Exit
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.faults.changes import on_both
from tests.verification.verdicts.faults.given import SIDES, Asked, exit_of, sound
from tests.verification.verdicts.faults.mutations import MUTATIONS, mutated
from tests.verification.verdicts.faults.of_early_stops import STOPPED, stopped
from tests.verification.verdicts.faults.of_four_arms import FOUR, four
from tests.verification.verdicts.faults.of_nel_policies import GOOD_NEL, NEL, nel_exit
from tests.verification.verdicts.faults.of_runs import CASES, ONE_SIDED
from tests.verification.verdicts.faults.of_score_files import FILES, GOOD_FILE, file_exit
from tests.verification.verdicts.faults.of_whole_arms import WEIGHED, weighed

LEAST = {"fail_closed.cases": 60, "fail_closed.mutations": 500}


def cases() -> dict[str, Asked]:
    """Every faulted evidence and policy, by name."""
    good = sound()
    found = {name: fault(good) for name, fault in CASES.items()}
    for name, fault in ONE_SIDED.items():
        found |= {f"{name}, {side}": fault(good, side) for side in SIDES}
        found[f"{name}, both"] = on_both(good, fault)
    for kind, start, faults in (("whole", weighed, WEIGHED), ("stopped", stopped, STOPPED), ("four arms", four, FOUR)):
        given = start()
        found |= {f"{kind}: {name}": fault(given) for name, fault in faults.items()}
    return found


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
    held = not approved and not crashed
    few = f"only {len(found)} were tried" if held and len(found) < LEAST[id] else None
    return DECISIONS.row(id, measured, met=held, unmet_because=few)


def outcome(ask: Callable[..., int], *given: Any) -> int | str:
    """The exit code, or the name of what crashed: the contract knows no traceback."""
    try:
        return ask(*given)
    except Exception as error:
        return type(error).__name__
