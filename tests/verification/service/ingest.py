"""Rows `ingest` and `writers`: how fast scores come into a store, and how long many writers wait for each other.

`ingest` writes a whole run's scores again, by `scorings.add`: rows of scores, their seals with them. What recording the
run's answers took is told beside it. `writers` are processes, each with a run of its own, that record job after job.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from qualgate.records import JobResult, Plan
from qualgate.store import runs, scorings
from qualgate.store.database import Store, open_store
from tests.store.made import Scores, make_plan, make_result, make_results
from tests.verification.goals import SERVICE
from tests.verification.service.stores import new_stores

LEAST = {"file": 50_000, "postgresql": 30_000}  # rows/s
LONGEST = 0.2  # s
WRITERS, WRITERS_QUICK, RESULTS, ROWS = 16, 3, 100_000, 128
CASES, CASES_QUICK, RESULTS_QUICK = 20_000, 500, 200  # of each of three sets; of each writer
VARIANT = {"int8": 0.0}


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: of few rows, without a verdict."""
    few = f"{RESULTS_QUICK:,} results of {WRITERS_QUICK} writers" if quick else None
    with new_stores() as stores:
        rates = {kind: rate(url, CASES_QUICK if quick else CASES) for kind, url in stores.items()}
    with new_stores() as stores:
        results, writers = (RESULTS_QUICK, WRITERS_QUICK) if quick else (RESULTS, WRITERS)
        waits = {kind: wait(url, results, writers) for kind, url in stores.items()}
    missing = None if set(rates) == set(LEAST) else "no PostgreSQL is installed here"
    fast = all(found["score rows/s"] >= LEAST[kind] for kind, found in rates.items())
    good = all(found["errors"] == 0 and found["p99 wait, s"] < LONGEST for found in waits.values())
    rows = [
        SERVICE.row("ingest", rates, met=fast, unmet_because=missing, few=few, by_chance=True),
        SERVICE.row("writers", waits, met=good, unmet_because=missing, few=few, by_chance=True),
    ]
    return [], rows


def rate(url: str, cases: int, clock: Any = time.perf_counter) -> dict[str, float]:
    """Score rows and answers a second."""
    plan = make_plan(cases=cases, wrong=VARIANT, job_rows=ROWS)
    with open_store(url) as store:
        run_id, took = runs.begin(store, plan).run_id, 0.0
        for result, scored in make_results(plan, VARIANT):
            began = clock()
            runs.record(store, run_id, result, scored)
            took += clock() - began
        runs.finish(store, run_id, (), complete=True)
        last = scorings.read(store, run_id)
        scored = {answer.unit_id: answer.scores for answer in last.answers}
        began = clock()
        scorings.add(store, run_id, 0, scored)
        seconds = clock() - began
        assert runs.evidence(store, run_id).integrity == ()
    return {"score rows/s": sum(map(len, scored.values())) / seconds, "answers/s": len(plan.expected) / took}


def wait(url: str, results: int, writers: int) -> dict[str, float]:
    """What the writers met, and whether all that they wrote is there."""
    open_store(url).close()
    with multiprocessing.get_context("spawn").Pool(writers) as pool:
        found = pool.starmap(_write, [(url, seed, results) for seed in range(writers)], chunksize=1)
    waits = np.array([one for _, each, _ in found for one in each])
    with open_store(url) as store, store.read() as connection:
        done = connection.exec_driver_sql("SELECT count(*) FROM units WHERE status = 'done'").scalar_one()
    planned = sum(len(_plan(seed, results).expected) for seed in range(writers))
    return {
        "results": done,
        "errors": sum(errors for *_, errors in found) + planned - done,
        "p99 wait, s": float(np.quantile(waits, 0.99)),
        "longest wait, s": float(waits.max()),
        "longest wait of a run that begins, s": max(max(begun) for begun, *_ in found),
    }


def _plan(seed: int, results: int) -> Plan:
    return make_plan(cases=max(results // 6, 1), wrong=VARIANT, job_rows=ROWS, seed=seed)


def _write(url: str, seed: int, results: int) -> tuple[list[float], list[float], int]:
    """How long each write waited for the store, as the run begins and as it is recorded; and how many failed."""
    waits, errors, plan = list[float](), 0, _plan(seed, results)
    with open_store(url) as store, _timed(waits):
        run_id = runs.begin(store, plan).run_id
        begun = len(waits)
        for result, scored in _alike(plan):
            try:
                runs.record(store, run_id, result, scored)
            except Exception:
                errors += 1
    return waits[:begun], waits[begun:], errors


def _alike(plan: Plan) -> Iterator[tuple[JobResult, Scores]]:
    """Results of the plan's jobs, each saying what its arm's first one says: sixteen that made up answers of their own
    all the while would take the processors from whoever writes."""
    first = dict[str, tuple[JobResult, Scores]]()
    known = {(item.name, case.id): case for item in plan.evalsets for case in item.cases}
    for job in plan.jobs:
        if job.arm.name not in first:
            first[job.arm.name] = make_result(job, known, VARIANT.get(job.arm.name, 0.0))
        made, scores = first[job.arm.name]
        said = list(zip(job.prompts, made.completions, strict=False))  # the last job is a shorter one
        yield (
            replace(
                made,
                index=job.index,
                completions=tuple(replace(one, key=asked.key, case_hash=asked.case_hash) for asked, one in said),
                drifts=tuple(replace(one, key=asked.key) for asked, one in zip(job.prompts, made.drifts, strict=False)),
            ),
            {asked.key: scores[one.key] for asked, one in said},
        )


@contextmanager
def _timed(waits: list[float]) -> Iterator[None]:
    plain = Store.write

    @contextmanager
    def write(self: Store, run: str = "") -> Iterator[Any]:
        began = time.perf_counter()
        with plain(self, run) as connection:
            waits.append(time.perf_counter() - began)
            yield connection

    Store.write = write  # type: ignore[method-assign]
    try:
        yield
    finally:
        Store.write = plain  # type: ignore[method-assign]
