"""Rows of the store's tables as Parquet files, which DuckDB, pandas and Spark read, and back to the same values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from qualgate.errors import UsageError
from qualgate.errors.extras import needs
from qualgate.store import columns

ROWS = 2_000  # in memory at a time, and of a row group


def write(path: Path, table: Table, rows: Iterable[Sequence[Sequence[Any]]]) -> int:
    """Write batches of rows, all the table's columns in their order. How many there were."""
    pa, pq = _arrow()
    schema, count = _schema(table), 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in rows:
            arrays = [
                pa.array(values, kind) for values, kind in zip(zip(*batch, strict=True), schema.types, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            count += len(batch)
    return count


def read(path: Path, table: Table) -> Iterator[list[tuple[Any, ...]]]:
    """The mirror image of `write`; a column that the table did not have yet is NULL in every row. Only for files whose
    hash was compared."""
    _, pq = _arrow()
    with pq.ParquetFile(path) as file:
        there = set(file.schema_arrow.names)
        names = [column.name for column in table.columns]
        missing = {column.name for column in table.columns if column.nullable} - there
        for batch in file.iter_batches(ROWS, columns=[name for name in names if name not in missing]):
            columns = iter(batch.columns)
            nothing = [None] * batch.num_rows
            yield list(zip(*(nothing if name in missing else next(columns).to_pylist() for name in names), strict=True))


def _schema(table: Table) -> Any:
    pa, _ = _arrow()
    kinds = {
        columns.Integer: pa.int64(), columns.Float: pa.float64(), columns.Boolean: pa.bool_(),
        columns.LargeBinary: pa.binary(), columns.Floats: pa.binary(),
        columns.Text: pa.string(), columns.String: pa.string(),
    }  # fmt: skip
    return pa.schema([(column.name, kinds[type(column.type)]) for column in table.columns])


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet: UsageError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(f"{needs('an archive', 'archive')} ({error})") from None
    return pyarrow, pyarrow.parquet
