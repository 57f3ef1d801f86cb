"""The main path: plan, generate, score, store, decide."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.engine.identity import engine_version, identify
from qualgate.errors import EvidenceMissing, Exit, InfrastructureError, Interrupted, UsageError
from qualgate.formatting import counted
from qualgate.gate.decide import Decided, decide, rules_before
from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.peers.nel_policy import NelPolicy, NelSaid, as_text
from qualgate.gate.peers.said import PeerSaid, what_peers_say
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import foreseeable, plan_policy
from qualgate.harness import tasks
from qualgate.intake.feedback import Feedback, corrections, read_feedback
from qualgate.intake.nel_policy import read_nel_policy
from qualgate.metrics import LM_EVAL
from qualgate.pipeline.early_stop import Settling
from qualgate.pipeline.forecast import Past
from qualgate.pipeline.plan import artifacts_folder, asked_in_two_sets, load_set, make_plan, sampling_settings, set_refs
from qualgate.quant.formats import recognise
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import (
    NOISE,
    TWIN,
    CalibrationSet,
    Case,
    Evalset,
    FourArms,
    Job,
    JobFailure,
    JobResult,
    Plan,
    Policy,
    RunEvidence,
    Score,
    UnitEvidence,
    UnitKey,
    Verdict,
)
from qualgate.scoring import score, scorer_versions
from qualgate.scoring.structure import json_scores
from qualgate.scoring.tools.dialects.blame import blame as read_elsewhere
from qualgate.scoring.tools.strict import AUTO, dialect_of
from qualgate.store import plain, queries, runs
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
    nel: tuple[NelSaid, ...] = ()  # where an nel policy decided: what nel would say, and why ours differs


def run(
    gate: GateFile,
    progress: Progress = lambda arm, done, total: None,
    *,
    blame: bool = False,
    four_arm: bool = False,
    warn: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Judge every variant of the gate file. Ctrl-C or SIGTERM stops it cleanly; called again, it resumes.

    blame: run packed weights through the torch twin as well, so that a block names its cause.
    Where the gate file names four arms, they run in randomised blocks, and which of them is to be served is decided.
    four_arm: refuse a gate file that names none.
    warn: told in one line, before anything is generated, when the policy can hardly decide.
    """
    gate = as_run(gate, blame=blame, four_arm=four_arm)
    said = read_feedback(gate.feedback) if gate.feedback else None
    if said is not None:
        gate = replace(gate, policy=replace(gate.policy, feedback=said.sha256))
    plan = make_plan(gate)
    _warn_of_undecidable(plan, warn)
    with open_store(gate.store_url) as store, _sole_coordinator(Path(plan.artifacts)), _stop_requested() as stop:
        record = runs.begin(store, plan)
        failures = generate(plan, record, store, gate, progress, stop)
        if not failures:
            measure_coverage(plan, record.run_id, store, gate)
        evidence = with_labels(known(store, record.run_id, answers=_reads_answers(plan.policy)), plan)
        decided = _verdicts(evidence, plan.policy, said)
        runs.finish(store, record.run_id, decided.verdicts, complete=not failures, policy=decided.policy)
        if not failures:
            shutil.rmtree(plan.artifacts, ignore_errors=True)
    return Outcome(
        run_id=record.run_id,
        verdicts=decided.verdicts,
        exit=decided.exit,
        resumed=record.resumed,
        failures=failures,
        nel=decided.nel,
    )


def as_run(gate: GateFile, *, blame: bool = False, four_arm: bool = False) -> GateFile:
    """The gate file with every arm and policy that `run` adds to it, for a plan of all that will be generated.

    UsageError for what does not go together.
    """
    if four_arm or gate.four_arm is not None:
        gate = as_four_arms(gate)
        if blame:
            raise UsageError("--blame adds arms to four that are compared: use it with a gate file that names none.")
    gate = with_nel_policy(gate)
    if blame and gate.policy.stop is not None:
        raise UsageError("--blame needs every case of a blocked variant, and `stop: early` ends before: choose one.")
    gate = with_twins(gate) if blame else gate
    return with_noise_arm(gate) if gate.noise_floor else gate


