"""Jobs: the remaining ones, settings of their workers, and scores of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.config.gate_file import usable_cores
from qualgate.engine.device import choose_device
from qualgate.engine.draft_arms import draft_models, levels
from qualgate.engine.gpus import gpus_of
from qualgate.harness import tasks
from qualgate.pipeline.batches import times_decide
from qualgate.pipeline.memory import memory_for, workers_for
from qualgate.pipeline.residency import fit_together, weight_counts
from qualgate.pipeline.run_key import sampling_settings
from qualgate.pipeline.spending import ledger_opener
from qualgate.records import ArmSpec, Calls, Case, Evalset, Job, JobResult, Plan, Score, UnitKey
from qualgate.records.identity import is_whole
from qualgate.records.speculation import OWN
from qualgate.scoring import score
from qualgate.store.address import artifacts_folder
from qualgate.text.numbers import counted
from qualgate.workers.ray_pool import OnRay, nodes_of
from qualgate.workers.unit import WorkerSettings

Cases = Mapping[tuple[str, str], tuple[Case, Evalset]]  # by evalset and id


def worker_settings(gate: GateFile, plan: Plan) -> WorkerSettings:
    """Return the settings of every worker process of this gate file."""
    device = choose_device(gate.devices)
    taking_turns = times_decide(plan.policy)
    return WorkerSettings(
        cache_dir=str(artifacts_folder(gate.store_url, gate.path.parent) / "packed"),
        sampling=sampling_settings(gate),
        device=device,
        gpus=gpus_of(gate.devices) if isinstance(gate.devices, tuple) else (),
        job_seconds=gate.job_timeout,
        threads=max(1, usable_cores() // workers_for(gate, plan)),
        workers=workers_for(gate, plan),
        ledger=ledger_opener(gate, plan.artifacts),
        keep=taking_turns
        and fit_together(
            weight_counts(plan.arms, {model: facts.parameters for model, facts in plan.models.items()}), gate.devices
        ),
        place=_on_ray(gate, plan, device == "cuda"),
    )


def cluster_nodes(gate: GateFile) -> tuple[str, ...]:
    """Return the nodes of the gate file's cluster, checked as before a run except for memory. Raises UsageError and
    InfrastructureError as a run does."""
    cluster = _cluster(gate, [gate.baseline, *gate.variants], choose_device(gate.devices) == "cuda")
    return () if cluster is None else nodes_of(cluster)


def _on_ray(gate: GateFile, plan: Plan, gpus: bool) -> OnRay | None:
    if (cluster := _cluster(gate, plan.arms, gpus)) is None:
        return None
    need = memory_for(gate, plan)
    return replace(cluster, nbytes=need.of(need.largest), each=gate.each_device and not times_decide(plan.policy))


def _cluster(gate: GateFile, arms: Sequence[ArmSpec], gpus: bool) -> OnRay | None:
    """Return the Ray cluster of the gate file, with the paths that its nodes must read; None if it names none or
    every arm is served. nbytes stays 0: the caller sets the memory that a worker needs. gpus: workers run on GPUs."""
    own_arms = [arm for arm in arms if arm.served is None]
    if gate.ray is None or not own_arms:
        return None
    return OnRay(
        address=gate.ray,
        nbytes=0,
        reads=tuple(sorted(set(_read_by(own_arms)))),
        shared=str(artifacts_folder(gate.store_url, gate.path.parent)),
        gpus=gpus,
    )


def _read_by(arms: Sequence[ArmSpec]) -> Iterator[str]:
    """Yield the paths that loading these arms reads: models, drafts, calibration sets, adapters and draft heads."""
    for arm in arms:
        for spec in (arm, *draft_models(arm)):
            yield from filter(None, (spec.model, spec.quantize.calibration if spec.quantize else ""))
        yield from (level.draft.head for level in levels(arm.speculation) if level.draft.head not in ("", OWN))
        if arm.adapter is not None:
            yield arm.adapter.path


def cases_of(plan: Plan) -> Cases:
    """Return every case of the plan with its evalset, by evalset and id."""
    return {(item.name, case.id): (case, item) for item in plan.evalsets for case in item.cases}


def remaining(jobs: Sequence[Job], done: frozenset[UnitKey]) -> list[Job]:
    """Return the jobs with units to do, and baseline jobs whose missing artifact such a variant's job needs. A partly
    answered job keeps only its open prompts, except a baseline job with an artifact or our own engine's timed job."""
    open_prompts = {id(job): tuple(prompt for prompt in job.prompts if prompt.key not in done) for job in jobs}
    needed = {job.index for job in jobs if open_prompts[id(job)] and not job.arm.is_baseline and job.artifact}
    return [
        job
        if (job.arm.is_baseline and job.artifact) or (job.timed and job.arm.served is None)
        else replace(job, prompts=open_prompts[id(job)])
        for job in jobs
        if open_prompts[id(job)] or (job.arm.is_baseline and job.index in needed and not Path(job.artifact).is_file())
    ]


def forget_received(artifacts: Path) -> None:
    """Delete the received answers that jobs keep beside artifacts until they have results."""
    for file in artifacts.glob("*.received.jsonl"):
        file.unlink(missing_ok=True)


def drop_damaged(artifacts: Path) -> list[str]:
    """Delete partial and damaged artifacts of an interrupted run; return a line on them.

    The baseline's jobs of these artifacts run again. If the head is damaged, all artifacts are deleted.
    """
    for attempt in (*artifacts.glob("*.part"), *artifacts.glob(".*.safetensors*")):  # of killed engines
        attempt.unlink(missing_ok=True)
    files = sorted(artifacts.glob("*.safetensors"))
    damaged = [file for file in files if not is_whole(file)]
    for file in files if any(file.name.startswith("head-") for file in damaged) else damaged:
        file.unlink(missing_ok=True)
    changed = f"{counted(len(damaged), 'artifact')} of the baseline changed on the disk since the interruption"
    return [f"{changed}: made again"] if damaged else []


def scores_of(result: JobResult, cases: Cases, also: Mapping[str, tuple[str, ...]]) -> dict[UnitKey, tuple[Score, ...]]:
    """Return every score of a job's completions, by unit. also: evalset → metrics beyond those it declares."""
    return {
        completion.key: _scores(
            *cases[completion.key.evalset, completion.key.case_id],
            completion.text,
            completion.finish_reason,
            also.get(completion.key.evalset, ()),
            completion.calls,
        )
        for completion in result.completions
    }


def _scores(
    case: Case, item: Evalset, text: str, finish_reason: str, also: tuple[str, ...], calls: Calls | None
) -> tuple[Score, ...]:
    """Return every score of one answer; for an lm-eval task its own scores first, then those of `also`."""
    if item.lm_eval is None:
        return score(case, item, text, finish_reason, also, calls)
    return (*tasks.score(case, item.lm_eval, text), *score(case, replace(item, metrics=()), text, finish_reason, also))
