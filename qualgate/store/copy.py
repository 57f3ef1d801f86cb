"""A store moved to another database, or to a file: in one transaction, every row compared, every seal recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, Table, insert, select, text

from qualgate.errors import IntegrityError, QualgateError, UsageError
from qualgate.store.archived import EvidenceArchived
from qualgate.store.database import Store, open_store
from qualgate.store.decisions import check_chain
from qualgate.store.evidence import evidence
from qualgate.store.schema import metadata
from qualgate.store.tables import runs

BATCH = 200  # rows, for an INSERT and for reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What was copied."""

    rows: int
    runs: int
    broken: tuple[str, ...]  # seals that do not hold, in both stores alike


def copy_store(source_url: str, target_url: str) -> Copied:
    """Copy every row of the store at `source_url` to the one at `target_url`, which must be new or empty.

    All of it or none: a copy that is stopped on the way leaves an empty store, which may be copied to again. Rows are
    read back and compared before the transaction ends. UsageError where the target holds anything; IntegrityError where
    it gives back another row, or other faults of its seals, than the source.
    """
    with open_store(source_url, create=False) as source, open_store(target_url) as target:
        with source.read() as given, target.write() as taken:
            _check_empty(target, taken)
            rows = sum(_copy(table, given, taken) for table in metadata.sorted_tables)
            _number_on(taken)
            for table in metadata.sorted_tables:
                _compare(table, given, taken)
            ids = list(given.scalars(select(runs.c.run_id).order_by(runs.c.run_id)))
        broken = tuple(_broken(source, ids))
        if tuple(_broken(target, ids)) != broken:
            raise IntegrityError(
                f"{target_url}: its seals are not those of {source_url}. Drop it; nothing rests on it."
            )
    return Copied(rows=rows, runs=len(ids), broken=broken)


def _check_empty(target: Store, connection: Connection) -> None:
    for table in metadata.sorted_tables:
        if connection.execute(select(table).limit(1)).first() is not None:
            raise UsageError(
                f"{target.url} holds rows already ({table.name}), and two histories are not merged. Copy to a new file "
                "or an empty database."
            )


def _copy(table: Table, given: Connection, taken: Connection) -> int:
    rows = 0
    for batch in given.execute(_ordered(table), execution_options={"yield_per": BATCH}).mappings().partitions():
        taken.execute(insert(table), [dict(row) for row in batch])
        rows += len(batch)
    return rows


def _number_on(connection: Connection) -> None:
    """A file goes on from the highest number there is; a database is told it."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        if (column := table.autoincrement_column) is not None:
            highest = connection.scalar(select(column).order_by(column.desc()).limit(1))
            if highest is not None:
                next_one = text("SELECT setval(pg_get_serial_sequence(:named, :column), :highest)")
                connection.execute(next_one, {"named": table.name, "column": column.name, "highest": highest})


def _compare(table: Table, given: Connection, taken: Connection) -> None:
    for one, other in zip_longest(_rows(table, given), _rows(table, taken)):
        if one != other:
            row = (one or other)[: len(table.primary_key)]
            raise IntegrityError(f"{table.name}: the row {row} does not come back as it was; nothing was copied.")


def _rows(table: Table, connection: Connection) -> Iterator[Any]:
    chosen = _ordered(table).with_only_columns(*table.primary_key, *table.columns)
    return map(tuple, connection.execute(chosen, execution_options={"yield_per": BATCH}))


def _ordered(table: Table) -> Any:
    return select(table).order_by(*table.primary_key)


def _broken(store: Store, ids: list[str]) -> Iterator[str]:
    """Of every run, and of the chain of decisions, what is not as it was recorded."""
    for run_id in ids:
        try:
            for fault in evidence(store, run_id).integrity:
                yield f"run {run_id}: {fault}"
        except EvidenceArchived:  # what is left was compared, row for row
            pass
        except QualgateError as error:
            yield f"run {run_id}: {error}"
    try:
        check_chain(store)
    except QualgateError as error:
        yield str(error)
