"""Events of a running run, for logs and traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from qualgate.gate.decide import Decided
from qualgate.records import JobFailure, JobResult
from qualgate.store.runs import RunRecord
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of one run. message: for people."""

    what: Literal["begun", "answered", "failed", "ended"]
    run: str
    message: str
    arm: str = ""  # this field and the next two belong to a job
    job: int | None = None
    result: JobResult | None = None
    exit: int | None = None  # exit code of an ended run


Listener = Callable[[Event], None]


def begun(record: RunRecord) -> Event:
    """Return the event of a run that is now in the store."""
    message = f"run {record.run_id} {'is resumed' if record.resumed else 'begins'}"
    return Event(what="begun", run=record.run_id, message=message)


def answered(run: str, result: JobResult, done: int, total: int) -> Event:
    """Return the event of a job whose answers are scored and stored."""
    message = f"{result.arm}, job {result.index}: {counted(len(result.completions), 'answer')}, {done} of {total}"
    return Event(what="answered", run=run, message=message, arm=result.arm, job=result.index, result=result)


def failed(run: str, failure: JobFailure) -> Event:
    """Return the event of a job that could not be run."""
    message = f"{failure.arm}, job {failure.index}: {failure.error}"
    return Event(what="failed", run=run, message=message, arm=failure.arm, job=failure.index)


def ended(run: str, decided: Decided) -> Event:
    """Return the event of a run whose verdicts are in the store."""
    words = ", ".join(f"{verdict.variant} {verdict.word}" for verdict in decided.verdicts)
    return Event(what="ended", run=run, message=f"run {run} ends: {words}", exit=int(decided.exit))
