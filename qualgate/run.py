"""The main path: plan, generate, score, store, decide."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.load import check_model, choose_device, identify, recognise
from qualgate.errors import EvidenceMissing, Exit, InfrastructureError, Interrupted, UsageError
from qualgate.gate.planner import PlannedSet, plan_policy
from qualgate.gate.verdict import decide, overall_exit
from qualgate.plan import artifacts_folder, make_plan, sampling_settings
from qualgate.records import TWIN, Case, Evalset, Job, JobFailure, JobResult, Plan, RunEvidence, Score, UnitKey, Verdict
from qualgate.scoring import score, scorer_versions
from qualgate.store import queries, runs
from qualgate.store.database import Store, open_store
from qualgate.workers.pool import run_jobs
from qualgate.workers.unit import WorkerSettings

Progress = Callable[[str, int, int], None]  # the arm, units done, units expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    run_id: str
    verdicts: tuple[Verdict, ...]
    exit: Exit
    resumed: bool
    failures: tuple[str, ...]  # one line for each job the machinery could not run


def run(
    gate: GateFile,
    progress: Progress = lambda arm, done, total: None,
    *,
    blame: bool = False,
    warn: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Judge every variant of the gate file. Ctrl-C or SIGTERM stops it cleanly; called again, it resumes.

    blame: run packed weights through the torch twin as well, so that a block names its cause. warn: told in one line,
    before anything is generated, when the policy can hardly decide.
    """
    plan = make_plan(with_twins(gate) if blame else gate)
    rates = plan_policy([PlannedSet.of(item) for item in plan.evalsets], plan.policy, draws=2_000, search=False)
    if not rates.decidable:
        warn(f"this policy would approve an identical variant in about {rates.approve:.0%} of runs; "
             "`qualgate plan` says what would change that")  # fmt: skip
    with open_store(gate.store_url) as store, _sole_coordinator(Path(plan.artifacts)), _stop_requested() as stop:
        record = runs.begin(store, plan)
        failures = generate(plan, record, store, gate, progress, stop)
        evidence = runs.evidence(store, record.run_id)
        verdicts = decide(evidence, plan.policy)
        runs.finish(store, record.run_id, verdicts, complete=not failures)
        if not failures:
            shutil.rmtree(plan.artifacts, ignore_errors=True)
    return Outcome(
        run_id=record.run_id,
        verdicts=verdicts,
        exit=overall_exit(verdicts),
        resumed=record.resumed,
        failures=failures,
    )


def with_twins(gate: GateFile) -> GateFile:
    """Beside each variant with packed weights an arm that runs them through the torch twin. UsageError without any."""
    packed = [arm for arm in gate.variants if arm.quantize or recognise(Path(arm.model)) is not None]
    if not packed:
        raise UsageError("--blame compares kernels, and no variant of this gate file has quantized weights.")
    twins = [replace(arm, name=f"{arm.name}{TWIN}", kernels="torch") for arm in packed]
    return replace(gate, variants=(*gate.variants, *twins))


