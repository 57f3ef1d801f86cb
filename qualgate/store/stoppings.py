"""Variants that were stopped early because their verdict was settled. Append-only and sealed.

Their remaining units end as `settled`. Without the record of its variant such a unit counts as missing.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, update

from qualgate.errors import UsageError
from qualgate.records import Stopped
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.postgresql import lasting
from qualgate.store.rows import AnyRow, check_run
from qualgate.store.sealed import is_intact, rows_of, sealed_row
from qualgate.store.tables import arms, runs, sealed, units
from qualgate.store.typed import read as read_typed


@lasting
def stop(store: Store, run_id: str, variant: str, stopped: Stopped) -> None:
    """Record that the variant is settled, and end its remaining units; with the last variant the baseline's, too.

    Raises UsageError if the run has another policy than the one that settled the verdict.
    """
    with store.write(run_id) as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one()
        check_run(run)
        if plain.policy(run.policy_json) != stopped.policy:
            raise UsageError(f"run {run_id} has another policy than the one by which {variant!r} was judged.")
        row = sealed_row("stopping", stopped, run_id=run_id, part=variant)
        connection.execute(insert(sealed), row)
        _end_units(connection, run_id, variant)
        variants = select(func.count()).where(arms.c.run_id == run_id, arms.c.position > 0)
        if connection.execute(variants).scalar_one() == len(stopped_variants(connection, run_id)):
            _end_units(connection, run_id, "baseline")


def _end_units(connection: Connection, run_id: str, arm: str) -> None:
    undone = (units.c.run_id == run_id, units.c.arm == arm, units.c.status.in_(("pending", "error")))
    connection.execute(update(units).where(*undone).values(status="settled", error=""))


def stopped_variants(connection: Connection, run_id: str) -> frozenset[str]:
    """Return the names of stopped variants, without checking their records as `read` does."""
    return frozenset(row.part for row in connection.execute(rows_of("stopping", run_id=run_id)))


def read(connection: Connection, run: AnyRow) -> tuple[dict[str, Stopped], list[str]]:
    """Return variant → its intact record, and a line for each changed record. run: all columns, checked."""
    stopped, faults, policy = dict[str, Stopped](), [], plain.policy(run.policy_json)
    rows = connection.execute(rows_of("stopping", run_id=run.run_id)).all()
    for row in sorted(rows, key=lambda row: row.part):
        record = read_typed(Stopped, row.body_json) if is_intact(row) else None
        if record is None or record.policy != policy:
            faults.append(f"the record of why {row.part!r} was stopped is not what was written")
        else:
            stopped[row.part] = record
    return stopped, faults
