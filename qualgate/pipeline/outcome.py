"""The end of a run, or of a decision on a stored one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qualgate.errors import Exit
from qualgate.gate.peers.nel_policy import NelSaid
from qualgate.records import Policy, Verdict

Progress = Callable[[str, int, int], None]  # the arm, units done, units expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Verdicts, in the order of the gate file's variants, and what became of the run."""

    run_id: str
    verdicts: tuple[Verdict, ...]
    exit: Exit
    resumed: bool
    failures: tuple[str, ...]  # one line for each job the machinery could not run
    policy: Policy | None = None  # by which was decided; None: by the run's own
    nel: tuple[NelSaid, ...] = ()  # where an nel policy decided: what nel would say, and why ours differs
