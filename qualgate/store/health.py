"""Health of a store for `doctor --service`, by reading alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import Connection, text

from qualgate.store.clock import clock
from qualgate.store.database import Store
from qualgate.store.roles import needed
from qualgate.store.schema import APPEND_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of a store that could be opened, so its revision is the program's."""

    server: str  # "SQLite 3.46.1", "PostgreSQL 17.2"
    nbytes: int
    role: str  # the current role; "" for a file
    owns: bool  # whether that role could change sealed rows
    lacking: tuple[str, ...]  # privileges that a run needs and the role lacks: "INSERT on units"
    unguarded: tuple[str, ...]  # tables of history that the database lets change
    skew: float  # s, this machine's clock before the store's


def health(store: Store) -> Health:
    """Return the store's health, read in one snapshot."""
    with store.read() as connection:
        on_server = connection.dialect.name == "postgresql"
        before = time.time()
        store_time = clock(connection)
        skew = (before + time.time()) / 2 - store_time
        return Health(
            server=_server(connection),
            nbytes=connection.execute(text(_SIZE[connection.dialect.name])).scalar_one(),
            role=connection.exec_driver_sql("SELECT current_user").scalar_one() if on_server else "",
            owns=on_server and connection.exec_driver_sql(_OWNS).scalar_one(),
            lacking=tuple(_lacking(connection)) if on_server else (),
            unguarded=tuple(sorted(APPEND_ONLY - _guarded(connection))),
            skew=skew,
        )


_SIZE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_OWNS = "SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = 'decisions'::regclass"
_TRIGGERS = {  # table, and what the trigger stands before; on a server one that no session can switch off
    "sqlite": "SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
    "WHERE tgenabled = 'A' AND pg_table_is_visible(pg_class.oid)",
}


def _server(connection: Connection) -> str:
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[connection.dialect.name]
    return f"{name} {'.'.join(map(str, connection.dialect.server_version_info or ()))}"


def _guarded(connection: Connection) -> set[str]:
    """Return the tables whose triggers forbid changes of rows."""
    triggers = {tuple(row) for row in connection.execute(text(_TRIGGERS[connection.dialect.name]))}
    verbs = ("no_update", "no_delete") if connection.dialect.name == "sqlite" else ("append_only",)
    return {table for table in APPEND_ONLY if all((table, f"{table}_{verb}") in triggers for verb in verbs)}


def _lacking(connection: Connection) -> list[str]:
    privileges = [(verb, table) for verb, tables in needed().items() for table in tables]
    may = text("SELECT has_table_privilege(:table, :verb)")
    return [f"{verb} on {table}" for verb, table in privileges
            if not connection.execute(may, {"table": table, "verb": verb}).scalar_one()]  # fmt: skip
