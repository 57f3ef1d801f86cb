"""Rows of a new run, built from its plan before the write transaction."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from qualgate.records import Plan
from qualgate.store import bulk, plain
from qualgate.store.database import Store, if_absent
from qualgate.store.rows import EVALSET, EXPECTED, arm_digest, expected_digest, run_digest
from qualgate.store.tables import arms, cases, evalsets, runs, units

MAKERS = ("QUALGATE_MADE_BY", "GITHUB_ACTOR", "GITLAB_USER_LOGIN")
BATCH = 10_000  # cases in one transaction: some 50 ms
LISTED = ("run_id", *EXPECTED, "status", "attempts", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """Rows of a new run with its closed list of units."""

    run: Mapping[str, Any]
    evalsets: list[dict[str, Any]]
    arms: list[dict[str, Any]]
    cases: Mapping[str, str]  # hash → body
    units: list[tuple[Any, ...]]  # columns of LISTED


def maker() -> str:
    """Return who makes a run, as this machine or its CI host names them; "" if it does not."""
    named = next(filter(None, (os.environ.get(name) for name in MAKERS)), "")
    if named:
        return plain.storable(named)
    try:
        return plain.storable(getpass.getuser())
    except (OSError, KeyError):  # a container's user without a name
        return ""


def planned_rows(plan: Plan) -> PlannedRows:
    """Build the rows of a run that begins now, under a new id."""
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    cases_by_id = {(item.name, case.id): case for item in plan.evalsets for case in item.cases}
    sets = [
        {
            "run_id": run_id,
            "position": position,
            "name": item.name,
            "version": item.version,
            "sha256": item.sha256,
            "metrics_json": plain.to_json(item.metrics),
            "lenient_json": plain.to_json(item.lenient),
            "normalizers_json": plain.to_json(item.normalizers),
            "description": item.description,
        }
        for position, item in enumerate(plan.evalsets)
    ]
    arm_rows = [
        {
            "run_id": run_id,
            "position": position,
            "name": arm.name,
            "spec_json": plain.to_json(arm),
            "planned_json": plain.to_json(plan.identities[arm.name]),
        }
        for position, arm in enumerate(plan.arms)
    ]
    expected = [
        (key.arm, key.evalset, key.case_id, key.repeat, prompt.case_hash, cases_by_id[key.evalset, key.case_id].cluster)
        for job in plan.jobs
        for prompt in job.prompts
        for key in (prompt.key,)
    ]
    run = {
        "run_id": run_id,
        "plan_key": plan.key,
        "status": "running",
        "created_at": plain.now(),
        "gate_file": plan.gate_file,
        "gate_name": plan.gate_name or None,
        "made_by": maker() or None,
        "policy_json": plain.policy_to_json(plan.policy),
        "expected_sha256": expected_digest([tuple(item[name] for name in EVALSET) for item in sets], expected),
    }
    return PlannedRows(
        run={**run, "sha256": run_digest(run)},
        evalsets=sets,
        arms=[{**arm, "sha256": arm_digest(arm)} for arm in arm_rows],
        cases={case.hash: plain.to_json(case.body) for case in cases_by_id.values()},
        units=[(run_id, *unit, "pending", 0, "") for unit in expected],
    )


def put_cases(store: Store, new: PlannedRows, run: str) -> None:
    """Store new cases, once by content for all runs. They are written in batches, so that others wait only briefly, and
    before the run, so that runs with the same cases do not wait for each other."""
    ordered = sorted(new.cases.items())  # one order for all processes, against deadlocks
    for start in range(0, len(ordered), BATCH):
        with store.write(run) as connection:
            _add_cases(connection, ordered[start : start + BATCH])


def put_planned(connection: Connection, new: PlannedRows) -> str:
    """Insert the run and return its id. Its cases are stored already and never deleted."""
    connection.execute(insert(runs), dict(new.run))
    connection.execute(insert(evalsets), new.evalsets)
    connection.execute(insert(arms), new.arms)
    bulk.put(connection, units, [units.c[name] for name in LISTED], new.units)
    return new.run["run_id"]


def _add_cases(connection: Connection, new_cases: Sequence[tuple[str, str]]) -> None:
    """Insert the (hash, body) pairs whose hash the store does not have yet."""
    stored: set[str] = set()
    for start in range(0, len(new_cases), 500):  # databases bound the number of parameters
        hashes = [name for name, _ in new_cases[start : start + 500]]
        stored.update(connection.execute(select(cases.c.case_hash).where(cases.c.case_hash.in_(hashes))).scalars())
    fresh = [{"case_hash": name, "body_json": body} for name, body in new_cases if name not in stored]
    if fresh:
        connection.execute(if_absent(connection, cases), fresh)
