"""Row `pages`: how long each query of the dashboard and of a report takes in a store of 5 million units.

One run is made and decided as any is; the others are its copies under ids of their own, their rows sealed anew, their
answers copied by the database. Reading a whole run to check its seals is no page: the dashboard keeps what came of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, func, insert, literal, select

from qualgate.records import UnitKey
from qualgate.store import labels, queries
from qualgate.store.database import Store, open_store
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.rows import arm_digest, run_digest, verdict_digest
from qualgate.store.tables import arms, evalsets, runs, scores, units, verdicts
from tests.store.made import make_plan, make_run
from tests.verification.goals import SERVICE
from tests.verification.service.stores import new_stores

LONGEST = 0.1  # s
UNITS, UNITS_QUICK, ROUNDS = 5_000_000, 20_016, 5
CASES = 834  # of each of three sets: a run of four arms has 10,008 units
PAGE = 25
LABELS = 200  # of one variant of one run


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: two runs, without a verdict."""
    few = f"{UNITS_QUICK:,} units" if quick else None
    with new_stores() as stores:
        found = {kind: times(url, UNITS_QUICK if quick else UNITS) for kind, url in stores.items()}
    missing = None if len(found) == 2 else "no PostgreSQL is installed here"
    slowest = {kind: max(took, key=took.__getitem__) for kind, took in found.items()}
    measured = {kind: {"slowest": name, "s": found[kind][name]} for kind, name in slowest.items()}
    met = all(one["s"] < LONGEST for one in measured.values())
    rounds = [{"store": kind, "query": name, "s": took} for kind, each in found.items() for name, took in each.items()]
    return rounds, [SERVICE.row("pages", measured, met=met, unmet_because=missing, few=few, by_chance=True)]


def times(url: str, most: int) -> dict[str, float]:
    """Query → s, the middle one of five."""
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=CASES, wrong={"int8": 0.0, "int4-g32": 0.012, "mxfp4": 0.03}))
        for key in queries.case_keys(store, run_id, "mxfp4")[:LABELS]:
            labels.set_label(store, run_id, UnitKey("mxfp4", *key.case), "acceptable", name="Ada")
        fill(store, run_id, most)
        return {name: _seconds(lambda asked=asked: asked(store)) for name, asked in _asked(store, run_id).items()}


def fill(store: Store, run_id: str, most: int) -> None:
    """Copies of the run, until there are so many units."""
    with store.read() as connection:
        held, lowest, highest = connection.execute(
            select(func.count(), func.min(units.c.unit_id), func.max(units.c.unit_id))
        ).one()
    for number in range(1, max(most // held, 1)):
        with store.write() as connection:  # each by itself, as runs are written: no log grows beyond one
            _copy(connection, run_id, number, number * (highest - lowest + 1))
    if store.engine.dialect.name == "postgresql":  # as a server does by itself; a file has no statistics
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


def _copy(connection: Connection, run_id: str, number: int, offset: int) -> None:
    made = datetime.now(UTC) - timedelta(hours=number)
    new = f"{made:%Y%m%d-%H%M%S}-{number:06x}"
    for table in (runs, evalsets, arms, verdicts):
        chosen = select(table).where(table.c.run_id == run_id).order_by(*table.primary_key)
        for row in connection.execute(chosen).mappings().all():
            connection.execute(insert(table), _sealed(table, dict(row) | {"run_id": new}, made))
    values = {"unit_id": units.c.unit_id + offset, "run_id": literal(new)}
    chosen = select(*(values.get(one.name, one) for one in units.c)).where(units.c.run_id == run_id)
    connection.execute(insert(units).from_select(units.c.keys(), chosen))
    joined = select(*(scores.c.unit_id + offset if one.name == "unit_id" else one for one in scores.c))
    chosen = joined.join(units, units.c.unit_id == scores.c.unit_id).where(units.c.run_id == run_id)
    connection.execute(insert(scores).from_select(scores.c.keys(), chosen))


def _sealed(table: Table, row: dict[str, Any], made: datetime) -> dict[str, Any]:
    time_ = made.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if table is runs:
        row |= {"created_at": time_, "finished_at": time_}
        return row | {"sha256": run_digest(row)}
    if table is arms:
        return row | {"sha256": arm_digest(row)}
    if table is verdicts:
        del row["verdict_id"]
        return row | {
            "created_at": time_,
            "sha256": verdict_digest(row["run_id"], row["policy_json"], row["body_json"]),
        }
    return row


def _asked(store: Store, run_id: str) -> dict[str, Callable[[Store], object]]:
    flip = queries.flips(store, run_id, "mxfp4", metric="exact_match", evalset=None, direction=None, limit=1)[0]
    keys, of = queries.case_keys(store, run_id, "mxfp4"), [("exact_match", None)]
    return {
        "queue": lambda store: queries.queue(store, PAGE, 0),
        "count of the queue": queries.count_queue,
        "next in the queue": lambda store: queries.next_in_queue(store, run_id, "mxfp4"),
        "verdict before": lambda store: queries.verdict_before(store, run_id, "mxfp4"),
        "runs": lambda store: queries.list_runs(store, PAGE, 0),
        "count of runs": queries.count_runs,
        "newest run": queries.latest_run,
        "superseded": queries.count_superseded,
        "run": lambda store: queries.run_summary(store, run_id),
        "flips by metric": lambda store: queries.flip_counts(store, run_id, "mxfp4"),
        "cases that flipped": lambda store: queries.flipped_cases(
            store, run_id, "mxfp4", of, direction="lost", limit=PAGE
        ),
        "how many flipped": lambda store: queries.count_flipped_cases(store, run_id, "mxfp4", of),
        "flips": lambda store: queries.flips(
            store, run_id, "mxfp4", metric="exact_match", evalset=None, direction=None, limit=PAGE
        ),
        "cases by KL": lambda store: queries.case_keys(store, run_id, "mxfp4", sort="KL"),
        "a page of cases": lambda store: queries.compared(store, run_id, keys[:PAGE]),
        "answers that flipped": lambda store: queries.flipped_answers(store, run_id, "mxfp4"),
        "labels of a run": lambda store: labels.labels(store, run_id, "mxfp4"),
        "labels of a page": lambda store: labels.labels_of_cases(
            store, run_id, "mxfp4", [key.case for key in keys[:PAGE]]
        ),
        "seal of the evidence": lambda store: _seal(store, run_id),
        "case": lambda store: queries.case_detail(store, run_id, "mxfp4", flip.evalset, flip.case_id),
        "drift by position": lambda store: queries.drift_by_position(store, run_id, "mxfp4"),
    }


def _seal(store: Store, run_id: str) -> str:
    with store.read() as connection:
        return evidence_seal(connection, run_id)


def _seconds(asked: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        asked()
        took.append(time.perf_counter() - began)
    return statistics.median(took)
