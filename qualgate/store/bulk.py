"""Many rows of a table at once: what an INSERT, UPDATE or SELECT of as many does, without its cost for each of them."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Column, Connection, Table
from sqlalchemy.exc import DBAPIError

Rows = Sequence[Sequence[Any]]


@contextmanager
def uncollected() -> Iterator[None]:
    """Hundreds of thousands of small tuples, all kept: the garbage collector takes a third of the time for nothing."""
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()


def put(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Rows) -> None:
    """Insert rows, each of these columns' values in their order; the others are at their defaults. All of them or none:
    the transaction is the caller's, and it ends where this raises."""
    if not rows:
        return
    named = ", ".join(column.name for column in columns)
    if connection.dialect.name == "postgresql":
        _copy(connection, f"COPY {table.name} ({named}) FROM STDIN", columns, rows)
    else:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({named}) VALUES ({marks})"
        connection.exec_driver_sql(statement, _given(connection, columns, rows))


def pick(
    connection: Connection, key: Column[Any], columns: Sequence[Column[Any]], keys: Iterable[int], where: str
) -> list[tuple[Any, ...]]:
    """Of the rows that have one of these keys these columns, where they also are as `where` says in SQL."""
    named, given = ", ".join(column.name for column in columns), list(keys)
    if connection.dialect.name == "postgresql":
        among, parameter = "= ANY(%s)", given
    else:
        among, parameter = "IN (SELECT value FROM json_each(?))", json.dumps(given)
    asked = f"SELECT {named} FROM {key.table.name} WHERE {key.name} {among} AND {where}"
    return [tuple(row) for row in connection.exec_driver_sql(asked, (parameter,)).all()]


def change(connection: Connection, key: Column[Any], columns: Sequence[Column[Any]], rows: Rows, also: str) -> None:
    """Update the rows that `key` names. rows: of each these columns' values in their order, and the key's last; also:
    what is set in every row, in SQL."""
    if not rows:
        return
    mark = "%s" if connection.dialect.name == "postgresql" else "?"
    named = ", ".join(f"{column.name} = {mark}" for column in columns)
    statement = f"UPDATE {key.table.name} SET {named}, {also} WHERE {key.name} = {mark}"
    connection.exec_driver_sql(statement, _given(connection, (*columns, key), rows))


def _copy(connection: Connection, statement: str, columns: Sequence[Column[Any]], rows: Rows) -> None:
    import psycopg

    driver: Any = connection.connection.dbapi_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as taken:
            for row in _given(connection, columns, rows):
                taken.write_row(row)
    except psycopg.Error as error:
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=driver.closed, dialect=connection.dialect
        ) from error


def _given(connection: Connection, columns: Sequence[Column[Any]], rows: Rows) -> list[tuple[Any, ...]]:
    """What the database is given of them. SQLite takes any value as it is."""
    if connection.dialect.name != "postgresql":
        return [tuple(row) for row in rows]
    bound = [column.type.bind_processor(connection.dialect) or _same for column in columns]
    return [tuple(bind(value) for bind, value in zip(bound, row, strict=True)) for row in rows]


def _same(value: Any) -> Any:
    return value