def generate(
    plan: Plan,
    record: runs.RunRecord,
    store: Store,
    gate: GateFile,
    progress: Progress,
    stop: Callable[[], signal.Signals | None],
) -> tuple[str, ...]:
    """Run what is not done yet; every finished job is scored and in the store before the next is looked at."""
    cases = {(item.name, case.id): (case, item) for item in plan.evalsets for case in item.cases}
    total, done = len(plan.expected), len(record.done)
    settings = WorkerSettings(
        cache_dir=str(artifacts_folder(gate.store_url) / "packed"),
        sampling=sampling_settings(gate),
        device=choose_device(gate.devices),
        threads=max(1, len(os.sched_getaffinity(0)) // gate.workers),
    )
    failures = []
    progress("", done, total)
    for outcome in run_jobs(_remaining(plan, record.done), settings, gate.workers, lambda: stop() is not None):
        if isinstance(outcome, JobFailure):
            runs.record_failure(store, record.run_id, outcome)
            failures.append(f"{outcome.arm}, job {outcome.index}: {outcome.error}")
            continue
        new = sum(completion.key not in record.done for completion in outcome.completions)
        runs.record(store, record.run_id, outcome, scores_of(outcome, cases))
        progress(outcome.arm, done := done + new, total)
    if (received := stop()) is not None:
        raise Interrupted(
            f"stopped with {done} of {total} units done and stored; run the same command again to resume",
            Exit.TERMINATED if received == signal.SIGTERM else Exit.INTERRUPTED,
        )
    return tuple(failures)


def scores_of(
    result: JobResult, cases: dict[tuple[str, str], tuple[Case, Evalset]]
) -> dict[UnitKey, tuple[Score, ...]]:
    """Every score of a job's completions, by unit."""
    return {
        completion.key: score(
            *cases[completion.key.evalset, completion.key.case_id], completion.text, completion.finish_reason
        )
        for completion in result.completions
    }


def decide_again(store_url: str, run_id: str | None, gate: GateFile | None) -> Outcome:
    """Decide from stored evidence alone. Raises UsageError when there is no such run.

    gate: its policy decides, and what it names must still be what the run judged (weights, tokenizers, evalsets,
    variants), else every verdict is undecided. None: the policy the run was made with, about what was stored.
    """
    with open_store(store_url, create=False) as store:
        found = run_id or (newest_run_of(store, gate) if gate is not None else queries.latest_run(store))
        evidence = runs.evidence(store, found)
        if gate is None:
            policy = runs.policy(store, found)
        else:
            policy = gate.policy
            evidence = replace(evidence, stale=_changes_since(queries.run_summary(store, found), gate))
        evidence = replace(evidence, stale=(*evidence.stale, *_rescored(evidence)))
        verdicts = decide(evidence, policy)
        runs.add_verdicts(store, found, verdicts, policy)
    return Outcome(run_id=found, verdicts=verdicts, exit=overall_exit(verdicts), resumed=False, failures=())


def _rescored(evidence: RunEvidence) -> tuple[str, ...]:
    """Scorers that have another version today than when they scored this run, one line each."""
    then = {
        metric: scorer
        for arm in (evidence.baseline, *evidence.variants)
        for unit in arm.units
        for metric, scorer in unit.scorers.items()
    }
    now = scorer_versions()
    return tuple(
        f"{metric} was scored by {then[metric]}, which is {now.get(metric, 'no more')} in this version: run again"
        for metric in sorted(then)
        if then[metric] != now.get(metric)
    )


def newest_run_of(store: Store, gate: GateFile) -> str:
    """The newest run of this gate file's variants and evalsets: several gate files may share a store."""
    arms = [arm.name for arm in (gate.baseline, *gate.variants)]
    sets = [evalsets.name_of(ref) for ref in gate.evalset_refs]
    found = queries.latest_run_of(store, arms, sets)
    if found is None:
        raise EvidenceMissing(
            f"{gate.store_url} holds no run of these variants ({', '.join(arms[1:])}) on these evalsets "
            f"({', '.join(sets)}). Run: qualgate run {gate.path.name}"
        )
    return found


def earlier_evidence(gate: GateFile) -> RunEvidence | None:
    """What the newest run of this gate file found, if its store holds one: a planner may learn from it."""
    if not Path(gate.store_url.removeprefix("sqlite:///")).is_file():
        return None
    try:
        with open_store(gate.store_url, create=False) as store:
            return runs.evidence(store, newest_run_of(store, gate))
    except EvidenceMissing:
        return None


def _changes_since(run: queries.RunSummary, gate: GateFile) -> tuple[str, ...]:
    """What the gate file names today and the run did not judge, one line each."""
    then = {arm.name: arm for arm in run.arms if not arm.name.endswith(TWIN)}
    now = {arm.name: arm for arm in (gate.baseline, *gate.variants)}
    changes = [f"{name} is in the gate file and was not in run {run.run_id}" for name in now if name not in then]
    changes += [f"{name} was in run {run.run_id} and is not in the gate file" for name in then if name not in now]
    for name in now.keys() & then.keys():
        try:
            check_model(Path(now[name].model))
            today = identify(now[name], sampling_settings(gate), choose_device(gate.devices))
        except UsageError as error:
            changes.append(f"{name} cannot be held against run {run.run_id}: {error}")
            continue
        planned = then[name].planned
        differing = [field for field in today.__dataclass_fields__ if getattr(today, field) != getattr(planned, field)]
        if differing:
            changes.append(f"{name}: {', '.join(differing)} changed since run {run.run_id}")
    sets = {item.name: item.content for item in run.evalsets}
    for ref in gate.evalset_refs:
        try:
            item = evalsets.load(ref, gate.path.parent)
        except UsageError as error:
            changes.append(f"evalset {ref} cannot be held against run {run.run_id}: {error}")
            continue
        if sets.pop(item.name, None) != item.content:
            changes.append(f"evalset {item.name} is not the one of run {run.run_id}")
    changes += [f"evalset {name} was in run {run.run_id} and is not in the gate file" for name in sets]
    return tuple(sorted(changes))


def _remaining(plan: Plan, done: frozenset[UnitKey]) -> list[Job]:
    """Jobs with a unit that is not done, and baseline jobs whose artifact such a variant's job still needs."""
    open_jobs = [job for job in plan.jobs if any(prompt.key not in done for prompt in job.prompts)]
    needed = {job.index for job in open_jobs if not job.arm.is_baseline and job.artifact}
    return [
        job
        for job in plan.jobs
        if job in open_jobs or (job.arm.is_baseline and job.index in needed and not Path(job.artifact).is_file())
    ]


@contextmanager
def _sole_coordinator(folder: Path) -> Iterator[None]:
    """Hold the run's lock: a second process on the same run is refused, and a dead one's lock frees itself."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise UsageError(f"{folder.parent}: cannot be written ({error.strerror}); it holds what a run needs.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InfrastructureError(
                "another qualgate process is working on this very run; wait for it, or stop it and run again"
            ) from None
        yield


@contextmanager
def _stop_requested() -> Iterator[Callable[[], signal.Signals | None]]:
    """The first Ctrl-C or SIGTERM is a request, looked at between jobs; a second Ctrl-C interrupts at once."""
    received: list[signal.Signals] = []

    def on_signal(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number))

    try:
        previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nothing to install, and nothing will be requested
        previous = {}
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