def _warn_of_undecidable(plan: Plan, warn: Callable[[str], None]) -> None:
    held = hold(plan.policy, plan.expected, plain.now()[:10])
    for line in (*held.faults, *asked_in_two_sets(plan)):
        warn(line)
    sets = [PlannedSet.of(item, held.of(item.name), plan.repeats) for item in plan.evalsets]
    policy, _ = foreseeable(sets, rules_before(plan.policy, {item.name: item.metrics for item in plan.evalsets}))
    if policy is None:
        return
    rates = plan_policy(sets, policy, draws=2_000, search=False)
    if not rates.decidable:
        warn(
            f"this policy would approve an identical variant in about {rates.approve:.0%} of runs; "
            "`qualgate plan` says what would change that"
        )


def as_four_arms(gate: GateFile) -> GateFile:
    """The gate file with its four arms in the policy. UsageError where it does not name them."""
    if gate.four_arm is None:
        raise UsageError(
            f"{gate.path.name} names no four arms. Add for example: "
            "four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}"
        )
    if gate.policy.stop is not None:
        raise UsageError(
            f"{gate.path.name}: four arms are judged on all of their traffic sample, and `stop: early` ends before: "
            "take one of the two out of the gate file."
        )
    if gate.nel_policy is not None:
        raise UsageError(
            f"{gate.path.name} decides by an nel policy, which knows no four arms: decide by rules, or name no arms."
        )
    return replace(gate, policy=replace(gate.policy, four_arm=gate.four_arm))


def with_nel_policy(gate: GateFile) -> GateFile:
    """The gate file with the nel policy that it names in its own."""
    if gate.nel_policy is None:
        return gate
    return replace(gate, policy=replace(gate.policy, nel=as_text(read_nel_policy(gate.nel_policy))))


def _reads_answers(policy: Policy) -> bool:
    """Parity compares tokens, and feedback names an answer by its text's hash."""
    return policy.four_arm is not None or bool(policy.feedback)


def _verdicts(evidence: RunEvidence, policy: Policy, said: Feedback | None) -> Decided:
    if said is not None:
        evidence = replace(evidence, corrected=corrections(said, evidence))
    return decide(evidence, policy, plain.now())


def with_twins(gate: GateFile) -> GateFile:
    """Beside each variant with packed weights an arm that runs them through the torch twin. UsageError without any."""
    packed = [arm for arm in gate.variants if arm.quantize or recognise(Path(arm.model)) is not None]
    if not packed:
        raise UsageError("--blame compares kernels, and no variant of this gate file has quantized weights.")
    twins = [replace(arm, name=f"{arm.name}{TWIN}", kernels="torch") for arm in packed]
    return replace(gate, variants=(*gate.variants, *twins))


def with_noise_arm(gate: GateFile) -> GateFile:
    """Beside the variants the baseline's own weights, which the plan lays out in other batches."""
    return replace(gate, variants=(*gate.variants, replace(gate.baseline, name=f"{gate.baseline.name}{NOISE}")))


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
    settling = Settling(plan, record, store, labels_of(plan.evalsets))
    failures: list[tuple[str, str]] = []  # arm, and what happened
    progress("", done, total)
    for outcome in run_jobs(
        _remaining([job for job in plan.jobs if settling.wants(job)], record.done),
        settings,
        gate.workers,
        lambda: stop() is not None,
        in_order=plan.policy.four_arm is not None,
        needed=settling.wants,
    ):
        if isinstance(outcome, JobFailure):
            runs.record_failure(store, record.run_id, outcome)
            failures.append((outcome.arm, f"{outcome.arm}, job {outcome.index}: {outcome.error}"))
            continue
        new = [completion.key for completion in outcome.completions if completion.key not in record.done]
        runs.record(store, record.run_id, outcome, scores_of(outcome, cases, plan.also))
        progress(outcome.arm, done := done + len(new), total)
        settling.answered(new)
    if (received := stop()) is not None:
        raise Interrupted(
            f"stopped with {done} of {counted(total, 'unit')} done and stored; run the same command again to resume",
            Exit.TERMINATED if received == signal.SIGTERM else Exit.INTERRUPTED,
        )
    return tuple(failure for arm, failure in failures if settling.needed(arm))


def with_labels(evidence: RunEvidence, plan: Plan) -> RunEvidence:
    return replace(evidence, labels=labels_of(plan.evalsets))


