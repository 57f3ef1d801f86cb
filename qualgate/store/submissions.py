"""Runs that are handed to a pool: how one is handed over, cancelled and looked at."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from qualgate.errors import UsageError, close_names
from qualgate.identity import content_hash
from qualgate.records import Node, Submission, SubmissionState
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.leases import check_program, clock, close, live_nodes
from qualgate.store.queue_tables import refusals, submission_files, submissions
from qualgate.store.rows import AnyRow
from qualgate.store.tables import units

ENDED = ("done", "cancelled", "apart")


def submit(store: Store, submission: Submission) -> str:
    """Hand it over; returns its id. StoreVersionError where another version of qualgate works for this store."""
    files = [
        {"path": path, "sha256": hashlib.sha256(body).hexdigest(), "body": body}
        for path, body in sorted(submission.files.items())
    ]
    asked = [submission.folder, submission.name, submission.gate_file, submission.options, dict(submission.needs)]
    with store.write() as connection:
        check_program(connection, submission.program, "this command")
        now = clock(connection)
        name = f"s{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        row: dict[str, Any] = {
            "submission_id": name,
            "owner": submission.owner,
            "priority": submission.priority,
            "status": "queued",
            "name": submission.name,
            "folder": submission.folder,
            "gate_file": submission.gate_file,
            "options_json": plain.to_json(list(submission.options)),
            "needs_json": plain.to_json(dict(submission.needs)),
            "content": content_hash([*asked, [[file["path"], file["sha256"]] for file in files]]),
            "program": submission.program,
            "submitted_at": now,
            "token": 0,
            "deaths": 0,
            "reason": "",
        }
        connection.execute(insert(submissions), row)
        if files:
            connection.execute(insert(submission_files), [{"submission_id": name, **file} for file in files])
    return name


def cancel(store: Store, submission: str, by: str) -> SubmissionState:
    """End it: whoever is at it writes nothing more. Returns how it stood before; one that has ended stays as it is."""
    with store.write() as connection:
        row = _one(connection, submission, lock=True)
        if row.status not in ENDED:
            close(connection, submission, "cancelled", f"cancelled by {by}", clock(connection))
        return _state(connection, row)


def state(store: Store, submission: str) -> SubmissionState:
    """Where it stands. UsageError where there is none of this id."""
    with store.read() as connection:
        return _state(connection, _one(connection, submission))


def states(store: Store, ended: int = 20) -> list[SubmissionState]:
    """Every one that is open, in the order of handing over, then so many that ended, the newest first."""
    with store.read() as connection:
        is_open = submissions.c.status.not_in(ENDED)
        first = select(submissions).where(is_open).order_by(submissions.c.submitted_at, submissions.c.submission_id)
        then = select(submissions).where(~is_open).order_by(submissions.c.finished_at.desc()).limit(ended)
        rows = [*connection.execute(first).all(), *connection.execute(then).all()]
        return [_state(connection, row) for row in rows]


def nodes_at_work(store: Store) -> list[Node]:
    """Those that were seen lately."""
    with store.read() as connection:
        return live_nodes(connection)


def _one(connection: Connection, submission: str, lock: bool = False) -> AnyRow:
    asked = select(submissions).where(submissions.c.submission_id == submission)
    row = connection.execute(asked.with_for_update() if lock else asked).one_or_none()
    if row is None:
        near = close_names(submission, connection.execute(select(submissions.c.submission_id)).scalars())
        meant = f", perhaps {near[0]}" if near else ""
        raise UsageError(
            f"no submission {submission!r} in this store{meant}. `qualgate status --store URL` lists them."
        )
    return row


def _state(connection: Connection, row: AnyRow) -> SubmissionState:
    counts: dict[str, int] = {}
    if row.run_id is not None:
        of_run = select(units.c.status, func.count()).where(units.c.run_id == row.run_id).group_by(units.c.status)
        counts = {row.status: row[1] for row in connection.execute(of_run)}
    refused = select(refusals.c.node, refusals.c.reason).where(refusals.c.submission_id == row.submission_id)
    return SubmissionState(
        id=row.submission_id,
        owner=row.owner,
        priority=row.priority,
        status=row.status,
        name=row.name,
        program=row.program,
        submitted_at=row.submitted_at,
        taken_at=row.taken_at,
        finished_at=row.finished_at,
        node=row.node,
        claims=row.token,
        deaths=row.deaths,
        run_id=row.run_id,
        exit=row.exit,
        reason=row.reason,
        done=counts.get("done", 0) + counts.get("settled", 0),
        units=sum(counts.values()),
        refused={row.node: row.reason for row in connection.execute(refused.order_by(refusals.c.node))},
    )
