"""Many rows into a table at once: what an INSERT of as many rows does, without its cost for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table
from sqlalchemy.exc import DBAPIError


def put(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]) -> None:
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
        connection.exec_driver_sql(statement, [tuple(row) for row in rows])


def _copy(
    connection: Connection, statement: str, columns: Sequence[Column[Any]], rows: Sequence[Sequence[Any]]
) -> None:
    import psycopg

    bound = [column.type.bind_processor(connection.dialect) or _same for column in columns]
    driver: Any = connection.connection.dbapi_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as taken:
            for row in rows:
                taken.write_row([bind(value) for bind, value in zip(bound, row, strict=True)])
    except psycopg.Error as error:
        raise DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=driver.closed, dialect=connection.dialect
        ) from error


def _same(value: Any) -> Any:
    return value