def measure_coverage(plan: Plan, run_id: str, store: Store, gate: GateFile) -> None:
    """How far each variant's calibration covers the run's evalsets, stored with its arm, where a rule asks for it.

    Whole texts are counted, and the baseline reads the calibration and a part of the evalsets. Of a folder that was
    made elsewhere the gate file says what it was calibrated with. A variant that learned from no data, or nobody says
    from which, has no such number, and neither has a run whose cases are texts to read instead of to answer.
    """
    asked = {rule.metric for rule in plan.policy.rules if rule.metric.startswith("coverage.")}
    if not asked or any("requests" in case.body for item in plan.evalsets for case in item.cases):
        return
    from qualgate.engine.coverage import coverage

    seen = runs.evidence(store, run_id)
    measured_before = {arm.name: arm.facts.keys() for arm in seen.variants}
    found: dict[str, dict[str, float]] = {}
    for arm in gate.variants:
        told = arm.quantize or arm
        if not told.calibration_sha256 or asked <= measured_before[arm.name]:
            continue
        if told.calibration_sha256 not in found:
            learned = evalsets.read(Path(told.calibration).with_suffix(".yaml"))
            if not isinstance(learned, CalibrationSet) or learned.sha256 != told.calibration_sha256:
                raise UsageError(f"{told.calibration} is no longer the calibration set that {arm.name} was made with.")
            measured = coverage(
                Path(gate.baseline.model),
                learned,
                plan.evalsets,
                dtype=gate.baseline.dtype,
                device=choose_device(gate.devices),
            )
            found[told.calibration_sha256] = measured.facts
        runs.add_facts(store, run_id, arm.name, found[told.calibration_sha256])


def scores_of(
    result: JobResult, cases: dict[tuple[str, str], tuple[Case, Evalset]], also: dict[str, tuple[str, ...]]
) -> dict[UnitKey, tuple[Score, ...]]:
    """Every score of a job's completions, by unit. also: evalset → metrics beyond those it declares."""
    return {
        completion.key: _scores(
            *cases[completion.key.evalset, completion.key.case_id],
            completion.text,
            completion.finish_reason,
            also.get(completion.key.evalset, ()),
        )
        for completion in result.completions
    }


def _scores(case: Case, item: Evalset, text: str, finish_reason: str, also: tuple[str, ...]) -> tuple[Score, ...]:
    if item.lm_eval is None:
        return score(case, item, text, finish_reason, also)
    return (*tasks.score(case, item.lm_eval, text), *score(case, replace(item, metrics=()), text, finish_reason, also))


