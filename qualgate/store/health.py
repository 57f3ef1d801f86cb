"""How a store and its pool are, as `doctor --service` tells it. Reads alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from qualgate.records import Node
from qualgate.store.database import Store
from qualgate.store.leases import clock, is_there, seen_nodes
from qualgate.store.queue_tables import submissions
from qualgate.store.roles import needed
from qualgate.store.schema import APPEND_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Of a store that could be opened, so its revision is the program's."""

    server: str  # "SQLite 3.46.1", "PostgreSQL 17.2"
    nbytes: int
    role: str  # who asks; "" of a file
    owns: bool  # that role could change what is sealed
    lacking: tuple[str, ...]  # what a run or a node needs and the role may not: "INSERT on units"
    unguarded: tuple[str, ...]  # tables of history that the database lets change
    skew: float  # s, this machine's clock before the store's
    nodes: tuple[Node, ...]  # by name, those that are gone too
    at_work: frozenset[str]  # names of those that are there
    queue: Mapping[str, int]  # submissions by status
    waited: float  # s, for how long the oldest has been queued; 0 where none is
    late: int  # leases that ran out and that nobody took back yet
    latest: float  # s, since the first of those ran out; 0 where none did
    programs: Mapping[str, int]  # versions of qualgate → how many submissions that are open they handed over


def health(store: Store) -> Health:
    """In one snapshot."""
    with store.read() as connection:
        on_server = connection.dialect.name == "postgresql"
        before = time.time()
        now = clock(connection)
        skew = (before + time.time()) / 2 - now
        nodes = tuple(seen_nodes(connection))
        is_open, state = submissions.c.status.in_(("queued", "leased")), submissions.c.status
        queued_at = submissions.c.submitted_at
        oldest = select(queued_at).where(state == "queued").order_by(queued_at).limit(1)
        until = submissions.c.expires_at
        late = select(func.count(), func.min(until)).where(state == "leased", until < now)
        by_program = select(submissions.c.program, func.count()).where(is_open).group_by(submissions.c.program)
        ran_out, first = connection.execute(late).one()
        return Health(
            server=_server(connection),
            nbytes=connection.execute(text(_SIZE[connection.dialect.name])).scalar_one(),
            role=connection.exec_driver_sql("SELECT current_user").scalar_one() if on_server else "",
            owns=on_server and connection.exec_driver_sql(_OWNS).scalar_one(),
            lacking=tuple(_lacking(connection)) if on_server else (),
            unguarded=tuple(sorted(APPEND_ONLY - _guarded(connection))),
            skew=skew,
            nodes=nodes,
            at_work=frozenset(node.name for node in nodes if is_there(node)),
            queue={row[0]: row[1] for row in connection.execute(select(state, func.count()).group_by(state))},
            waited=max(0.0, now - (connection.execute(oldest).scalar() or now)),
            late=ran_out,
            latest=now - first if ran_out else 0.0,
            programs={row[0]: row[1] for row in connection.execute(by_program)},
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
    """Tables whose rows the database itself keeps as they are."""
    there = {tuple(row) for row in connection.execute(text(_TRIGGERS[connection.dialect.name]))}
    verbs = ("no_update", "no_delete") if connection.dialect.name == "sqlite" else ("append_only",)
    return {table for table in APPEND_ONLY if all((table, f"{table}_{verb}") in there for verb in verbs)}


def _lacking(connection: Connection) -> list[str]:
    asked = [(verb, table) for verb, tables in needed().items() for table in tables]
    may = text("SELECT has_table_privilege(:table, :verb)")
    return [f"{verb} on {table}" for verb, table in asked
            if not connection.execute(may, {"table": table, "verb": verb}).scalar_one()]  # fmt: skip
