"""State of a service at one moment, counted in SQL, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, func, select

from qualgate.store.clock import clock
from qualgate.store.database import Store
from qualgate.store.night_tables import digests, nights
from qualgate.store.queries.progress import unit_counts
from qualgate.store.tables import runs, verdicts

MOST_RUNS = 4  # running runs whose units are counted, the newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """Counts and ages. Labels are few: statuses, arms of running runs, names of nightly files."""

    runs: Mapping[str, int]  # by status
    units: Mapping[tuple[str, str], int]  # (arm, status) → units of running runs
    verdicts: Mapping[str, int]  # by word, since the store was made
    last_nights: Mapping[tuple[str, str], float]  # (nightly file, gate) → s since the epoch, when its newest ended
    night_exits: Mapping[tuple[str, int], int]  # (nightly file, exit) → gates and models whose newest ended so
    waiting: Mapping[str, tuple[int, float]]  # nightly file → digests not delivered, and s since the oldest was written


def service_state(store: Store) -> ServiceState:
    """Return the service's state, read in one snapshot."""
    with store.read() as connection:
        now = clock(connection)
        return ServiceState(
            runs=_counts(connection, runs.c.status),
            units=_under_way(connection),
            verdicts=_counts(connection, verdicts.c.word),
            last_nights=_last_nights(connection),
            night_exits=_night_exits(connection),
            waiting=_waiting(connection, now),
        )


def _counts(connection: Connection, column: object) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(select(column, func.count()).group_by(column))}  # type: ignore[call-overload]


def _under_way(connection: Connection) -> dict[tuple[str, str], int]:
    """Return (arm, status) → units of the newest running runs, at most MOST_RUNS."""
    newest = select(runs.c.run_id).where(runs.c.status == "running").order_by(runs.c.created_at.desc())
    counts: dict[tuple[str, str], int] = {}
    counted = unit_counts(connection, connection.execute(newest.limit(MOST_RUNS)).scalars().all())
    for (_, arm, status), number in counted.items():
        counts[arm, status] = counts.get((arm, status), 0) + number
    return counts


def _last_nights(connection: Connection) -> dict[tuple[str, str], float]:
    ended = select(nights.c.nightly, nights.c.gate, func.max(nights.c.finished_at))
    rows = connection.execute(ended.group_by(nights.c.nightly, nights.c.gate))
    return {(row[0], row[1]): _seconds(row[2]) for row in rows}


def _night_exits(connection: Connection) -> dict[tuple[str, int], int]:
    """Count exit codes over the gates' newest nights only: removed models and past faults would stay for ever."""
    newest_due = select(nights.c.nightly, nights.c.gate, func.max(nights.c.due_at).label("at"))
    newest_due = newest_due.group_by(nights.c.nightly, nights.c.gate).subquery()
    newest = select(func.max(nights.c.night_id)).join(
        newest_due,
        and_(
            newest_due.c.nightly == nights.c.nightly,
            newest_due.c.gate == nights.c.gate,
            newest_due.c.at == nights.c.due_at,
        ),
    )
    newest = newest.group_by(nights.c.nightly, nights.c.gate, nights.c.model)
    ended = select(nights.c.nightly, nights.c.exit, func.count()).where(nights.c.night_id.in_(newest))
    return {(row[0], row[1]): row[2] for row in connection.execute(ended.group_by(nights.c.nightly, nights.c.exit))}


def _waiting(connection: Connection, now: float) -> dict[str, tuple[int, float]]:
    waiting = select(digests.c.nightly, func.count(), func.min(digests.c.created_at))
    rows = connection.execute(waiting.where(digests.c.delivered_at.is_(None)).group_by(digests.c.nightly))
    return {row[0]: (row[1], max(0.0, now - _seconds(row[2]))) for row in rows}


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
