"""Bulk INSERT, UPDATE and SELECT of many rows, without SQLAlchemy's cost per row."""

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
    """Switch garbage collection off: with hundreds of thousands of live tuples it takes a third of the time."""
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()


def put(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Rows) -> None:
    """Insert rows of these columns' values; other columns get their defaults. It runs in the caller's transaction,
    which an error ends."""
    if not rows:
        return
    names = ", ".join(column.name for column in columns)
    if connection.dialect.name == "postgresql":
        _copy(connection, f"COPY {table.name} ({names}) FROM STDIN", columns, rows)
    else:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"
        connection.exec_driver_sql(statement, _converted(connection, columns, rows))


def pick(
    connection: Connection, key: Column[Any], columns: Sequence[Column[Any]], keys: Iterable[int], where: str
) -> list[tuple[Any, ...]]:
    """Select columns of the rows with these keys that also meet the SQL condition `where`."""
    names, key_list = ", ".join(column.name for column in columns), list(keys)
    if connection.dialect.name == "postgresql":
        membership, parameter = "= ANY(%s)", key_list
    else:
        membership, parameter = "IN (SELECT value FROM json_each(?))", json.dumps(key_list)
    statement = f"SELECT {names} FROM {key.table.name} WHERE {key.name} {membership} AND {where}"
    return [tuple(row) for row in connection.exec_driver_sql(statement, (parameter,)).all()]


def change(connection: Connection, key: Column[Any], columns: Sequence[Column[Any]], rows: Rows, also: str) -> None:
    """Update rows by `key`. rows: the columns' values of each row, and its key last; also: SQL assignments for every
    row."""
    if not rows:
        return
    mark = "%s" if connection.dialect.name == "postgresql" else "?"
    assignments = ", ".join(f"{column.name} = {mark}" for column in columns)
    statement = f"UPDATE {key.table.name} SET {assignments}, {also} WHERE {key.name} = {mark}"
    connection.exec_driver_sql(statement, _converted(connection, (*columns, key), rows))


def _copy(connection: Connection, statement: str, columns: Sequence[Column[Any]], rows: Rows) -> None:
    """Stream rows into a PostgreSQL COPY. The driver's errors become SQLAlchemy's, since the cursor bypasses it."""
    import psycopg

    driver: Any = connection.connection.dbapi_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in _converted(connection, columns, rows):
                copy.write_row(row)
    except psycopg.Error as error:
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=driver.closed, dialect=connection.dialect
        ) from error


def _converted(connection: Connection, columns: Sequence[Column[Any]], rows: Rows) -> list[tuple[Any, ...]]:
    """Convert the values for the database; SQLite takes them as they are."""
    if connection.dialect.name != "postgresql":
        return [tuple(row) for row in rows]
    bound = [column.type.bind_processor(connection.dialect) or _same for column in columns]
    return [tuple(bind(value) for bind, value in zip(bound, row, strict=True)) for row in rows]


def _same(value: Any) -> Any:
    return value
