"""Copy a store to another database or file: in one transaction, comparing every row and recomputing every seal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, text
from sqlalchemy.exc import IntegrityError as Refused

from qualgate.errors import IntegrityError, UsageError
from qualgate.store import seals
from qualgate.store.database import Store, open_store, plainly
from qualgate.store.schema import metadata
from qualgate.store.tables import runs

BATCH = 200  # rows per INSERT and read


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Size of a copy."""

    rows: int
    runs: int
    broken: tuple[str, ...]  # broken seals, the same in both stores


def copy_store(source_url: str, target_url: str) -> Copied:
    """Copy every row of the store at `source_url` to the one at `target_url`, which must be new or empty.

    An interrupted copy leaves an empty store, which can be copied to again. Rows are read back and compared before the
    transaction ends. Raises UsageError if the target holds rows, and IntegrityError if rows or broken seals differ.
    """
    with open_store(source_url, create=False) as source, open_store(target_url) as target:
        # The source is released first: a server ends idle sessions while a large copy is committed.
        with target.write() as writing, source.read() as reading:
            _check_empty(target, writing)
            rows = sum(_copy(table, source.url, reading, writing) for table in metadata.sorted_tables)
            _number_on(writing)
            for table in metadata.sorted_tables:
                _compare(table, source.url, reading, writing)
            copied = reading.scalar(select(func.count()).select_from(runs)) or 0
        broken = tuple(seals.broken(source))
        if tuple(seals.broken(target)) != broken:
            raise IntegrityError(
                f"the seals of {target_url} differ from those of {source_url}. Delete the copy; do not rely on it."
            )
    return Copied(rows=rows, runs=copied, broken=broken)


def _check_empty(target: Store, connection: Connection) -> None:
    """Raise UsageError if the target store holds any row."""
    for table in metadata.sorted_tables:
        if connection.execute(select(table).limit(1)).first() is not None:
            raise UsageError(
                f"{target.url} already holds rows ({table.name}), and histories are not merged. Copy to a new file or "
                "an empty database."
            )


def _copy(table: Table, source_url: str, reading: Connection, writing: Connection) -> int:
    """Insert every row of one table into the target, and return their number. source_url: names the source in errors.
    Raises IntegrityError if the target, which was empty, refuses a row: then the source is damaged."""
    batches = reading.execute(_ordered(table), execution_options={"yield_per": BATCH}).mappings().partitions()
    rows = 0
    for batch in _read(source_url, batches):
        try:
            writing.execute(insert(table), [dict(row) for row in batch])
        except Refused as error:  # the target was empty, so the source's rows conflict
            message = str(error.orig).splitlines()[0]
            raise IntegrityError(
                f"{source_url} is damaged: some of its {table.name} refer to missing rows, or are stored twice "
                f"({message}). Restore it from a backup; nothing was copied."
            ) from error
        rows += len(batch)
    return rows


def _read(source_url: str, rows: Iterator[Any]) -> Iterator[Any]:
    """Read rows, reporting errors as the source's although the target is being written."""
    with plainly(source_url):
        yield from rows


def _number_on(connection: Connection) -> None:
    """Set a database's sequences to the highest number of each table; a file needs nothing."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        if (column := table.autoincrement_column) is not None:
            highest = connection.scalar(select(column).order_by(column.desc()).limit(1))
            if highest is not None:
                next_one = text("SELECT setval(pg_get_serial_sequence(:named, :column), :highest)")
                connection.execute(next_one, {"named": table.name, "column": column.name, "highest": highest})


def _compare(table: Table, source_url: str, reading: Connection, writing: Connection) -> None:
    """Raise IntegrityError unless both stores return the same rows of a table in the same order."""
    for source_row, target_row in zip_longest(_read(source_url, _rows(table, reading)), _rows(table, writing)):
        if source_row != target_row:
            row = (source_row or target_row)[: len(table.primary_key)]
            raise IntegrityError(f"{table.name}: the row {row} was read back changed; nothing was copied.")


def _rows(table: Table, connection: Connection) -> Iterator[Any]:
    chosen = _ordered(table).with_only_columns(*table.primary_key, *table.columns)
    return map(tuple, connection.execute(chosen, execution_options={"yield_per": BATCH}))


def _ordered(table: Table) -> Any:
    return select(table).order_by(*table.primary_key)
