"""Events of a run while it is made, for logs and traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from qualgate.formatting import counted
from qualgate.gate.decide import Decided
from qualgate.records import JobFailure, JobResult
from qualgate.store.runs import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Of one run. `said` tells it to people."""

    what: Literal["begun", "answered", "failed", "ended"]
    run: str
    said: str
    arm: str = ""  # this and the next two: of a job
    job: int | None = None
    result: JobResult | None = None
    exit: int | None = None  # of a run that has ended


Listener = Callable[[Event], None]


def begun(record: RunRecord) -> Event:
    """It is in the store."""
    said = f"run {record.run_id} {'is resumed' if record.resumed else 'begins'}"
    return Event(what="begun", run=record.run_id, said=said)


def answered(run: str, result: JobResult, done: int, total: int) -> Event:
    """A job's answers are scored and stored."""
    said = f"{result.arm}, job {result.index}: {counted(len(result.completions), 'answer')}, {done} of {total}"
    return Event(what="answered", run=run, said=said, arm=result.arm, job=result.index, result=result)


def failed(run: str, failure: JobFailure) -> Event:
    """A job could not be run."""
    said = f"{failure.arm}, job {failure.index}: {failure.error}"
    return Event(what="failed", run=run, said=said, arm=failure.arm, job=failure.index)


def ended(run: str, decided: Decided) -> Event:
    """Its verdicts are in the store."""
    words = ", ".join(f"{verdict.variant} {verdict.word}" for verdict in decided.verdicts)
    return Event(what="ended", run=run, said=f"run {run} ends: {words}", exit=int(decided.exit))
