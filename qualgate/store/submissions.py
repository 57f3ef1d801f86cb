"""Runs that are handed to a pool: how one is handed over, cancelled and looked at."""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from qualgate.errors import UsageError, close_names
from qualgate.identity import content_hash
from qualgate.records import Node, Submission, SubmissionState
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.leases import check_program, clock, close, live_nodes
from qualgate.store.postgresql import lasting
from qualgate.store.queries.progress import unit_counts
from qualgate.store.queue_tables import refusals, submission_files, submissions
from qualgate.store.rows import AnyRow

AT_ONCE = 500  # names in one question
ENDED = ("done", "cancelled", "apart")


def submit(store: Store, submission: Submission) -> str:
    """Hand it over; returns its id. StoreVersionError where another version of qualgate works for this store."""
    files = [
        {"path": path, "sha256": hashlib.sha256(body).hexdigest(), "body": body}
        for path, body in sorted(submission.files.items())
    ]
    asked = [submission.folder, submission.name, submission.gate_file, submission.options, dict(submission.needs)]
    name = _name(store)
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
        "token": 0,
        "deaths": 0,
        "reason": "",
    }
    _add(store, row, files)
    return name


@lasting
def _name(store: Store) -> str:
    with store.read() as connection:
        now = clock(connection)
    return f"s{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


@lasting
def _add(store: Store, row: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """Where it is there, that was committed, and then the connection was lost."""
    with store.write() as connection:
        here = submissions.c.submission_id == row["submission_id"]
        if connection.execute(select(submissions.c.submission_id).where(here)).first() is not None:
            return
        check_program(connection, row["program"], "this command")
        connection.execute(insert(submissions), row | {"submitted_at": clock(connection)})
        if files:
            of = {"submission_id": row["submission_id"]}
            connection.execute(insert(submission_files), [of | file for file in files])


def cancel(store: Store, submission: str, by: str) -> SubmissionState:
    """End it: whoever is at it writes nothing more. Returns how it stood before; one that has ended stays as it is."""
    seen: list[SubmissionState] = []

    @lasting
    def end() -> None:
        with store.write() as connection:
            row = _one(connection, submission, lock=True)
            seen.append(_state(connection, row))
            if row.status not in ENDED:
                close(connection, submission, "cancelled", f"cancelled by {by}", clock(connection))

    end()
    # What a lost connection had cancelled already was as it stood at first.
    return seen[0] if seen[-1].status == "cancelled" else seen[-1]


@lasting
def state(store: Store, submission: str) -> SubmissionState:
    """Where it stands. UsageError where there is none of this id."""
    with store.read() as connection:
        return _state(connection, _one(connection, submission))


@lasting
def states(store: Store, ended: int = 20) -> list[SubmissionState]:
    """Every one that is open, in the order of handing over, then so many that ended, the newest first."""
    with store.read() as connection:
        is_open = submissions.c.status.not_in(ENDED)
        first = select(submissions).where(is_open).order_by(submissions.c.submitted_at, submissions.c.submission_id)
        then = select(submissions).where(~is_open).order_by(submissions.c.finished_at.desc()).limit(ended)
        rows = [*connection.execute(first).all(), *connection.execute(then).all()]
        return _states(connection, rows)


@lasting
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
    return _states(connection, [row])[0]


def _states(connection: Connection, rows: Sequence[AnyRow]) -> list[SubmissionState]:
    """All that is asked beside the rows is asked of many at once: thousands may be open."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for part in _parts([row.run_id for row in rows if row.run_id is not None]):
        for (run_id, _, status), number in unit_counts(connection, part).items():
            counts[run_id][status] = counts[run_id].get(status, 0) + number
    refused: dict[str, dict[str, str]] = defaultdict(dict)
    for part in _parts([row.submission_id for row in rows]):
        asked = select(refusals).where(refusals.c.submission_id.in_(part)).order_by(refusals.c.node)
        for one in connection.execute(asked):
            refused[one.submission_id][one.node] = one.reason
    return [_as_state(row, counts[row.run_id], refused[row.submission_id]) for row in rows]


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE))


def _as_state(row: AnyRow, counts: Mapping[str, int], refused: Mapping[str, str]) -> SubmissionState:
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
        refused=refused,
    )