def decide_again(
    store_url: str,
    run_id: str | None,
    gate: GateFile | None,
    nel: NelPolicy | None = None,
    *,
    four_arm: bool = False,
) -> Outcome:
    """Decide from stored evidence alone. Raises UsageError when there is no such run.

    gate: its policy decides, and what it names must still be what the run judged (weights, tokenizers, evalsets,
    variants), else every verdict is undecided. None: the policy the run was made with, about what was stored.
    nel: a NeMo Evaluator policy that decides in place of either, see `gate.peers.nel_policy`.
    four_arm: refuse to decide otherwise than by four arms, see `arms_compared`.
    """
    if four_arm and gate is not None:
        gate = as_four_arms(gate)
    with open_store(store_url, create=False) as store:
        stands = standing(store, run_id, gate)
        found, arms = stands.run_id, stands.policy.four_arm
        if four_arm and arms is None:
            raise UsageError(
                f"run {found} was not made as four arms, and "
                + ("a gate file must say which they are." if gate is None else "lacks one that the gate file names.")
            )
        if nel is not None:
            if arms is not None:
                raise UsageError(
                    f"run {found} compares four arms, and an nel policy knows neither parity nor value: leave "
                    "--nel-policy out (--peers shows what nel's rule would have said)."
                )
            stands = replace(stands, policy=replace(stands.policy, nel=as_text(nel)))
        evidence = replace(stands.evidence, stale=(*stands.evidence.stale, *_scored_otherwise(stands.evidence)))
        decided = stands.decided(evidence)
        runs.add_verdicts(store, found, decided.verdicts, decided.policy)
    return Outcome(
        run_id=found,
        verdicts=decided.verdicts,
        exit=decided.exit,
        resumed=False,
        failures=(),
        nel=decided.nel,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A stored run, and what it is to be judged by today."""

    run_id: str
    evidence: RunEvidence
    policy: Policy
    then: Policy  # by which the run was made
    said: Feedback | None

    def decided(self, evidence: RunEvidence) -> Decided:
        """On this evidence: the run's own, or the same with other scores."""
        stale = (*evidence.stale, *_tested_otherwise(self.then, self.policy))
        return _verdicts(replace(evidence, stale=stale), self.policy, self.said)


def _tested_otherwise(then: Policy, policy: Policy) -> tuple[str, ...]:
    """A run planned with looks keeps their test, stopped or not. One planned without them has only ever had one."""
    if then.stop is None:
        return ()
    ways = {"an nel policy": policy.nel, "four arms": policy.four_arm, "no `stop: early`": policy.stop is None}
    how = next((name for name, other in ways.items() if other), "")
    if not how:
        return ()
    return (
        f"this run was planned with `stop: early` and looked at on the way; to judge it by {how} now is a second test "
        "of the same cases, and the better of two errs more often than alpha says: decide by a gate file with `stop: "
        "early`, or run again without it",
    )


def standing(store: Store, run_id: str | None, gate: GateFile | None) -> Standing:
    """The run that is meant, its evidence, and the policy of the gate file or, without one, of the run."""
    said = read_feedback(gate.feedback) if gate is not None and gate.feedback else None
    found = run_meant(store, run_id, gate)
    then = runs.policy(store, found)
    policy, stale = grounds(store, found, gate)
    if said is not None:
        policy = replace(policy, feedback=said.sha256)
    evidence = known(store, found, answers=_reads_answers(policy))
    labels = labels_today(gate, policy) if gate is not None and not stale else None
    evidence = replace(evidence, labels=labels, stale=stale)
    return Standing(run_id=found, evidence=evidence, policy=policy, then=then, said=said)


def peers_of(store_url: str, run_id: str) -> tuple[PeerSaid, ...]:
    """What each peer's rule would have said about a stored run; it decides nothing."""
    with open_store(store_url, create=False) as store:
        return what_peers_say(runs.evidence(store, run_id))


def known(store: Store, run_id: str, *, answers: bool = False) -> RunEvidence:
    """A run's evidence; where no tool call or JSON could be read in an answer, also how else one can be."""
    return with_readers(store, runs.evidence(store, run_id, answers=answers))


def with_readers(store: Store, evidence: RunEvidence) -> RunEvidence:
    """The same, saying of each answer in which no call or JSON could be read how else one can be."""
    asked = {unit.case_hash for arm in evidence.variants for unit in arm.units if unit.raw}
    bodies = runs.case_bodies(store, asked)
    return replace(
        evidence,
        variants=tuple(
            replace(arm, units=tuple(_read_elsewhere(unit, bodies) if unit.raw else unit for unit in arm.units))
            for arm in evidence.variants
        ),
    )


def _read_elsewhere(unit: UnitEvidence, bodies: dict[str, dict[str, Any]]) -> UnitEvidence:
    """Calls in another dialect; or JSON in a code fence, where it is all that the case asks of it."""
    body = bodies.get(unit.case_hash, {})
    if not any(name.startswith("tool_call.") for name in unit.values):
        fenced = json_scores(body, unit.raw, ("code_fence",)).values()
        return replace(unit, misread="JSON in a code fence") if all(score.verdict for score in fenced) else unit
    if (declared := dialect_of(body)) == AUTO:  # every dialect was tried when it was scored
        return unit
    found = read_elsewhere(unit.raw, declared, body.get("tools", ()))
    return replace(unit, misread=found.readers[0]) if found.culprit == "parser" else unit


def labels_of(sets: Iterable[Evalset]) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(item.name, case.id): case.labels for item in sets for case in item.cases}


def labels_today(gate: GateFile, policy: Policy) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """Tasks and tags of the evalsets beside the gate file, which are still those of the run; None where no rule asks.

    The store keeps tags too, but a case's hash leaves them out: there they could be changed unseen.
    """
    if all(rule.where is None and rule.scope in ("pooled", "evalset") for rule in policy.rules):
        return None
    return labels_of(load_set(ref, gate.path.parent) for ref in set_refs(gate))


def run_meant(store: Store, run_id: str | None, gate: GateFile | None) -> str:
    """The run that was named, else the newest of the gate file, else the newest."""
    return run_id or (newest_run_of(store, gate) if gate is not None else queries.latest_run(store))


def grounds(store: Store, run_id: str, gate: GateFile | None) -> tuple[Policy, tuple[str, ...]]:
    """By which policy a stored run is judged, and what makes every verdict on it undecided: see `decide_again`.

    How a run stops was settled when it was made: a gate file that says `stop: early` today says it of the next run,
    and one that no longer says it does not decide a run that was looked at, see `_tested_otherwise`.
    """
    then = runs.policy(store, run_id)
    if gate is None:
        return then, ()
    run = queries.run_summary(store, run_id)
    gate = replace(gate, four_arm=arms_compared(gate.four_arm, then.four_arm, {arm.name for arm in run.arms}))
    gate = with_nel_policy(gate if gate.four_arm is None else as_four_arms(gate))
    stop = then.stop if gate.policy.stop is not None else None
    return replace(gate.policy, stop=stop), _changes_since(run, gate)


