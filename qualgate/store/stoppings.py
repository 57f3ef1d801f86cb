"""Variants that were stopped early because their verdict was settled. Append-only and sealed.

Their remaining units end as `settled`. Without the record of its variant such a unit counts as missing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from qualgate.errors import UsageError
from qualgate.identity import content_hash
from qualgate.records import Policy, Stopped
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.postgresql import lasting
from qualgate.store.rows import AnyRow, check_run
from qualgate.store.tables import arms, runs, stoppings, units

SEALED = ("run_id", "variant", "look", "seen", "word", "order_sha256", "policy_sha256", "created_at")


@lasting
def stop(store: Store, run_id: str, variant: str, stopped: Stopped) -> None:
    """Record that the variant is settled, and end its remaining units; with the last variant the baseline's, too.

    Raises UsageError if the run has another policy than the one that settled the verdict.
    """
    with store.write(run_id) as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one()
        check_run(run)
        if plain.policy(run.policy_json) != stopped.policy:
            raise UsageError(f"run {run_id} has another policy than the one that {variant!r} was judged by.")
        row: dict[str, Any] = {
            "run_id": run_id,
            "variant": variant,
            "look": stopped.look,
            "seen": stopped.seen,
            "word": stopped.word,
            "order_sha256": stopped.order,
            "policy_sha256": content_hash(run.policy_json),
            "created_at": plain.now(),
        }
        connection.execute(insert(stoppings), {**row, "sha256": _digest(row)})
        _end_units(connection, run_id, variant)
        variants = select(func.count()).where(arms.c.run_id == run_id, arms.c.position > 0)
        if connection.execute(variants).scalar_one() == len(stopped_variants(connection, run_id)):
            _end_units(connection, run_id, "baseline")


def _end_units(connection: Connection, run_id: str, arm: str) -> None:
    undone = (units.c.run_id == run_id, units.c.arm == arm, units.c.status.in_(("pending", "error")))
    connection.execute(update(units).where(*undone).values(status="settled", error=""))


def stopped_variants(connection: Connection, run_id: str) -> frozenset[str]:
    """Return the names of stopped variants, without checking their records as `read` does."""
    return frozenset(connection.execute(select(stoppings.c.variant).where(stoppings.c.run_id == run_id)).scalars())


def read(connection: Connection, run: AnyRow) -> tuple[dict[str, Stopped], list[str]]:
    """Return variant → its intact record, and a line for each changed record. run: all columns, checked."""
    stopped: dict[str, Stopped] = {}
    faults = []
    policy: Policy | None = None
    for row in connection.execute(
        select(stoppings).where(stoppings.c.run_id == run.run_id).order_by(stoppings.c.variant)
    ):
        policy = policy or plain.policy(run.policy_json)
        if row.sha256 != _digest(row._mapping) or row.policy_sha256 != content_hash(run.policy_json):
            faults.append(f"the record of why {row.variant!r} was stopped is not what was written")
            continue
        stopped[row.variant] = Stopped(
            look=row.look, seen=row.seen, word=row.word, order=row.order_sha256, policy=policy
        )
    return stopped, faults


def _digest(row: Any) -> str:
    return content_hash({name: row[name] for name in SEALED})
