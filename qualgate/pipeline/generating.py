"""Run the remaining jobs of a run by workers; score and store answers as they arrive."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.pipeline import events
from qualgate.pipeline.early_stop import Settling
from qualgate.pipeline.evidence import labels_of
from qualgate.pipeline.jobs import cases_of, remaining, scores_of, worker_settings, workers_for
from qualgate.pipeline.locks import interrupted
from qualgate.pipeline.outcome import Progress
from qualgate.pipeline.served_arms import Running, probing
from qualgate.pipeline.spending import ledger_of, spending
from qualgate.pipeline.streams import Streams
from qualgate.records import Job, JobFailure, JobResult, Plan
from qualgate.served.launch import with_servers
from qualgate.store import runs
from qualgate.store.database import Store
from qualgate.text.numbers import counted
from qualgate.workers.pool import run_jobs

REFUSALS = 3  # refused cases without any answer: the server rejects the form of the requests, not single cases


def generate(
    plan: Plan,
    record: runs.RunRecord,
    store: Store,
    gate: GateFile,
    progress: Progress,
    stop: Callable[[], signal.Signals | None],
    warn: Callable[[str], None] = lambda line: None,
    observe: events.Listener = lambda event: None,
) -> tuple[str, ...]:
    """Run the remaining jobs. Every finished job is scored and stored before the next is read, and every answer of a
    server before its worker's next one.

    Returns a line for each failed job, or failed case of a server, whose answers are still needed. Raises Interrupted
    if a stop was requested, and UsageError if a server refused REFUSALS cases and answered none.
    """
    cases, total, stored = cases_of(plan), len(plan.expected), set(record.done)
    settling, streams = Settling(plan, record, store, labels_of(plan.evalsets)), Streams(plan, record, store)
    failures: list[tuple[str, str]] = []  # (arm, message)
    parts: dict[tuple[str, int], JobResult] = {}  # results so far of jobs under way
    answering, refusals = {key.arm for key in record.done}, Counter[str]()
    progress("", len(stored), total)
    open_jobs = remaining([job for job in plan.jobs if settling.wants(job)], record.done)
    stopped = lambda: stop() is not None  # noqa: E731
    outcomes = streams.and_again(open_jobs, job_runner(gate, plan, stopped, warn, settling.wants))

    with spending(gate, plan, store, record.run_id) as spent:
        for outcome in outcomes:
            job = outcome.arm, outcome.index
            if isinstance(outcome, JobFailure):
                runs.record_failure(store, record.run_id, outcome)
                where = outcome.arm if outcome.part else f"{outcome.arm}, job {outcome.index}"
                failures.append((outcome.arm, f"{where}: {outcome.error}"))
                observe(events.failed(record.run_id, outcome))
                refusals[outcome.arm] += outcome.refused
                if refusals[outcome.arm] >= REFUSALS and outcome.arm not in answering:
                    raise UsageError(outcome.error)
                continue
            void = streams.take_back(outcome, settling, warn)
            stored -= void
            if not void.isdisjoint(outcome.keys):
                continue
            new = [key for key in outcome.keys if key not in stored]
            scored = scores_of(outcome, cases, plan.also)
            runs.record(store, record.run_id, outcome, scored, spent(outcome.arm) if outcome.part else None)
            stored.update(new)
            progress(outcome.arm, len(stored), total)
            answering.add(outcome.arm)
            joined_result = parts.pop(job).joined(outcome) if job in parts else outcome
            if outcome.part:
                parts[job] = joined_result
            else:
                observe(events.answered(record.run_id, joined_result, len(stored), total))
            settling.answered(new)
    if (received := stop()) is not None:
        raise interrupted(received, f"stopped with {len(stored)} of {counted(total, 'unit')} done and stored")
    return tuple(failure for arm, failure in failures if settling.needed(arm))


def job_runner(
    gate: GateFile,
    plan: Plan,
    stopped: Callable[[], bool],
    warn: Callable[[str], None],
    needed: Callable[[Job], bool] = lambda job: True,
) -> Running:
    """Return a function that runs jobs of the plan on workers and yields their results. Servers that the gate file
    starts run meanwhile, and every server is probed first. stopped, needed: see `run_jobs`."""
    how = worker_settings(gate, plan), workers_for(gate, plan), stopped
    run = lambda jobs: run_jobs(jobs, *how, needed=needed, tell=warn)  # noqa: E731
    answered = probing(run, warn, ledger_of(gate, plan.artifacts))
    return lambda jobs: with_servers(jobs, gate.path.parent, stopped, answered)
