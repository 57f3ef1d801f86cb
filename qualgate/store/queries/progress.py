"""Progress of runs: their units, counted in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from qualgate.store.tables import units


def unit_counts(connection: Connection, run_ids: Sequence[str]) -> dict[tuple[str, str, str], int]:
    """Return (run, arm, status) → number of units."""
    rows = connection.execute(
        select(units.c.run_id, units.c.arm, units.c.status, func.count())
        .where(units.c.run_id.in_(run_ids))
        .group_by(units.c.run_id, units.c.arm, units.c.status)
    )
    return {(run_id, arm, status): number for run_id, arm, status, number in rows}
