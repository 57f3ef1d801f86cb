"""Row `overhead.ray`: the same jobs of the shipped model, by one worker of the local pool and by one engine of a Ray
cluster of one node on this machine, in turns. What is held together is the time from a pool's first outcome to its
last: a worker's start, with Python, torch and a place in the cluster, is told beside it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.config import GateFile, load_gate_file
from qualgate.errors import InfrastructureError
from qualgate.pipeline.few_cases import with_few_cases
from qualgate.pipeline.jobs import worker_settings
from qualgate.pipeline.plan import make_plan
from qualgate.records import JobFailure, Plan
from qualgate.workers.pool import run_jobs
from qualgate.workers.ray_reach import RAY_HERE
from tests.benchmarks.shape import told
from tests.verification.goals import SERVICE

CASES, ROUNDS = 250, 5
CASES_QUICK, ROUNDS_QUICK = 30, 1
MOST = 1.10
GATE_FILE = """\
version: 1
baseline: {model: reference}
variants: {int8: {quantize: int8}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.05}]}
workers: {backend: BACKEND, address: ADDRESS, count: 1}
"""


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Five rounds in turns; quick: one of few cases, without a verdict."""
    laps, few = list[dict[str, Any]](), f"{ROUNDS_QUICK} round" if quick else None
    with tempfile.TemporaryDirectory() as work, cluster() as address:
        cases = CASES_QUICK if quick else CASES
        gates = {name: _gate(Path(work), name, address, cases) for name in ("local", "ray")}
        for at in told("service", range(ROUNDS_QUICK if quick else ROUNDS), lambda at: f"round {at + 1}"):
            laps += [lap(name, gates[name]) for name in (sorted(gates) if at % 2 else sorted(gates, reverse=True))]

    def seconds(of: str) -> dict[str, list[float]]:
        return {pool: [one[of] for one in laps if one["pool"] == pool] for pool in gates}

    start, rest = seconds("start"), seconds("rest")
    ratios = [theirs / ours for ours, theirs in zip(rest["local"], rest["ray"], strict=True)]
    middle = statistics.median(ratios)
    measured = {"ratio": middle, **{f"start, s, {name}": statistics.median(start[name]) for name in gates}}
    row = SERVICE.row(
        "overhead.ray", measured, met=middle <= MOST, spread=[min(ratios), max(ratios)], few=few, by_chance=True
    )
    return laps, [row]


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a cluster of one node on this machine."""
    os.environ |= RAY_HERE  # as a cluster that a run starts by itself
    from ray.cluster_utils import Cluster

    cores = len(os.sched_getaffinity(0))
    here = Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    try:
        yield str(here.address)
    finally:
        here.shutdown()


def lap(name: str, gate: GateFile, clock: Callable[[], float] = time.monotonic) -> dict[str, Any]:
    """Every job of the gate file by its pool: seconds until the first outcome, and from there to the last.
    InfrastructureError for one that fails."""
    plan = make_plan(gate)
    began, at = clock(), list[float]()
    for outcome in run_jobs(_again(plan), worker_settings(gate, plan), 1):
        if isinstance(outcome, JobFailure):
            raise InfrastructureError(f"{name}: {outcome.error}")
        at.append(clock())
    return {"pool": name, "start": at[0] - began, "rest": at[-1] - at[0]}


def _again(plan: Plan) -> Sequence[Any]:
    for job in plan.jobs:
        Path(job.artifact).unlink(missing_ok=True)
        Path(job.artifact).parent.mkdir(parents=True, exist_ok=True)
    return plan.jobs


def _gate(work: Path, name: str, address: str, cases: int) -> GateFile:
    text = GATE_FILE.replace("BACKEND", name).replace("address: ADDRESS, ", f"address: '{address}', " * (name == "ray"))
    (work / name).mkdir()
    (work / name / "gate.yaml").write_text(text)
    return replace(with_few_cases(load_gate_file(work / name / "gate.yaml"), cases), devices="cpu")
