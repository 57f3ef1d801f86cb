"""What whoever owns a store's file or server can do to it, past every trigger and foreign key."""

from __future__ import annotations

from sqlalchemy import text

from qualgate.store.database import Store

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