def arms_compared(asked: FourArms | None, then: FourArms | None, held: Collection[str]) -> FourArms | None:
    """Which four arms a stored run is judged as, with or without a flag: else it could be asked again arm by arm, where
    parity and value are no question, until it approves.

    asked: by the gate file of today, whose word goes where the run holds those arms. then: as the run was made.
    None where neither names arms that are there: each variant is judged by itself.
    """
    if asked is None or not {asked.quantization, asked.speculation, asked.both} <= set(held):
        return then
    if then is None or (asked.quantization, asked.speculation, asked.both) != (
        then.quantization, then.speculation, then.both,
    ):  # fmt: skip
        return asked
    return replace(asked, seed=then.seed, blocks=then.blocks)


def _scored_otherwise(evidence: RunEvidence) -> tuple[str, ...]:
    """Scorers that have another version today than when they scored this run, one line each."""
    then = {
        (metric, scorer)
        for arm in (evidence.baseline, *evidence.variants)
        for unit in arm.units
        for metric, scorer in unit.scorers.items()
    }
    now = scorer_versions()
    return tuple(
        f"{metric} was scored by {scorer}, which this version has no more: run again"
        if not today
        else f"{metric} was scored by {scorer}, which is {today} in this version: qualgate rescore"
        for metric, scorer in sorted(then)
        if scorer != (today := of_today(metric, scorer, now))
    )


def of_today(metric: str, scorer: str, versions: Mapping[str, str]) -> str:
    """Name and version today of the scorer that gave a stored score; "" where there is none. versions: of ours."""
    return tasks.today(scorer) if metric.startswith(LM_EVAL) else versions.get(metric, "")


def newest_run_of(store: Store, gate: GateFile) -> str:
    """The newest run of this gate file's variants and evalsets: several gate files may share a store."""
    arms = [arm.name for arm in (gate.baseline, *gate.variants)]
    sets = [evalsets.name_of(ref) for ref in set_refs(gate)]
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


def earlier_answers(gate: GateFile, run_id: str) -> Past:
    """What that run's answers took: a forecast may learn from it."""
    with open_store(gate.store_url, create=False) as store:
        return Past(run=run_id, times=queries.answer_times(store, run_id))


def _changes_since(run: queries.RunSummary, gate: GateFile) -> tuple[str, ...]:
    """What the gate file names today and the run did not judge, one line each."""
    then = {arm.name: arm for arm in run.arms if "@" not in arm.name}
    now = {arm.name: arm for arm in (gate.baseline, *gate.variants)}
    changes = [f"{name} is in the gate file and was not in run {run.run_id}" for name in now if name not in then]
    changes += [f"{name} was in run {run.run_id} and is not in the gate file" for name in then if name not in now]
    for name in now.keys() & then.keys():
        try:
            folder = read_model_folder(Path(now[name].model))
            today = identify(now[name], folder, sampling_settings(gate), engine_version(choose_device(gate.devices)))
        except UsageError as error:
            changes.append(f"{name} cannot be held against run {run.run_id}: {error}")
            continue
        planned = then[name].planned
        differing = [field for field in today.__dataclass_fields__ if getattr(today, field) != getattr(planned, field)]
        if differing:
            changes.append(f"{name}: {', '.join(differing)} changed since run {run.run_id}")
    sets = {item.name: item.content for item in run.evalsets}
    for ref in set_refs(gate):
        try:
            item = load_set(ref, gate.path.parent)
        except UsageError as error:
            changes.append(f"evalset {evalsets.name_of(ref)} cannot be held against run {run.run_id}: {error}")
            continue
        if sets.pop(item.name, None) != item.content:
            changes.append(f"evalset {item.name} is not the one of run {run.run_id}")
    changes += [f"evalset {name} was in run {run.run_id} and is not in the gate file" for name in sets]
    return tuple(sorted(changes))


def _remaining(jobs: list[Job], done: frozenset[UnitKey]) -> list[Job]:
    """Jobs with a unit that is not done, and baseline jobs whose artifact such a variant's job still needs."""
    open_jobs = [job for job in jobs if any(prompt.key not in done for prompt in job.prompts)]
    needed = {job.index for job in open_jobs if not job.arm.is_baseline and job.artifact}
    return [
        job
        for job in jobs
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
