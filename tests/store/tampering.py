"""What whoever owns a store's file or server can do to it, past every trigger and foreign key."""

from __future__ import annotations

from sqlalchemy import select, text

from qualgate.store import draft_steps
from qualgate.store.database import Store
from qualgate.store.rows import ARRAYS, KEY, MEASURED, SCORE, unit_digest
from qualgate.store.tables import scores, units

_TRIGGERS = {
    "sqlite": "SELECT 'DROP TRIGGER ' || name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger "
                  "WHERE NOT tgisinternal",
}  # fmt: skip
_NO_KEYS = {"sqlite": "PRAGMA foreign_keys = OFF", "postgresql": "SET session_replication_role = replica"}


def tamper(store: Store, *statements: str, **values: object) -> None:
    """Run them."""
    kind = store.engine.dialect.name
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if kind == "sqlite":
            connection.exec_driver_sql("COMMIT")  # ours begins a transaction, in which the pragma would say nothing
        for drop in connection.exec_driver_sql(_TRIGGERS[kind].replace("%", "%%" if kind == "postgresql" else "%")):
            connection.exec_driver_sql(drop[0])
        connection.exec_driver_sql(_NO_KEYS[kind])
        for statement in statements:
            connection.execute(text(statement), values)
        connection.invalidate()


def forge_answer(store: Store, run_id: str, arm: str) -> None:
    """Give one answer of an arm another text, and compute every digest anew, as whoever can write the store can."""
    with store.read() as connection:
        row = connection.execute(
            select(units).where(units.c.run_id == run_id, units.c.arm == arm, units.c.status == "done").limit(1)
        ).one()
        scored = [
            tuple(one)
            for one in connection.execute(
                select(*SCORE).where(scores.c.unit_id == row.unit_id, scores.c.scoring == 0).order_by(scores.c.metric)
            )
        ]
    of_row, steps, forged = row._mapping, draft_steps.digest(()), "forged"
    plain_columns = [of_row[column.name] for column in KEY]
    plain_columns += [of_row[name] for name in ("case_hash", "finish_reason", *MEASURED)]
    arrays = {name: of_row[name] for name in ARRAYS}
    assert row.sha256 == unit_digest(run_id, plain_columns, steps, scored, row.text.encode(), row.token_ids, arrays)
    sha256 = unit_digest(run_id, plain_columns, steps, scored, forged.encode(), row.token_ids, arrays)
    tamper(store, "update units set text = :text, sha256 = :sha256 where unit_id = :unit_id",
           text=forged, sha256=sha256, unit_id=row.unit_id)  # fmt: skip
