"""The main path: plan, generate, score, store, decide."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import IntegrityError
from qualgate.gate.decide import decide
from qualgate.intake.feedback import read_feedback, with_corrections
from qualgate.pipeline import events
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.before_run import doubts, outlook
from qualgate.pipeline.coverage import measure_coverage
from qualgate.pipeline.evidence import asked_again, known, reads_answers, with_labels
from qualgate.pipeline.generating import generate
from qualgate.pipeline.jobs import drop_damaged, forget_received
from qualgate.pipeline.judging import put_before_judge
from qualgate.pipeline.locks import sole_coordinator, stop_requested
from qualgate.pipeline.outcome import Outcome, Progress
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.preflight import try_before
from qualgate.pipeline.spending import judging
from qualgate.pipeline.tracing import traced
from qualgate.store import plain, runs
from qualgate.store.database import open_store


def run_gate(
    gate: GateFile,
    progress: Progress = lambda arm, done, total: None,
    *,
    blame: bool = False,
    warn: Callable[[str], None] = lambda line: None,
    planning: Callable[[str], None] = lambda line: None,
    observe: events.Listener = lambda event: None,
) -> Outcome:
    """Judge every variant of the gate file. Ctrl-C or SIGTERM stops it cleanly; called again, it resumes.

    blame: run packed weights through the torch twin as well, so that a block names its cause.
    warn: called with one line, before generation, if the policy can hardly decide.
    planning: called with each step, and with the expected duration. observe: called with each event, by job.
    """
    gate = as_run(gate, blame=blame)
    feedback = read_feedback(gate.feedback) if gate.feedback else None
    if feedback is not None:
        gate = replace(gate, policy=replace(gate.policy, feedback=feedback.sha256))
    try_before(gate)
    plan = make_plan(gate, planning)
    for line in doubts(plan):
        warn(line)
    opened, artifacts = open_store(gate.store_url), Path(plan.artifacts)
    with opened as store, traced(observe, warn) as hear, sole_coordinator(artifacts, store), stop_requested() as stop:
        record = runs.begin(store, plan)
        if not record.resumed:
            forget_received(artifacts)  # of another run of this plan, whose answers are no evidence of this one
        hear(events.begun(record))
        planning(outlook(gate, plan, store, record))
        for line in (*asked_again(store, record.run_id, plan.policy), *drop_damaged(artifacts)):
            warn(line)
        try:
            failures = generate(plan, record, store, gate, progress, stop, warn, hear)
        except IntegrityError:  # a server that changed answered other jobs, too
            forget_received(artifacts)
            raise
        if not failures:
            measure_coverage(plan, record.run_id, store, gate)
        evidence = with_labels(known(store, record.run_id, answers=reads_answers(plan.policy)), plan)
        if not failures:
            with judging(gate, artifacts, store, record.run_id) as ledger:
                evidence = put_before_judge(store, evidence, plan.policy, gate.labels, planning, stop, ledger)
        decided = decide(with_corrections(evidence, feedback), plan.policy, plain.now())
        runs.finish(store, record.run_id, decided.verdicts, complete=not failures, policy=decided.policy)
        if not failures:
            shutil.rmtree(artifacts, ignore_errors=True)
        hear(events.ended(record.run_id, decided))
    return Outcome(run_id=record.run_id, verdicts=decided.verdicts, exit=decided.exit, resumed=record.resumed,
                   failures=failures, nel=decided.nel)  # fmt: skip
