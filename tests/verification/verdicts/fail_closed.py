"""Rows `fail_closed.*`: evidence and policies with a fault in them, put to `decide`. None may exit with 0, none crash.

Every fault of `faults/` starts from evidence that approves, so what stops the approval is the fault. What is faulted:
the evidence of a run (cases, numbers of an arm as a whole, the record of an early stop, four arms) and the policy.
Score files and gate files with faults in them are `new_attacks` and `fail_closed_files`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np

from qualgate.errors import Exit
from tests.verification.verdicts.attempts import Attempt, outcomes, row_of
from tests.verification.verdicts.faults.evidence import Asked, exit_of, on_both, sound
from tests.verification.verdicts.faults.of_early_stops import STOPPED, stopped
from tests.verification.verdicts.faults.of_four_arms import FOUR, four
from tests.verification.verdicts.faults.of_runs import CASES, ONE_SIDED
from tests.verification.verdicts.faults.of_whole_arms import WEIGHED, weighed

LEAST = {"fail_closed.cases": 60, "fail_closed.mutations": 500}
PAIRS, QUICK = 2_000, 120
Fault = Callable[[Asked], Asked]


# What of a run's evidence is a fault of any: of one that stopped early, and of four arms.
OF_ALL = ("a row's digest differs", "weights changed since", "a person is asked for")


def on_each_arm(start: Callable[[], Asked]) -> dict[str, Fault]:
    e = start().evidence
    return {
        f"{name}, {arm.name}": lambda a, fault=fault, arm=arm.name: fault(a, arm)
        for arm in (e.baseline, *e.variants)
        for name, fault in ONE_SIDED.items()
        if len(e.variants) == 1 or arm is e.baseline or name != "the scorer could say nothing"  # another arm is chosen
    }


def of_each_kind(start: Callable[[], Asked], own: dict[str, Fault]) -> dict[str, Fault]:
    return own | on_each_arm(start) | {name: CASES[name] for name in OF_ALL}


RUNS = {f"{name}, both": lambda a, fault=fault: on_both(a, fault) for name, fault in ONE_SIDED.items()}
STARTS: dict[str, tuple[Callable[[], Asked], dict[str, Fault]]] = {
    "runs": (sound, of_each_kind(sound, CASES | RUNS)),
    "whole": (weighed, WEIGHED),
    "stopped": (stopped, of_each_kind(stopped, STOPPED)),
    "four arms": (four, of_each_kind(four, FOUR)),
}


def faulted(kind: str, *names: str) -> Asked:
    """What approves of this kind, with these faults, one after the other."""
    start, faults = STARTS[kind]
    asked = start()
    for name in names:
        asked = faults[name](asked)
    return asked


def singles() -> list[Attempt]:
    return [
        Attempt(group=kind, name=name, ask=lambda _, kind=kind, name=name: exit_of(faulted(kind, name)))
        for kind, (_, faults) in STARTS.items()
        for name in faults
    ]


def pairs(count: int, seed: int = 2026) -> list[Attempt]:
    """Two different faults of a run, drawn, one after the other. A variant that is gone cannot have a second one."""
    gone = ("no variant", "the variant is called baseline")
    every = [pair for pair in permutations(STARTS["runs"][1], 2) if pair[0] not in gone]
    chosen = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [
        Attempt(group="pairs", name=", ".join(every[at]), ask=lambda _, at=at: exit_of(faulted("runs", *every[at])))
        for at in chosen
    ]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, goal rows). quick: fewer pairs, so `fail_closed.mutations` has no verdict."""
    for kind, (start, _) in STARTS.items():
        if (code := exit_of(start())) != Exit.APPROVE:
            raise AssertionError(f"the evidence that faults of {kind} start from exits with {code}, not 0")
    attempts = {"fail_closed.cases": singles(), "fail_closed.mutations": pairs(QUICK if quick else PAIRS)}
    found = [row_of(id, outcomes(tried), LEAST[id]) for id, tried in attempts.items()]
    return [one for rounds, _ in found for one in rounds], [row for _, row in found]
