"""Outcome of a run, or of a decision on a stored one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qualgate.errors import Exit
from qualgate.gate.peers.nel_policy import NelSaid
from qualgate.records import Policy, Verdict

Progress = Callable[[str, int, int], None]  # the arm, units done, units expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Verdicts in the order of the gate file's variants, and failures of the run."""

    run_id: str
    verdicts: tuple[Verdict, ...]
    exit: Exit
    resumed: bool
    failures: tuple[str, ...]  # one line for each job that could not be run
    policy: Policy | None = None  # the deciding policy; None: the run's own
    nel: tuple[NelSaid, ...] = ()  # with an nel policy: nel's own result, and why ours differs
