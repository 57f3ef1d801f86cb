"""Row `scale`: one run on a cluster of 64 nodes x 8 devices whose times are modelled, by the real pool and store.

Nobody computes: a device's job takes as long as the model says. The pool's clock is the model's, and goes on by what
this machine takes besides, so that a pool or a store that is too slow shows as devices that wait. What making an answer
up takes is left out: that is the devices' work. Ideal is all work, spread evenly over all devices, without a loss, a
straggler, a model's loading or a wait.
"""

from __future__ import annotations

import heapq
import itertools
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from qualgate.pipeline.batches import JOB_ROWS
from qualgate.pipeline.early_stop import Settling
from qualgate.records import Completion, Job, JobResult, Score, UnitKey
from qualgate.store import runs
from qualgate.store.database import open_store
from qualgate.workers import pool
from qualgate.workers.unit import READY, Hired, WorkerSettings
from tests.store.made import make_identity, make_plan
from tests.verification.goals import SERVICE
from tests.verification.service.scripted import FOOTPRINT

NODES, DEVICES, ARMS, SETS = 64, 8, 4, 3
UNITS, UNITS_QUICK, NODES_QUICK = 10_000_000, 20_000, 4  # half an hour, 14 GiB of memory and 12 of disk
LEAST = 0.90  # of the ideal
JOB = 60.0  # s of a device: 128 answers of 500 tokens, about 1,000 tokens/s
SPREAD = 0.25  # of the logarithm of a job's time
STRAGGLERS, SLOWER = 0.005, 4.0  # share of jobs that take so many times as long
START, LOAD = 20.0, 15.0  # s: of a worker, and of an arm's weights
LOST, AWAY = 4, 300.0  # nodes that are lost in the run, each for so many s


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: four nodes and fewer units, without a verdict."""
    few = f"{UNITS_QUICK:,} units on {NODES_QUICK} nodes" if quick else None
    found = simulated(UNITS_QUICK if quick else UNITS, NODES_QUICK if quick else NODES, seed=0)
    return [], [SERVICE.row("scale", found, met=found["of the ideal"] >= LEAST, few=few, by_chance=True)]


def simulated(units: int, nodes: int, seed: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Share of the ideal time, and what the coordinator was busy for, in s of this machine. clock: by which it was."""
    variants = {f"v{number}": 0.0 for number in range(1, ARMS)}
    plan = make_plan(cases=-(-units // (ARMS * SETS)), wrong=variants, job_rows=JOB_ROWS)
    cluster = Cluster(nodes, random.Random(f"scale {seed}"), len(plan.expected), clock)
    with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/q.db") as store:
        began = clock()
        record = runs.begin(store, plan)
        begin = clock() - began
        settling = Settling(plan, record, store, {})
        with patch.object(pool, "wait", cluster.wait), patch.object(pool, "time", cluster):
            for outcome in pool.run_jobs(plan.jobs, _settings(cluster, folder), nodes * DEVICES, needed=settling.wants):
                assert isinstance(outcome, JobResult), outcome
                runs.record(store, record.run_id, outcome, _scored(outcome))
                settling.answered([one.key for one in outcome.completions])
        took = cluster.monotonic()
        with store.read() as connection:
            done = connection.exec_driver_sql("SELECT count(*) FROM units WHERE status = 'done'").scalar_one()
    assert done == len(plan.expected), f"{len(plan.expected) - done} answers are lost"
    ideal = JOB * done / JOB_ROWS / (nodes * DEVICES)
    return {
        "units": done, "of the ideal": ideal / took, "took, s": took, "ideal, s": ideal,
        "coordinator at work, s": cluster.busy, "beginning, s": begin, "workers lost": cluster.lost,
        "peak, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def _settings(cluster: Cluster, folder: str) -> WorkerSettings:
    return WorkerSettings(cache_dir=folder, sampling={}, threads=1, device="cuda", place=cluster)


def _scored(result: JobResult) -> dict[UnitKey, tuple[Score, ...]]:
    said = (Score(metric="exact_match", value=1.0, verdict=True, scorer="exact_match/1"),)
    return {one.key: said for one in result.completions}


@dataclass(slots=True, eq=False)
class Device:
    """A worker, as the pool has one: its process and its pipe are the same thing."""

    cluster: Cluster
    node: int
    exitcode: int | None = None
    arm: str = ""
    said: list[Any] = field(default_factory=list)  # what waits to be heard; at the end of a lost one, nothing

    def send(self, jobs: tuple[Job, ...]) -> None:
        self.cluster.work_on(self, jobs)

    def recv(self) -> Any:
        if not self.said:
            raise EOFError
        return self.cluster.uncounted(self.said.pop(0))

    def close(self) -> None: ...

    def join(self) -> None: ...

    def kill(self) -> None:
        self.exitcode = -9


class Cluster:
    """A place for workers, and the clock. As a crew it hires as one on Ray does: so many as there is room for."""

    def __init__(self, nodes: int, rng: random.Random, units: int, clock: Callable[[], float]) -> None:
        self._clock, self._rng, self._room = clock, rng, [DEVICES] * nodes
        self._slow = {node: rng.uniform(0.95, 1.05) for node in range(nodes)}
        self._began, self._jumped, self._left_out = clock(), 0.0, 0.0
        self._due: list[tuple[float, int, Device | int, Any]] = []
        self._numbers = itertools.count()
        self._hired = list[Device]()
        self.busy, self.lost = 0.0, 0
        whole = JOB * units / JOB_ROWS / (nodes * DEVICES)
        for node in rng.sample(range(nodes), LOST if nodes > LOST else 1):
            self._at(rng.uniform(0.1, 0.7) * whole, node, "lost")

    # ---- the clock

    def monotonic(self) -> float:
        return self._jumped + self._clock() - self._began - self._left_out

    def wait(self, pipes: Sequence[Device], timeout: float) -> list[Device]:
        """Who of them has something to say: at once, or when the next of all devices has, until the timeout."""
        until = self.monotonic() + timeout
        while True:
            while self._due and self._due[0][0] <= self.monotonic():
                self._happen(*heapq.heappop(self._due)[2:])
            found = [pipe for pipe in pipes if pipe.said or pipe.exitcode is not None]
            now = self.monotonic()
            if found or now >= until:
                return found
            self._jumped += max(0.0, min(until, self._due[0][0] if self._due else until) - now)

    def uncounted(self, made: Any) -> Any:
        """What it makes, the clock standing still meanwhile."""
        began = self._clock()
        found = made() if callable(made) else made
        self._left_out += self._clock() - began
        return found

    # ---- the crew

    most = 0

    def crew(self, body: Any, settings: WorkerSettings, count: int) -> Cluster:
        return self

    def hire(self, count: int) -> Iterator[Hired]:
        for _ in range(count):
            node = max(range(len(self._room)), key=self._room.__getitem__)
            if not self._room[node]:
                return
            self._room[node] -= 1
            self._hired.append(one := Device(self, node))
            self._at(START, one, READY)
            yield one, one

    def close(self) -> None:
        self.busy = self._clock() - self._began - self._left_out

    # ---- what happens

    def work_on(self, device: Device, jobs: tuple[Job, ...]) -> None:
        for job in jobs:
            seconds = JOB * len(job.prompts) / JOB_ROWS
            often = self._rng.lognormvariate(-(SPREAD**2) / 2, SPREAD) * self._slow[device.node]
            often *= SLOWER if self._rng.random() < STRAGGLERS else 1.0
            load, device.arm = 0.0 if device.arm == job.arm.name else LOAD, job.arm.name
            self._at(load + seconds * often, device, lambda job=job: _result(job))

    def _at(self, seconds: float, who: Device | int, what: Any) -> None:
        heapq.heappush(self._due, (self.monotonic() + seconds, next(self._numbers), who, what))

    def _happen(self, who: Device | int, what: Any) -> None:
        if isinstance(who, Device):
            if who.exitcode is None:
                who.said.append(what)
        elif what == "lost":
            gone = [one for one in self._hired if one.node == who and one.exitcode is None]
            for one in gone:
                one.exitcode, one.said = -9, []
            self.lost, self._room[who] = self.lost + len(gone), 0
            self._at(AWAY, who, "back")
        else:
            self._room[who] = DEVICES


def _result(job: Job) -> JobResult:
    done = tuple(
        Completion(
            key=prompt.key, case_hash=prompt.case_hash, token_ids=(1, 2), text="right", finish_reason="eos",
            prompt_tokens=3, logprobs=(-0.5, -0.5), margins=(1.0, 1.0), ttft=0.1, e2e=0.2,
        )
        for prompt in job.prompts
    )  # fmt: skip
    identity = make_identity(job.arm.name)
    return JobResult(index=job.index, arm=job.arm.name, identity=identity, footprint=FOOTPRINT, completions=done)
