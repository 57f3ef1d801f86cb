"""State of a service at one moment, counted in SQL, for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from qualgate.store.clock import clock
from qualgate.store.database import Store
from qualgate.store.nights import Night, last_rows, night_of
from qualgate.store.queries.progress import unit_counts
from qualgate.store.tables import digests, runs, verdicts

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
        nights = [night_of(row) for row in last_rows(connection)]
        return ServiceState(
            runs=_counts(connection, runs.c.status),
            units=_under_way(connection),
            verdicts=_counts(connection, verdicts.c.word),
            last_nights=_last_ended(nights),
            night_exits=_night_exits(nights),
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


def _last_ended(nights: Sequence[Night]) -> dict[tuple[str, str], float]:
    """Return (nightly file, gate) → s since the epoch, when its newest night ended."""
    ended: dict[tuple[str, str], float] = {}
    for night in nights:
        ended[night.nightly, night.gate] = max(ended.get((night.nightly, night.gate), 0.0), _seconds(night.finished_at))
    return ended


def _night_exits(nights: Sequence[Night]) -> dict[tuple[str, int], int]:
    """Count exit codes over the gates' newest nights only: removed models and past faults would stay for ever."""
    due: dict[tuple[str, str], str] = {}
    for night in nights:
        due[night.nightly, night.gate] = max(due.get((night.nightly, night.gate), ""), night.due_at)
    return Counter((night.nightly, night.exit) for night in nights if night.due_at == due[night.nightly, night.gate])


def _waiting(connection: Connection, now: float) -> dict[str, tuple[int, float]]:
    waiting = select(digests.c.nightly, func.count(), func.min(digests.c.created_at))
    rows = connection.execute(waiting.where(digests.c.delivered_at.is_(None)).group_by(digests.c.nightly))
    return {row[0]: (row[1], max(0.0, now - _seconds(row[2]))) for row in rows}


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
