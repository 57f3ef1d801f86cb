"""The main path: plan, generate, score, store, decide."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.formatting import counted
from qualgate.gate.decide import decide
from qualgate.intake.feedback import read_feedback, with_corrections
from qualgate.pipeline import events
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.coverage import measure_coverage
from qualgate.pipeline.early_stop import Settling
from qualgate.pipeline.evidence import asked_again, known, labels_of, reads_answers, with_labels
from qualgate.pipeline.foretell import doubts, outlook
from qualgate.pipeline.jobs import cases_of, drop_damaged, remaining, scores_of, worker_settings, workers_for
from qualgate.pipeline.judging import put_before_judge
from qualgate.pipeline.locks import interrupted, sole_coordinator, stop_requested
from qualgate.pipeline.outcome import Outcome, Progress
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.preflight import try_before
from qualgate.pipeline.served_arms import probing
from qualgate.pipeline.spending import judging, put_away, spending, wire_of
from qualgate.pipeline.tracing import traced
from qualgate.records import JobFailure, Plan
from qualgate.served.launch import with_servers
from qualgate.store import plain, runs
from qualgate.store.database import Store, open_store
from qualgate.workers.pool import run_jobs


def run_gate(
    gate: GateFile,
    progress: Progress = lambda arm, done, total: None,
    *,
    blame: bool = False,
    four_arm: bool = False,
    warn: Callable[[str], None] = lambda line: None,
    planning: Callable[[str], None] = lambda line: None,
    observe: events.Listener = lambda event: None,
) -> Outcome:
    """Judge every variant of the gate file. Ctrl-C or SIGTERM stops it cleanly; called again, it resumes.

    blame: run packed weights through the torch twin as well, so that a block names its cause.
    Where the gate file names four arms, they run in randomised blocks, and which of them is to be served is decided.
    four_arm: refuse a gate file that names none.
    warn: told in one line, before anything is generated, when the policy can hardly decide.
    planning: told what is being done, and how long it will take once that is known. observe: what happens, by job.
    """
    gate = as_run(gate, blame=blame, four_arm=four_arm)
    feedback = read_feedback(gate.feedback) if gate.feedback else None
    if feedback is not None:
        gate = replace(gate, policy=replace(gate.policy, feedback=feedback.sha256))
    try_before(gate)
    plan, wire = make_plan(gate, planning), wire_of(gate)
    for line in doubts(plan):
        warn(line)
    opened, artifacts = open_store(gate.store_url, lease=gate.lease), Path(plan.artifacts)
    with opened as store, traced(observe, warn) as hear, sole_coordinator(artifacts, store), stop_requested() as stop:
        record = runs.begin(store, plan)
        hear(events.begun(record, store.lease))
        planning(outlook(gate, plan, store, record))
        for line in (*asked_again(store, record.run_id, plan.policy), *drop_damaged(artifacts)):
            warn(line)
        with spending(gate, plan, store, record.run_id):
            failures = generate(plan, record, store, gate, progress, stop, warn, hear)
        if not failures:
            measure_coverage(plan, record.run_id, store, gate)
        evidence = with_labels(known(store, record.run_id, answers=reads_answers(plan.policy)), plan)
        if not failures:
            with judging(gate, artifacts, store, record.run_id) as ledger:
                evidence = put_before_judge(store, evidence, plan.policy, gate.labels, planning, stop, ledger, wire)
        decided = decide(with_corrections(evidence, feedback), plan.policy, plain.now())
        runs.finish(store, record.run_id, decided.verdicts, complete=not failures, policy=decided.policy)
        if not failures:
            put_away(gate, plan, record.run_id)
        hear(events.ended(record.run_id, decided))
    return Outcome(run_id=record.run_id, verdicts=decided.verdicts, exit=decided.exit, resumed=record.resumed,
                   failures=failures, nel=decided.nel)  # fmt: skip


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
    """Run what is not done yet; every finished job is scored and in the store before the next is looked at.

    One line for each job that could not be run, and whose answers are needed. Interrupted where a stop was requested.
    """
    cases, total, done = cases_of(plan), len(plan.expected), len(record.done)
    settling = Settling(plan, record, store, labels_of(plan.evalsets))
    failures: list[tuple[str, str]] = []  # arm, and what happened
    progress("", done, total)
    wanted = remaining([job for job in plan.jobs if settling.wants(job)], record.done)
    how = worker_settings(gate, plan), workers_for(gate, plan), lambda: stop() is not None
    answered = probing(lambda jobs: run_jobs(jobs, *how, needed=settling.wants), warn, wire_of(gate, plan.artifacts))
    for outcome in with_servers(wanted, gate.path.parent, lambda: stop() is not None, answered):
        if isinstance(outcome, JobFailure):
            runs.record_failure(store, record.run_id, outcome)
            failures.append((outcome.arm, f"{outcome.arm}, job {outcome.index}: {outcome.error}"))
            observe(events.failed(record.run_id, outcome))
            continue
        new = [completion.key for completion in outcome.completions if completion.key not in record.done]
        runs.record(store, record.run_id, outcome, scores_of(outcome, cases, plan.also))
        progress(outcome.arm, done := done + len(new), total)
        observe(events.answered(record.run_id, outcome, done, total))
        settling.answered(new)
    if (received := stop()) is not None:
        raise interrupted(received, f"stopped with {done} of {counted(total, 'unit')} done and stored")
    return tuple(failure for arm, failure in failures if settling.needed(arm))
